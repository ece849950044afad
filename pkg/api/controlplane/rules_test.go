package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
)

// rule is one rule about a KamajiControlPlane, or, for those below the settings, also about a template.
type rule struct {
	name string
	// from is the spec that is stored before, as a patch of the smallest; empty: there is none.
	from           string
	passes, fails  []string
	field, message string
}

func rules() []rule {
	return []rule{
		{
			name: "the version must be there", passes: []string{`version: "1.27"`}, fails: []string{`version: null`},
			field: "version", message: "Required value",
		},
		{
			name: "there are as many pods as can be", passes: []string{`replicas: 0`, `replicas: 7`}, fails: []string{`replicas: -1`},
			field: "replicas", message: "should be greater than or equal to 0",
		},
		{
			name:   "an endpoint isn't an empty object",
			passes: []string{`controlPlaneEndpoint: {host: a}`, `controlPlaneEndpoint: {port: 6443}`, `controlPlaneEndpoint: {host: "", port: 0}`},
			fails:  []string{`controlPlaneEndpoint: {}`},
			field:  "controlPlaneEndpoint", message: "should have at least 1 properties",
		},
		{
			name:   "an endpoint's host has at most 512 characters",
			passes: []string{`controlPlaneEndpoint: {host: ` + strings.Repeat("a", 512) + `}`},
			fails:  []string{`controlPlaneEndpoint: {host: ` + strings.Repeat("a", 513) + `}`},
			field:  "controlPlaneEndpoint.host", message: "Too long: may not be more than 512",
		},
		{
			name:   "an endpoint's port is one",
			passes: []string{`controlPlaneEndpoint: {port: 65535}`},
			fails:  []string{`controlPlaneEndpoint: {port: 65536}`},
			field:  "controlPlaneEndpoint.port", message: "should be less than or equal to 65535",
		},
		{
			name:   "the name of the database's user stays, but may go",
			from:   `dataStoreUsername: a`,
			passes: []string{`dataStoreUsername: a`, `dataStoreUsername: null`, `dataStoreUsername: ""`},
			fails:  []string{`dataStoreUsername: b`},
			field:  "dataStoreUsername", message: "the user cannot change, because the API server of the tenant logs in with it: write the former value",
		},
		{
			name:   "the name of the database's user may be set where there is none",
			from:   `dataStoreUsername: ""`,
			passes: []string{`dataStoreUsername: a`},
		},
		{
			name:   "a resource is kept in one DataStore",
			passes: []string{`dataStoreOverrides: [{resource: /events, dataStore: a}, {resource: coordination.k8s.io/leases, dataStore: a}]`},
			fails:  []string{`dataStoreOverrides: [{resource: /events, dataStore: a}, {resource: /events, dataStore: b}]`},
			field:  "dataStoreOverrides[1]", message: "Duplicate value",
		},
		{
			name:   "resources have DataStores of their own in reasonable numbers",
			passes: []string{`dataStoreOverrides: [` + numbered(32, `{resource: /a%d, dataStore: a}`) + `]`},
			fails:  []string{`dataStoreOverrides: [` + numbered(33, `{resource: /a%d, dataStore: a}`) + `]`},
			field:  "dataStoreOverrides", message: "must have at most 32 items",
		},
		{
			name:   "admission plugins are those there are",
			passes: []string{`admissionControllers: [AlwaysPullImages, PodSecurity]`, `admissionControllers: []`},
			fails:  []string{`admissionControllers: [Nope]`},
			field:  "admissionControllers[0]", message: "Unsupported value",
		},
		{
			name:   "a suffix makes a tag",
			passes: []string{`tagSuffix: -hardened_1.2`, `tagSuffix: ""`},
			fails:  []string{`tagSuffix: "@sha256:1"`},
			field:  "tagSuffix", message: "should match",
		},
		{
			name:   "an image has a name",
			passes: []string{`apiServer: {containerImageName: a}, scheduler: {containerImageName: b}`},
			fails:  []string{`apiServer: {containerImageName: ""}`},
			field:  "apiServer.containerImageName", message: "should be at least 1 chars long",
		},
		{
			name:   "a liveness probe succeeds once",
			passes: []string{`apiServer: {probes: {liveness: {successThreshold: 1}, readiness: {successThreshold: 2}}}`},
			fails:  []string{`apiServer: {probes: {liveness: {successThreshold: 2}}}`},
			field:  "apiServer.probes.liveness.successThreshold", message: "2: must be 1 for liveness probes",
		},
		{
			name:   "a startup probe succeeds once",
			passes: []string{`deployment: {probes: {startup: {successThreshold: 1}}}`},
			fails:  []string{`deployment: {probes: {startup: {successThreshold: 2}}}`},
			field:  "deployment.probes.startup.successThreshold", message: "2: must be 1 for startup probes",
		},
		{
			name:   "a Service is of one of three types",
			passes: []string{`network: {serviceType: ClusterIP}`, `network: {serviceType: NodePort}`, `network: {serviceType: LoadBalancer}`},
			fails:  []string{`network: {serviceType: ExternalName}`},
			field:  "network.serviceType", message: "Unsupported value",
		},
		{
			name:   "ingress and gateway exclude each other",
			passes: []string{`network: {ingress: {hostname: a}}`, `network: {gateway: {name: a, namespace: b, hostname: c}}`},
			fails:  []string{`network: {ingress: {hostname: a}, gateway: {name: a, namespace: b, hostname: c}}`},
			field:  "network.gateway", message: "ingress and gateway exclude each other: remove one",
		},
		{
			name:   "an ingress has a host",
			passes: []string{`network: {ingress: {hostname: "a:443"}}`},
			fails:  []string{`network: {ingress: {hostname: ""}}`},
			field:  "network.ingress.hostname", message: "should be at least 1 chars long",
		},
		{
			name:   "a gateway's listener has a name",
			passes: []string{`network: {gateway: {name: a, namespace: b, hostname: c, sectionName: ` + strings.Repeat("a", 253) + `}}`},
			fails:  []string{`network: {gateway: {name: a, namespace: b, hostname: c, sectionName: ` + strings.Repeat("a", 254) + `}}`},
			field:  "network.gateway.sectionName", message: "Too long: may not be more than 253",
		},
		{
			name:   "a gateway has a name",
			passes: []string{`network: {gateway: {name: a, namespace: b, hostname: c}}`},
			fails:  []string{`network: {gateway: {name: "", namespace: b, hostname: c}}`},
			field:  "network.gateway.name", message: "should be at least 1 chars long",
		},
		{
			name:   "a gateway's port is one",
			passes: []string{`network: {gateway: {name: a, namespace: b, hostname: c, port: 65535}}`},
			fails:  []string{`network: {gateway: {name: a, namespace: b, hostname: c, port: 0}}`},
			field:  "network.gateway.port", message: "should be greater than or equal to 1",
		},
		{
			name: "only a load balancer can go without node ports",
			passes: []string{
				`network: {allocateLoadBalancerNodePorts: false}`,
				`network: {serviceType: LoadBalancer, allocateLoadBalancerNodePorts: true}`,
			},
			fails:   []string{`network: {serviceType: NodePort, allocateLoadBalancerNodePorts: false}`},
			field:   "network.allocateLoadBalancerNodePorts",
			message: "only Services of type LoadBalancer have it: set serviceType to LoadBalancer, or remove the field",
		},
		{
			name: "only a load balancer lets in some networks",
			passes: []string{
				`network: {loadBalancerConfig: {loadBalancerSourceRanges: [192.0.2.0/24]}}`,
				`network: {serviceType: NodePort, loadBalancerConfig: {loadBalancerSourceRanges: []}}`,
				`network: {serviceType: ClusterIP, loadBalancerConfig: {}}`,
			},
			fails:   []string{`network: {serviceType: NodePort, loadBalancerConfig: {loadBalancerSourceRanges: [192.0.2.0/24]}}`},
			field:   "network.loadBalancerConfig.loadBalancerSourceRanges",
			message: "only Services of type LoadBalancer have them: set serviceType to LoadBalancer, or remove the field",
		},
		{
			name:   "only a load balancer has a class",
			passes: []string{`network: {loadBalancerConfig: {loadBalancerClass: a}}`},
			fails:  []string{`network: {serviceType: ClusterIP, loadBalancerConfig: {loadBalancerClass: a}}`},
			field:  "network.loadBalancerConfig.loadBalancerClass", message: "only Services of type LoadBalancer have one: set serviceType to LoadBalancer, or remove the field",
		},
		{
			name:   "a load balancer's class isn't empty",
			passes: []string{`network: {loadBalancerConfig: {loadBalancerClass: a}}`},
			fails:  []string{`network: {loadBalancerConfig: {loadBalancerClass: ""}}`},
			field:  "network.loadBalancerConfig.loadBalancerClass", message: "should be at least 1 chars long",
		},
		{
			name: "a load balancer's class stays",
			from: `network: {loadBalancerConfig: {loadBalancerClass: a}}`,
			passes: []string{
				`network: {loadBalancerConfig: {loadBalancerClass: a, loadBalancerSourceRanges: [192.0.2.0/24]}}`,
				`network: {loadBalancerConfig: null}`,
			},
			fails: []string{`network: {loadBalancerConfig: {loadBalancerClass: b}}`},
			field: "network.loadBalancerConfig.loadBalancerClass", message: "the class cannot change, because Kubernetes fixes it for a Service: write the former value",
		},
		{
			name: "a load balancer's class isn't taken away",
			from: `network: {loadBalancerConfig: {loadBalancerClass: a}}`,
			passes: []string{
				`network: {serviceType: ClusterIP, loadBalancerConfig: null}`,
				`network: {serviceType: NodePort, loadBalancerConfig: {}}`,
			},
			fails: []string{`network: {loadBalancerConfig: {}}`},
			field: "network.loadBalancerConfig.loadBalancerClass", message: "the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one",
		},
		{
			name:   "a load balancer gets no class later",
			from:   `network: {serviceType: LoadBalancer}`,
			passes: []string{`network: {loadBalancerConfig: {loadBalancerSourceRanges: [192.0.2.0/24]}}`},
			fails:  []string{`network: {loadBalancerConfig: {loadBalancerClass: a}}`},
			field:  "network.loadBalancerConfig.loadBalancerClass", message: "the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one",
		},
		{
			name:   "what becomes a load balancer gets any class",
			from:   `network: {serviceType: ClusterIP, loadBalancerConfig: {}}`,
			passes: []string{`network: {serviceType: LoadBalancer, loadBalancerConfig: {loadBalancerClass: a}}`},
		},
		{
			name: "ports of the Service have names of their own",
			passes: []string{
				`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 1}, {name: b, port: 1, targetPort: 1, protocol: UDP}]}`,
			},
			fails: []string{`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 1}, {name: a, port: 2, targetPort: 1}]}`},
			field: "network.additionalServicePorts[1]", message: "Duplicate value",
		},
		{
			name:   "ports of the Service differ",
			passes: []string{`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 1}, {name: b, port: 2, targetPort: web}]}`},
			fails:  []string{`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 1}, {name: b, port: 1, targetPort: 2}]}`},
			field:  "network.additionalServicePorts", message: "additional ports must not repeat a port of the same protocol",
		},
		{
			name:   "a port's target is a port",
			passes: []string{`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 65535}]}`},
			fails:  []string{`network: {additionalServicePorts: [{name: a, port: 1, targetPort: 65536}]}`},
			field:  "network.additionalServicePorts[0].targetPort", message: "should be less than or equal to 65535",
		},
		{
			name:   "a port's name isn't that of the API server's",
			passes: []string{`network: {additionalServicePorts: [{name: audit, port: 1, targetPort: 1}]}`},
			fails:  []string{`network: {additionalServicePorts: [{name: kube-apiserver, port: 1, targetPort: 1}]}`},
			field:  "network.additionalServicePorts[0].name", message: "additional ports cannot be named kube-apiserver or konnectivity-server",
		},
		{
			name:   "labels of the Service can be labels",
			passes: []string{`network: {serviceLabels: {a: b, c: ""}}`},
			fails:  []string{`network: {serviceLabels: {a: b c}}`},
			field:  "network.serviceLabels.a", message: "should match",
		},
		{
			name:   "an external cluster is reached by a Secret",
			passes: []string{`deployment: {externalClusterReference: {kubeconfigSecretName: a, kubeconfigSecretKey: b, deploymentNamespace: ""}}`},
			fails:  []string{`deployment: {externalClusterReference: {kubeconfigSecretName: "", kubeconfigSecretKey: b, deploymentNamespace: c}}`},
			field:  "deployment.externalClusterReference.kubeconfigSecretName", message: "should be at least 1 chars long",
		},
		{
			name:   "an external cluster's kubeconfig is in a key of the Secret",
			passes: []string{`deployment: {externalClusterReference: {kubeconfigSecretName: a, kubeconfigSecretKey: b, deploymentNamespace: c}}`},
			fails:  []string{`deployment: {externalClusterReference: {kubeconfigSecretName: a, kubeconfigSecretKey: "", deploymentNamespace: c}}`},
			field:  "deployment.externalClusterReference.kubeconfigSecretKey", message: "should be at least 1 chars long",
		},
		{
			name: "a namespace of the external cluster is named",
			passes: []string{
				`deployment: {externalClusterReference: ` +
					`{kubeconfigSecretName: a, kubeconfigSecretKey: b, kubeconfigSecretNamespace: d, deploymentNamespace: c}}`,
			},
			fails: []string{`deployment: {externalClusterReference: {kubeconfigSecretName: a, kubeconfigSecretKey: b}}`},
			field: "deployment.externalClusterReference.deploymentNamespace", message: "Required value",
		},
	}
}

