// One KubeconfigGenerator, read and checked. Pure.

package generator

import (
	"encoding/json"
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
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// maxText is the longest user or group in bytes.
const maxText = 253

// generator is a KubeconfigGenerator, checked.
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
	// specFingerprint is of user, groups and endpoint; objectFingerprint of everything but the status.
	specFingerprint, objectFingerprint string
}

// newGenerator reads a KubeconfigGenerator. The API server has checked much of it; what it can't, or what was written
// before a rule was there, is in problem.
func newGenerator(o *v1alpha1.KubeconfigGenerator) *generator {
	g := &generator{
		name: o.Name, uid: string(o.UID), generation: o.Generation, user: o.Spec.User, groups: o.Spec.Groups,
		endpoint: o.Spec.ControlPlaneEndpointFrom, annotations: o.Annotations, objectFingerprint: fingerprint(&o.ObjectMeta),
	}
	if g.endpoint == "" {
		g.endpoint = name.KeyAdminSvc
	}
	data, err := json.Marshal(o.Spec.Groups)
	if err != nil { // plain data
		panic(err)
	}
	g.specFingerprint = events.ID(g.user.StringValue, g.user.FromDefinition, string(data), g.endpoint)
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
		return fmt.Errorf("metadata.name %q must have at most %d characters: it becomes the value of a label",
			events.Clip(g.name), validation.LabelValueMaxLength)
	}
	if end := pki.ReservedEnd(g.name); end != "" {
		return fmt.Errorf("metadata.name %q: Secrets whose names end in -%s are those of tenants' control planes; choose another name",
			g.name, end)
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
			events.Clip(g.endpoint), strings.Join(endpointKeys, ", "))
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

// groupPath is where a group is in the spec.
func groupPath(i int) string { return fmt.Sprintf("spec.groups[%d]", i) }

// checkValue ensures that a value is set in exactly one way, and can be had that way.
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
		return fmt.Errorf("%s %q has %d bytes, more than %d", path, events.Clip(text), len(text), maxText)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q has characters that can't be printed", path, events.Clip(text))
	}
	return nil
}

// leftAlone reports whether the generator and its kubeconfigs are left alone: it is paused, or nobody can say what it means.
func (g *generator) leftAlone(now time.Time) bool {
	paused, _ := g.paused(now)
	return paused || g.problem != ""
}

// paused reports whether the generator is paused, and when the pause ends by itself, zero when it doesn't. An end that
// can't be read doesn't pause.
func (g *generator) paused(now time.Time) (paused bool, until time.Time) {
	paused, until, _ = name.Paused(g.annotations, now)
	return paused, until
}
