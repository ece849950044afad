package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/test/env"
)

// The policies' expressions are changed one by one on a real API server, and what the other tests of this package write is tried
// against each change: some of it must be accepted that was refused, refused that was accepted, or refused for another reason. It runs
// by `make mutation`, which says of what is here what it says of Go code (test/mutation).

// mutate is the variable that names the files, below the repository, whose expressions are changed; mutateIn has a part of the names of
// those that are, empty for all.
const (
	mutate   = "STOKER_TEST_MUTATE"
	mutateIn = "STOKER_TEST_MUTATE_IN"
)

// probe is one write that changes nothing.
type probe struct {
	what, resource string
	try            func(context.Context) error
	before         string // what was said of it without a mutant
}

// celMutant is an expression of a policy with one change.
type celMutant struct{ in, was, is, expression string }

// TestMutants changes the expressions of policies.
func TestMutants(t *testing.T) {
	files := strings.Fields(os.Getenv(mutate))
	if len(files) == 0 {
		t.Skip(mutate + " is not set; `make mutation` sets it")
	}
	probes := allProbes(t)
	cfg, _ := admin(t)
	d := dynamic.NewForConfigOrDie(cfg)
	c := newCanary(t, d)
	for _, p := range probes {
		p.before = say(p.try(t.Context()))
	}
	var explained []struct{ File, In, Change, Why string }
	readYAML(t, filepath.Join(env.Root(), "test/mutation/explained.yaml"), &explained)
	for _, file := range files {
		all, killed, known := 0, 0, 0
		for _, p := range policiesOf(t, filepath.Join(env.Root(), file)) {
			for _, m := range mutants(t, p, func(m celMutant, changed *unstructured.Unstructured) {
				if !strings.Contains(m.in, os.Getenv(mutateIn)) {
					return
				}
				if slices.ContainsFunc(explained, func(e struct{ File, In, Change, Why string }) bool {
					return e.File == file && e.In == m.in && isLike(m.was+" → "+m.is, e.Change)
				}) {
					all, known = all+1, known+1
					return
				}
				if !c.set(t, changed) {
					return // no expression of the API server's
				}
				all++
				if by := killer(t.Context(), probes, resourcesOf(p)); by != nil {
					killed++
					t.Logf("killed by %s: %s: %s → %s", by.what, m.in, m.was, m.is)
				} else {
					t.Errorf("survived: %s: %s: %s → %s", file, m.in, m.was, m.is)
				}
			}) {
				t.Error(m)
			}
			c.set(t, p)
		}
		t.Logf("%s: %d mutants, %d killed, %d explained, %d survived", file, all, killed, known, all-killed-known)
	}
}

// isLike reports whether a change is the one of an explanation, in which a "*" may stand for anything.
func isLike(change, explained string) bool {
	begin, end, open := strings.Cut(explained, "*")
	return change == explained || open && strings.HasPrefix(change, begin) && strings.HasSuffix(change, end)
}

