// Command kamajitypes writes the Go types by which Kamaji's provider for Cluster API is built in tests, from the CRD of TenantControlPlanes.
// The CRD says which fields there are, of which kind, and which are required. A table here adds what a CRD doesn't say and the provider's code
// depends on: the names of Go types, which of them are pointers, and which fields have Kubernetes' own types.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:generate go run . ../..

const (
	crd    = "deployments/crds/kamaji.clastix.io_tenantcontrolplanes.yaml"
	output = "local/images/kamaji-provider/kamaji/api/v1alpha1/zz_generated.types.go"
)

// types are the Go types of fields, by their path. A type without a package is written here. An object or a list of objects that isn't listed is
// left out, because the provider doesn't know it.
var types = map[string]string{
	"spec":                         "TenantControlPlaneSpec",
	"spec.writePermissions":        "Permissions",
	"spec.dataStoreOverrides":      "[]DataStoreOverride",
	"spec.controlPlane":            "ControlPlane",
	"spec.controlPlane.deployment": "DeploymentSpec",
	"spec.controlPlane.deployment.registrySettings":                 "RegistrySettings",
	"spec.controlPlane.deployment.replicas":                         "*int32",
	"spec.controlPlane.deployment.strategy":                         "appsv1.DeploymentStrategy",
	"spec.controlPlane.deployment.tolerations":                      "[]corev1.Toleration",
	"spec.controlPlane.deployment.affinity":                         "*corev1.Affinity",
	"spec.controlPlane.deployment.topologySpreadConstraints":        "[]corev1.TopologySpreadConstraint",
	"spec.controlPlane.deployment.resources":                        "*ControlPlaneComponentsResources",
	"spec.controlPlane.deployment.resources.apiServer":              "*corev1.ResourceRequirements",
	"spec.controlPlane.deployment.resources.controllerManager":      "*corev1.ResourceRequirements",
	"spec.controlPlane.deployment.resources.scheduler":              "*corev1.ResourceRequirements",
	"spec.controlPlane.deployment.resources.kine":                   "*corev1.ResourceRequirements",
	"spec.controlPlane.deployment.extraArgs":                        "*ControlPlaneExtraArgs",
	"spec.controlPlane.deployment.additionalMetadata":               "AdditionalMetadata",
	"spec.controlPlane.deployment.podAdditionalMetadata":            "AdditionalMetadata",
	"spec.controlPlane.deployment.additionalInitContainers":         "[]corev1.Container",
	"spec.controlPlane.deployment.additionalContainers":             "[]corev1.Container",
	"spec.controlPlane.deployment.additionalVolumes":                "[]corev1.Volume",
	"spec.controlPlane.deployment.additionalVolumeMounts":           "*AdditionalVolumeMounts",
	"spec.controlPlane.deployment.additionalVolumeMounts.apiServer": "[]corev1.VolumeMount",
	"spec.controlPlane.deployment.additionalVolumeMounts.scheduler": "[]corev1.VolumeMount",
	"spec.controlPlane.deployment.probes":                           "*ControlPlaneProbes",
	"spec.controlPlane.deployment.probes.apiServer":                 "*ProbeSet",
	"spec.controlPlane.deployment.probes.controllerManager":         "*ProbeSet",
	"spec.controlPlane.deployment.probes.scheduler":                 "*ProbeSet",
	"spec.controlPlane.service":                                     "ServiceSpec",
	"spec.controlPlane.service.additionalMetadata":                  "AdditionalMetadata",
	"spec.controlPlane.service.additionalPorts":                     "[]AdditionalPort",
	"spec.controlPlane.service.additionalPorts.protocol":            "corev1.Protocol",
	"spec.controlPlane.service.serviceType":                         "ServiceType",
	"spec.controlPlane.ingress":                                     "*IngressSpec",
	"spec.controlPlane.ingress.additionalMetadata":                  "AdditionalMetadata",
	"spec.controlPlane.gateway":                                     "*GatewaySpec",
	"spec.controlPlane.gateway.additionalMetadata":                  "AdditionalMetadata",
	"spec.controlPlane.gateway.parentRefs":                          "[]gatewayv1.ParentReference",
	"spec.controlPlane.gateway.hostname":                            "gatewayv1.Hostname",
	"spec.kubernetes":                                               "KubernetesSpec",
	"spec.kubernetes.kubelet":                                       "KubeletSpec",
	"spec.kubernetes.kubelet.configurationJSONPatches":              "[]JSONPatch",
	"spec.kubernetes.admissionControllers":                          "AdmissionControllers",
	"spec.networkProfile":                                           "NetworkProfileSpec",
	"spec.networkProfile.loadBalancerClass":                         "*string",
	"spec.addons":                                                   "AddonsSpec",
	"spec.addons.coreDNS":                                           "*AddonSpec",
	"spec.addons.kubeProxy":                                         "*AddonSpec",
	"spec.addons.konnectivity":                                      "*KonnectivitySpec",
	"spec.addons.konnectivity.server":                               "KonnectivityServerSpec",
	"spec.addons.konnectivity.server.resources":                     "*corev1.ResourceRequirements",
	"spec.addons.konnectivity.agent":                                "KonnectivityAgentSpec",
	"spec.addons.konnectivity.agent.tolerations":                    "[]corev1.Toleration",
	"spec.addons.konnectivity.agent.replicas":                       "*int32",
	"status":                                    "TenantControlPlaneStatus",
	"status.certificates":                       "CertificatesStatus",
	"status.certificates.ca":                    "SecretStatus",
	"status.kubeconfig":                         "KubeconfigsStatus",
	"status.kubeconfig.admin":                   "SecretStatus",
	"status.kubernetesResources":                "KubernetesStatus",
	"status.kubernetesResources.version":        "KubernetesVersion",
	"status.kubernetesResources.version.status": "*KubernetesVersionStatus",
	"status.kubernetesResources.deployment":     "KubernetesDeploymentStatus",
	"spec.controlPlane.deployment.additionalVolumeMounts.controllerManager": "[]corev1.VolumeMount",
}

