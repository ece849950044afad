// What KubeconfigGenerators ask for: from a generator and a tenant to the user, the groups and the endpoint of a
// kubeconfig. Pure.

package certs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// maxText is the longest user or group in bytes.
const maxText = 253

// generator is a KubeconfigGenerator, checked and ready to be asked.
type generator struct {
	name, uid  string
	generation int64
	user       v1alpha1.CompoundValue
	groups     []v1alpha1.CompoundValue
	// endpoint is the key of the administrators' Secret that says how the tenant is reached.
	endpoint string
	// tenants and namespaces select; namespaces is nil for all.
	tenants, namespaces labels.Selector
	// annotations say whether it is paused.
	annotations map[string]string
	// problem is what makes the generator as a whole unusable, empty when nothing does.
	problem string
	// asks is the fingerprint of user, groups and endpoint, seen that of all but the status.
	asks, seen string
}

// newGenerator reads a KubeconfigGenerator. The API server has checked much of it; what it can't, or what was written
// before a rule was there, is in problem.
func newGenerator(o *v1alpha1.KubeconfigGenerator) *generator {
	g := &generator{
		name: o.Name, uid: string(o.UID), generation: o.Generation, user: o.Spec.User, groups: o.Spec.Groups,
		endpoint: o.Spec.ControlPlaneEndpointFrom, annotations: o.Annotations, seen: fingerprint(&o.ObjectMeta),
	}
	if g.endpoint == "" {
		g.endpoint = name.KeyAdminSvc
	}
	data, err := json.Marshal(o.Spec.Groups)
	if err != nil { // plain data
		panic(err)
	}
	g.asks = events.ID(g.user.StringValue, g.user.FromDefinition, string(data), g.endpoint)
	if err := g.check(&o.Spec); err != nil {
		g.problem = err.Error()
	}
	return g
}

// fingerprint is of all that can change in a generator but its status, from its metadata.
func fingerprint(o *metav1.ObjectMeta) string {
	_, paused := o.Annotations[name.AnnotationPaused]
	return events.ID(string(o.UID), fmt.Sprint(o.Generation), fmt.Sprint(paused), o.Annotations[name.AnnotationPausedUntil],
		fmt.Sprint(o.DeletionTimestamp != nil))
}

// check finishes a generator and returns what is wrong with it.
func (g *generator) check(spec *v1alpha1.KubeconfigGeneratorSpec) error {
	if len(g.name) > validation.LabelValueMaxLength {
		return fmt.Errorf("metadata.name %q must have at most %d characters: it becomes the value of a label", clip(g.name), validation.LabelValueMaxLength)
	}
	if suffix := reserved(g.name); suffix != "" {
		return fmt.Errorf("metadata.name %q: Secrets whose names end in -%s are those of tenants' control planes; choose another name", g.name, suffix)
	}
	var err error
	if g.tenants, err = metav1.LabelSelectorAsSelector(&spec.TenantControlPlaneSelector); err != nil {
		return fmt.Errorf("spec.tenantControlPlaneSelector: %w", err)
	}
	if len(spec.NamespaceSelector.MatchLabels)+len(spec.NamespaceSelector.MatchExpressions) > 0 {
		if g.namespaces, err = metav1.LabelSelectorAsSelector(&spec.NamespaceSelector); err != nil {
			return fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	if !slices.Contains(endpointKeys, g.endpoint) {
		return fmt.Errorf("spec.controlPlaneEndpointFrom %q is no key of <tenant>-admin-kubeconfig, which has %s",
			clip(g.endpoint), strings.Join(endpointKeys, ", "))
	}
	if err := checkValue("spec.user", g.user); err != nil {
		return err
	}
	for i, group := range g.groups {
		if err := checkValue(groupPath(i), group); err != nil {
			return err
		}
	}
	return nil
}

// endpointKeys are the keys of the administrators' Secret.
var endpointKeys = []string{name.KeyAdminConf, name.KeyAdminSvc, name.KeySuperAdminConf, name.KeySuperAdminSvc}

func groupPath(i int) string { return fmt.Sprintf("spec.groups[%d]", i) }

// reserved returns the end of a Secret's name that is a tenant's own if a generator of this name gave it, empty when none
// is. The name of a tenant may itself end in the generator's: what follows the last hyphens counts, too.
func reserved(generator string) string {
	for _, suffix := range ownSuffixes {
		if generator == suffix || strings.HasSuffix(generator, "-"+suffix) {
			return suffix
		}
	}
	return ""
}

// ownSuffixes follow the tenant's name and a hyphen in the names of its own Secrets, sorted.
var ownSuffixes = func() []string {
	all := []string{name.DatastoreConfig(""), name.DatastoreCertificate(""), name.KonnectivityCertificate(""), name.KonnectivityKubeconfig("")}
	for _, secret := range components("") {
		all = append(all, secret)
	}
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "-")
	}
	slices.Sort(all)
	return all
}()

