package ruletest

import (
	"fmt"
	"strings"
)

// Gateway makes a tenant that asks for routes, which are accepted only where TLSRoutes are served.
const Gateway = `spec: {controlPlane: {gateway: {hostname: a.b, parentRefs: [{name: edge}]}}}`

// NoRoutes is what is said of it elsewhere.
var NoRoutes = Failure{
	Object: Gateway, Field: "spec.controlPlane.gateway", Rule: Forbidden,
	Message: "the management cluster serves no TLSRoutes of gateway.networking.k8s.io/v1: install the Gateway API, or remove gateway",
}

// a63 is as long as a label may be.
var a63 = strings.Repeat("a", 63)

const (
	nameMessage = "becomes the name of a Service: use at most 63 lower case letters, digits and dashes, the first a letter"
	versionForm = "must be a version of Kubernetes, such as v1.36.3"
	versionLow  = "is older than v1.30, the first version that Stoker supports: upgrade the tenant with Kamaji first (docs/kamaji.md, Versions)"
	versionHigh = "is newer than v1.36, the last version that Stoker supports"
	versionJump = "skips a minor version: name a version of the next one, unless the annotation " +
		"stoker.dev/upgrade-through names one version of each minor version between, such as v1.34.4,v1.35.4"
	loopback = "advertiseAddress must not be a loopback, link-local, multicast or unspecified address: nodes could not reach it"
)