// ofStatus are rules about the status.
var ofStatus = []rule{
	{
		name:   "a version runs somewhere",
		passes: []string{`versions: [{version: v1.35.4, replicas: 1}, {version: v1.36.3}]`},
		fails:  []string{`versions: [{version: v1.35.4, replicas: 0}]`},
		field:  "versions[0].replicas", message: "should be greater than or equal to 1",
	},
	{
		name:   "a version is there once",
		passes: []string{`versions: [{version: v1.35.4}]`}, fails: []string{`versions: [{version: v1.35.4}, {version: v1.35.4}]`},
		field: "versions[1]", message: "Duplicate value",
	},
	{
		name:   "there is a version, or no list of them",
		passes: []string{`versions: null`}, fails: []string{`versions: []`},
		field: "versions", message: "should have at least 1 items",
	},
	{
		name:   "there are as many versions as Cluster API reads",
		passes: []string{`versions: [` + numbered(100, `{version: v1.35.%d}`) + `]`},
		fails:  []string{`versions: [` + numbered(101, `{version: v1.35.%d}`) + `]`},
		field:  "versions", message: "must have at most 100 items",
	},
	{
		name:   "a condition is there once",
		passes: []string{`conditions: [` + condition("A") + `, ` + condition("B") + `]`},
		fails:  []string{`conditions: [` + condition("A") + `, ` + condition("A") + `]`},
		field:  "conditions[1]", message: "Duplicate value",
	},
}