func init() {
	for _, component := range []string{"", ".apiServer", ".controllerManager", ".scheduler"} {
		for _, probe := range []string{"liveness", "readiness", "startup"} {
			types["spec.controlPlane.deployment.probes"+component+"."+probe] = "*ProbeSpec"
		}
	}
}

// pointers are fields of a type that are pointers throughout.
var pointers = map[string]bool{"ProbeSpec": true, "AdditionalPort.appProtocol": true}

// sentEmpty are fields that the provider sends (true) or leaves out (false) while they are empty, where the provider differs from the CRD.
var sentEmpty = map[string]bool{
	"KonnectivityServerSpec.port": true, "KubernetesSpec.kubelet": true, "DataStoreOverride.dataStore": false, "DataStoreOverride.resource": false,
	"GatewaySpec.hostname": false, "GatewaySpec.parentRefs": false, "IngressSpec.hostname": false,
}

// written are types that are written by hand, because no object of the CRD has them.
var written = []string{"ServiceType", "AdmissionControllers", "KubernetesVersionStatus"}

// embedded maps a type to the type that it embeds.
var embedded = map[string]string{"ControlPlaneProbes": "ProbeSet", "KubernetesDeploymentStatus": "appsv1.DeploymentStatus"}

// own are the fields that types with embedded ones have of their own.
var own = map[string][]string{
	"ControlPlaneProbes": {"apiServer", "controllerManager", "scheduler"}, "KubernetesDeploymentStatus": {"selector"},
}

