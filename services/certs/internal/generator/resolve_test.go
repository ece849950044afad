package generator

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func tenantDemo(object map[string]any) *definition {
	tcp := &v1alpha1.TenantControlPlane{}
	tcp.Spec.DataStore = "main"
	v1alpha1.Default(tcp)
	return &definition{
		tenant: &state.Tenant{
			Namespace: "default", Name: "demo", Labels: map[string]string{"team": "red", "example.org/owner": "jo", "empty": ""}, Spec: tcp.Spec,
		},
		uid:  "u-1",
		read: func() (map[string]any, error) { return object, nil },
	}
}

func TestValuesOfATenant(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"metadata": map[string]any{"name": "changed", "annotations": map[string]any{"contact": "ann", "example.org/desk": "7"}},
		"status":   map[string]any{"controlPlaneEndpoint": "192.0.2.7:6443"},
		"spec":     map[string]any{"dataStore": "as written"},
	}
	for path, want := range map[string]string{
		"metadata.name":                         "demo",
		"metadata.namespace":                    "default",
		"metadata.uid":                          "u-1",
		"metadata.labels.team":                  "red",
		"metadata.labels.example.org/owner":     "jo",
		"metadata.annotations.contact":          "ann",
		"metadata.annotations.example.org/desk": "7",
		"spec.dataStore":                        "main",
		"spec.networkProfile.clusterDomain":     "cluster.local",
		"status.controlPlaneEndpoint":           "192.0.2.7:6443",
		"kind":                                  "TenantControlPlane",
	} {
		t.Run("field "+path, func(t *testing.T) {
			t.Parallel()
			a, err := changed(func(o *v1alpha1.KubeconfigGenerator) { o.Spec.User = v1alpha1.CompoundValue{FromDefinition: path} }).resolve(tenantDemo(object))
			if err != nil || a.failure != "" || a.user != want {
				t.Errorf("got %q %q %v", a.user, a.failure, err)
			}
		})
	}
	for path, says := range map[string]string{
		"metadata.labels.nothing":     "metadata.labels.nothing of the tenant is not there",
		"metadata.labels":             "is not a text",
		"metadata.labels.empty":       "is empty",
		"metadata.name.first":         "is not there",
		"spec.networkProfile.port":    "is not a text",
		"spec.kubernetes":             "is not a text",
		"spec.networkProfile.address": "is not there",
		"status.storage.driver":       "is not there",
		"status.controlPlaneEndpoint": "",
	} {
		t.Run("no field "+path, func(t *testing.T) {
			t.Parallel()
			g := changed(func(o *v1alpha1.KubeconfigGenerator) {
				o.Spec.Groups = append(o.Spec.Groups, v1alpha1.CompoundValue{FromDefinition: path})
			})
			a, err := g.resolve(tenantDemo(object))
			if err != nil || !strings.Contains(a.failure, says) || says != "" && !strings.HasPrefix(a.failure, "spec.groups[1].fromDefinition: field "+path) {
				t.Errorf("got %q, %v", a.failure, err)
			}
		})
	}
	t.Run("the object is read for what the state doesn't have, and once", func(t *testing.T) {
		t.Parallel()
		d, reads := tenantDemo(nil), 0
		d.read = func() (map[string]any, error) { reads++; return object, nil }
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "metadata.name"}
		})
		if _, err := g.resolve(d); err != nil || reads != 0 {
			t.Errorf("%v, %d reads", err, reads)
		}
		g = changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "status.controlPlaneEndpoint"}
			o.Spec.Groups[0] = v1alpha1.CompoundValue{FromDefinition: "metadata.annotations.contact"}
		})
		if _, err := g.resolve(d); err != nil || reads != 1 {
			t.Errorf("%v, %d reads", err, reads)
		}
	})
	t.Run("an object that can't be read now is no failure of the generator", func(t *testing.T) {
		t.Parallel()
		d, away := tenantDemo(nil), errors.New("away")
		d.read = func() (map[string]any, error) { return nil, away }
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.User = v1alpha1.CompoundValue{FromDefinition: "status.x"}
		})
		if a, err := g.resolve(d); !errors.Is(err, away) || a.failure != "" {
			t.Errorf("got %q, %v", a.failure, err)
		}
	})
	t.Run("a group that comes twice counts once", func(t *testing.T) {
		t.Parallel()
		g := changed(func(o *v1alpha1.KubeconfigGenerator) {
			o.Spec.Groups = []v1alpha1.CompoundValue{{StringValue: "red"}, {FromDefinition: "metadata.labels.team"}, {StringValue: "a"}}
		})
		if a, err := g.resolve(tenantDemo(nil)); err != nil || !slices.Equal(a.groups, []string{"red", "a"}) {
			t.Errorf("got %v, %v", a.groups, err)
		}
	})
}
