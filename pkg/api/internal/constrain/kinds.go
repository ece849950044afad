package main

// The constraints of the three kinds: where the types of Kubernetes stand in them, and what they have to do with what Stoker
// itself puts into the pods. What they have to do with each other is in deployments/policies/objects.yaml: rules that would
// stand at a place every tenant has are evaluated at every write, and a policy is not, where it has nothing to look at.

import (
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// named puts rules on the objects' names. They are the only part of metadata that a definition may say something of.
func named(rules ...edit) fields {
	return fields{"metadata": {func(s *schema) {
		n := schema{Type: "string"}
		for _, r := range rules {
			r(&n)
		}
		s.Properties = map[string]schema{"name": n}
	}}}
}

// inLabel is a name that becomes the value of a label.
var inLabel = rule("size(self) <= 63", "must have at most 63 characters: it becomes the value of a label")

// generated are what Stoker's own Secrets have after "<tenant>-", as the Secrets of KubeconfigGenerators have their names.
func generated() []string {
	var all []string
	for _, secret := range []func(string) string{
		name.CA, name.FrontProxyCA, name.ServiceAccountKeys, name.APIServerCertificate, name.APIServerKubeletClientCertificate,
		name.FrontProxyClientCertificate, name.AdminKubeconfig, name.ControllerManagerKubeconfig, name.SchedulerKubeconfig,
		name.DatastoreConfig, name.DatastoreCertificate, name.KonnectivityCertificate, name.KonnectivityKubeconfig,
	} {
		all = append(all, strings.TrimPrefix(secret(""), "-"))
	}
	return all
}

func tenant() fields {
	d := "spec.controlPlane.deployment"
	all := join(
		named(
			most(253),
			rule("size(self) <= 63 && self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "becomes the name of a Service: use at most 63 lower case letters, digits and dashes, the first a letter"),
		),
		under(d, deployment()),
		under("spec.addons.konnectivity", konnectivity()),
		fields{
			"spec.controlPlane.service.additionalPorts[].targetPort": {port},
			"spec.controlPlane.gateway.hostname":                     {most(253)},
		},
	)
	all = join(all, fields{"spec.controlPlane": {ratchet}})
	for _, at := range []string{d, "spec.controlPlane.service", "spec.controlPlane.ingress", "spec.controlPlane.gateway"} {
		all = join(all, fields{at + ".additionalMetadata.labels{}": {labelValue}})
	}
	return all
}

func konnectivity() fields {
	return join(
		under("server.resources", resources()),
		under("server.securityContext", securityContext()),
		under("agent.tolerations[]", toleration()),
		fields{"agent.tolerations": {most(64)}},
	)
}

func dataStore() fields {
	all := named(most(253), inLabel)
	for _, at := range []string{
		"basicAuth.username", "basicAuth.password", "tlsConfig.certificateAuthority.certificate", "tlsConfig.certificateAuthority.privateKey",
		"tlsConfig.clientCertificate.certificate", "tlsConfig.clientCertificate.privateKey",
	} {
		all = join(all, under("spec."+at+".secretReference", fields{
			"":          {needs("name", "namespace")},
			"name":      {dnsSubdomain},
			"namespace": {dnsLabel},
		}))
	}
	return all
}

func generator() fields {
	return join(
		named(
			most(253), inLabel,
			// Also as an end: tenant a and generator b-ca make the name of the CA of tenant a-b.
			rule("!"+list(generated())+".exists(s, self == s || self.endsWith('-' + s))", "a Secret <tenant>-<generator> would have the name of a Secret of Stoker's own"),
		),
		under("spec.namespaceSelector", labelSelector()),
		under("spec.tenantControlPlaneSelector", labelSelector()),
	)
}

// ownContainers are the names of the containers that Stoker puts into the pods, whatever the tenant's DataStore and addons
// are. name.ContainerKine isn't among them: an additional container of that name says which image kine has.
var ownContainers = []string{
	name.ContainerAPIServer, name.ContainerScheduler, name.ContainerControllerManager, name.ContainerKonnectivity, name.ContainerKineChmod,
}

// ownVolumes are the names of the pods' own volumes.
var ownVolumes = []string{
	name.VolumePKI, name.VolumeEtcCACertificates, name.VolumeUsrShareCACertificates, name.VolumeUsrLocalShareCACertificates,
	name.VolumeSchedulerKubeconfig, name.VolumeControllerManagerKubeconfig, name.VolumeKineUDS, name.VolumeKineConfig,
	name.VolumeKineCerts, name.VolumeKonnectivityUDS, name.VolumeEgressSelectorConfiguration, name.VolumeKonnectivityKubeconfig,
}

// ownPaths are where the control plane's containers mount their own volumes.
var ownPaths = map[string][]string{
	"apiServer": {
		"/etc/kubernetes/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
		"/uds", "/run/konnectivity", "/etc/kubernetes/konnectivity/configurations",
	},
	"controllerManager": {
		"/etc/kubernetes", "/etc/kubernetes/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	},
	"scheduler": {"/etc/kubernetes"},
}

func deployment() fields {
	lists := []string{"additionalContainers", "additionalInitContainers"}
	all := fields{
		"additionalMetadata.labels{}":    {labelValue},
		"podAdditionalMetadata.labels{}": {labelValue},
		"nodeSelector":                   {most(64)},
		"nodeSelector{}":                 {labelValue},
		"tolerations":                    {most(64)},
		"topologySpreadConstraints": {
			most(16),
			rule("self.all(c, self.exists_one(d, d.topologyKey == c.topologyKey && d.whenUnsatisfiable == c.whenUnsatisfiable))", "topologyKey and whenUnsatisfiable must be unique together"),
		},
		"additionalVolumes": {
			most(64),
			says("", "self.all(v, self.exists_one(w, w.name == v.name))", "self.filter(v, !self.exists_one(w, w.name == v.name))[0].name", "volumes must have unique names"),
		},
		"additionalVolumes[].name": {rule("!(self in "+list(ownVolumes)+")", "is the name of one of the control plane's own volumes")},
		"additionalContainers": {
			// What they listen on, they listen on in one network.
			rule("!self.exists(c, has(c.ports) && c.ports.exists(p, self.exists(d, d.name != c.name && has(d.ports) && d.ports.exists(q, q.containerPort == p.containerPort && q.protocol == p.protocol))))", "two containers cannot use the same port and protocol"),
			rule("!self.exists(c, has(c.ports) && c.ports.exists(p, has(p.hostPort) && p.hostPort != 0 && self.exists(d, has(d.ports) && d.ports.exists(q, has(q.hostPort) && q.hostPort == p.hostPort && q.protocol == p.protocol && (d.name != c.name || q.containerPort != p.containerPort)))))", "host ports must be unique"),
		},
		"additionalContainers[].name":    {rule("!(self in "+list(ownContainers)+")", "is the name of one of the control plane's own containers")},
		"additionalContainers[].ports[]": {ruleAt(".containerPort", "!(self.containerPort in [10257, 10259]) || has(self.protocol) && self.protocol != 'TCP'", "is used by kube-controller-manager or kube-scheduler")},
		"additionalInitContainers[]": {
			rule("has(self.restartPolicy) && self.restartPolicy == 'Always' || !has(self.lifecycle) && !has(self.livenessProbe) && !has(self.readinessProbe) && !has(self.startupProbe)", "lifecycle and probes can be set only with restartPolicy Always"),
			ruleAt(".restartPolicyRules", "!has(self.restartPolicy) || self.restartPolicy != 'Always' || !has(self.restartPolicyRules) || size(self.restartPolicyRules) == 0", "cannot be set with restartPolicy Always"),
			ruleAt(".resizePolicy", "has(self.restartPolicy) && self.restartPolicy == 'Always' || !has(self.resizePolicy) || !self.resizePolicy.exists(p, p.restartPolicy == 'RestartContainer')", "RestartContainer can be set only with restartPolicy Always"),
			rule("!has(self.ports) || self.ports.all(p, !has(p.hostPort) || p.hostPort == 0 || self.ports.exists_one(q, has(q.hostPort) && q.hostPort == p.hostPort && q.protocol == p.protocol))", "host ports must be unique"),
		},
		"additionalInitContainers[].name": {rule("!(self in "+list(append([]string{name.ContainerKine}, ownContainers...))+")", "is the name of one of the control plane's own containers")},
	}
	for _, l := range lists {
		all = join(all, under(l+"[]", container()), fields{l: {
			most(16),
			says("", "self.all(c, self.exists_one(d, d.name == c.name))", "self.filter(c, !self.exists_one(d, d.name == c.name))[0].name", "containers must have unique names"),
		}})
	}
	for component, paths := range ownPaths {
		at := "additionalVolumeMounts." + component
		taken := list(paths)
		all = join(all, under(at+"[]", volumeMount()), fields{
			at: {
				most(64),
				says("", "self.all(m, self.exists_one(n, n.mountPath == m.mountPath))", "self.filter(m, !self.exists_one(n, n.mountPath == m.mountPath))[0].mountPath", "mount paths must be unique"),
			},
			at + "[]":           {ruleAt(".mountPropagation", "!has(self.mountPropagation) || self.mountPropagation != 'Bidirectional'", "Bidirectional mount propagation needs a privileged container")},
			at + "[].mountPath": {rule("!"+taken+".exists(p, self == p || self == p + '/')", "is where the container mounts a volume of its own")},
		})
	}
	for _, of := range []string{"apiServer", "controllerManager", "scheduler", "kine"} {
		all = join(all, under("resources."+of, resources()))
	}
	for _, of := range []string{"apiServer", "controllerManager", "scheduler", "kine", "kineInit"} {
		all = join(all, under("containerSecurityContexts."+of, securityContext()))
	}
	return join(all,
		under("additionalVolumes[]", volume()),
		under("tolerations[]", toleration()),
		under("topologySpreadConstraints[]", topologySpread()),
		under("affinity", affinity()),
		under("podSecurityContext", podSecurityContext()),
		under("strategy", strategy()),
	)
}

// list is a list of texts in CEL.
func list(texts []string) string { return "['" + strings.Join(texts, "', '") + "']" }