// fields maps JSON names to Go names where a capital first letter isn't enough.
var fields = map[string]string{
	"apiServer": "APIServer", "apiServerImage": "APIServerImage", "ca": "CA", "cgroupfs": "CGroupFS", "certSANs": "CertSANs", "coreDNS": "CoreDNS",
	"dnsServiceIPs": "DNSServiceIPs", "kubeconfig": "KubeConfig", "kubernetesResources": "Kubernetes", "parentRefs": "GatewayParentRefs",
	"podCidr": "PodCIDR", "serviceCidr": "ServiceCIDR", "blockCreation": "BlockCreate", "blockUpdate": "BlockUpdate", "blockDeletion": "BlockDelete",
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kamajitypes ROOT")
		os.Exit(2)
	}
	root := os.Args[1]
	text, err := generate(root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, output), text, 0o644) //nolint:gosec // a public file
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate returns the types, from the CRD below root.
func generate(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, crd))
	if err != nil {
		return nil, err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &definition); err != nil {
		return nil, err
	}
	w := writer{done: map[string]bool{}, used: map[string]bool{}}
	for _, name := range written {
		w.done[name] = true
	}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		w.object(part, types[part], schema.Properties[part])
	}
	for path := range types {
		if !w.used[path] && path != "spec" && path != "status" {
			return nil, fmt.Errorf("%s: the CRD has no such field", path)
		}
	}
	return format.Source([]byte("// Code generated by kamajitypes. DO NOT EDIT.\n\npackage v1alpha1\n\nimport (\n" +
		"appsv1 \"k8s.io/api/apps/v1\"\ncorev1 \"k8s.io/api/core/v1\"\n\"k8s.io/apimachinery/pkg/runtime\"\n" +
		"\"k8s.io/apimachinery/pkg/util/intstr\"\ngatewayv1 \"sigs.k8s.io/gateway-api/apis/v1\"\n)\n" + w.String()))
}

type writer struct {
	bytes.Buffer
	done map[string]bool // types
	used map[string]bool // paths
}

// object writes the type of an object and those of the objects in it.
func (w *writer) object(path, name string, schema apiextensionsv1.JSONSchemaProps) {
	if w.done[name] {
		name = "" // only what is in it may be new
	}
	w.done[name] = true
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n// %s is the type of %s.\ntype %s struct {\n", name, path, name)
	if in := embedded[name]; in != "" {
		fmt.Fprintf(&text, "%s `json:\",inline\"`\n\n", in)
	}
	type child struct {
		path, name string
		schema     apiextensionsv1.JSONSchemaProps
	}
	var children []child
	for _, property := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[property]
		at := path + "." + property
		kind := w.kind(at, name, property, field)
		bare := strings.TrimLeft(kind, "[]*")
		if of := types[at]; of != "" && !strings.Contains(bare, ".") && (field.Type == "object" || field.Type == "array") {
			if field.Type == "array" {
				field = *field.Items.Schema // a structural schema has one
			}
			children = append(children, child{at, bare, field})
		}
		if kind == "" || own[name] != nil && !slices.Contains(own[name], property) {
			continue
		}
		omit := ",omitempty"
		if sent, ok := sentEmpty[name+"."+property]; sent || !ok && slices.Contains(schema.Required, property) {
			omit = ""
		}
		goName := cmp.Or(fields[property], strings.ToUpper(property[:1])+property[1:])
		fmt.Fprintf(&text, "%s %s `json:\"%s%s\"`\n", goName, kind, property, omit)
	}
	if name != "" {
		w.Write(text.Bytes())
		w.WriteString("}\n")
	}
	for _, c := range children {
		w.object(c.path, c.name, c.schema)
	}
}

// kind is the Go type of a field; empty for one that is left out.
func (w *writer) kind(path, of, property string, schema apiextensionsv1.JSONSchemaProps) (kind string) {
	if kind, ok := types[path]; ok {
		w.used[path] = true
		return kind
	}
	switch {
	case schema.XIntOrString:
		return "intstr.IntOrString"
	case schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields:
		return "*runtime.RawExtension"
	case schema.Type == "object" && schema.AdditionalProperties != nil:
		return "map[string]string"
	case schema.Type == "array" && schema.Items.Schema.Type == "string":
		return "[]string"
	}
	kind = map[string]string{"string": "string", "boolean": "bool", "integer": cmp.Or(schema.Format, "int64")}[schema.Type]
	if kind != "" && (pointers[of] || pointers[of+"."+property]) {
		kind = "*" + kind
	}
	return kind
}