func tenants() []Rule {
	return []Rule{
		{
			Name:   "a name is a DNS-1035 label",
			Passes: []string{`metadata: {name: ` + a63 + `}`, `metadata: {name: a-1}`},
			Fails: []Failure{
				{`metadata: {name: ` + a63 + `a}`, "metadata.name", Invalid, a63 + "a", nameMessage},
				{`metadata: {name: a.b}`, "metadata.name", Invalid, "a.b", nameMessage},
				{`metadata: {name: 1a}`, "metadata.name", Invalid, "1a", nameMessage},
			},
		},
		{
			Name:   "a version is one of those supported, with or without v",
			Passes: []string{`spec: {kubernetes: {version: v1.30.0}}`, `spec: {kubernetes: {version: 1.36.3}}`, `spec: {kubernetes: {version: v1.36.0-rc.1}}`, `spec: {kubernetes: {version: v1.33.99}}`},
			Fails: []Failure{
				{`spec: {kubernetes: {version: v1.29.9}}`, "spec.kubernetes.version", Invalid, "v1.29.9", versionLow},
				{`spec: {kubernetes: {version: v0.36.0}}`, "spec.kubernetes.version", Invalid, "v0.36.0", versionLow},
				{`spec: {kubernetes: {version: v1.37.0}}`, "spec.kubernetes.version", Invalid, "v1.37.0", versionHigh},
				{`spec: {kubernetes: {version: v2.31.0}}`, "spec.kubernetes.version", Invalid, "v2.31.0", versionHigh},
				{`spec: {kubernetes: {version: v1.36}}`, "spec.kubernetes.version", Invalid, "v1.36", versionForm},
				{`spec: {kubernetes: {version: latest}}`, "spec.kubernetes.version", Invalid, "latest", versionForm},
				{`spec: {kubernetes: {version: v1.99999999999999999999.0}}`, "spec.kubernetes.version", Invalid, "v1.99999999999999999999.0", versionForm},
			},
		},
		{
			Name: "a version moves one minor up at a time, never to a lower minor, and freely among patches", Policy: true,
			From: `spec: {kubernetes: {version: v1.34.2}}`,
			Passes: []string{
				`spec: {kubernetes: {version: 1.34.2}}`, `spec: {kubernetes: {version: v1.34.0}}`, `spec: {kubernetes: {version: v1.34.9}}`,
				`spec: {kubernetes: {version: v1.35.4}}`,
			},
			Fails: []Failure{
				{`spec: {kubernetes: {version: v1.33.9}}`, "spec.kubernetes.version", Invalid, "v1.33.9", "Kubernetes cannot go back to an earlier minor version: keep the minor version of the tenant, or name the next one"},
				{`spec: {kubernetes: {version: v1.36.0}}`, "spec.kubernetes.version", Invalid, "v1.36.0", versionJump},
			},
		},
		{
			Name: "a version moves several minors up if one version of each between is named", Policy: true,
			From: `spec: {kubernetes: {version: v1.33.2}}`,
			Passes: []string{
				through("v1.34.4,v1.35.4", "v1.36.0"), through("1.35.4, 1.34.4", "v1.36.0"), through("v1.34.4", "v1.35.0"),
				through("v1.31.0,v1.34.4,v1.36.1", "v1.35.0"), through("v1.35.9", "v1.34.0"),
			},
			Fails: []Failure{
				{through("v1.34.4", "v1.36.0"), "spec.kubernetes.version", Invalid, "v1.36.0", versionJump},
				{through("v1.35.4", "v1.36.0"), "spec.kubernetes.version", Invalid, "v1.36.0", versionJump},
				{through("v1.34.4,v1.35.4,v1.35.5", "v1.36.0"), "spec.kubernetes.version", Invalid, "v1.36.0", versionJump},
				{through("v1.32.0", "v1.32.0"), "spec.kubernetes.version", Invalid, "v1.32.0", "Kubernetes cannot go back to an earlier minor version: keep the minor version of the tenant, or name the next one"},
			},
		},
		{
			Name:   "admission plugins are those there are",
			Passes: []string{`spec: {kubernetes: {admissionControllers: [PodSecurity, AlwaysPullImages]}}`, `spec: {kubernetes: {admissionControllers: []}}`},
			Fails: []Failure{{
				`spec: {kubernetes: {admissionControllers: [Nope]}}`, "spec.kubernetes.admissionControllers[0]", NotSupported, "Nope",
				`supported values: "AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyEscalatingExec", "DenyExecOnPrivileged", "DenyServiceExternalIPs", "EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NamespaceLifecycle", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "PersistentVolumeLabel", "PodNodeSelector", "PodSecurity", "PodSecurityPolicy", "PodTolerationRestriction", "Priority", "ResourceQuota", "RuntimeClass", "SecurityContextDeny", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionWebhook"`,
			}},
		},
		{
			Name:   "address types are some of five, each once",
			Passes: []string{`spec: {kubernetes: {kubelet: {preferredAddressTypes: [ExternalDNS, Hostname]}}}`},
			Fails: []Failure{
				{`spec: {kubernetes: {kubelet: {preferredAddressTypes: [Hostname, Hostname]}}}`, "spec.kubernetes.kubelet.preferredAddressTypes", Invalid, "Hostname", "preferredAddressTypes entries must be unique"},
				{`spec: {kubernetes: {kubelet: {preferredAddressTypes: []}}}`, "spec.kubernetes.kubelet.preferredAddressTypes", Invalid, "0", "spec.kubernetes.kubelet.preferredAddressTypes in body should have at least 1 items"},
				{`spec: {kubernetes: {kubelet: {preferredAddressTypes: [Mac]}}}`, "spec.kubernetes.kubelet.preferredAddressTypes[0]", NotSupported, "Mac", `supported values: "Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"`},
			},
		},
		{
			Name: "patches of the kubelet's configuration are operations of RFC 6902",
			Passes: []string{
				`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: add, path: /a, value: text}, {op: move, from: /a, path: /b~1c/0}, {op: remove, path: /b}]}}}`,
				`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: add, path: /a, value: {b: [1]}}, {op: replace, path: "", value: {}}]}}}`,
			},
			Fails: []Failure{
				{`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: set, path: /a, value: 1}]}}}`, "spec.kubernetes.kubelet.configurationJSONPatches[0].op", NotSupported, "set", `supported values: "add", "remove", "replace", "move", "copy", "test"`},
				{`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: copy, path: /a}]}}}`, "spec.kubernetes.kubelet.configurationJSONPatches[0].from", Required, "", "move and copy need it: the source, a JSON pointer"},
				{`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: remove, path: a}]}}}`, "spec.kubernetes.kubelet.configurationJSONPatches[0].path", Invalid, "a", `spec.kubernetes.kubelet.configurationJSONPatches[0].path in body should match '^(/([^~/]|~[01])*)*$'`},
				{`spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: move, from: /~2, path: /a}]}}}`, "spec.kubernetes.kubelet.configurationJSONPatches[0].from", Invalid, "/~2", `spec.kubernetes.kubelet.configurationJSONPatches[0].from in body should match '^(/([^~/]|~[01])*)*$'`},
			},
		},
		{
			Name:   "the cgroup driver is one of two",
			Passes: []string{`spec: {kubernetes: {kubelet: {cgroupfs: cgroupfs}}}`},
			Fails:  []Failure{{`spec: {kubernetes: {kubelet: {cgroupfs: v2}}}`, "spec.kubernetes.kubelet.cgroupfs", NotSupported, "v2", `supported values: "systemd", "cgroupfs"`}},
		},
		{
			Name:   "ingress and gateway exclude each other",
			Passes: []string{`spec: {controlPlane: {ingress: {hostname: a.b}}}`, Gateway},
			Fails: []Failure{{
				`spec: {controlPlane: {ingress: {hostname: a.b}, gateway: {hostname: a.b, parentRefs: [{name: edge}]}}}`,
				"spec.controlPlane.gateway", Invalid, "", "ingress and gateway exclude each other: remove one",
			}},
		},
		{
			Name:   "an ingress has a host name, perhaps with a port",
			Passes: []string{`spec: {controlPlane: {ingress: {hostname: "demo.example.com:443", ingressClassName: nginx}}}`},
			Fails: []Failure{
				{`spec: {controlPlane: {ingress: {}}}`, "spec.controlPlane.ingress.hostname", Required, "", ""},
				{`spec: {controlPlane: {ingress: {hostname: "a.b:70000"}}}`, "spec.controlPlane.ingress.hostname", Invalid, "a.b:70000", "must be a DNS name, or one with a port, such as demo.example.com:443"},
				{`spec: {controlPlane: {ingress: {hostname: "192.0.2.1:443"}}}`, "spec.controlPlane.ingress.hostname", Invalid, "192.0.2.1:443", "must be a DNS name, or one with a port, such as demo.example.com:443"},
				{`spec: {controlPlane: {ingress: {hostname: "https://a.b"}}}`, "spec.controlPlane.ingress.hostname", Invalid, "https://a.b", "must be a DNS name, or one with a port, such as demo.example.com:443"},
				{`spec: {controlPlane: {ingress: {hostname: a.b, ingressClassName: A}}}`, "spec.controlPlane.ingress.ingressClassName", Invalid, "A", "spec.controlPlane.ingress.ingressClassName in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$'"},
			},
		},
		{
			Name:   "a gateway has a host name and parents",
			Passes: []string{Gateway},
			Fails: []Failure{
				{`spec: {controlPlane: {gateway: {parentRefs: [{name: edge}]}}}`, "spec.controlPlane.gateway.hostname", Required, "", ""},
				{`spec: {controlPlane: {gateway: {hostname: a.b}}}`, "spec.controlPlane.gateway.parentRefs", Required, "", ""},
				{`spec: {controlPlane: {gateway: {hostname: a.b, parentRefs: []}}}`, "spec.controlPlane.gateway.parentRefs", Invalid, "0", "spec.controlPlane.gateway.parentRefs in body should have at least 1 items"},
				{`spec: {controlPlane: {gateway: {hostname: 192.0.2.1, parentRefs: [{name: edge}]}}}`, "spec.controlPlane.gateway.hostname", Invalid, "192.0.2.1", "must be a DNS name, not an IP address"},
				{`spec: {controlPlane: {gateway: {hostname: "*.b", parentRefs: [{name: edge}]}}}`, "spec.controlPlane.gateway.hostname", Invalid, "*.b", "must not be a wildcard: it is the host of the tenant's endpoint"},
			},
		},
		{
			Name: "a DataStore can be chosen later and changed, but not unset", From: `spec: {dataStore: a}`,
			Passes: []string{`spec: {dataStore: b}`},
			Fails: []Failure{
				{`{}`, "spec.dataStore", Invalid, "a", "the field cannot be removed: keep it, or name the DataStore to move the tenant to"},
				{`spec: {dataStore: ""}`, "spec.dataStore", Invalid, "a", "the field cannot be removed: keep it, or name the DataStore to move the tenant to"},
			},
		},
		{Name: "a DataStore can be chosen later", From: `{}`, Passes: []string{`spec: {dataStore: a}`}},
		{
			Name:  "a DataStore's name is a DNS name of at most 63 characters",
			Fails: []Failure{{`spec: {dataStore: A}`, "spec.dataStore", Invalid, "A", "spec.dataStore in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$'"}, {`spec: {dataStore: ` + a63 + `a}`, "spec.dataStore", TooLong, "", "may not be more than 63 bytes"}},
		},
		{
			Name: "a schema is fixed once set", From: `spec: {dataStoreSchema: a}`,
			Passes: []string{`spec: {dataStoreSchema: a, kubernetes: {version: v1.35.5}}`},
			Fails: []Failure{
				{`{}`, "spec.dataStoreSchema", Invalid, "a", "the field cannot be removed, because the schema has the data of the tenant: keep it"},
				{`spec: {dataStoreSchema: b}`, "spec.dataStoreSchema", Invalid, "b", "the schema cannot change, because it has the data of the tenant: write the former value"},
			},
		},
		{
			Name: "a user is fixed once set", From: `spec: {dataStoreUsername: a}`,
			Passes: []string{`spec: {dataStoreUsername: a, kubernetes: {version: v1.35.5}}`},
			Fails: []Failure{
				{`{}`, "spec.dataStoreUsername", Invalid, "a", "the field cannot be removed, because the API server of the tenant logs in with it: keep it"},
				{`spec: {dataStoreUsername: b}`, "spec.dataStoreUsername", Invalid, "b", "the user cannot change, because the API server of the tenant logs in with it: write the former value"},
			},
		},
		{
			Name:   "a schema and a user have letters, digits, dots, dashes and underscores",
			Passes: []string{`spec: {dataStoreSchema: default_demo-1.a, dataStoreUsername: 2f4c6f0e-1d5e-4a53-9bd9-2a6a5f1f9d65}`},
			Fails: []Failure{
				{`spec: {dataStoreSchema: a/b}`, "spec.dataStoreSchema", Invalid, "a/b", "spec.dataStoreSchema in body should match '^([A-Za-z0-9_][-A-Za-z0-9_.]*)?$'"},
				{`spec: {dataStoreUsername: "a b"}`, "spec.dataStoreUsername", Invalid, "a b", "spec.dataStoreUsername in body should match '^([A-Za-z0-9_][-A-Za-z0-9_.]*)?$'"},
			},
		},
		{
			Name:   "an override keeps one resource in one DataStore",
			Passes: []string{`spec: {dataStoreOverrides: [{resource: /events, dataStore: a}, {resource: coordination.k8s.io/leases, dataStore: a}]}`},
			Fails: []Failure{
				{`spec: {dataStoreOverrides: [{resource: /events, dataStore: a}, {resource: /events, dataStore: b}]}`, "spec.dataStoreOverrides", Invalid, "/events", "duplicate resource override: a resource can be kept in one DataStore only"},
				{`spec: {dataStoreOverrides: [{dataStore: a}]}`, "spec.dataStoreOverrides[0].resource", Required, "", ""},
				{`spec: {dataStoreOverrides: [{resource: /events}]}`, "spec.dataStoreOverrides[0].dataStore", Required, "", ""},
				{`spec: {dataStoreOverrides: [{resource: events, dataStore: a}]}`, "spec.dataStoreOverrides[0].resource", Invalid, "events", "spec.dataStoreOverrides[0].resource in body should match '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?/[a-z0-9]+$'"},
			},
		},
		{
			Name: "overrides come, change and go",
			From: `spec: {dataStoreOverrides: [{resource: /events, dataStore: b}, {resource: coordination.k8s.io/leases, dataStore: b}]}`,
			Passes: []string{
				`{}`,
				`spec: {dataStoreOverrides: [{resource: coordination.k8s.io/leases, dataStore: a}]}`,
				`spec: {dataStoreOverrides: [{resource: coordination.k8s.io/leases, dataStore: b}, {resource: apps/deployments, dataStore: b}]}`,
			},
		},
		{
			Name: "the DataStores of a tenant exist", Policy: true,
			Passes: []string{`spec: {dataStore: a}`, `spec: {dataStore: sql}`, `spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: b}]}`},
			Fails: []Failure{
				{`spec: {dataStore: nope}`, "spec.dataStore", Invalid, "nope", "no DataStore has this name: create it, or name another one"},
				{`spec: {dataStoreOverrides: [{resource: /events, dataStore: nope}]}`, "spec.dataStoreOverrides", Invalid, "nope", "no DataStore has this name: create it, or name another one"},
			},
		},
		{
			Name: "overrides are for etcd only", Policy: true,
			Passes: []string{`spec: {dataStoreOverrides: [{resource: /events, dataStore: b}]}`},
			Fails: []Failure{
				{`spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: sql}]}`, "spec.dataStoreOverrides", Invalid, "sql", "dataStoreOverrides need a DataStore whose driver is etcd"},
				{`spec: {dataStore: sql, dataStoreOverrides: [{resource: /events, dataStore: b}]}`, "spec.dataStore", Invalid, "sql", "dataStoreOverrides need a DataStore whose driver is etcd"},
			},
		},
		{
			Name: "an override that comes or changes later is judged as those of a new tenant are", Policy: true,
			From:   `spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: b}]}`,
			Passes: []string{`spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: a}]}`, `spec: {dataStore: b, dataStoreOverrides: [{resource: /events, dataStore: b}]}`},
			Fails: []Failure{
				{`spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: nope}]}`, "spec.dataStoreOverrides", Invalid, "nope", "no DataStore has this name: create it, or name another one"},
				{`spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: sql}]}`, "spec.dataStoreOverrides", Invalid, "sql", "dataStoreOverrides need a DataStore whose driver is etcd"},
			},
		},
		{
			Name: "a tenant of another driver than etcd gets no override later", Policy: true, From: `spec: {dataStore: sql}`,
			Fails: []Failure{{`spec: {dataStore: sql, dataStoreOverrides: [{resource: /events, dataStore: b}]}`, "spec.dataStore", Invalid, "sql", "dataStoreOverrides need a DataStore whose driver is etcd"}},
		},
		{
			Name: "a DataStore of another driver than etcd can't come beside an override later", Policy: true,
			From:   `spec: {dataStoreOverrides: [{resource: /events, dataStore: b}]}`,
			Passes: []string{`spec: {dataStore: a, dataStoreOverrides: [{resource: /events, dataStore: b}]}`},
			Fails: []Failure{{
				`spec: {dataStore: sql, dataStoreOverrides: [{resource: /events, dataStore: b}]}`,
				"spec.dataStore", Invalid, "sql", "dataStoreOverrides need a DataStore whose driver is etcd",
			}},
		},
		{
			Name: "data migrates between DataStores of any drivers", Policy: true, From: `spec: {dataStore: a}`,
			Passes: []string{`spec: {dataStore: b}`, `spec: {dataStore: sql}`},
		},
		{
			Name:   "a Service has one of three types",
			Passes: []string{`spec: {controlPlane: {service: {serviceType: ClusterIP}}}`},
			Fails:  []Failure{{`spec: {controlPlane: {service: {serviceType: ExternalName}}}`, "spec.controlPlane.service.serviceType", NotSupported, "ExternalName", `supported values: "ClusterIP", "NodePort", "LoadBalancer"`}},
		},
		{
			Name: "a NodePort needs an address", Policy: true,
			Passes: []string{`spec: {controlPlane: {service: {serviceType: NodePort}}, networkProfile: {address: 192.0.2.1, port: 30443}}`},
			Fails:  []Failure{{`spec: {controlPlane: {service: {serviceType: NodePort}}}`, "spec.networkProfile.address", Required, "", "must be set with serviceType NodePort: the address of a node or of what stands before the nodes"}},
		},
		{
			Name: "source ranges are for a load balancer", Policy: true,
			Passes: []string{`spec: {networkProfile: {loadBalancerSourceRanges: [10.0.0.0/8, "fd00::/8"]}}`, `spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {loadBalancerSourceRanges: []}}`},
			Fails: []Failure{
				{`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {loadBalancerSourceRanges: [10.0.0.0/8]}}`, "spec.networkProfile.loadBalancerSourceRanges", Invalid, "10.0.0.0/8", "only Services of type LoadBalancer have them: set serviceType to LoadBalancer, or remove the field"},
			},
		},
		{
			Name: "source ranges are CIDRs",
			Fails: []Failure{
				{`spec: {networkProfile: {loadBalancerSourceRanges: [10.0.0.0/8, 10.0.0.1]}}`, "spec.networkProfile.loadBalancerSourceRanges[1]", Invalid, "10.0.0.1", "each entry must be a CIDR, such as 192.0.2.0/24"},
				{`spec: {networkProfile: {loadBalancerSourceRanges: [` + repeat(17, func(int) string { return "10.0.0.0/8" }) + `]}}`, "spec.networkProfile.loadBalancerSourceRanges", TooMany, "17", "must have at most 16 items"},
			},
		},
		{
			Name: "a class is for a load balancer", Policy: true,
			Passes: []string{`spec: {networkProfile: {loadBalancerClass: example.com/internal}}`},
			Fails: []Failure{
				{`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {loadBalancerClass: a}}`, "spec.networkProfile.loadBalancerClass", Invalid, "a", "only Services of type LoadBalancer have one: set serviceType to LoadBalancer, or remove the field"},
			},
		},
		{
			Name: "a class is a name",
			Fails: []Failure{
				{`spec: {networkProfile: {loadBalancerClass: a b}}`, "spec.networkProfile.loadBalancerClass", Invalid, "a b", "spec.networkProfile.loadBalancerClass in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"},
			},
		},
		{
			Name: "a class is fixed", From: `spec: {networkProfile: {loadBalancerClass: a}}`,
			Passes: []string{`spec: {networkProfile: {loadBalancerClass: a, certSANs: [a.b]}}`},
			Fails: []Failure{
				{`{}`, "spec.networkProfile.loadBalancerClass", Invalid, "", "the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one"},
				{`spec: {networkProfile: {loadBalancerClass: b}}`, "spec.networkProfile.loadBalancerClass", Invalid, "b", "the class cannot change, because Kubernetes fixes it for a Service: write the former value"},
			},
		},
		{
			Name: "a class can't come later", From: `{}`,
			Fails: []Failure{{`spec: {networkProfile: {loadBalancerClass: a}}`, "spec.networkProfile.loadBalancerClass", Invalid, "a", "the class cannot be added or removed while serviceType is LoadBalancer: Kubernetes fixes it when the Service becomes one"}},
		},
		{
			Name: "a class can come with the change to a load balancer", From: `spec: {controlPlane: {service: {serviceType: ClusterIP}}}`,
			Passes: []string{`spec: {networkProfile: {loadBalancerClass: a}}`},
		},
		{
			Name:   "node ports can be declined for a load balancer",
			Passes: []string{`spec: {controlPlane: {service: {allocateLoadBalancerNodePorts: false}}}`},
			Fails:  []Failure{{`spec: {controlPlane: {service: {serviceType: ClusterIP, allocateLoadBalancerNodePorts: false}}}`, "spec.controlPlane.service.allocateLoadBalancerNodePorts", Invalid, "false", "only Services of type LoadBalancer have it: set serviceType to LoadBalancer, or remove the field"}},
		},
		{
			Name:   "additional ports have names and numbers of their own",
			Passes: []string{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 53, targetPort: 53}, {name: b, port: 53, protocol: UDP, targetPort: dns, appProtocol: example.com/dns}, {name: c, port: 6443, protocol: UDP, targetPort: 6443}]}}}`},
			Fails: []Failure{
				{`spec: {controlPlane: {service: {additionalPorts: [{name: kube-apiserver, port: 1, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts[0].name", Invalid, "kube-apiserver", "additional ports cannot be named kube-apiserver or konnectivity-server"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 1}, {name: a, port: 2, targetPort: b}]}}}`, "spec.controlPlane.service.additionalPorts", Invalid, "a", "two additional ports have this name: rename one"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 1}, {name: b, port: 1, targetPort: b}]}}}`, "spec.controlPlane.service.additionalPorts", Invalid, "1", "additional ports must not repeat a port of the same protocol"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: A, port: 1, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts[0].name", Invalid, "A", "spec.controlPlane.service.additionalPorts[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 0, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts[0].port", Invalid, "0", "spec.controlPlane.service.additionalPorts[0].port in body should be greater than or equal to 1"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 65536}]}}}`, "spec.controlPlane.service.additionalPorts[0].targetPort", Invalid, "65536", "spec.controlPlane.service.additionalPorts[0].targetPort in body should be less than or equal to 65535"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: "1"}]}}}`, "spec.controlPlane.service.additionalPorts[0].targetPort", Invalid, "1", "spec.controlPlane.service.additionalPorts[0].targetPort in body should match '^([0-9]-?)*[a-z](-?[a-z0-9])*$'"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 1, protocol: ICMP}]}}}`, "spec.controlPlane.service.additionalPorts[0].protocol", NotSupported, "ICMP", `supported values: "TCP", "UDP", "SCTP"`},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 1, appProtocol: "a/b/c"}]}}}`, "spec.controlPlane.service.additionalPorts[0].appProtocol", Invalid, "a/b/c", "spec.controlPlane.service.additionalPorts[0].appProtocol in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"},
			},
		},
		{
			Name: "additional ports are other than those of the API server and konnectivity", Policy: true,
			Passes: []string{
				`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 6443, targetPort: 1, protocol: UDP}, {name: b, port: 8133, targetPort: 1}, {name: c, port: 8134, targetPort: 1}]}}}`,
				`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 8132, targetPort: 1}]}}, addons: {konnectivity: null}}`,
			},
			Fails: []Failure{
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 6443, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts", Invalid, "6443", "additional ports cannot use the port of the API server or of konnectivity"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 8132, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts", Invalid, "8132", "additional ports cannot use the port of the API server or of konnectivity"},
				{
					`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 8133, targetPort: 1}]}}, networkProfile: {port: 8133}, addons: {konnectivity: null}}`,
					"spec.controlPlane.service.additionalPorts", Invalid, "8133", "additional ports cannot use the port of the API server or of konnectivity",
				},
			},
		},
		{
			Name: "a port that changes is judged beside the Service's that stay", Policy: true,
			From:   `spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 7443, targetPort: 1}]}}}`,
			Passes: []string{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 7443, targetPort: 1}]}}, networkProfile: {port: 7444}}`},
			Fails: []Failure{
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 7443, targetPort: 1}]}}, networkProfile: {port: 7443}}`, "spec.controlPlane.service.additionalPorts", Invalid, "7443", "additional ports cannot use the port of the API server or of konnectivity"},
				{`spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 6443, targetPort: 1}]}}}`, "spec.controlPlane.service.additionalPorts", Invalid, "6443", "additional ports cannot use the port of the API server or of konnectivity"},
			},
		},
		{
			Name: "the cluster domain is fixed", From: `{}`,
			Passes: []string{`spec: {networkProfile: {clusterDomain: cluster.local}}`},
			Fails:  []Failure{{`spec: {networkProfile: {clusterDomain: a.b}}`, "spec.networkProfile.clusterDomain", Invalid, "a.b", "the cluster domain cannot change, because certificates and pods have it: write the former value"}},
		},
		{
			Name:   "the cluster domain is a DNS name with a dot",
			Passes: []string{`spec: {networkProfile: {clusterDomain: demo.example.com}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {clusterDomain: local}}`, "spec.networkProfile.clusterDomain", Invalid, "local", "must contain a dot"},
				{`spec: {networkProfile: {clusterDomain: A.b}}`, "spec.networkProfile.clusterDomain", Invalid, "A.b", "must be a DNS name"},
			},
		},
		{
			Name:   "the API server's port is a port that is free",
			Passes: []string{`spec: {networkProfile: {port: 443}}`, `spec: {networkProfile: {port: 8133}, addons: {konnectivity: null}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {port: 0}}`, "spec.networkProfile.port", Invalid, "0", "spec.networkProfile.port in body should be greater than or equal to 1"},
				{`spec: {networkProfile: {port: 65536}}`, "spec.networkProfile.port", Invalid, "65536", "spec.networkProfile.port in body should be less than or equal to 65535"},
				{`spec: {networkProfile: {port: 10257}}`, "spec.networkProfile.port", Invalid, "10257", "is used by kube-controller-manager or kube-scheduler, which run beside the API server"},
			},
		},
		{
			Name: "the API server and konnectivity listen on different ports", Policy: true,
			Passes: []string{`spec: {networkProfile: {port: 8134}, addons: {konnectivity: null}}`, `spec: {addons: {konnectivity: null, coreDNS: {}}}`, `spec: {networkProfile: {port: 8132}, addons: {konnectivity: {server: {port: 6443}}}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {port: 8134}}`, "spec.networkProfile.port", Invalid, "8134", "is used by the konnectivity server for its own administration and health"},
				{`spec: {networkProfile: {port: 8132}}`, "spec.addons.konnectivity.server.port", Invalid, "8132", "is the port of the API server already"},
				{`spec: {addons: {konnectivity: {server: {port: 6443}}}}`, "spec.addons.konnectivity.server.port", Invalid, "6443", "is the port of the API server already"},
			},
		},
		{
			Name: "a change is judged as a new object is", Policy: true, From: `spec: {networkProfile: {port: 443}}`,
			Passes: []string{`spec: {networkProfile: {port: 8443}}`},
			Fails:  []Failure{{`spec: {networkProfile: {port: 8133}}`, "spec.networkProfile.port", Invalid, "8133", "is used by the konnectivity server for its own administration and health"}},
		},
		{
			Name: "a NodePort keeps its address", Policy: true,
			From:   `spec: {controlPlane: {service: {serviceType: NodePort}}, networkProfile: {address: 192.0.2.1}}`,
			Passes: []string{`spec: {controlPlane: {service: {serviceType: NodePort}}, networkProfile: {address: 192.0.2.1}, addons: {coreDNS: {}}}`},
			Fails:  []Failure{{`spec: {controlPlane: {service: {serviceType: NodePort}}, networkProfile: {address: ""}}`, "spec.networkProfile.address", Required, "", "must be set with serviceType NodePort: the address of a node or of what stands before the nodes"}},
		},
		{
			Name:   "an address is one",
			Passes: []string{`spec: {networkProfile: {address: demo.example.com}}`, `spec: {networkProfile: {address: "2001:db8::1"}}`, `spec: {networkProfile: {address: ""}}`},
			Fails:  []Failure{{`spec: {networkProfile: {address: "192.0.2.1:6443"}}`, "spec.networkProfile.address", Invalid, "192.0.2.1:6443", "must be an IP address or a DNS name, without a port"}},
		},
		{
			Name: "an external IP can be reached from outside", Policy: true,
			Passes: []string{
				`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {address: 192.0.2.1, allowAddressAsExternalIP: true}}`,
				`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {address: 127.0.0.1, port: 443}}`,
				`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {address: demo.example.com, allowAddressAsExternalIP: true}}`,
				`spec: {networkProfile: {address: 127.0.0.1, allowAddressAsExternalIP: true}}`,
			},
			Fails: []Failure{{`spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {address: 127.0.0.1, allowAddressAsExternalIP: true}}`, "spec.networkProfile.address", Invalid, "127.0.0.1", "with allowAddressAsExternalIP must not be a loopback, link-local, multicast or unspecified address"}},
		},
		{
			Name:   "an advertise address is an IP address that nodes can reach",
			Passes: []string{`spec: {networkProfile: {advertiseAddress: 192.0.2.1}}`, `spec: {networkProfile: {advertiseAddress: ""}}`, `spec: {networkProfile: {advertiseAddress: "2001:db8::1", serviceCidrs: ["fd00::/112"]}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {advertiseAddress: a.example.com}}`, "spec.networkProfile.advertiseAddress", Invalid, "a.example.com", "must be an IP address, such as 192.0.2.10"},
				{`spec: {networkProfile: {advertiseAddress: 127.0.0.1}}`, "spec.networkProfile.advertiseAddress", Invalid, "127.0.0.1", loopback},
				{`spec: {networkProfile: {advertiseAddress: "fe80::1", serviceCidrs: ["fd00::/112"]}}`, "spec.networkProfile.advertiseAddress", Invalid, "fe80::1", loopback},
			},
		},
		{
			Name: "an advertise address is of the family of the services", Policy: true,
			Passes: []string{
				`spec: {networkProfile: {advertiseAddress: 192.0.2.1}}`, `spec: {networkProfile: {advertiseAddress: "2001:db8::1", serviceCidrs: ["fd00::/112"]}}`,
				`spec: {networkProfile: {advertiseAddress: 192.0.2.1, serviceCidr: ""}}`,
			},
			Fails: []Failure{
				{`spec: {networkProfile: {advertiseAddress: "2001:db8::1"}}`, "spec.networkProfile.advertiseAddress", Invalid, "2001:db8::1", "must be of the IP family of the first service CIDR"},
			},
		},
		{
			Name:   "the service network is a CIDR",
			Passes: []string{`spec: {networkProfile: {serviceCidr: 172.20.0.0/16}}`, `spec: {networkProfile: {serviceCidr: ""}}`},
			Fails:  []Failure{{`spec: {networkProfile: {serviceCidr: 10.96.0.0}}`, "spec.networkProfile.serviceCidr", Invalid, "10.96.0.0", "must be a CIDR, such as 10.96.0.0/16, or empty"}},
		},
		{
			Name:   "the pod network is a CIDR",
			Passes: []string{`spec: {networkProfile: {podCidr: 172.20.0.0/16}}`, `spec: {networkProfile: {podCidr: ""}}`},
			Fails:  []Failure{{`spec: {networkProfile: {podCidr: 10.300.0.0/16}}`, "spec.networkProfile.podCidr", Invalid, "10.300.0.0/16", "must be a CIDR, such as 10.244.0.0/16, or empty"}},
		},
		{
			Name: "service networks are one, or one of each family",
			Passes: []string{
				`spec: {networkProfile: {serviceCidrs: ["fd00::/112", 10.96.0.0/16], podCidrs: ["fd01::/64", 10.244.0.0/16]}}`,
				`spec: {networkProfile: {serviceCidrs: [10.97.0.0/16]}}`, `spec: {networkProfile: {serviceCidrs: [10.97.0.0/16, 10.97.0.0/16]}}`,
			},
			Fails: []Failure{
				{`spec: {networkProfile: {serviceCidrs: [a]}}`, "spec.networkProfile.serviceCidrs[0]", Invalid, "a", "each entry must be a CIDR, such as 10.96.0.0/16"},
				{`spec: {networkProfile: {serviceCidrs: [10.96.0.0/16, a]}}`, "spec.networkProfile.serviceCidrs[1]", Invalid, "a", "each entry must be a CIDR, such as 10.96.0.0/16"},
				{`spec: {networkProfile: {serviceCidrs: [10.1.0.0/16, 10.2.0.0/16]}}`, "spec.networkProfile.serviceCidrs", Invalid, "10.2.0.0/16", "serviceCidrs must not contain two CIDRs of the same IP family"},
				{`spec: {networkProfile: {serviceCidrs: [10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16]}}`, "spec.networkProfile.serviceCidrs", TooMany, "3", "must have at most 2 items"},
				{`spec: {networkProfile: {serviceCidrs: []}}`, "spec.networkProfile.serviceCidrs", Invalid, "0", "spec.networkProfile.serviceCidrs in body should have at least 1 items"},
			},
		},
		{
			Name:   "pod networks are one, or one of each family, the first of that of Services",
			Passes: []string{`spec: {networkProfile: {podCidrs: [10.1.0.0/16, "fd01::/64"]}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {podCidrs: [a]}}`, "spec.networkProfile.podCidrs[0]", Invalid, "a", "each entry must be a CIDR, such as 10.244.0.0/16"},
				{`spec: {networkProfile: {podCidrs: [10.1.0.0/16, 10.2.0.0/16]}}`, "spec.networkProfile.podCidrs", Invalid, "10.2.0.0/16", "podCidrs must not contain two CIDRs of the same IP family"},
				{`spec: {networkProfile: {podCidrs: []}}`, "spec.networkProfile.podCidrs", Invalid, "0", "spec.networkProfile.podCidrs in body should have at least 1 items"},
			},
		},
		{
			Name: "pods and services have the families of their networks in one order", Policy: true,
			Passes: []string{
				`spec: {networkProfile: {serviceCidrs: ["fd00::/112", 10.96.0.0/16], podCidrs: ["fd01::/64", 10.244.0.0/16]}}`,
				`spec: {networkProfile: {port: 443, podCidrs: ["fd01::/64"]}}`,
			},
			Fails: []Failure{
				{`spec: {networkProfile: {serviceCidrs: [10.96.0.0/16], podCidrs: ["fd01::/64"]}}`, "spec.networkProfile.podCidrs", Invalid, "fd01::/64", "the first of podCidrs must be of the IP family of the first of serviceCidrs"},
				{`spec: {networkProfile: {serviceCidrs: [10.96.0.0/16, "fd00::/112"], podCidrs: ["fd01::/64", 10.244.0.0/16]}}`, "spec.networkProfile.podCidrs", Invalid, "fd01::/64", "the first of podCidrs must be of the IP family of the first of serviceCidrs"},
			},
		},
		{
			Name: "networks can change", From: `{}`,
			Passes: []string{`spec: {networkProfile: {serviceCidrs: [10.97.0.0/16], podCidrs: [10.245.0.0/16]}}`},
		},
		{
			Name: "DNS addresses are within a service network", Policy: true,
			Passes: []string{
				`spec: {networkProfile: {dnsServiceIPs: [10.96.0.53]}}`, `spec: {networkProfile: {serviceCidrs: ["fd00::/112"], dnsServiceIPs: ["fd00::10"]}}`,
				`spec: {networkProfile: {serviceCidr: 172.20.0.0/16, dnsServiceIPs: [172.20.0.10]}}`,
			},
			Fails: []Failure{
				{`spec: {networkProfile: {serviceCidrs: [10.97.0.0/16], dnsServiceIPs: [10.97.0.10, 10.96.0.10]}}`, "spec.networkProfile.dnsServiceIPs", Invalid, "10.96.0.10", "is in none of the service CIDRs: take an address of one of them"},
				{`spec: {networkProfile: {serviceCidr: "", dnsServiceIPs: [10.96.0.10]}}`, "spec.networkProfile.dnsServiceIPs", Invalid, "10.96.0.10", "there are no service CIDRs that could contain it: set serviceCidrs"},
			},
		},
		{
			Name:  "DNS addresses are IP addresses",
			Fails: []Failure{{`spec: {networkProfile: {dnsServiceIPs: [a]}}`, "spec.networkProfile.dnsServiceIPs[0]", Invalid, "a", "each entry must be an IP address, such as 10.96.0.10"}},
		},
		{
			Name: "of an update, the new object's DNS addresses count", Policy: true, From: `spec: {networkProfile: {serviceCidrs: [10.96.0.0/16], dnsServiceIPs: [10.96.0.53]}}`,
			Passes: []string{`spec: {networkProfile: {serviceCidrs: [10.97.0.0/16], dnsServiceIPs: [10.97.0.53]}}`},
			Fails:  []Failure{{`spec: {networkProfile: {serviceCidrs: [10.97.0.0/16], dnsServiceIPs: [10.96.0.53]}}`, "spec.networkProfile.dnsServiceIPs", Invalid, "10.96.0.53", "is in none of the service CIDRs: take an address of one of them"}},
		},
		{
			Name:   "names of the certificate are IP addresses, DNS names or wildcards",
			Passes: []string{`spec: {networkProfile: {certSANs: [a.example.com, "*.example.com", 192.0.2.1, "2001:db8::1"]}}`},
			Fails: []Failure{
				{`spec: {networkProfile: {certSANs: ["a.example.com:443"]}}`, "spec.networkProfile.certSANs[0]", Invalid, "a.example.com:443", "each entry must be an IP address or a DNS name, without a port, such as api.example.com"},
				{`spec: {networkProfile: {certSANs: [a.b, "a.*.b"]}}`, "spec.networkProfile.certSANs[1]", Invalid, "a.*.b", "each entry must be an IP address or a DNS name, without a port, such as api.example.com"},
			},
		},
		{
			Name:   "konnectivity's port is a port that is free",
			Passes: []string{`spec: {addons: {konnectivity: {server: {port: 8443}}}}`},
			Fails: []Failure{
				{`spec: {addons: {konnectivity: {server: {port: 0}}}}`, "spec.addons.konnectivity.server.port", Invalid, "0", "spec.addons.konnectivity.server.port in body should be greater than or equal to 1"},
				{`spec: {addons: {konnectivity: {server: {port: 8134}}}}`, "spec.addons.konnectivity.server.port", Invalid, "8134", "is used by the konnectivity server itself, kube-controller-manager or kube-scheduler"},
			},
		},
		{
			Name:   "konnectivity's agents are as many as their mode allows",
			Passes: []string{`spec: {addons: {konnectivity: {agent: {replicas: 0}}}}`, `spec: {addons: {konnectivity: {agent: {mode: Deployment}}}}`, `spec: {addons: {konnectivity: {agent: {mode: Deployment, replicas: 2}}}}`},
			Fails: []Failure{
				{`spec: {addons: {konnectivity: {agent: {replicas: 1}}}}`, "spec.addons.konnectivity.agent.replicas", Invalid, "1", "replicas must be 0 (or unset) when mode is DaemonSet, and greater than 0 (or unset) when mode is Deployment"},
				{`spec: {addons: {konnectivity: {agent: {mode: Deployment, replicas: 0}}}}`, "spec.addons.konnectivity.agent.replicas", Invalid, "0", "replicas must be 0 (or unset) when mode is DaemonSet, and greater than 0 (or unset) when mode is Deployment"},
				{`spec: {addons: {konnectivity: {agent: {mode: StatefulSet}}}}`, "spec.addons.konnectivity.agent.mode", NotSupported, "StatefulSet", `supported values: "DaemonSet", "Deployment"`},
			},
		},
		{
			Name:   "addons' images are images",
			Passes: []string{`spec: {addons: {coreDNS: {imageRepository: "registry.example.com:5000/dns", imageTag: v1.14.7}, konnectivity: {server: {image: "registry.example.com/a", version: v0.34.0}}}}`},
			Fails: []Failure{
				{`spec: {addons: {kubeProxy: {imageRepository: "https://a"}}}`, "spec.addons.kubeProxy.imageRepository", Invalid, "https://a", "spec.addons.kubeProxy.imageRepository in body should match '^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$'"},
				{`spec: {addons: {coreDNS: {imageTag: "a:b"}}}`, "spec.addons.coreDNS.imageTag", Invalid, "a:b", "spec.addons.coreDNS.imageTag in body should match '^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$'"},
				{`spec: {addons: {konnectivity: {agent: {image: "a b"}}}}`, "spec.addons.konnectivity.agent.image", Invalid, "a b", "spec.addons.konnectivity.agent.image in body should match '^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$'"},
			},
		},
	}
}