// killer returns the first probe of some resources of which something else is said than before, nil for none. It comes first the next
// time.
func killer(ctx context.Context, probes []*probe, resources []string) *probe {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(8)
	var mu sync.Mutex
	var by *probe
	for _, p := range probes {
		if !slices.Contains(resources, p.resource) {
			continue
		}
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			said := say(p.try(ctx))
			mu.Lock()
			defer mu.Unlock()
			if said != p.before && ctx.Err() == nil {
				by = p
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait()
	if i := slices.Index(probes, by); i > 0 {
		copy(probes[1:i+1], probes[:i])
		probes[0] = by
	}
	return by
}

// say is what is said of a write: whether it was refused, and why.
func say(err error) string {
	if err == nil {
		return "accepted"
	}
	return err.Error()
}

// canary is a policy that is changed after another: when the API server looks at it, it looks at the other one's change, too.
type canary struct {
	d    dynamic.Interface
	n    int
	self *unstructured.Unstructured
}

var (
	policies   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings   = policies.GroupVersion().WithResource("validatingadmissionpolicybindings")
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func newCanary(t *testing.T, d dynamic.Interface) *canary {
	t.Helper()
	c := &canary{d: d}
	c.self = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "canary"},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
			}}},
			"validations": []any{map[string]any{"expression": "object.metadata.name != 'canary'", "message": "0"}},
		},
	}}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": "canary"},
		"spec": map[string]any{"policyName": "canary", "validationActions": []any{"Deny"}},
	}}
	for gvr, o := range map[schema.GroupVersionResource]*unstructured.Unstructured{policies: c.self, bindings: binding} {
		if _, err := d.Resource(gvr).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// set changes a policy and waits until the API server looks at it; false when it is none.
func (c *canary) set(t *testing.T, policy *unstructured.Unstructured) bool {
	t.Helper()
	apply := metav1.ApplyOptions{FieldManager: "mutation", Force: true}
	if _, err := c.d.Resource(policies).Apply(t.Context(), policy.GetName(), policy, apply); apierrors.IsInvalid(err) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	c.n++
	message := fmt.Sprintf("canary %d.", c.n)
	validations := []any{map[string]any{"expression": "object.metadata.name != 'canary'", "message": message}}
	if err := unstructured.SetNestedSlice(c.self.Object, validations, "spec", "validations"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.d.Resource(policies).Apply(t.Context(), "canary", c.self, apply); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "canary"},
	}}
	env.Eventually(t, "the API server to look at the changed policy", func() error {
		_, err := c.d.Resource(configMaps).Namespace(metav1.NamespaceDefault).Create(t.Context(), o, metav1.CreateOptions{DryRun: dry})
		if err == nil || !strings.Contains(err.Error(), message) {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	return true
}

func readYAML(t *testing.T, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// policiesOf reads the policies of a file.
func policiesOf(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		asJSON, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.UnmarshalJSON(asJSON); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			all = append(all, o)
		}
	}
	return all
}

// resourcesOf are those a policy is about.
func resourcesOf(policy *unstructured.Unstructured) []string {
	var all []string
	rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "resourceRules")
	for _, r := range rules {
		some, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "resources")
		all = append(all, some...)
	}
	return all
}

// mutants calls a function with each mutant of a policy.
func mutants(t *testing.T, policy *unstructured.Unstructured, with func(celMutant, *unstructured.Unstructured)) (errs []error) {
	t.Helper()
	for _, part := range []string{"matchConditions", "variables", "validations"} {
		items, _, _ := unstructured.NestedSlice(policy.Object, "spec", part)
		for i, item := range items {
			one := item.(map[string]any)
			in, named := one["name"].(string)
			if !named {
				in = fmt.Sprintf("validation %d", i+1)
			}
			all, err := celMutants(one["expression"].(string))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", policy.GetName(), in, err))
			}
			for _, m := range all {
				m.in = policy.GetName() + " " + in
				changed := policy.DeepCopy()
				other, _, _ := unstructured.NestedSlice(changed.Object, "spec", part)
				other[i].(map[string]any)["expression"] = m.expression
				if err := unstructured.SetNestedSlice(changed.Object, other, "spec", part); err != nil {
					errs = append(errs, err)
				}
				with(m, changed)
			}
		}
	}
	return errs
}

// celMutants returns the mutants of an expression.
func celMutants(expression string) ([]celMutant, error) {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true)) // without macros: they are calls like others
	if err != nil {
		return nil, err
	}
	var all []celMutant
	for n := 0; ; n++ {
		tree, errs := p.Parse(common.NewTextSource(expression))
		if len(errs.GetErrors()) > 0 {
			return nil, errors.New(errs.ToDisplayString())
		}
		text := func(e ast.Expr) string {
			s, unparsed := parser.Unparse(e, tree.SourceInfo())
			err = errors.Join(err, unparsed)
			return s
		}
		var m celMutant
		seen := 0
		ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			if m.is != "" {
				return
			}
			for _, instead := range insteadOf(e) {
				if seen++; seen == n+1 {
					m.was = text(e)
					e.SetKindCase(instead)
					m.is = text(e)
					return
				}
			}
		}))
		if m.is == "" || err != nil {
			return all, err
		}
		m.expression = text(tree.Expr())
		m.was, m.is = strings.Join(strings.Fields(m.was), " "), strings.Join(strings.Fields(m.is), " ")
		all = append(all, m)
	}
}

// opposites of comparisons, and logic with the other word.
var opposites = map[string][]string{
	operators.Equals: {operators.NotEquals}, operators.NotEquals: {operators.Equals},
	operators.Less: {operators.GreaterEquals, operators.LessEquals}, operators.GreaterEquals: {operators.Less, operators.Greater},
	operators.Greater: {operators.LessEquals, operators.GreaterEquals}, operators.LessEquals: {operators.Greater, operators.Less},
	operators.LogicalAnd: {operators.LogicalOr}, operators.LogicalOr: {operators.LogicalAnd},
}