func condition(kind string) string {
	return `{type: ` + kind + `, status: "True", reason: Because, message: "", lastTransitionTime: "2026-11-20T08:00:00Z"}`
}

// numbered joins what a format makes of 0 to n-1 with commas.
func numbered(n int, format string) string {
	parts := make([]string, n)
	for i := range n {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, ", ")
}

// ofWholeControlPlane are what templates don't have.
var ofWholeControlPlane = []string{"version", "replicas", "controlPlaneEndpoint"}

func TestRules(t *testing.T) {
	t.Parallel()

	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()

			judge(t, r, controlplane.KamajiControlPlaneKind, "spec", func(patch string) map[string]any {
				return patched(t, `spec: {version: v1.36.3}`, `spec: {`+patch+`}`)
			})

			for _, of := range ofWholeControlPlane {
				if strings.HasPrefix(r.field, of) {
					return
				}
			}

			judge(t, r, controlplane.KamajiControlPlaneTemplateKind, "spec.template.spec", func(patch string) map[string]any {
				return patched(t, `spec: {template: {spec: {}}}`, `spec: {template: {spec: {`+patch+`}}}`)
			})
		})
	}

	for _, r := range ofStatus {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()

			judge(t, r, controlplane.KamajiControlPlaneKind, "status", func(patch string) map[string]any {
				return patched(t, `spec: {version: v1.36.3}`, `status: {`+patch+`}`)
			})
		})
	}
}