// checkValue ensures that a value is given in exactly one way, and one that can be had.
func checkValue(path string, v v1alpha1.CompoundValue) error {
	switch {
	case v.StringValue != "" && v.FromDefinition != "", v == v1alpha1.CompoundValue{}:
		return fmt.Errorf("%s: exactly one of stringValue and fromDefinition must be set", path)
	case v.StringValue != "":
		return checkText(path+".stringValue", v.StringValue)
	}
	return nil
}

// checkText ensures that a text can be a user's or a group's name.
func checkText(path, text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s is empty", path)
	case len(text) > maxText:
		return fmt.Errorf("%s %q has %d bytes, more than %d", path, clip(text), len(text), maxText)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q has characters that can't be printed", path, clip(text))
	}
	return nil
}

// resting reports whether the generator and its kubeconfigs are left alone: it is paused, or nobody can say what it means.
func (g *generator) resting(now time.Time) bool {
	paused, _ := g.paused(now)
	return paused || g.problem != ""
}

// paused reports whether the generator is paused, and when the pause ends by itself, zero when it doesn't. An end that
// can't be read doesn't pause.
func (g *generator) paused(now time.Time) (paused bool, until time.Time) {
	paused, until, _ = name.Paused(g.annotations, now)
	return paused, until
}

// ask is what a generator asks for one tenant.
type ask struct {
	generator, endpoint, user string
	groups                    []string
	// inputs are the fingerprints of the generator's spec and of these values, a hyphen between them.
	inputs string
	// failure says which value can't be had.
	failure string
}

// ask resolves the generator's values for a tenant. The error is one of reading the tenant's object.
func (g *generator) ask(d *definition) (ask, error) {
	a := ask{generator: g.name, endpoint: g.endpoint}
	value := func(path string, v v1alpha1.CompoundValue) (string, error) {
		if v.FromDefinition == "" {
			return v.StringValue, nil
		}
		field := fmt.Sprintf("%s.fromDefinition: field %s of the tenant", path, clip(v.FromDefinition))
		text, err := d.text(v.FromDefinition)
		f := (*fieldError)(nil)
		switch {
		case err == nil:
			err = checkText(field, text)
		case errors.As(err, &f):
			err = fmt.Errorf("%s %s", field, f.what)
		default:
			return "", err
		}
		if err != nil && a.failure == "" {
			a.failure = err.Error()
		}
		return text, nil
	}
	var err error
	if a.user, err = value("spec.user", g.user); err != nil {
		return a, err
	}
	for i, group := range g.groups {
		text, err := value(groupPath(i), group)
		if err != nil {
			return a, err
		}
		if !slices.Contains(a.groups, text) {
			a.groups = append(a.groups, text)
		}
	}
	a.inputs = g.asks + "-" + events.ID(append([]string{a.user}, a.groups...)...)
	return a, nil
}

