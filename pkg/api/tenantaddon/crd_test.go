package tenantaddon_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
)

// loadDefinition reads a generated CustomResourceDefinition as an API server works with it.
func loadDefinition(t *testing.T, resource string) *crdtest.Definition {
	t.Helper()

	return crdtest.Load(t, filepath.Join("..", "..", "..", "deployments", "crds", "stoker.dev_"+resource+".yaml"))
}

var resources = []string{tenantaddon.TenantAddonResource, tenantaddon.AddonReleaseResource}

func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()

	for _, resource := range resources {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()

			definition := loadDefinition(t, resource)
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), definition.CRD) {
				t.Error(err)
			}

			if !slices.Equal(definition.CRD.Spec.Names.Categories, []string{"stoker"}) {
				t.Errorf("kubectl get stoker doesn't show them: %q", definition.CRD.Spec.Names.Categories)
			}
		})
	}
}

func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()

	// Below these stand types of Kubernetes, which explains them.
	foreign := regexp.MustCompile(`[.](selector|namespaceSelector|conditions)[.]`)

	for _, resource := range resources {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			loadDefinition(t, resource).RequireExplained(t, foreign)
		})
	}
}

const (
	aChart  = `chart: {repository: "https://charts.example.com", name: a, version: 1.2.3}`
	aDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// addon is a TenantAddon with a name and a spec; one without a source has a chart.
func addon(t *testing.T, name, spec string) map[string]any {
	t.Helper()

	object := crdtest.Decode(t, fmt.Appendf(nil, "{apiVersion: stoker.dev/v1alpha1, kind: TenantAddon, metadata: {name: %q, namespace: default}, spec: {%s}}", name, spec))

	defaults := crdtest.Decode(t, []byte("{selector: {}, "+aChart+"}"))
	inner := object["spec"].(map[string]any)

	if inner["selector"] == nil {
		inner["selector"] = defaults["selector"]
	}

	if inner["none"] == nil && inner["chart"] == nil && inner["kustomization"] == nil && inner["manifests"] == nil {
		inner["chart"] = defaults["chart"]
	}

	delete(inner, "none")

	return object
}

// rule is one rule about a TenantAddon.
type rule struct {
	// from is the spec that is stored before; empty: there is none.
	from          string
	passes, fails []string
	// field, which the refusal is about, and part of its message.
	field, message string
}

// rules are those of the whole object and of its software; each by what it says.
func rules() map[string]rule {
	const one = "exactly one of chart, kustomization and manifests must be given"

	long := strings.Repeat("a", 53)
	all := map[string]rule{
		"there is a source": {fails: []string{`none: true`}, field: "spec", message: one},
		"there is one source": {
			passes: []string{aChart, `manifests: {inline: "a: b"}`, `kustomization: {configMap: a}`},
			fails:  []string{aChart + `, manifests: {inline: "a: b"}`, `manifests: {inline: "a: b"}, kustomization: {configMap: a}`},
			field:  "spec", message: one,
		},
		"a kustomization is in one place": {
			passes: []string{`kustomization: {url: "oci://example.com/a:v1", path: b, digest: "` + aDigest + `"}`},
			fails:  []string{`kustomization: {}`, `kustomization: {url: "oci://example.com/a", configMap: a}`},
			field:  "spec.kustomization", message: "exactly one of url and configMap",
		},
		"manifests are in one place": {
			passes: []string{`manifests: {configMap: a, template: true}`, `manifests: {url: "https://example.com/a.tar.gz"}`},
			fails:  []string{`manifests: {}`, `manifests: {inline: "a: b", url: "https://example.com/a"}`},
			field:  "spec.manifests", message: "exactly one of inline, configMap and url",
		},
		"a release has the name that Helm takes": {
			passes: []string{`releaseName: ` + long, `releaseName: ""`}, fails: []string{`releaseName: a.b`, `releaseName: A`},
			field: "spec.releaseName", message: "should match",
		},
		"a release's name isn't longer than Helm's": {
			fails: []string{`releaseName: ` + long + `a`}, field: "spec.releaseName", message: "may not be more than 53",
		},
		"a release keeps its name": {
			from: `releaseName: a`, passes: []string{`releaseName: a, paused: true`}, fails: []string{`releaseName: b`, `{}`},
			field: "spec", message: "releaseName and targetNamespace can't be changed",
		},
		"a release keeps its namespace": {
			from: `targetNamespace: a`, passes: []string{`targetNamespace: a`}, fails: []string{`targetNamespace: b`, `{}`},
			field: "spec", message: "releaseName and targetNamespace can't be changed",
		},
		"a namespace has a name": {
			fails: []string{`targetNamespace: ""`, `targetNamespace: a.b`}, field: "spec.targetNamespace", message: "should match",
		},
		"values are an object": {
			passes: []string{`values: {a: {b: [c]}}`}, fails: []string{`values: [a]`, `values: a`}, field: "spec.values", message: "must be of type object",
		},
		"values are of ConfigMaps and Secrets": {
			passes: []string{`valuesFrom: [{kind: Secret, name: a}, {kind: ConfigMap, name: a, key: b, optional: true}]`},
			fails:  []string{`valuesFrom: [{kind: Pod, name: a}]`}, field: "spec.valuesFrom[0].kind", message: "Unsupported value",
		},
		"no TenantAddon comes after itself": {
			passes: []string{`after: [another]`}, fails: []string{`after: [b, demo]`}, field: "", message: "spec.after: must not name the TenantAddon itself",
		},
		"what comes before is named once": {fails: []string{`after: [b, b]`}, field: "spec.after[1]", message: "Duplicate value"},
		"removal deletes or keeps": {
			passes: []string{`onRemoval: Delete`, `onRemoval: Keep`}, fails: []string{`onRemoval: Orphan`}, field: "spec.onRemoval", message: "Unsupported value",
		},
		"ready is what is applied or healthy": {
			passes: []string{`readyWhen: Applied`, `readyWhen: Healthy`}, fails: []string{`readyWhen: Now`}, field: "spec.readyWhen", message: "Unsupported value",
		},
		"an installation has from a second to an hour": {
			passes: []string{`timeout: 1s`, `timeout: 1h`, `timeout: 1m30s`, `timeout: 0.5h`}, fails: []string{`timeout: 0s`, `timeout: 2h`, `timeout: 999ms`},
			field: "spec.timeout", message: "must be from 1s to 1h",
		},
		"a time is one that Go reads": {
			fails: []string{`timeout: 5 minutes`, `timeout: "300"`, `timeout: -5m`, `timeout: 1d`}, field: "spec.timeout", message: "should match",
		},
	}
	maps.Copy(all, chartRules())
	maps.Copy(all, rolloutRules())

	return all
}

// chartRules are those of charts and of what is fetched.
func chartRules() map[string]rule {
	chart := func(fields string) string { return "chart: {" + fields + "}" }
	https := `repository: "https://charts.example.com", name: a, `

	return map[string]rule{
		"a chart of an OCI registry is in its address": {
			passes: []string{chart(`repository: "oci://example.com:5000/a/b", version: 1.2.3`)},
			fails:  []string{chart(`repository: "oci://example.com/a/b", name: b, version: 1.2.3`)},
			field:  "spec.chart", message: "an OCI repository names the chart",
		},
		"a chart of a Helm repository has a name": {
			passes: []string{chart(https + `version: 1.2.3`)}, fails: []string{chart(`repository: "https://charts.example.com", version: 1.2.3`)},
			field: "spec.chart", message: "name must be given, unless the repository is an OCI one",
		},
		"a version is a very one": {
			passes: []string{chart(https + `version: v1.2.3`), chart(https + `version: 1.2.3-rc.1+build.5`)},
			fails: []string{
				chart(https + `version: 6.x`), chart(https + `version: ">=6.0.0"`), chart(https + `version: "6.9"`), chart(https + `version: ^1.2.3`),
				chart(https + `version: latest`), chart(https + `version: "*"`), chart(https + `version: 1.2.3 || 2.0.0`),
			},
			field: "spec.chart.version", message: "should match",
		},
		"a chart has a version": {fails: []string{chart(`repository: "oci://example.com/a"`)}, field: "spec.chart.version", message: "Required value"},
		"a repository is fetched by OCI or HTTP": {
			fails: []string{
				chart(`repository: "git://example.com/a", name: a, version: 1.2.3`), chart(`repository: "file:///etc", name: a, version: 1.2.3`),
				chart(`repository: "https:///a", name: a, version: 1.2.3`), chart(`repository: "https://example.com/a b", name: a, version: 1.2.3`),
			},
			field: "spec.chart.repository", message: "should match",
		},
		"passwords are in Secrets, not in addresses": {
			fails: []string{chart(`repository: "https://user:password@example.com/a", name: a, version: 1.2.3`)},
			field: "spec.chart.repository", message: "should match",
		},
		"a digest is a SHA-256": {
			passes: []string{chart(https + `version: 1.2.3, digest: "` + aDigest + `"`)},
			fails: []string{
				chart(https + `version: 1.2.3, digest: "` + strings.TrimPrefix(aDigest, "sha256:") + `"`),
				chart(https + `version: 1.2.3, digest: "` + strings.ToUpper(aDigest) + `"`), chart(https + `version: 1.2.3, digest: "sha256:abc"`),
			},
			field: "spec.chart.digest", message: "should match",
		},
	}
}

// rolloutRules are those of rollouts.
func rolloutRules() map[string]rule {
	rollout := func(fields ...string) []string {
		for i := range fields {
			fields[i] = "rollout: {" + fields[i] + "}"
		}

		return fields
	}

	return map[string]rule{
		"some tenants are changed at once": {
			passes: rollout(`maxParallel: 1`, `maxParallel: 5`, `maxParallel: "5"`, `maxParallel: 10%`, `maxParallel: 100%`),
			fails: rollout(`maxParallel: 0`, `maxParallel: -1`, `maxParallel: 1000000`, `maxParallel: "0"`, `maxParallel: 0%`, `maxParallel: 150%`,
				`maxParallel: 1.5%`, `maxParallel: "%"`),
			field: "spec.rollout.maxParallel", message: "a share of them from 1% to 100%",
		},
		"some tenants may fail, or none": {
			passes: rollout(`maxFailures: 0`, `maxFailures: 0%`, `maxFailures: 3`, `maxFailures: 5%`, `maxFailures: 100%`),
			fails:  rollout(`maxFailures: -1`, `maxFailures: 1000000`, `maxFailures: 101%`, `maxFailures: all`),
			field:  "spec.rollout.maxFailures", message: "a share of them from 0% to 100%",
		},
		"a wave is named once": {
			passes: rollout(`waves: [{name: a, selector: {}}, {name: b, selector: {matchLabels: {c: d}}, soak: 24h}]`),
			fails:  rollout(`waves: [{name: a, selector: {}}, {name: a, selector: {matchLabels: {c: d}}}]`),
			field:  "spec.rollout.waves[1]", message: "Duplicate value",
		},
		"a wave has a selector": {
			fails: rollout(`waves: [{name: a}]`), field: "spec.rollout.waves[0].selector", message: "Required value",
		},
		"a wave soaks for a week at most": {
			passes: rollout(`waves: [{name: a, selector: {}, soak: 0s}]`, `waves: [{name: a, selector: {}, soak: 168h}]`),
			fails:  rollout(`waves: [{name: a, selector: {}, soak: 169h}]`), field: "spec.rollout.waves[0].soak", message: "must be from 0s to 168h",
		},
	}
}

func TestRules(t *testing.T) {
	t.Parallel()

	for name, rule := range rules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			admit := func(spec string) field.ErrorList {
				if spec == "{}" {
					spec = ""
				}

				var old map[string]any
				if rule.from != "" {
					old = addon(t, "demo", rule.from)
				}

				return loadDefinition(t, tenantaddon.TenantAddonResource).Admit(t, addon(t, "demo", spec), old)
			}

			for _, spec := range rule.passes {
				if refused := admit(spec); len(refused) != 0 {
					t.Errorf("%s is refused: %s", spec, refused)
				}
			}

			for _, spec := range rule.fails {
				refused := admit(spec)
				if !slices.ContainsFunc(refused, func(e *field.Error) bool {
					return strings.TrimPrefix(e.Field, "<nil>") == rule.field && strings.Contains(e.Error(), rule.message)
				}) {
					t.Errorf("%s is not refused for %s, %q: %s", spec, rule.field, rule.message, refused)
				}
			}
		})
	}
}