// insteadOf returns what may stand in the place of an expression, of the same type.
func insteadOf(e ast.Expr) []ast.Expr {
	f := ast.NewExprFactory()
	copied := func(e ast.Expr) ast.Expr { return f.CopyExpr(e) }
	var all []ast.Expr
	switch e.Kind() {
	case ast.CallKind:
		c := e.AsCall()
		for _, o := range opposites[c.FunctionName()] {
			all = append(all, f.NewCall(0, o, copied(c.Args()[0]), copied(c.Args()[1])))
		}
		switch c.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.Add:
			all = append(all, copied(c.Args()[0]), copied(c.Args()[1]))
		case operators.LogicalNot:
			all = append(all, copied(c.Args()[0]))
		case operators.Conditional:
			all = append(all, copied(c.Args()[1]), copied(c.Args()[2]))
		case operators.In, operators.OldIn, "has", "matches", "startsWith", "endsWith", "contains", "exists", "hasValue", "isIP", "isCIDR",
			"isLessThan", "isGlobalUnicast", "containsIP", "allowed", "isInteger":
			all = append(all, f.NewLiteral(0, types.True), f.NewLiteral(0, types.False))
		case "filter":
			all = append(all, copied(c.Target()))
		}
	case ast.LiteralKind:
		switch v := e.AsLiteral().(type) {
		case types.Int:
			all = append(all, f.NewLiteral(0, v+1))
		case types.String:
			if v == "" { // stands for nothing
				break
			}
			all = append(all, f.NewLiteral(0, v+"x"))
		case types.Bool:
			all = append(all, f.NewLiteral(0, !v))
		}
	case ast.ListKind:
		elements := e.AsList().Elements()
		for i := range elements {
			var others []ast.Expr
			for j, o := range elements {
				if i != j {
					others = append(others, copied(o))
				}
			}
			all = append(all, f.NewList(0, others, nil))
		}
	}
	return all
}

// allProbes are the writes of this package's other tests: of each rule, by the author; of fields that need a verb, by the editor; of the
// services' Secrets, Deployments and Services. What is changed by them is stored here.
func allProbes(t *testing.T) []*probe {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	author, editor := asAuthor(t), asEditor(t)
	var all []*probe
	for i, rule := range ruletest.Rules() {
		patches := slices.Clone(rule.Passes)
		for _, f := range rule.Fails {
			patches = append(patches, f.Object)
		}
		for j, patch := range patches {
			id := fmt.Sprintf("m%d-%d", i, j)
			p := &probe{what: rule.Name + " " + patch, resource: plurals[rule.Kind]}
			if rule.From == "" {
				p.try = creates(author, rule.Kind, named(rule, patch, id))
			} else {
				p.try = updates(t, author, rule.Kind, named(rule, rule.From, id), named(rule, patch, id))
			}
			all = append(all, p)
		}
	}
	const kind = v1alpha1.TenantControlPlaneKind
	for i, p := range privileged {
		try := creates(editor, kind, reaching(p.patch, fmt.Sprint("mp", i)))
		all = append(all, &probe{what: p.patch, resource: plurals[kind], try: try})
	}
	for i, p := range harmless {
		all = append(all, &probe{what: p, resource: plurals[kind], try: creates(editor, kind, reaching(p, fmt.Sprint("mh", i)))})
	}
	cfg, _ := admin(t)
	administrator := dynamic.NewForConfigOrDie(cfg)
	for i, c := range changes {
		o := &unstructured.Unstructured{Object: reaching(deployment(c.from), fmt.Sprint("mc", i))}
		if _, err := resource(administrator, kind).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, &probe{what: c.what, resource: plurals[kind], try: func(ctx context.Context) error {
			patch := []byte(c.patch)
			_, err := resource(editor, kind).Patch(ctx, o.GetName(), apitypes.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		}})
	}
	for i, from := range nulls {
		for j, to := range nulls {
			id := fmt.Sprintf("mn%d-%d", i, j)
			p := &probe{what: fmt.Sprintf("annotations %v after %v", to, from), resource: plurals[kind]}
			p.try = updates(t, administrator, kind, nullified(kind, id, from), nullified(kind, id, to))
			applied := applies(administrator, kind, nullified(kind, id, to), dry...)
			all = append(all, p, &probe{what: p.what + ", applied", resource: p.resource, try: applied})
		}
		try := creates(administrator, kind, nullified(kind, "mn", from))
		all = append(all, &probe{what: fmt.Sprint("annotations ", from), resource: plurals[kind], try: try})
		try = applies(administrator, kind, nullified(kind, "mn", from), dry...)
		all = append(all, &probe{what: fmt.Sprintf("annotations %v, applied", from), resource: plurals[kind], try: try})
	}
	for _, u := range leftAlone(t, administrator) {
		try := func(ctx context.Context) error { return u.change(ctx, administrator) }
		all = append(all, &probe{what: u.what, resource: plurals[u.kind], try: try})
	}
	return append(append(all, routeless(t)...), serviceProbes(t)...)
}