// definition is a tenant's object as generators see it: the spec with every default resolved, of the metadata what the
// services work from. The object itself is read for what isn't there, once.
type definition struct {
	tenant *state.Tenant
	uid    string
	// read reads the object; what is wrong with it beyond an outage is a *fieldError.
	read func() (map[string]any, error)

	known, object map[string]any
}

// fieldError says what is wrong with a field.
type fieldError struct{ what string }

func (e *fieldError) Error() string { return e.what }

var (
	errNoField = &fieldError{"is not there"}
	errNoText  = &fieldError{"is not a text"}
)

// text returns the text of a field: a *fieldError when there is none.
func (d *definition) text(path string) (string, error) {
	if d.known == nil {
		d.known = map[string]any{}
		is := kube.TenantControlPlanes.TypeMeta()
		data, err := json.Marshal(map[string]any{
			"apiVersion": is.APIVersion, "kind": is.Kind,
			"metadata": map[string]any{"namespace": d.tenant.Namespace, "name": d.tenant.Name, "uid": d.uid, "labels": d.tenant.Labels},
			"spec":     d.tenant.Spec,
		})
		if err == nil {
			err = json.Unmarshal(data, &d.known)
		}
		if err != nil {
			return "", err
		}
	}
	text, err := field(d.known, path)
	if !errors.Is(err, errNoField) || strings.HasPrefix(path, "spec.") {
		return text, err
	}
	if d.object == nil {
		if d.object, err = d.read(); err != nil {
			return "", err
		}
	}
	return field(d.object, path)
}

// field finds a text by its path. A key that holds dots itself, as labels' do, is found as the last part.
func field(in map[string]any, path string) (string, error) {
	for {
		if found, ok := in[path]; ok {
			text, ok := found.(string)
			if !ok {
				return "", errNoText
			}
			return text, nil
		}
		key, rest, _ := strings.Cut(path, ".")
		next, ok := in[key].(map[string]any)
		if !ok {
			return "", errNoField
		}
		in, path = next, rest
	}
}

// asked is what all generators ask for one tenant.
type asked struct {
	// known is false until this replica has seen every generator: then nothing is changed.
	known bool
	asks  map[string]ask
	// resting are the generators whose kubeconfigs are left alone.
	resting map[string]bool
}

// settled reports whether a tenant's kubeconfigs are as asked, by what is in the state. Without an endpoint none can be
// made. One that failed is never settled: it is tried whenever somebody asks.
func (a asked) settled(have map[string]state.Generated, exposed bool) bool {
	if !a.known {
		return true
	}
	for n, x := range a.asks {
		is, ok := have[n]
		if !ok || x.failure != "" || is.Error != "" || exposed && is.Inputs != x.inputs {
			return false
		}
	}
	for n := range have {
		if _, ok := a.asks[n]; !ok && !a.resting[n] {
			return false
		}
	}
	return true
}

// generatorOf returns the generator for which a Secret was made as the tenant's, empty when it wasn't. The owner and the
// name say it, which are harder to edit than labels; without an owner the labels have to.
func generatorOf(tenant string, secret metav1.Object) string {
	n := generatorIn(tenant, secret.GetName())
	if owner := metav1.GetControllerOf(secret); owner != nil {
		if owner.Kind != kube.TenantControlPlanes.Kind || owner.Name != tenant {
			return ""
		}
		return n
	}
	if l := secret.GetLabels(); n == "" || l[name.LabelManagedBy] != n || l[name.LabelManagedFor] != tenant {
		return ""
	}
	return n
}

// generatorIn returns the generator in the name of a Secret of the tenant, empty when there is none.
func generatorIn(tenant, secret string) string {
	n, ok := strings.CutPrefix(secret, name.GeneratedKubeconfig(tenant, ""))
	if !ok || tenant == "" || reserved(n) != "" {
		return ""
	}
	return n
}