// patched is an object with a merge patch applied.
func patched(t *testing.T, object, patch string) map[string]any {
	t.Helper()

	return ruletest.Merge(crdtest.Decode(t, []byte(object)), crdtest.Decode(t, []byte(patch)))
}

func judge(t *testing.T, r rule, kind, at string, object func(patch string) map[string]any) {
	t.Helper()

	admit := func(patch string) field.ErrorList {
		var old map[string]any
		if r.from != "" {
			old = object(r.from)
		}

		return loadDefinition(t, kind, "").Admit(t, object(patch), old)
	}

	for _, passes := range r.passes {
		if refused := admit(passes); len(refused) != 0 {
			t.Errorf("%s %s\nrefused: %v", kind, passes, refused)
		}
	}

	for _, fails := range r.fails {
		refused := admit(fails)
		if len(refused) != 1 || refused[0].Field != at+"."+r.field || !strings.Contains(refused[0].ErrorBody(), r.message) {
			t.Errorf("%s %s\nwant  %s.%s: %s\ngot   %v", kind, fails, at, r.field, r.message, refused)
		}
	}
}

// moved are the fields of a TenantControlPlane's spec.controlPlane.deployment that have another name here.
var moved = map[string]string{
	"additionalContainers": "extraContainers", "additionalInitContainers": "extraInitContainers", "additionalVolumes": "extraVolumes",
}

