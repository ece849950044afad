package v1alpha1_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

const (
	tenantCRD    = "kamaji.clastix.io_tenantcontrolplanes.yaml"
	dataStoreCRD = "kamaji.clastix.io_datastores.yaml"
)

// definition is a CustomResourceDefinition as an API server works with it.
type definition struct {
	internal   *apiextensions.CustomResourceDefinition
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// loadDefinition reads a generated CustomResourceDefinition and refuses it if an API server would.
func loadDefinition(t *testing.T, file string) *definition {
	t.Helper()

	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(readFile(t, filepath.Join("..", "..", "..", "deployments", "crds", file)), &crd); err != nil {
		t.Fatal(err)
	}

	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}

	d := &definition{internal: &apiextensions.CustomResourceDefinition{}}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		&crd, d.internal, nil); err != nil {
		t.Fatal(err)
	}

	schema, err := apiextensions.GetSchemaForVersion(d.internal, crd.Spec.Versions[0].Name)
	if err != nil {
		t.Fatal(err)
	}

	if d.structural, err = structuralschema.NewStructural(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	if d.schema, _, err = validation.NewSchemaValidator(schema.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}

	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)

	return d
}

// admit does to an object what an API server does before it stores it: prune, default, validate. old is nil for a new
// object.
func (d *definition) admit(t *testing.T, object, old map[string]any) []string {
	t.Helper()

	var errs field.ErrorList

	for _, path := range pruning.PruneWithOptions(object, d.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}

	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.structural)
	defaulting.Default(object, d.structural)

	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)

	var before any

	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, object, d.schema)...)
	} else {
		defaulting.Default(old, d.structural)

		before = old
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, object, old, d.schema)...)
	}

	fromRules, _ := d.rules.Validate(t.Context(), nil, d.structural, object, before, celconfig.RuntimeCELCostBudget)

	messages := make([]string, 0, len(errs)+len(fromRules))
	for _, err := range append(errs, fromRules...) {
		messages = append(messages, err.Error())
	}

	return messages
}

func TestDefinitionsAreAcceptedByAnAPIServer(t *testing.T) {
	t.Parallel()

	for _, file := range []string{tenantCRD, dataStoreCRD} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()

			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), loadDefinition(t, file).internal) {
				t.Error(err)
			}
		})
	}
}

func TestDefaultsFireWhereTheParentIsOmitted(t *testing.T) {
	t.Parallel()

	object := decode(t, []byte(smallestTenant))
	if refused := loadDefinition(t, tenantCRD).admit(t, object, nil); len(refused) != 0 {
		t.Fatal(refused)
	}

	for path, want := range map[string]any{
		"spec.networkProfile.port":                                           int64(6443),
		"spec.networkProfile.clusterDomain":                                  "cluster.local",
		"spec.networkProfile.serviceCidr":                                    "10.96.0.0/16",
		"spec.networkProfile.podCidr":                                        "10.244.0.0/16",
		"spec.controlPlane.deployment.replicas":                              int64(2),
		"spec.controlPlane.deployment.serviceAccountName":                    "default",
		"spec.controlPlane.deployment.registrySettings.registry":             "registry.k8s.io",
		"spec.controlPlane.deployment.strategy.rollingUpdate.maxSurge":       "100%",
		"spec.controlPlane.deployment.strategy.rollingUpdate.maxUnavailable": int64(0),
		"spec.addons.konnectivity.server.port":                               int64(8132),
		"spec.addons.konnectivity.agent.mode":                                "DaemonSet",
		"spec.addons.konnectivity.agent.image":                               "registry.k8s.io/kas-network-proxy/proxy-agent",
	} {
		got, _, err := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
		if err != nil || got != want {
			t.Errorf("%s is %v (%T), want %v; %v", path, got, got, want, err)
		}
	}

	for path, want := range map[string]int{
		"spec.kubernetes.admissionControllers":          17,
		"spec.kubernetes.kubelet.preferredAddressTypes": 3,
	} {
		list, _, err := unstructured.NestedSlice(object, strings.Split(path, ".")...)
		if err != nil || len(list) != want {
			t.Errorf("%s has %d entries, want %d; %v", path, len(list), want, err)
		}
	}
}

