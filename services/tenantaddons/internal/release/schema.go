package release

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// validate checks values, together with those of the chart, against the schemas of a chart and its dependencies. Helm's own check would read files
// of this machine and URLs that a schema refers to, and says what is in the values, which may be from Secrets.
func validate(ch *chart.Chart, values map[string]any) error {
	all, err := chartutil.CoalesceValues(ch, values)
	if err != nil {
		return newError(tenantaddon.ReasonInvalidValues, err, "the values can't be merged with those of the chart: %v", err)
	}
	return validateAll(ch, all, "")
}

// validateAll checks the values of a chart, which lie at a place in those of its parent.
func validateAll(ch *chart.Chart, values map[string]any, at string) error {
	if len(ch.Schema) > 0 {
		if err := validateOne(ch.Schema, values, at); err != nil {
			return err
		}
	}
	for _, d := range ch.Dependencies() {
		own, ok := values[d.Name()].(map[string]any)
		if !ok {
			continue
		}
		if err := validateAll(d, own, at+"/"+d.Name()); err != nil {
			return err
		}
	}
	return nil
}

// noLoader loads nothing that a schema refers to.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s; what is outside of a schema isn't read", url)
}

const schemaURL = "file:///values.schema.json"

func validateOne(schema []byte, values map[string]any, at string) error {
	broken := func(err error) error {
		return newError(tenantaddon.ReasonRenderFailed, err, "the chart's values.schema.json (values at %q): %v", at+"/", err)
	}
	read, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return broken(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, read); err != nil {
		return broken(err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return broken(err)
	}
	err = compiled.Validate(values)
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return newError(tenantaddon.ReasonInvalidValues, nil, "values don't match the chart's schema: %s", listed(violations(invalid, at), maxMessage/2))
	}
	if err != nil {
		return broken(err)
	}
	return nil
}

// violations say where values don't match a schema, and why, but not what they are.
func violations(e *jsonschema.ValidationError, at string) []string {
	var all []string
	for _, cause := range e.Causes {
		all = append(all, violations(cause, at)...)
	}
	if len(e.Causes) > 0 {
		return all
	}
	where := at + "/" + strings.Join(e.InstanceLocation, "/")
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return []string{fmt.Sprintf("%s must be %s, not %s", where, strings.Join(k.Want, " or "), k.Got)}
	case *kind.Required:
		return []string{fmt.Sprintf("%s must have %s", where, strings.Join(k.Missing, ", "))}
	case *kind.AdditionalProperties:
		return []string{fmt.Sprintf("%s must not have %s", where, strings.Join(k.Properties, ", "))}
	}
	return []string{fmt.Sprintf("%s is against %q of the schema", where, strings.Join(e.ErrorKind.KeywordPath(), "/"))}
}