// through asks for a version, and names versions on the way.
func through(versions, to string) string {
	return fmt.Sprintf(`{metadata: {annotations: {stoker.dev/upgrade-through: "%s"}}, spec: {kubernetes: {version: %s}}}`, versions, to)
}

// annotations are those of all kinds; most mean something for tenants only.
func annotations() []Rule {
	key := func(k, v string) string { return `metadata: {annotations: {"` + k + `": "` + v + `"}}` }
	at := func(k string) string { return "metadata.annotations[" + k + "]" }
	rule := func(name, k, message string, passes []string, fails ...string) Rule {
		r := Rule{Name: name, Policy: true}
		for _, v := range passes {
			r.Passes = append(r.Passes, key(k, v))
		}
		for _, v := range fails {
			r.Fails = append(r.Fails, Failure{key(k, v), at(k), Invalid, v, message})
		}
		return r
	}
	const mustBeCron = "must be minute, hour, day of month, month and day of week, as cron has them, such as 0 20 * * 1-5"
	return []Rule{
		rule("the end of a pause is a time", "stoker.dev/paused-until", "must be a time as RFC 3339 has it, such as 2026-11-20T08:00:00Z",
			[]string{"2036-11-20T08:00:00Z", "2036-11-20T08:00:00.5+01:00"}, "tomorrow", "2036-02-30T08:00:00Z", "2036-11-20 08:00:00Z", "2036-11-20T08:00:00", "2036-11-20t08:00:00z"),
		rule("anything pauses", "kamaji.clastix.io/paused", "", []string{"", "false"}),
		rule("a migration's time-out is a duration", "kamaji.clastix.io/migration-timeout", "must be a duration of more than 0, such as 10m or 1h30m",
			[]string{"10m", "1h30m", "0.5h", "300s"}, "10", "0s", "-5m", "", "1 h"),
		rule("the time for which data of before a migration are kept is a duration", "stoker.dev/migration-grace",
			"must be a duration in hours, minutes and seconds, such as 24h or 1h30m, or 0", []string{"24h", "1h30m", "0", "0s", "90s"}, "1d", "-5m", "", "1 h"),
		rule("clean-up before a migration is true or false", "kamaji.clastix.io/cleanup-prior-migration", "must be true or false",
			[]string{"true", "TRUE", "True", "t", "T", "1", "false", "FALSE", "False", "f", "F", "0"}, "yes", ""),
		rule("a tenant is reached by a kubeconfig that there is", "kamaji.clastix.io/kubeconfig-secret-key",
			"must be a key of the administrators' Secret: admin.conf, admin.svc, super-admin.conf or super-admin.svc",
			[]string{"admin.conf", "admin.svc", "super-admin.conf", "super-admin.svc"}, "nope.conf"),
		rule("kubelets' serving certificates are approved or not", "stoker.dev/kubelet-serving-certificates", "must be approve, or absent",
			[]string{"approve"}, "true", "deny", ""),
		rule("the time for an upgrade is a duration or never", "stoker.dev/upgrade-timeout", "must be a duration in hours, minutes and seconds, such as 10m or 1h30m; or never",
			[]string{"10m", "1h30m", "90s", "0", "never"}, "10", "0s", "-5m", "", "1 h", "forever"),
		rule("the way of an upgrade is versions", "stoker.dev/upgrade-through", "must be versions of Kubernetes from v1.30 to v1.36, such as v1.34.4,v1.35.4",
			[]string{"v1.34.4", "1.34.4, v1.35.4-rc.1"}, "", "latest", "v1.34", "v1.34.4;v1.35.4", "v1.29.1", "v1.34.4,"),
		rule("a selector of DataStores is one", "stoker.dev/datastore-selector", "must be a label selector, such as tier=gold,region in (eu,us)",
			[]string{"", "tier=gold", "a!=b, !c,d", "region in (eu, us),x notin (y)", "example.com/tier==a"}, "a=b=c", "in (a", "a,"),
		rule("a limit of tenants is a number", "stoker.dev/max-tenants", "must be a number of tenants, such as 200", []string{"0", "200"}, "many", "-1", "1.5", ""),
		rule("a limit of bytes is a quantity", "stoker.dev/max-bytes", "must be a number of bytes, such as 8Gi",
			[]string{"0", "8Gi", "1.5Ti", "2G", "1000000"}, "8GB", "-1Gi", "8 Gi", "8Ei", ""),
		rule("what a sleeping tenant had is a number of replicas", "stoker.dev/awake-replicas", "must be a number of replicas", []string{"3"}, "many", "-1"),
		rule("when a tenant sleeps is a cron expression", "stoker.dev/sleep-at", mustBeCron,
			[]string{"0 20 * * 1-5", "*/5 8-18/2 1,15 jan-MAR sun,6", " 30  2 ? * ? "}, "60 20 * * *", "0 24 * * *", "0 20 32 * *", "0 20 * 13 *",
			"0 20 * * 7", "0 20 * *", "@daily", "CRON_TZ=UTC 0 20 * * *", "0 20 * * 1-5 2026", "0/0 20 * * *", ""),
		rule("when it wakes, too", "stoker.dev/wake-at", mustBeCron, []string{"0 7 * * 1-5", "59 23 31 12 6"}, "0 7", "0 24 * * *", ""),
		rule("its time zone is the name of one", "stoker.dev/time-zone", "must be a time zone of the IANA database, such as Europe/Berlin",
			[]string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"}, "Local", "+02:00", "../etc/passwd", "Europe/", "a/b/c/d", ""),
		rule("idleness that puts it to sleep has a time", "stoker.dev/sleep-when-idle", "must be a duration in hours and minutes, from 15m to 720h, such as 30m or 1h30m",
			[]string{"15m", "1h30m", "720h", "43200m"}, "14m", "721h", "30", "1800s", "1d", "-30m", "", "never"),
		rule("what put it to sleep by itself is idleness", "stoker.dev/slept-by", "must be idleness, or absent", []string{"idleness"}, "", "me"),
		rule("connections wake it or not", "stoker.dev/wake-on", "must be connection, or absent", []string{"connection"}, "true", "Connection", ""),
		rule("when it was put to sleep is a time", "stoker.dev/slept-at", "must be a time as RFC 3339 has it, such as 2026-11-20T08:00:00Z",
			[]string{"2026-11-20T08:00:00.123456789Z"}, "now", "2026-02-30T08:00:00Z"),
		rule("when it was woken is a time", "stoker.dev/woken-at", "must be a time as RFC 3339 has it, such as 2026-11-20T08:00:00Z",
			[]string{"2026-11-20T08:00:00+01:00"}, "now", "2026-02-30T08:00:00Z"),
		{
			Name: "an annotation that changes is judged as a new one is", Policy: true, From: key("stoker.dev/max-tenants", "10"),
			Passes: []string{key("stoker.dev/max-tenants", "20")},
			Fails: []Failure{{
				key("stoker.dev/max-tenants", "many"), at("stoker.dev/max-tenants"), Invalid, "many", "must be a number of tenants, such as 200",
			}},
		},
	}
}