// smallestTenant sets nothing but what it must, and the addon that has defaults.
const smallestTenant = `
apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata:
  name: demo
  namespace: default
spec:
  controlPlane:
    service:
      serviceType: LoadBalancer
  kubernetes:
    version: v1.35.4
  addons:
    konnectivity: {}
`

const smallestDataStore = `
apiVersion: kamaji.clastix.io/v1alpha1
kind: DataStore
metadata:
  name: main
spec:
  driver: etcd
  endpoints: ["etcd.example.com:2379"]
  tlsConfig:
    certificateAuthority:
      certificate: {content: YQ==}
      privateKey: {content: YQ==}
    clientCertificate:
      certificate: {content: YQ==}
      privateKey: {content: YQ==}
`

// rule is one way to write an object and what an API server says to it.
type rule struct {
	// from is merged into the smallest object to make the stored one; empty when the object is new.
	from string
	// to is merged into the smallest object to make the written one.
	to string
	// refused is a part of the refusal; empty when the object is accepted.
	refused string
}

func TestTenantControlPlaneRules(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", 64)

	checkRules(t, tenantCRD, smallestTenant, map[string]rule{
		"a name of 63 characters is accepted":  {to: `metadata: {name: ` + long[:63] + `}`},
		"a longer name is refused":             {to: `metadata: {name: ` + long + `}`, refused: "the provided name is invalid"},
		"a name with a dot is refused":         {to: `metadata: {name: a.b}`, refused: "the provided name is invalid"},
		"a name starting with a digit refused": {to: `metadata: {name: 1a}`, refused: "the provided name is invalid"},

		"an unknown field is refused":        {to: `spec: {nope: 1}`, refused: "spec.nope: Forbidden: unknown field"},
		"an unknown service type is refused": {to: `spec: {controlPlane: {service: {serviceType: X}}}`, refused: "Unsupported value"},

		"the lowest version is accepted":           {to: `spec: {kubernetes: {version: v1.30.0}}`},
		"a version without v is accepted":          {to: `spec: {kubernetes: {version: 1.36.3}}`},
		"a pre-release is accepted":                {to: `spec: {kubernetes: {version: v1.36.0-rc.1}}`},
		"a version too low is refused":             {to: `spec: {kubernetes: {version: v1.29.9}}`, refused: "lower than the supported one"},
		"a version too high is refused":            {to: `spec: {kubernetes: {version: v1.37.0}}`, refused: "greater than the supported one"},
		"another major version is refused":         {to: `spec: {kubernetes: {version: v2.31.0}}`, refused: "greater than the supported one"},
		"a version without patch is refused":       {to: `spec: {kubernetes: {version: v1.36}}`, refused: "unable to parse the desired Kubernetes version"},
		"a version that is none is refused":        {to: `spec: {kubernetes: {version: latest}}`, refused: "unable to parse the desired Kubernetes version"},
		"a version with a huge number is refused":  {to: `spec: {kubernetes: {version: v1.99999999999999999999.0}}`, refused: "unable to parse the desired Kubernetes version"},
		"the next minor version is accepted":       {from: `{}`, to: `spec: {kubernetes: {version: 1.36.3}}`},
		"a lower patch is accepted":                {from: `{}`, to: `spec: {kubernetes: {version: v1.35.0}}`},
		"a lower minor version is refused":         {from: `{}`, to: `spec: {kubernetes: {version: v1.34.9}}`, refused: "unable to downgrade"},
		"two minor versions at once are refused":   {from: `spec: {kubernetes: {version: v1.34.0}}`, to: `spec: {kubernetes: {version: v1.36.0}}`, refused: "non-sequential mode"},
		"adding only the v is accepted":            {from: `spec: {kubernetes: {version: 1.35.4}}`, to: `{}`},
		"an unknown admission plugin is refused":   {to: `spec: {kubernetes: {admissionControllers: [Nope]}}`, refused: "Unsupported value"},
		"a repeated address type is refused":       {to: `spec: {kubernetes: {kubelet: {preferredAddressTypes: [Hostname, Hostname]}}}`, refused: "preferredAddressTypes entries must be unique"},
		"no address type is refused":               {to: `spec: {kubernetes: {kubelet: {preferredAddressTypes: []}}}`, refused: "should have at least 1 items"},
		"an unknown patch operation is refused":    {to: `spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: set, path: /a}]}}}`, refused: "Unsupported value"},
		"a patch's value can be text":              {to: `spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: add, path: /a, value: text}]}}}`},
		"a patch's value can be any object":        {to: `spec: {kubernetes: {kubelet: {configurationJSONPatches: [{op: add, path: /a, value: {b: [1]}}]}}}`},
		"an unknown cgroup driver is refused":      {to: `spec: {kubernetes: {kubelet: {cgroupfs: v2}}}`, refused: "Unsupported value"},
		"ingress alone is accepted":                {to: `spec: {controlPlane: {ingress: {hostname: a.b}}}`},
		"ingress and gateway together are refused": {to: `spec: {controlPlane: {ingress: {hostname: a.b}, gateway: {hostname: a.b}}}`, refused: "using both ingress and gateway is not supported"},

		"a DataStore can be chosen later":           {from: `{}`, to: `spec: {dataStore: a}`},
		"a DataStore can be changed":                {from: `spec: {dataStore: a}`, to: `spec: {dataStore: b}`},
		"a DataStore cannot be unset":               {from: `spec: {dataStore: a}`, to: `{}`, refused: "unsetting the dataStore is not supported"},
		"a schema cannot be unset":                  {from: `spec: {dataStoreSchema: a}`, to: `{}`, refused: "unsetting the dataStoreSchema is not supported"},
		"a schema cannot be changed":                {from: `spec: {dataStoreSchema: a}`, to: `spec: {dataStoreSchema: b}`, refused: "changing the dataStoreSchema is not supported"},
		"a user cannot be unset":                    {from: `spec: {dataStoreUsername: a}`, to: `{}`, refused: "unsetting the dataStoreUsername is not supported"},
		"a user cannot be changed":                  {from: `spec: {dataStoreUsername: a}`, to: `spec: {dataStoreUsername: b}`, refused: "changing the dataStoreUsername is not supported"},
		"two overrides of one resource are refused": {to: `spec: {dataStoreOverrides: [{resource: /events, dataStore: a}, {resource: /events, dataStore: b}]}`, refused: "duplicate resource override"},

		"source ranges with a load balancer are accepted":     {to: `spec: {networkProfile: {loadBalancerSourceRanges: [10.0.0.0/8]}}`},
		"source ranges without one are refused":               {to: `spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {loadBalancerSourceRanges: [10.0.0.0/8]}}`, refused: "LoadBalancer source ranges are supported only with LoadBalancer service type"},
		"no source ranges without one are accepted":           {to: `spec: {controlPlane: {service: {serviceType: ClusterIP}}, networkProfile: {loadBalancerSourceRanges: []}}`},
		"a source range that is an address is refused":        {to: `spec: {networkProfile: {loadBalancerSourceRanges: [10.0.0.1]}}`, refused: "all LoadBalancer source range entries must be valid CIDR"},
		"a class without a load balancer is refused":          {to: `spec: {controlPlane: {service: {serviceType: NodePort}}, networkProfile: {loadBalancerClass: a}}`, refused: "LoadBalancerClass is supported only with LoadBalancer service type"},
		"a class cannot be set later":                         {from: `{}`, to: `spec: {networkProfile: {loadBalancerClass: a}}`, refused: "LoadBalancerClass cannot be set or unset at runtime"},
		"a class cannot be unset":                             {from: `spec: {networkProfile: {loadBalancerClass: a}}`, to: `{}`, refused: "LoadBalancerClass cannot be set or unset at runtime"},
		"a class cannot be changed":                           {from: `spec: {networkProfile: {loadBalancerClass: a}}`, to: `spec: {networkProfile: {loadBalancerClass: b}}`, refused: "LoadBalancerClass is immutable"},
		"a class can come with the change to a load balancer": {from: `spec: {controlPlane: {service: {serviceType: ClusterIP}}}`, to: `spec: {networkProfile: {loadBalancerClass: a}}`},
		"node ports of a load balancer can be declined":       {to: `spec: {controlPlane: {service: {allocateLoadBalancerNodePorts: false}}}`},
		"node ports without a load balancer are refused":      {to: `spec: {controlPlane: {service: {serviceType: ClusterIP, allocateLoadBalancerNodePorts: false}}}`, refused: "allocateLoadBalancerNodePorts is supported only with LoadBalancer service type"},
		"a port named like ours is refused":                   {to: `spec: {controlPlane: {service: {additionalPorts: [{name: kube-apiserver, port: 1, targetPort: 1}]}}}`, refused: "additional ports cannot be named"},
		"two ports of one name are refused":                   {to: `spec: {controlPlane: {service: {additionalPorts: [{name: a, port: 1, targetPort: 1}, {name: a, port: 2, targetPort: b}]}}}`, refused: "additional ports must have unique names"},

		"the cluster domain cannot be changed":             {from: `{}`, to: `spec: {networkProfile: {clusterDomain: a.b}}`, refused: "changing the cluster domain is not supported"},
		"a cluster domain without a dot is refused":        {to: `spec: {networkProfile: {clusterDomain: local}}`, refused: "clusterDomain"},
		"a port of zero is refused":                        {to: `spec: {networkProfile: {port: 0}}`, refused: "networkProfile.port"},
		"a port too high is refused":                       {to: `spec: {networkProfile: {port: 65536}}`, refused: "networkProfile.port"},
		"an IPv6 advertise address is accepted":            {to: `spec: {networkProfile: {advertiseAddress: "2001:db8::1"}}`},
		"an empty advertise address is accepted":           {to: `spec: {networkProfile: {advertiseAddress: ""}}`},
		"a name as advertise address is refused":           {to: `spec: {networkProfile: {advertiseAddress: a.example.com}}`, refused: "advertiseAddress must be a valid IP address"},
		"a malformed service CIDR is refused":              {to: `spec: {networkProfile: {serviceCidr: 10.96.0.0}}`, refused: "serviceCidr must be a valid CIDR"},
		"a malformed pod CIDR is refused":                  {to: `spec: {networkProfile: {podCidr: 10.300.0.0/16}}`, refused: "podCidr must be a valid CIDR"},
		"dual stack, IPv6 first, is accepted":              {to: `spec: {networkProfile: {serviceCidrs: ["fd00::/112", 10.96.0.0/16], podCidrs: ["fd01::/64", 10.244.0.0/16]}}`},
		"a malformed entry of service CIDRs is refused":    {to: `spec: {networkProfile: {serviceCidrs: [a]}}`, refused: "all serviceCidrs entries must be valid CIDRs"},
		"a malformed entry of two service CIDRs likewise":  {to: `spec: {networkProfile: {serviceCidrs: [a, 10.96.0.0/16]}}`, refused: "all serviceCidrs entries must be valid CIDRs"},
		"two service CIDRs of one family are refused":      {to: `spec: {networkProfile: {serviceCidrs: [10.1.0.0/16, 10.2.0.0/16]}}`, refused: "serviceCidrs must not contain two CIDRs of the same IP family"},
		"three service CIDRs are refused":                  {to: `spec: {networkProfile: {serviceCidrs: [10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16]}}`, refused: "must have at most 2 items"},
		"a malformed entry of pod CIDRs is refused":        {to: `spec: {networkProfile: {podCidrs: [a]}}`, refused: "all podCidrs entries must be valid CIDRs"},
		"two pod CIDRs of one family are refused":          {to: `spec: {networkProfile: {podCidrs: [10.1.0.0/16, 10.2.0.0/16]}}`, refused: "podCidrs must not contain two CIDRs of the same IP family"},
		"CIDRs can change":                                 {from: `{}`, to: `spec: {networkProfile: {serviceCidrs: [10.97.0.0/16]}}`},
		"a DNS address in the default network is accepted": {to: `spec: {networkProfile: {dnsServiceIPs: [10.96.0.53]}}`},
		"a DNS address in a named network is accepted":     {to: `spec: {networkProfile: {serviceCidrs: ["fd00::/112"], dnsServiceIPs: ["fd00::10"]}}`},
		"a DNS address outside the network is refused":     {to: `spec: {networkProfile: {serviceCidrs: [10.97.0.0/16], dnsServiceIPs: [10.96.0.10]}}`, refused: "all dnsServiceIPs entries must be contained in a service CIDR"},
		"a DNS address that is none is refused":            {to: `spec: {networkProfile: {dnsServiceIPs: [a]}}`, refused: "all dnsServiceIPs entries must be valid IP addresses"},
		"names and addresses as SANs are accepted":         {to: `spec: {networkProfile: {certSANs: [a.example.com, "*.example.com", 192.0.2.1, "2001:db8::1"]}}`},
		"a SAN with a port is refused":                     {to: `spec: {networkProfile: {certSANs: ["a.example.com:443"]}}`, refused: "all certSANs entries must be valid IP addresses or DNS names"},
		"negative replicas are refused":                    {to: `spec: {controlPlane: {deployment: {replicas: -1}}}`, refused: "replicas"},
		"no replicas are accepted":                         {to: `spec: {controlPlane: {deployment: {replicas: 0}}}`},
		"a probe period of zero is refused":                {to: `spec: {controlPlane: {deployment: {probes: {liveness: {periodSeconds: 0}}}}}`, refused: "periodSeconds"},
		"a strategy of only a type is accepted":            {to: `spec: {controlPlane: {deployment: {strategy: {type: Recreate}}}}`},
		"agents as DaemonSet with replicas are refused":    {to: `spec: {addons: {konnectivity: {agent: {replicas: 1}}}}`, refused: "replicas must be 0 (or unset) when mode is DaemonSet"},
		"agents as DaemonSet with 0 replicas are accepted": {to: `spec: {addons: {konnectivity: {agent: {replicas: 0}}}}`},
		"agents as Deployment are accepted":                {to: `spec: {addons: {konnectivity: {agent: {mode: Deployment}}}}`},
		"agents as Deployment of two are accepted":         {to: `spec: {addons: {konnectivity: {agent: {mode: Deployment, replicas: 2}}}}`},
		"agents as Deployment of none are refused":         {to: `spec: {addons: {konnectivity: {agent: {mode: Deployment, replicas: 0}}}}`, refused: "greater than 0 (or unset) when mode is Deployment"},
	})
}