// same are those that have the same one.
var same = []string{
	"nodeSelector", "topologySpreadConstraints", "affinity", "strategy", "podSecurityContext", "containerSecurityContexts",
	"additionalMetadata", "podAdditionalMetadata",
}

// of finds where a field of a TenantControlPlane's spec is in that of a KamajiControlPlane: "" for nowhere.
func of(path string) string {
	if strings.HasPrefix(path, "spec.addons.konnectivity.") {
		return path
	}

	rest, ok := strings.CutPrefix(path, "spec.controlPlane.deployment.")
	if !ok {
		return ""
	}

	end := strings.IndexAny(rest+".", ".[")
	first, rest := rest[:end], rest[end:]

	for _, s := range same {
		if first == s {
			return "spec.deployment." + first + rest
		}
	}

	if to := moved[first]; to != "" {
		return "spec.deployment." + to + rest
	}

	for group, name := range map[string]string{"resources": "resources", "additionalVolumeMounts": "extraVolumeMounts"} {
		if first == group && rest != "" {
			end := strings.IndexAny(rest[1:]+".", ".[") + 1
			return "spec." + rest[1:end] + "." + name + rest[end:]
		}
	}

	return ""
}

// translate makes a KamajiControlPlane of a TenantControlPlane's pods and tunnel.
func translate(t *testing.T, tenant map[string]any) map[string]any {
	t.Helper()

	spec := map[string]any{"version": "v1.36.3"}
	from, _ := tenant["spec"].(map[string]any)
	spec["addons"] = from["addons"]

	controlPlane, _ := from["controlPlane"].(map[string]any)
	deployment, _ := controlPlane["deployment"].(map[string]any)
	to := map[string]any{}
	spec["deployment"] = to

	for name, value := range deployment {
		switch group := map[string]string{"resources": "resources", "additionalVolumeMounts": "extraVolumeMounts"}[name]; {
		case group != "":
			for component, v := range value.(map[string]any) {
				c, _ := spec[component].(map[string]any)
				spec[component] = ruletest.Merge(map[string]any{group: v}, c)
			}
		case of("spec.controlPlane.deployment."+name) != "":
			to[strings.TrimPrefix(of("spec.controlPlane.deployment."+name), "spec.deployment.")] = value
		}
	}

	return map[string]any{"spec": spec}
}

// What a TenantControlPlane refuses of containers, volumes and other types of Kubernetes, it would refuse of what is made of a
// KamajiControlPlane: so this one refuses it at once.
func TestPodsAreJudgedAsATenantsAre(t *testing.T) {
	t.Parallel()

	d := loadDefinition(t, controlplane.KamajiControlPlaneKind, "")
	judged := 0

	for _, r := range ruletest.Rules() {
		if r.Kind != v1alpha1.TenantControlPlaneKind || r.Policy {
			continue
		}

		var mine []ruletest.Failure

		for _, fails := range r.Fails {
			if of(fails.Field) != "" {
				mine = append(mine, fails)
			}
		}

		if len(mine) == 0 || len(mine) != len(r.Fails) {
			continue
		}

		judged += len(mine)

		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()

			for _, passes := range r.Passes {
				if refused := d.Admit(t, translate(t, ruletest.Object(r.Kind, passes)), nil); len(refused) != 0 {
					t.Errorf("%s\nrefused: %v", passes, refused)
				}
			}

			for _, fails := range mine {
				refused := d.Admit(t, translate(t, ruletest.Object(r.Kind, fails.Object)), nil)
				message := strings.ReplaceAll(fails.Message, fails.Field, of(fails.Field))

				found := false
				for _, err := range refused {
					found = found || err.Field == of(fails.Field) && strings.Contains(err.ErrorBody(), message)
				}

				if !found {
					t.Errorf("%s\nwant  %s: %s\ngot   %v", fails.Object, of(fails.Field), message, refused)
				}
			}
		})
	}

	if judged < 100 {
		t.Errorf("only %d objects", judged)
	}
}

func TestEveryRuleHasAnObjectThatFails(t *testing.T) {
	t.Parallel()

	var said []string
	for _, r := range append(rules(), ofStatus...) {
		said = append(said, r.message)
	}

	for _, r := range ruletest.Rules() {
		for _, fails := range r.Fails {
			said = append(said, fails.Message)
		}
	}

	all := strings.Join(said, "\n")

	for kind := range files {
		for _, r := range loadDefinition(t, kind, "").Rules() {
			message := r.Message
			if message == "" {
				message = crdtest.Words(r.MessageExpression)
			}

			if !strings.Contains(all, message) {
				t.Errorf("%s %s: no object fails with %q", kind, r.At, message)
			}
		}
	}
}
