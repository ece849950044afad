package generator

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func viewer() *v1alpha1.KubeconfigGenerator {
	return &v1alpha1.KubeconfigGenerator{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer", UID: "g-1", Generation: 3},
		Spec: v1alpha1.KubeconfigGeneratorSpec{
			User: v1alpha1.CompoundValue{StringValue: "jane"}, Groups: []v1alpha1.CompoundValue{{StringValue: "viewers"}},
			ControlPlaneEndpointFrom: name.KeyAdminConf,
		},
	}
}

func changed(change func(*v1alpha1.KubeconfigGenerator)) *generator {
	o := viewer()
	change(o)
	return newGenerator(o)
}

func TestWhichGeneratorsCanBeUsed(t *testing.T) {
	t.Parallel()
	type kg = v1alpha1.KubeconfigGenerator
	for sentence, test := range map[string]struct {
		change func(*kg)
		says   string // in the problem, empty for none
	}{
		"one with a user":                             {func(*kg) {}, ""},
		"one without groups":                          {func(o *kg) { o.Spec.Groups = nil }, ""},
		"one without an endpoint has the default":     {func(o *kg) { o.Spec.ControlPlaneEndpointFrom = "" }, ""},
		"one for a member of system:masters":          {func(o *kg) { o.Spec.Groups[0].StringValue = "system:masters" }, ""},
		"one that selects":                            {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "b"} }, ""},
		"not one without a user":                      {func(o *kg) { o.Spec.User = v1alpha1.CompoundValue{} }, "spec.user: exactly one of"},
		"not one with two users":                      {func(o *kg) { o.Spec.User.FromDefinition = "metadata.name" }, "spec.user: exactly one of"},
		"not one with an empty group":                 {func(o *kg) { o.Spec.Groups[0].StringValue = "" }, "spec.groups[0]: exactly one of"},
		"not one for a user of spaces":                {func(o *kg) { o.Spec.User.StringValue = "  " }, "spec.user.stringValue is empty"},
		"not one for a user with a line break":        {func(o *kg) { o.Spec.User.StringValue = "a\nb" }, "spec.user.stringValue"},
		"not one for a user nobody can read":          {func(o *kg) { o.Spec.User.StringValue = strings.Repeat("x", maxText+1) }, "more than 253"},
		"not one with an unknown endpoint":            {func(o *kg) { o.Spec.ControlPlaneEndpointFrom = "x.conf" }, `spec.controlPlaneEndpointFrom "x.conf"`},
		"not one whose selector can't be read":        {func(o *kg) { o.Spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"a": "_"} }, "spec.tenantControlPlaneSelector"},
		"not one whose other selector can't, either":  {func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": "_"} }, "spec.namespaceSelector"},
		"one with a dot in its name":                  {func(o *kg) { o.Name = "a.b" }, ""},
		"not one whose name is no value of a label":   {func(o *kg) { o.Name = strings.Repeat("x", 64) }, "at most 63 characters"},
		"not one that would take a tenant's CA":       {func(o *kg) { o.Name = "ca" }, "-ca are those of tenants"},
		"not one that would take the CA of another":   {func(o *kg) { o.Name = "x-ca" }, "-ca are those of tenants"},
		"not one that would take datastore's Secrets": {func(o *kg) { o.Name = "datastore-config" }, "-datastore-config are those of tenants"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := changed(test.change)
			if test.says == "" && g.problem != "" || !strings.Contains(g.problem, test.says) {
				t.Errorf("got %q", g.problem)
			}
			if g.leftAlone(now) != (test.says != "") {
				t.Error("one that can't be used is left alone, and no other")
			}
		})
	}
}

var now = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
