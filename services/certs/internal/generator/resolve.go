// What a KubeconfigGenerator asks for, for one tenant: user, groups and endpoint of a kubeconfig. Pure, but for reading the tenant's
// object where a field is nowhere else.

package generator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// request is the kubeconfig that a generator asks for, for one tenant.
type request struct {
	generator, endpoint, user string
	groups                    []string
	// inputs are the fingerprints of the generator's spec and of these values, a hyphen between them (state.Generated.Inputs).
	inputs string
	// failure says which value can't be had.
	failure string
}

// resolve finds the generator's values for a tenant. The error is one of reading the tenant's object.
func (g *generator) resolve(d *definition) (request, error) {
	r := request{generator: g.name, endpoint: g.endpoint}
	value := func(path string, v v1alpha1.CompoundValue) (string, error) {
		if v.FromDefinition == "" {
			return v.StringValue, nil
		}
		field := fmt.Sprintf("%s.fromDefinition: field %s of the tenant", path, events.Clip(v.FromDefinition))
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
		if err != nil && r.failure == "" {
			r.failure = err.Error()
		}
		return text, nil
	}
	var err error
	if r.user, err = value("spec.user", g.user); err != nil {
		return r, err
	}
	for i, group := range g.groups {
		text, err := value(groupPath(i), group)
		if err != nil {
			return r, err
		}
		if !slices.Contains(r.groups, text) {
			r.groups = append(r.groups, text)
		}
	}
	r.inputs = g.specFingerprint + "-" + events.ID(append([]string{r.user}, r.groups...)...)
	return r, nil
}

// definition is a tenant's object as generators see it: its spec with every default resolved, and the part of its metadata that the
// tenant's state has. The object itself is read for what isn't there, once.
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

// madeFor reports whether what a state says of a kubeconfig was made for the generator's spec as it is now.
func (g *generator) madeFor(is *state.Generated) bool {
	return strings.HasPrefix(is.Inputs, g.specFingerprint+"-")
}