// Which names there can be says the definition, since a release's default is its TenantAddon's.
func TestNames(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", 53)
	for name, refused := range map[string]bool{"a": false, "a-1": false, long: false, long + "a": true, "a.b": true, "-a": true, "a-": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			errs := loadDefinition(t, tenantaddon.TenantAddonResource).Admit(t, addon(t, name, ""), nil)
			if (len(errs) > 0) != refused {
				t.Errorf("refused: %v, want %t", errs, refused)
			}

			if refused && !strings.Contains(errs.ToAggregate().Error(), "metadata.name: must be at most 53 characters of a-z, 0-9 and -") {
				t.Errorf("refused for %s", errs)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()

	given := addon(t, "demo", `valuesFrom: [{kind: Secret, name: a}], rollout: {waves: [{name: a, selector: {}}]}`)
	if refused := loadDefinition(t, tenantaddon.TenantAddonResource).Admit(t, given, nil); len(refused) != 0 {
		t.Fatal(refused)
	}

	want := crdtest.Decode(t, []byte(`
apiVersion: stoker.dev/v1alpha1
kind: TenantAddon
metadata: {name: demo, namespace: default}
spec:
  selector: {}
  chart: {repository: "https://charts.example.com", name: a, version: 1.2.3}
  releaseName: ""
  targetNamespace: kube-system
  valuesFrom: [{kind: Secret, name: a, key: values.yaml}]
  onRemoval: Delete
  readyWhen: Healthy
  timeout: 5m
  rollout: {waves: [{name: a, selector: {}}]}
`))
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("with its defaults (-want +got):\n%s", diff)
	}
}

// What the definition accepts is what Go reads: else one object would be in the way of reading all.
func TestAcceptedIsRead(t *testing.T) {
	t.Parallel()

	for name, rule := range rules() {
		for _, spec := range rule.passes {
			data, err := yaml.Marshal(addon(t, "demo", spec))
			if err != nil {
				t.Fatal(err)
			}

			var object tenantaddon.TenantAddon
			if err := yaml.UnmarshalStrict(data, &object); err != nil {
				t.Errorf("%s: %s: %v", name, spec, err)
			}
		}
	}
}