func TestDataStoreRules(t *testing.T) {
	t.Parallel()

	const sql = `driver: PostgreSQL, basicAuth: {username: {content: YQ==}, password: {content: YQ==}}`

	checkRules(t, dataStoreCRD, smallestDataStore, map[string]rule{
		"an etcd with all certificates is accepted":     {to: `{}`},
		"an etcd by Secret references is accepted":      {to: `spec: {tlsConfig: {certificateAuthority: {privateKey: {content: null, secretReference: {name: a, namespace: b, keyPath: c}}}}}`},
		"an etcd without TLS is refused":                {to: `spec: {tlsConfig: null}`, refused: "certificateAuthority privateKey must have secretReference or content when driver is etcd"},
		"an etcd without the key of its CA refused":     {to: `spec: {tlsConfig: {certificateAuthority: {privateKey: null}}}`, refused: "certificateAuthority privateKey must have secretReference or content when driver is etcd"},
		"an etcd without client certificate is refused": {to: `spec: {tlsConfig: {clientCertificate: null}}`, refused: "clientCertificate must have secretReference or content when driver is etcd"},
		"an etcd with an empty certificate is refused":  {to: `spec: {tlsConfig: {clientCertificate: {certificate: {content: null}}}}`, refused: "clientCertificate must have secretReference or content when driver is etcd"},
		"an etcd with an empty client key is refused":   {to: `spec: {tlsConfig: {clientCertificate: {privateKey: {content: null}}}}`, refused: "clientCertificate privateKey must have secretReference or content when driver is etcd"},
		"a PostgreSQL with password alone is accepted":  {to: `spec: {tlsConfig: null, ` + sql + `}`},
		"a PostgreSQL with certificates alone accepted": {to: `spec: {driver: PostgreSQL}`},
		"a NATS with a CA alone is accepted":            {to: `spec: {driver: NATS, tlsConfig: {clientCertificate: null}}`},
		"a MySQL with neither is refused":               {to: `spec: {driver: MySQL, tlsConfig: null}`, refused: "either tlsConfig or basicAuth must be provided"},
		"a MySQL with an empty user name is refused":    {to: `spec: {driver: MySQL, basicAuth: {username: {}, password: {content: YQ==}}}`, refused: "username must have secretReference or content"},
		"a MySQL with an empty password is refused":     {to: `spec: {driver: MySQL, basicAuth: {username: {content: YQ==}, password: {}}}`, refused: "password must have secretReference or content"},
		"a MySQL with an empty certificate is refused":  {to: `spec: {driver: MySQL, tlsConfig: {clientCertificate: {certificate: {content: null}}}}`, refused: "clientCertificate must be null or contain valid content"},
		"a driver cannot be changed":                    {from: `{}`, to: `spec: {driver: NATS}`, refused: "driver is immutable"},
		"an unknown driver is refused":                  {to: `spec: {driver: SQLite}`, refused: "Unsupported value"},
		"no endpoints are refused":                      {to: `spec: {endpoints: []}`, refused: "should have at least 1 items"},
		"an endpoint with a scheme is refused":          {to: `spec: {endpoints: ["https://etcd:2379"]}`, refused: "all endpoints must be host:port"},
		"an endpoint without a port is refused":         {to: `spec: {endpoints: [etcd]}`, refused: "all endpoints must be host:port"},
		"an endpoint with an IPv6 address is accepted":  {to: `spec: {endpoints: ["[2001:db8::1]:2379"]}`},
		"an endpoint without brackets is refused":       {to: `spec: {endpoints: ["2001:db8::1:2379"]}`, refused: "all endpoints must be host:port"},
		"a Secret reference without a key is refused":   {to: `spec: {driver: MySQL, basicAuth: {username: {secretReference: {name: a}}, password: {content: YQ==}}}`, refused: "keyPath: Required value"},
		"content that is not base64 encoded is refused": {to: `spec: {driver: MySQL, basicAuth: {username: {content: "%"}, password: {content: YQ==}}}`, refused: "Invalid byte formatted string"},
	})
}

