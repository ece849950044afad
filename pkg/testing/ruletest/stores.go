package ruletest

import (
	"strconv"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Drivers are all that a DataStore may have, in the definition's order, which the rule of them holds them to. By it, tests know
// that a table has a row for each.
func Drivers() []v1alpha1.Driver {
	return []v1alpha1.Driver{v1alpha1.DriverEtcd, v1alpha1.DriverMySQL, v1alpha1.DriverPostgreSQL, v1alpha1.DriverNATS}
}

func dataStores() []Rule {
	const (
		sql  = `driver: PostgreSQL, basicAuth: {username: {content: YQ==}, password: {content: YQ==}}`
		host = "all endpoints must be host:port without a scheme, an IPv6 address in brackets"
	)
	var drivers []string
	for _, d := range Drivers() {
		drivers = append(drivers, strconv.Quote(string(d)))
	}
	return []Rule{
		{
			Name:   "a DataStore's name fits a label",
			Passes: []string{`metadata: {name: ` + a63 + `}`},
			Fails:  []Failure{{`metadata: {name: ` + a63 + `a}`, "metadata.name", Invalid, a63 + "a", "must have at most 63 characters: it becomes the value of a label"}},
		},
		{
			Name:   "etcd has the key of its authority",
			Passes: []string{`{}`, `spec: {tlsConfig: {certificateAuthority: {privateKey: {content: null, secretReference: {name: a, namespace: b, keyPath: c}}}}}`},
			Fails: []Failure{
				{`spec: {tlsConfig: null}`, "spec.tlsConfig", Required, "", "set certificateAuthority.privateKey, as content or secretReference: etcd's tenants get client certificates that it signs"},
				{`spec: {tlsConfig: {certificateAuthority: {privateKey: null}}}`, "spec.tlsConfig", Required, "", "set certificateAuthority.privateKey, as content or secretReference: etcd's tenants get client certificates that it signs"},
			},
		},
		{
			Name:   "etcd has a client certificate",
			Passes: []string{`{}`},
			Fails: []Failure{
				{`spec: {tlsConfig: {clientCertificate: null}}`, "spec.tlsConfig", Required, "", "set clientCertificate.certificate, as content or secretReference: Stoker administers etcd with it"},
				{`spec: {tlsConfig: {clientCertificate: {certificate: {content: null}}}}`, "spec.tlsConfig", Required, "", "set clientCertificate.certificate, as content or secretReference: Stoker administers etcd with it"},
				{`spec: {tlsConfig: {clientCertificate: {privateKey: {content: null}}}}`, "spec.tlsConfig", Required, "", "set clientCertificate.privateKey, as content or secretReference: the key of clientCertificate.certificate"},
			},
		},
		{
			Name:   "other drivers have a password or certificates",
			Passes: []string{`spec: {tlsConfig: null, ` + sql + `}`, `spec: {driver: PostgreSQL}`, `spec: {driver: NATS, tlsConfig: {clientCertificate: null}}`},
			Fails: []Failure{
				{`spec: {driver: MySQL, tlsConfig: null}`, "spec.tlsConfig", Required, "", "set tlsConfig, basicAuth or both: Stoker logs in to the database with them"},
				{`spec: {driver: MySQL, basicAuth: {username: {}, password: {content: YQ==}}}`, "spec.basicAuth.username", Required, "", "set username, as content or secretReference, or remove basicAuth"},
				{`spec: {driver: MySQL, basicAuth: {username: {content: YQ==}, password: {}}}`, "spec.basicAuth.password", Required, "", "set password, as content or secretReference, or remove basicAuth"},
				{`spec: {driver: MySQL, tlsConfig: {clientCertificate: {certificate: {content: null}}}}`, "spec.tlsConfig.clientCertificate", Required, "", "set clientCertificate.certificate, as content or secretReference, or remove clientCertificate"},
			},
		},
		{
			Name: "a driver is fixed", From: `{}`,
			Passes: []string{`spec: {endpoints: ["a:1"]}`},
			Fails:  []Failure{{`spec: {driver: NATS}`, "spec.driver", Invalid, "NATS", "the driver cannot change: create another DataStore, and move the tenants to it"}},
		},
		{
			Name:   "a driver is one that there is",
			Passes: []string{`spec: {driver: MySQL}`},
			Fails:  []Failure{{`spec: {driver: SQLite}`, "spec.driver", NotSupported, "SQLite", "supported values: " + strings.Join(drivers, ", ")}},
		},
		{
			Name:   "endpoints are addresses with a port",
			Passes: []string{`spec: {endpoints: ["[2001:db8::1]:2379", "etcd:65535", "192.0.2.1:1"]}`},
			Fails: []Failure{
				{`spec: {endpoints: []}`, "spec.endpoints", Invalid, "0", "spec.endpoints in body should have at least 1 items"},
				{`spec: {endpoints: ["https://etcd:2379"]}`, "spec.endpoints[0]", Invalid, "https://etcd:2379", host},
				{`spec: {endpoints: ["a:1", etcd]}`, "spec.endpoints[1]", Invalid, "etcd", host},
				{`spec: {endpoints: ["2001:db8::1:2379"]}`, "spec.endpoints[0]", Invalid, "2001:db8::1:2379", host},
				{`spec: {endpoints: ["etcd:65536"]}`, "spec.endpoints[0]", Invalid, "etcd:65536", host},
			},
		},
		{
			Name:   "a reference to a Secret has a name, a namespace and a key",
			Passes: []string{`spec: {driver: MySQL, basicAuth: {username: {secretReference: {name: a, namespace: b, keyPath: c}}, password: {content: YQ==}}}`},
			Fails: []Failure{
				{`spec: {driver: MySQL, basicAuth: {username: {secretReference: {name: a, namespace: b}}, password: {content: YQ==}}}`, "spec.basicAuth.username.secretReference.keyPath", Required, "", ""},
				{`spec: {driver: MySQL, basicAuth: {username: {secretReference: {name: a, keyPath: c}}, password: {content: YQ==}}}`, "spec.basicAuth.username.secretReference.namespace", Required, "", ""},
				{`spec: {driver: MySQL, basicAuth: {username: {secretReference: {namespace: b, keyPath: c}}, password: {content: YQ==}}}`, "spec.basicAuth.username.secretReference.name", Required, "", ""},
				{`spec: {driver: MySQL, basicAuth: {username: {secretReference: {name: a, namespace: b, keyPath: ""}}, password: {content: YQ==}}}`, "spec.basicAuth.username.secretReference.keyPath", Invalid, "", "spec.basicAuth.username.secretReference.keyPath in body should be at least 1 chars long"},
			},
		},
	}
}

func generators() []Rule {
	const labelKey = "must be the key of a label, such as team or example.com/team"
	const own = "a Secret <tenant>-<generator> would have the name of a Secret of Stoker's own"
	names := Rule{Name: "a generator makes no Secret that is Stoker's", Passes: []string{`metadata: {name: ca-viewers}`, `metadata: {name: casual}`, `metadata: {name: a.b}`}}
	for _, secret := range []func(string) string{
		name.CA, name.FrontProxyCA, name.ServiceAccountKeys, name.APIServerCertificate, name.APIServerKubeletClientCertificate,
		name.FrontProxyClientCertificate, name.AdminKubeconfig, name.ControllerManagerKubeconfig, name.SchedulerKubeconfig,
		name.DatastoreConfig, name.DatastoreCertificate, name.KonnectivityCertificate, name.KonnectivityKubeconfig,
	} {
		// Tenant "a" and generator "b-ca" make the name of the CA of tenant "a-b".
		for _, n := range []string{secret("")[1:], secret("b")} {
			names.Fails = append(names.Fails, Failure{`metadata: {name: ` + n + `}`, "metadata.name", Invalid, n, own})
		}
	}
	const either = "set stringValue or fromDefinition, and not both"
	return []Rule{
		names,
		{
			Name:   "a generator's name fits a label",
			Passes: []string{`metadata: {name: ` + a63 + `}`},
			Fails:  []Failure{{`metadata: {name: ` + a63 + `a}`, "metadata.name", Invalid, a63 + "a", "must have at most 63 characters: it becomes the value of a label"}},
		},
		{
			Name:   "a user is a text or taken from the tenant",
			Passes: []string{`spec: {user: {stringValue: null, fromDefinition: metadata.name}}`, `spec: {user: {stringValue: a, fromDefinition: ""}}`},
			Fails: []Failure{
				{`spec: {user: {stringValue: null}}`, "spec.user", Invalid, "", either},
				{`spec: {user: {stringValue: ""}}`, "spec.user", Invalid, "", either},
				{`spec: {user: {fromDefinition: metadata.name}}`, "spec.user", Invalid, "", either},
				{`spec: {user: null}`, "spec.user", Required, "", ""},
				{`spec: {user: {stringValue: null, fromDefinition: .metadata.name}}`, "spec.user.fromDefinition", Invalid, ".metadata.name", "spec.user.fromDefinition in body should match '^((apiVersion|kind|(metadata|spec|status)([.][^.[:space:]]+)+))?$'"},
			},
		},
		{
			Name:   "groups are texts or taken from the tenant",
			Passes: []string{`spec: {groups: [{stringValue: a}, {fromDefinition: metadata.labels.team}]}`},
			Fails:  []Failure{{`spec: {groups: [{stringValue: a}, {}]}`, "spec.groups[1]", Invalid, "", either}},
		},
		{
			Name:   "the endpoint comes from a kubeconfig that there is",
			Passes: []string{`spec: {controlPlaneEndpointFrom: admin.conf}`},
			Fails:  []Failure{{`spec: {controlPlaneEndpointFrom: scheduler.conf}`, "spec.controlPlaneEndpointFrom", NotSupported, "scheduler.conf", `supported values: "admin.conf", "admin.svc", "super-admin.conf", "super-admin.svc"`}},
		},
		{
			Name:   "selectors are valid",
			Passes: []string{`spec: {namespaceSelector: {matchLabels: {example.com/a: b}}, tenantControlPlaneSelector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}}`},
			Fails: []Failure{
				{`spec: {namespaceSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}}`, "spec.namespaceSelector.matchExpressions[0].operator", NotSupported, "Equals", `supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
				{`spec: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}`, "spec.namespaceSelector.matchExpressions[0].values", Invalid, "", "must be given when operator is In or NotIn"},
				{`spec: {tenantControlPlaneSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`, "spec.tenantControlPlaneSelector.matchExpressions[0].values", Invalid, "", "cannot be given when operator is Exists or DoesNotExist"},
				{`spec: {tenantControlPlaneSelector: {matchExpressions: [{key: "a b", operator: Exists}]}}`, "spec.tenantControlPlaneSelector.matchExpressions[0].key", Invalid, "a b", "spec.tenantControlPlaneSelector.matchExpressions[0].key in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"},
				{`spec: {namespaceSelector: {matchLabels: {a: "b c"}}}`, "spec.namespaceSelector.matchLabels.a", Invalid, "b c", "spec.namespaceSelector.matchLabels.a in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'"},
			},
		},
		{
			Name: "keys of selectors are keys of labels", Policy: true,
			Passes: []string{`spec: {namespaceSelector: {matchLabels: {example.com/a: b}}}`},
			Fails: []Failure{
				{`spec: {namespaceSelector: {matchLabels: {"a b": c}}}`, "spec.namespaceSelector.matchLabels", Invalid, "a b", labelKey},
				{`spec: {tenantControlPlaneSelector: {matchLabels: {"/a": c}}}`, "spec.tenantControlPlaneSelector.matchLabels", Invalid, "/a", labelKey},
			},
		},
		{
			Name: "keys that come later are judged as those of a new generator are", Policy: true, From: `spec: {namespaceSelector: {matchLabels: {a: b}}}`,
			Passes: []string{`spec: {namespaceSelector: {matchLabels: {a: c, example.com/a: b}}}`},
			Fails: []Failure{
				{`spec: {namespaceSelector: {matchLabels: {a: b, "a b": c}}}`, "spec.namespaceSelector.matchLabels", Invalid, "a b", labelKey},
			},
		},
	}
}