// routeless are writes in a namespace for which TLSRoutes aren't served: a second binding of the policy has a ConfigMap there that says so.
func routeless(t *testing.T) []*probe {
	t.Helper()
	cfg, c := admin(t)
	d := dynamic.NewForConfigOrDie(cfg)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "routeless"}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has, err := c.CoreV1().ConfigMaps(name.SystemNamespace).Get(t.Context(), name.AdmissionConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has.ObjectMeta = metav1.ObjectMeta{Name: has.Name}
	has.Data[name.AdmissionGateway] = "false"
	if _, err := c.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), has, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const kind = v1alpha1.TenantControlPlaneKind
	tenants := d.Resource(v1alpha1.GroupVersion.WithResource(plurals[kind])).Namespace(ns.Name)
	create := func(ctx context.Context, n, patch string, dryRun ...string) error {
		o := &unstructured.Unstructured{Object: ruletest.Object(kind, patch)}
		o.SetNamespace(ns.Name)
		o.SetName(n)
		_, err := tenants.Create(ctx, o, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	if err := errors.Join(create(t.Context(), "without", `spec: {dataStore: a}`), create(t.Context(), "with", ruletest.Gateway)); err != nil {
		t.Fatal(err)
	}
	bindTo(t, d, "stoker-tenant-references", ns.Name, has.Name)
	env.Eventually(t, "no gateway to be made", func() error {
		if err := create(t.Context(), "new", ruletest.Gateway, dry...); err == nil || !strings.Contains(err.Error(), ruletest.NoRoutes.Message) {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	var all []*probe
	for _, patch := range []string{ruletest.Gateway, `spec: {dataStore: a}`} {
		all = append(all, &probe{what: "without TLSRoutes: " + patch, resource: plurals[kind], try: func(ctx context.Context) error {
			return create(ctx, "new", patch, dry...)
		}})
	}
	const other = `{"spec":{"controlPlane":{"gateway":{"hostname":"b.b","parentRefs":[{"name":"edge"}]}}}}`
	const none = `{"spec":{"controlPlane":{"gateway":null}}}`
	for _, c := range [][2]string{{"without", other}, {"with", other}, {"with", `{"spec":{"dataStore":"a"}}`}, {"with", none}} {
		try := func(ctx context.Context) error {
			_, err := tenants.Patch(ctx, c[0], apitypes.MergePatchType, []byte(c[1]), metav1.PatchOptions{DryRun: dry})
			return err
		}
		all = append(all, &probe{what: "without TLSRoutes: " + c[0] + ": " + c[1], resource: plurals[kind], try: try})
	}
	return all
}

// bindTo binds a policy to a namespace, with a ConfigMap of the namespace.
func bindTo(t *testing.T, d dynamic.Interface, policy, namespace, configMap string) {
	t.Helper()
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": namespace},
		"spec": map[string]any{
			"policyName": policy, "validationActions": []any{"Deny"},
			"paramRef":       map[string]any{"name": configMap, "namespace": namespace, "parameterNotFoundAction": "Deny"},
			"matchResources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}}},
		},
	}}
	if _, err := d.Resource(bindings).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dry has a write change nothing.
var dry = []string{metav1.DryRunAll}

func creates(d dynamic.Interface, kind string, o map[string]any) func(context.Context) error {
	return func(ctx context.Context) error {
		strictly := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dry}
		_, err := resource(d, kind).Create(ctx, &unstructured.Unstructured{Object: o}, strictly)
		return err
	}
}

// applies has the server merge, which gives policies a null as it is.
func applies(d dynamic.Interface, kind string, o map[string]any, dryRun ...string) func(context.Context) error {
	u, forced := &unstructured.Unstructured{Object: o}, metav1.ApplyOptions{FieldManager: "mutation", Force: true, DryRun: dryRun}
	return func(ctx context.Context) error {
		_, err := resource(d, kind).Apply(ctx, u.GetName(), u, forced)
		return err
	}
}

func updates(t *testing.T, d dynamic.Interface, kind string, from, to map[string]any) func(context.Context) error {
	there, err := resource(d, kind).Create(t.Context(), &unstructured.Unstructured{Object: from}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		o := &unstructured.Unstructured{Object: to}
		for {
			o.SetResourceVersion(there.GetResourceVersion())
			o.SetFinalizers(there.GetFinalizers())
			_, err := resource(d, kind).Update(ctx, o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dry})
			if !apierrors.IsConflict(err) {
				return err
			}
			if there, err = resource(d, kind).Get(ctx, o.GetName(), metav1.GetOptions{}); err != nil {
				return err
			}
		}
	}
}

func serviceProbes(t *testing.T) []*probe {
	_, c := admin(t)
	var all []*probe
	for what, test := range newSecrets() {
		namespace := cmp.Or(test.namespace, metav1.NamespaceDefault)
		client := asService(t, test.service)
		all = append(all, &probe{what: what, resource: "secrets", try: func(ctx context.Context) error {
			_, err := client.CoreV1().Secrets(namespace).Create(ctx, test.secret, metav1.CreateOptions{DryRun: dry})
			return err
		}})
	}
	n := 0
	for what, test := range hadSecrets() {
		n++
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("had-", n)}}
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		there, err := c.CoreV1().Secrets(ns.Name).Create(t.Context(), test.there, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		client := asService(t, test.service)
		all = append(all, &probe{what: what, resource: "secrets", try: func(ctx context.Context) error {
			_, err := client.CoreV1().Secrets(ns.Name).Update(ctx, secret(there.Name, nil), metav1.UpdateOptions{DryRun: dry})
			return err
		}})
	}
	for what, test := range goneSecrets() {
		n++
		for _, ns := range []string{fmt.Sprint("gone-", n), fmt.Sprint("kube-gone-", n)} {
			if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			there, err := c.CoreV1().Secrets(ns).Create(t.Context(), test.there, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			client := asService(t, test.service)
			all = append(all, &probe{what: "deletion: " + what, resource: "secrets", try: func(ctx context.Context) error {
				return client.CoreV1().Secrets(ns).Delete(ctx, there.Name, metav1.DeleteOptions{DryRun: dry})
			}})
		}
	}
	all = append(all, &probe{what: "a Secret by somebody", resource: "secrets", try: func(ctx context.Context) error {
		_, err := c.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, secret("demo-ca", stranger), metav1.CreateOptions{DryRun: dry})
		return err
	}})
	w := asService(t, name.ServiceWorkload)
	for what, test := range newObjects() {
		p := &probe{what: what, resource: "services", try: func(ctx context.Context) error {
			_, err := w.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, test.service, metav1.CreateOptions{DryRun: dry})
			return err
		}}
		if test.deployment != nil {
			p = &probe{what: what, resource: "deployments", try: func(ctx context.Context) error {
				_, err := w.AppsV1().Deployments(test.deployment.Namespace).Create(ctx, test.deployment, metav1.CreateOptions{DryRun: dry})
				return err
			}}
		}
		all = append(all, p)
	}
	for what, test := range hadObjects() {
		n++
		for _, ns := range []string{fmt.Sprint("changed-", n), fmt.Sprint("kube-changed-", n)} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
			if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			there := thereIn(t, c, ns, test.there)
			all = append(all, &probe{what: "change: " + what, resource: "services", try: func(ctx context.Context) error {
				return change(ctx, w, there)
			}}, &probe{what: "deletion: " + what, resource: "services", try: func(ctx context.Context) error {
				return w.CoreV1().Services(ns).Delete(ctx, there.Name, metav1.DeleteOptions{DryRun: dry})
			}})
		}
	}
	there, err := c.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), pods(func(*appsv1.Deployment) {}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append(all, &probe{what: "deletion of a Deployment", resource: "deployments", try: func(ctx context.Context) error {
		return w.AppsV1().Deployments(metav1.NamespaceDefault).Delete(ctx, there.Name, metav1.DeleteOptions{DryRun: dry})
	}})
}
