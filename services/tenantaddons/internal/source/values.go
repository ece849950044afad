package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Tenant is what spec.valuesTemplate sees of a tenant, as .Tenant. A label that isn't there is empty, both as .Tenant.Labels.tier and
// by index; a field that isn't there is an error.
type Tenant struct {
	Name, Namespace string
	Labels          map[string]string
	// Version of Kubernetes, such as v1.35.1.
	Version string
	// Endpoint of the API, as host:port, and its parts.
	Endpoint, Host string
	Port           int
	PodCIDR        string
	ServiceCIDR    string
	DNSDomain      string
	DNSServiceIPs  []string
}

// Values are those of a tenant: spec.values, over them spec.valuesFrom in their order, over them what spec.valuesTemplate makes. Objects are
// merged; of all else the last one wins. As with Helm, null takes away what the chart itself says. The result is the caller's own.
func Values(spec *tenantaddon.TenantAddonSpec, in Inputs, tenant Tenant) (map[string]any, error) {
	values, err := sharedValues(spec, in)
	if err != nil {
		return nil, err
	}
	if spec.ValuesTemplate == "" {
		return values, nil
	}
	out, err := render(spec.ValuesTemplate, tenant)
	if err != nil {
		return nil, err
	}
	own, err := parseValues(out)
	if err != nil {
		return nil, fail(tenantaddon.ReasonInvalidValues, fieldTemplate, "what it makes for tenant %s/%s: %w", tenant.Namespace, tenant.Name, err)
	}
	return loader.MergeMaps(values, own), nil
}

// sharedValues are those that are the same for all tenants.
func sharedValues(spec *tenantaddon.TenantAddonSpec, in Inputs) (map[string]any, error) {
	values := map[string]any{}
	if spec.Values != nil {
		var err error
		if values, err = parseValues(spec.Values.Raw); err != nil {
			return nil, invalid("spec.values", "%w", err)
		}
	}
	for i, from := range spec.ValuesFrom {
		field := fmt.Sprintf("spec.valuesFrom[%d]", i)
		var data []byte
		if i < len(in.ValuesFrom) {
			data = in.ValuesFrom[i]
		}
		if data == nil {
			if from.Optional {
				continue
			}
			return nil, fail(tenantaddon.ReasonValuesUnavailable, field, "the %s %q or its key %q isn't there: make it, or set optional",
				from.Kind, from.Name, from.Key)
		}
		more, err := parseValues(data)
		if err != nil {
			return nil, fail(tenantaddon.ReasonInvalidValues, field, "the key %q of the %s %q: %w", from.Key, from.Kind, from.Name, err)
		}
		values = loader.MergeMaps(values, more)
	}
	return values, nil
}

// yamlLine is where an error of YAML is.
var yamlLine = regexp.MustCompile(`line \d+`)

// parseValues parses YAML that must be one object; nothing is an empty one. Errors quote nothing: it may be of a Secret.
func parseValues(data []byte) (map[string]any, error) {
	object := map[string]any{}
	found := false
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return object, nil
		}
		var values any
		if err == nil {
			err = yaml.Unmarshal(doc, &values)
		}
		if err != nil {
			if line := yamlLine.FindString(err.Error()); line != "" {
				return nil, fmt.Errorf("isn't valid YAML (%s)", line)
			}
			return nil, errors.New("isn't valid YAML")
		}
		if values == nil {
			continue
		}
		if found {
			return nil, errors.New("must be one document of YAML")
		}
		if object, found = values.(map[string]any); !found {
			return nil, errors.New("must be an object")
		}
	}
}