func checkRules(t *testing.T, file, smallest string, rules map[string]rule) {
	t.Helper()

	d := loadDefinition(t, file)

	for sentence, rule := range rules {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()

			var old map[string]any
			if rule.from != "" {
				old = merge(decode(t, []byte(smallest)), decode(t, []byte(rule.from)))
			}

			refused := d.admit(t, merge(decode(t, []byte(smallest)), decode(t, []byte(rule.to))), old)

			switch {
			case rule.refused == "" && len(refused) != 0:
				t.Errorf("refused: %s", refused)
			case rule.refused != "" && !slices.ContainsFunc(refused, func(s string) bool { return strings.Contains(s, rule.refused) }):
				t.Errorf("not refused with %q but: %s", rule.refused, refused)
			}

			for _, message := range refused {
				expected := rule.refused != "" && strings.Contains(message, rule.refused)
				if !expected && strings.Contains(message, "evaluating rule") {
					t.Errorf("a rule fails instead of refusing: %s", message)
				}
			}
		})
	}
}

// merge is RFC 7386 on decoded objects, in place.
func merge(object, patch map[string]any) map[string]any {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		outer, wasMap := object[key].(map[string]any)

		switch {
		case value == nil:
			delete(object, key)
		case isMap && wasMap:
			object[key] = merge(outer, inner)
		case isMap:
			object[key] = merge(map[string]any{}, inner)
		default:
			object[key] = value
		}
	}

	return object
}

func TestFullObjectsAreAccepted(t *testing.T) {
	t.Parallel()

	for file, crd := range map[string]string{"tenantcontrolplane.yaml": tenantCRD, "datastore.yaml": dataStoreCRD} {
		for _, without := range []string{"ingress", "gateway"} {
			t.Run(file+" without "+without, func(t *testing.T) {
				t.Parallel()

				object := decode(t, readFile(t, filepath.Join("testdata", file)))
				unstructured.RemoveNestedField(object, "spec", "controlPlane", without)

				if refused := loadDefinition(t, crd).admit(t, object, nil); len(refused) != 0 {
					t.Errorf("refused: %s", refused)
				}
			})
		}
	}
}
