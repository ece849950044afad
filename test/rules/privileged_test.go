package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/test/env"
)

// privileged are the fields of a tenant that reach beyond it: a merge patch that sets each, where it is, how it is called,
// and the verb it needs.
var privileged = []struct{ patch, field, value, verb string }{
	{deployment(`additionalContainers: [{name: a, image: a}]`), "additionalContainers", "a", "use-privileged-fields"},
	{deployment(`additionalInitContainers: [{name: a, image: a}]`), "additionalInitContainers", "a", "use-privileged-fields"},
	{volume(`hostPath: {path: /}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`secret: {secretName: other}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`persistentVolumeClaim: {claimName: other}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`csi: {driver: example.com}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`nfs: {server: a, path: /}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`projected: {sources: [{configMap: {name: a}}, {secret: {name: other}}]}`), "additionalVolumes", "a", "use-privileged-fields"},
	{volume(`projected: {sources: [{serviceAccountToken: {path: a}}]}`), "additionalVolumes", "a", "use-privileged-fields"},
	{deployment(`serviceAccountName: deployer`), "serviceAccountName", "deployer", "use-privileged-fields"},
	{deployment(`automountServiceAccountToken: true`), "automountServiceAccountToken", "true", "use-privileged-fields"},
	{deployment(`containerSecurityContexts: {apiServer: {privileged: true}}`), "containerSecurityContexts.apiServer.privileged", "true", "use-privileged-fields"},
	{deployment(`containerSecurityContexts: {scheduler: {allowPrivilegeEscalation: true}}`), "containerSecurityContexts.scheduler.allowPrivilegeEscalation", "true", "use-privileged-fields"},
	{deployment(`containerSecurityContexts: {controllerManager: {runAsUser: 0}}`), "containerSecurityContexts.controllerManager.runAsUser", "0", "use-privileged-fields"},
	{deployment(`containerSecurityContexts: {kine: {capabilities: {add: [SYS_ADMIN]}}}`), "containerSecurityContexts.kine.capabilities", "", "use-privileged-fields"},
	{deployment(`containerSecurityContexts: {kineInit: {runAsNonRoot: false}}`), "containerSecurityContexts.kineInit.runAsNonRoot", "false", "use-privileged-fields"},
	{deployment(`podSecurityContext: {seccompProfile: {type: Unconfined}}`), "podSecurityContext.seccompProfile", "", "use-privileged-fields"},
	{deployment(`podSecurityContext: {fsGroup: 0}`), "podSecurityContext.fsGroup", "0", "use-privileged-fields"},
	{deployment(`podSecurityContext: {supplementalGroups: [0]}`), "podSecurityContext.supplementalGroups", "", "use-privileged-fields"},
	{deployment(`podSecurityContext: {appArmorProfile: {type: Unconfined}}`), "podSecurityContext.appArmorProfile", "", "use-privileged-fields"},
	{deployment(`podSecurityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`), "podSecurityContext.sysctls", "", "use-privileged-fields"},
	{deployment(`podSecurityContext: {seLinuxOptions: {type: spc_t}}`), "podSecurityContext.seLinuxOptions", "", "use-privileged-fields"},
	{`spec: {addons: {konnectivity: {server: {securityContext: {privileged: true}}}}}`, "spec.addons.konnectivity.server.securityContext.privileged", "true", "use-privileged-fields"},
	{`spec: {networkProfile: {address: 192.0.2.1, allowAddressAsExternalIP: true}, controlPlane: {service: {serviceType: ClusterIP}}}`, "spec.networkProfile.allowAddressAsExternalIP", "192.0.2.1", "use-privileged-fields"},
	{deployment(`registrySettings: {registry: example.com}`), "registrySettings.registry", "example.com", "use-registries"},
	{deployment(`registrySettings: {apiServerImage: other}`), "registrySettings.apiServerImage", "other", "use-registries"},
	{deployment(`registrySettings: {controllerManagerImage: other}`), "registrySettings.controllerManagerImage", "other", "use-registries"},
	{deployment(`registrySettings: {schedulerImage: other}`), "registrySettings.schedulerImage", "other", "use-registries"},
	{deployment(`registrySettings: {tagSuffix: -other}`), "registrySettings.tagSuffix", "-other", "use-registries"},
	{`spec: {addons: {konnectivity: {server: {image: example.com/other}}}}`, "spec.addons.konnectivity.server.image", "example.com/other", "use-registries"},
	{deployment(`nodeSelector: {a: b}`), "nodeSelector", "", "use-nodes"},
	{deployment(`tolerations: [{operator: Exists}]`), "tolerations", "", "use-nodes"},
	{deployment(`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`), "affinity", "", "use-nodes"},
	{deployment(`runtimeClassName: runc`), "runtimeClassName", "runc", "use-nodes"},
	{deployment(`additionalMetadata: {annotations: {a: b}}`), "additionalMetadata.annotations", "a", "use-metadata"},
	{deployment(`podAdditionalMetadata: {annotations: {a: b}}`), "podAdditionalMetadata.annotations", "a", "use-metadata"},
	{deployment(`podAdditionalMetadata: {labels: {app: other}}`), "podAdditionalMetadata.labels", "app", "use-metadata"},
	{`spec: {controlPlane: {service: {additionalMetadata: {annotations: {a: b}}}}}`, "spec.controlPlane.service.additionalMetadata.annotations", "a", "use-metadata"},
	{`spec: {controlPlane: {ingress: {hostname: a.b, additionalMetadata: {annotations: {a: b}}}}}`, "spec.controlPlane.ingress.additionalMetadata.annotations", "a", "use-metadata"},
	{`spec: {controlPlane: {gateway: {hostname: a.b, parentRefs: [{name: edge}], additionalMetadata: {annotations: {a: b}}}}}`, "spec.controlPlane.gateway.additionalMetadata.annotations", "a", "use-metadata"},
}

// harmless are values of the same fields, and others, that need no verb.
var harmless = []string{
	deployment(`registrySettings: {apiServerImage: ""}`),
	deployment(`additionalVolumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: b}}, {name: c, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}, {name: d, projected: {sources: [{configMap: {name: a}}]}}], additionalVolumeMounts: {apiServer: [{name: b, mountPath: /b}]}, extraArgs: {apiServer: ["--audit-policy-file=/b/policy"]}`),
	deployment(`additionalVolumes: [{name: a, projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]}}]`),
	deployment(`serviceAccountName: ""`),
	deployment(`serviceAccountName: default, automountServiceAccountToken: false`),
	deployment(`containerSecurityContexts: {apiServer: {runAsUser: 1000, runAsGroup: 1000, runAsNonRoot: true, privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, seccompProfile: {type: RuntimeDefault}}}, podSecurityContext: {fsGroup: 1000, supplementalGroups: [1]}`),
	deployment(`containerSecurityContexts: {apiServer: {procMount: Default, appArmorProfile: {type: RuntimeDefault}}}, podSecurityContext: {fsGroupChangePolicy: OnRootMismatch, supplementalGroupsPolicy: Strict, seccompProfile: {type: Localhost, localhostProfile: a}}`),
	deployment(`registrySettings: {registry: registry.k8s.io}, nodeSelector: {}, tolerations: [], additionalMetadata: {labels: {team: a}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], resources: {apiServer: {requests: {cpu: 1}}}, replicas: 3`),
	`spec: {controlPlane: {service: {additionalMetadata: {labels: {team: a}}}, ingress: {hostname: a.b, additionalMetadata: {labels: {team: a}}}}}`,
	`spec: {networkProfile: {address: 192.0.2.1}}`,
}

func deployment(yaml string) string { return `spec: {controlPlane: {deployment: {` + yaml + `}}}` }

func volume(yaml string) string { return deployment(`additionalVolumes: [{name: a, ` + yaml + `}]`) }

// reaching is a tenant with some of these fields. It has no konnectivity unless they are konnectivity's, for the policy looks at every
// tenant that has it, and is to look at those with one of these fields alone.
func reaching(patch, id string) map[string]any {
	o := ruletest.Object(v1alpha1.TenantControlPlaneKind, patch)
	o["metadata"].(map[string]any)["name"] = id
	if !strings.Contains(patch, "konnectivity") {
		delete(o["spec"].(map[string]any), "addons")
	}
	return o
}

// withoutVerb is what is said to a user who lacks one.
func withoutVerb(patch, field, value, verb string) ruletest.Failure {
	if field[:min(len(field), 5)] != "spec." {
		field = "spec.controlPlane.deployment." + field
	}
	return ruletest.Failure{
		Object: patch, Field: field, Rule: ruletest.Forbidden, Value: value,
		Message: "needs the verb " + verb + " on tenantcontrolplanes, which an administrator grants by the ClusterRole stoker-privileged-fields",
	}
}

func TestFieldsThatReachBeyondATenantNeedAVerb(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	e.PrivilegedFields(t, env.IntakeUser, false)
	for way, write := range map[string]writer{"kubectl": clientWriter(asEditor(t)), "event": eventWriter(t)} {
		t.Run(way, func(t *testing.T) {
			for i, p := range privileged {
				o := reaching(p.patch, fmt.Sprintf("beyond-%c%d", way[0], i))
				want := withoutVerb(p.patch, p.field, p.value, p.verb)
				if no := write(t, v1alpha1.TenantControlPlaneKind, o); !slices.ContainsFunc(no, func(c complaint) bool { return c.is(want) }) {
					t.Errorf("%s\nwant  %s\ngot   %v", p.patch, want, no)
				}
			}
			for i, patch := range harmless {
				o := reaching(patch, fmt.Sprintf("within-%c%d", way[0], i))
				if no := write(t, v1alpha1.TenantControlPlaneKind, o); no != nil {
					t.Errorf("%s\nrefused: %v", patch, no)
				}
			}
		})
	}
	t.Run("with the verbs all are accepted", func(t *testing.T) {
		d := asAuthor(t)
		for _, p := range privileged {
			o := &unstructured.Unstructured{Object: reaching(p.patch, "allowed")}
			if _, err := resource(d, v1alpha1.TenantControlPlaneKind).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%s\nrefused: %v", p.patch, err)
			}
		}
	})
}

const (
	mounted = `additionalVolumes: [{name: a, hostPath: {path: /a}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /a}]}, extraArgs: {apiServer: ["--v=2"]}`
	volumes = `{"spec":{"controlPlane":{"deployment":{"additionalVolumes":`
	args    = `{"spec":{"controlPlane":{"deployment":{"extraArgs":{"apiServer":["--audit-log-path=/a/b"]}}}}}`
)

// changes are made to tenants that have such fields, by somebody without any verb.
var changes = []struct {
	what, from, patch string
	refused           bool
}{
	{what: "another field", from: mounted, patch: `{"spec":{"kubernetes":{"version":"v1.35.5"}}}`},
	{
		what: "another field beside a registry, nodes and metadata", patch: `{"spec":{"kubernetes":{"version":"v1.35.5"}}}`,
		from: `registrySettings: {registry: registry.example.com}, nodeSelector: {a: b}, additionalMetadata: {annotations: {a: b}}`,
	},
	{what: "a finalizer", from: mounted, patch: `{"metadata":{"finalizers":["test.stoker.dev/none"]}}`},
	{what: "the field goes", from: `additionalContainers: [{name: a, image: a}], nodeSelector: {a: b}`, patch: `{"spec":{"controlPlane":{"deployment":{"additionalContainers":null,"nodeSelector":null}}}}`},
	{what: "one of several goes", from: `additionalContainers: [{name: a, image: a}, {name: b, image: b}]`, patch: `{"spec":{"controlPlane":{"deployment":{"additionalContainers":[{"name":"b","image":"b"}]}}}}`},
	{what: "a weakness goes", from: `podSecurityContext: {fsGroup: 0, runAsUser: 0}`, patch: `{"spec":{"controlPlane":{"deployment":{"podSecurityContext":{"fsGroup":1}}}}}`},
	{what: "another image", from: `additionalContainers: [{name: a, image: a}]`, patch: `{"spec":{"controlPlane":{"deployment":{"additionalContainers":[{"name":"a","image":"b"}]}}}}`, refused: true},
	{what: "another annotation", from: `additionalMetadata: {annotations: {a: b}}`, patch: `{"spec":{"controlPlane":{"deployment":{"additionalMetadata":{"annotations":{"a":"c"}}}}}}`, refused: true},
	{what: "another path of the node", from: mounted, patch: volumes + `[{"name":"a","hostPath":{"path":"/"}}]}}}}`, refused: true},
	{what: "mounted elsewhere, too", from: mounted, patch: `{"spec":{"controlPlane":{"deployment":{"additionalVolumeMounts":{"scheduler":[{"name":"a","mountPath":"/a"}]}}}}}`, refused: true},
	{what: "flags that write to the node", from: mounted, patch: args, refused: true},
	{what: "mounted into the controller manager, too", from: mounted, patch: `{"spec":{"controlPlane":{"deployment":{"additionalVolumeMounts":{"controllerManager":[{"name":"a","mountPath":"/a"}]}}}}}`, refused: true},
	{what: "flags of the controller manager beside a volume", from: mounted, patch: strings.Replace(args, "apiServer", "controllerManager", 1), refused: true},
	{what: "flags of the scheduler beside a volume", from: mounted, patch: `{"spec":{"controlPlane":{"deployment":{"extraArgs":{"scheduler":["--v=2","--profiling=true"]}}}}}`, refused: true},
	{what: "flags of kine beside a volume", from: mounted, patch: `{"spec":{"controlPlane":{"deployment":{"extraArgs":{"kine":["--debug"]}}}}}`, refused: true},
	{what: "flags beside a token", from: `automountServiceAccountToken: true`, patch: args, refused: true},
	{
		what: "flags of konnectivity's server beside a token", from: `automountServiceAccountToken: true`, refused: true,
		patch: `{"spec":{"addons":{"konnectivity":{"server":{"extraArgs":["--v=2"]}}}}}`,
	},
	{
		what: "flags of konnectivity's server of a tenant without such fields", from: `replicas: 1`,
		patch: `{"spec":{"addons":{"konnectivity":{"server":{"extraArgs":["--v=2"]}}}}}`,
	},
	{what: "flags of a tenant without such fields", from: `replicas: 1`, patch: args},
}

// TestAFieldThatReachesBeyondATenantStays has an administrator make tenants with such fields, and somebody without any verb change
// them: what was there may stay or go, and nothing of the kind may come.
func TestAFieldThatReachesBeyondATenantStays(t *testing.T) {
	cfg, _ := admin(t)
	administrator := dynamic.NewForConfigOrDie(cfg)
	someone := asEditor(t)
	for i, test := range changes {
		t.Run(test.what, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: reaching(deployment(test.from), fmt.Sprintf("stays-%d", i))}
			if _, err := resource(administrator, v1alpha1.TenantControlPlaneKind).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err := resource(someone, v1alpha1.TenantControlPlaneKind).Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(test.patch), metav1.PatchOptions{})
			if refused := apierrors.IsForbidden(err); refused != test.refused || err != nil && !refused {
				t.Errorf("refused is %v: %v", refused, err)
			}
		})
	}
	t.Run("another address as external IP", func(t *testing.T) {
		o := &unstructured.Unstructured{Object: reaching(
			`spec: {networkProfile: {address: 192.0.2.1, allowAddressAsExternalIP: true}, controlPlane: {service: {serviceType: ClusterIP}}}`, "stays-address")}
		if _, err := resource(administrator, v1alpha1.TenantControlPlaneKind).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := resource(someone, v1alpha1.TenantControlPlaneKind).Patch(t.Context(), o.GetName(), types.MergePatchType,
			[]byte(`{"spec":{"networkProfile":{"address":"192.0.2.2"}}}`), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	})
}
