package random

import (
	"fmt"
	"slices"
	"strings"
)

// What the schema doesn't say of a field: which values are right, and which look right and aren't.

// guide draws good and bad values of a field. Either may be nil.
type guide struct {
	good, bad func(s *Source) any
	// tree: good draws more than a leaf, and is not used where every field must be there.
	tree bool
}

func oneOf(values ...any) func(*Source) any {
	return func(s *Source) any { return values[s.IntN(len(values))] }
}

func from(values []string) func(*Source) any {
	return func(s *Source) any { return s.text(values) }
}

func leaf(good, bad func(*Source) any) guide { return guide{good: good, bad: bad} }

func tree(good func(*Source) any) guide { return guide{good: good, tree: true} }

type object = map[string]any

// Samples of which those that fit a pattern are taken.
var (
	words       = []string{"a", "b2", "web", "db-0", "x-y-z", "audit", "cache", "team7", "blue"}
	texts       = []string{"", "a", "some text", "Grüße", "日本語", "a=b,c", "/var/log", "x: y\nz", "🙂", "\"quoted\"", "{{ .Name }}"}
	labelKeys   = []string{"app", "team", "example.com/owner", "tier", "a.b.c/d-e_f", "zone"}
	labelValues = []string{"", "a", "web", "v1.2.3", "A_b-C", "0", strings.Repeat("x", 63)}
	quantities  = []string{"0", "1", "100m", "0.5", "128Mi", "2Gi", "1e3", "1500m"}
	dnsNames    = []string{"a", "example.com", "api.team-1.example.org", "x1.internal"}
	badNames    = []string{"", "UPPER", "under_score", "-a", "a-", "a..b", "a b", "a/b", "名", strings.Repeat("a", 254), "a\x00b", "*.a"}
	ipv4        = []string{"10.0.0.1", "192.168.7.9", "203.0.113.10", "8.8.8.8"}
	ipv6        = []string{"fd00::1", "2001:db8::10", "::1"}
	badIPs      = []string{"", "10.0.0", "10.0.0.256", "010.0.0.1", "fd00::g", "10.0.0.1/8", "fd00::1%eth0", " 10.0.0.1", "::ffff:10.0.0.1"}
	cidrs4      = []string{"10.0.0.0/8", "10.32.0.0/16", "172.16.0.0/12", "192.168.0.0/24"}
	cidrs6      = []string{"fd00:10::/64", "2001:db8:1::/108", "fd00::/48"}
	badCIDRs    = []string{"", "10.0.0.0", "10.0.0.0/33", "10.0.0.1/8", "fd00::/129", "10.0.0.0/-1", "/16", "a/b", "10.0.0.0/08", "10.0.0.0/16,fd00::/64", "::ffff:10.0.0.0/104"}
	versions    = []string{"v1.30.0", "1.31.5", "v1.32.1", "v1.33.12", "v1.34.4", "v1.35.4", "v1.36.3", "1.36.0", "v1.36.0-rc.1"}
	badVersions = []string{
		"", "latest", "v1.29.9", "v1.37.0", "v1.99.0", "v2.30.0", "v0.36.0", "1.36", "v1", "v1.36.3.4", "V1.36.3", "vv1.36.3", "v1.036.3",
		"v1.36.3+build", "v99999999999999999999.1.1", "v1.36.99999999", " v1.36.3", "v1.36.3\n", "v-1.36.3", "v1.３６.3",
	}
	images    = []string{"nginx", "nginx:1.27", "registry.example.com/team/app:v1", "localhost:5000/a/b", "a@sha256:" + strings.Repeat("0", 64)}
	mounts    = []string{"/a", "/data", "/var/log/app", "/etc/x-y"}
	endpoints = []string{"etcd-0.example.com:2379", "10.0.0.1:5432", "[fd00::1]:2379", "db:3306"}
	other     = []string{"1", "100%", "True", "Running", "A", "a.b", "SIGTERM", "0.1", "https://example.com"}
)

// samples of a format.
func samples(format string) []string {
	switch format {
	case "date-time":
		return []string{"2026-01-02T03:04:05Z", "1999-12-31T23:59:59Z"}
	case "byte":
		return []string{"", "YQ==", "aGVsbG8="}
	}
	var all []string
	for _, from := range [][]string{words, dnsNames, labelValues, quantities, ipv4, cidrs4, mounts, images, texts[1:4], other} {
		all = append(all, from...)
	}
	return all
}

// hints by the end of a field's path; the longest that fits counts.
var hints = map[string]guide{
	// Everywhere.
	"name":           leaf(from(words), from(badNames)),
	"namespace":      leaf(from(words), from(badNames)),
	"image":          leaf(from(images), oneOf("", "a b", ":", "UPPER/x", "-", "a:b:c")),
	"labels.{}":      leaf(from(labelKeys), nil),
	"labels.*":       leaf(from(labelValues), oneOf("a b", "-", strings.Repeat("x", 64), "é")),
	"annotations.{}": leaf(from(labelKeys), nil),
	"annotations.*":  leaf(from(texts), nil),
	"nodeSelector.*": leaf(from(labelValues), oneOf("a b", "é")),
	"matchLabels.*":  leaf(from(labelValues), oneOf("a b", "-x", strings.Repeat("y", 64))),
	"matchExpressions.*": tree(oneOf(
		object{"key": "app", "operator": "In", "values": []any{"a", "b"}}, object{"key": "zone", "operator": "Exists"},
		object{"key": "tier", "operator": "NotIn", "values": []any{"x"}}, object{"key": "a.b/c", "operator": "DoesNotExist"},
	)),
	"limits.{}":   leaf(oneOf("cpu", "memory"), oneOf("", "a b", "/")),
	"requests.{}": leaf(oneOf("cpu", "memory"), oneOf("", "a b", "/")),
	"limits.*":    leaf(oneOf("2", "4Gi", 8), oneOf("", "1x", "-", "1e", -1, 1.5, "1Kii", "NaN")),
	"requests.*":  leaf(oneOf("100m", "1Mi", "1"), oneOf("", "1x", "-", "1e", -1, 1.5, "1Kii", "NaN")),
	"tolerations.*": tree(oneOf(
		object{"operator": "Exists"}, object{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
		object{"key": "x.y/z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
	)),
	"claims":      leaf(oneOf([]any{}), nil),
	"tlsConfig":   tree(func(s *Source) any { return tlsConfig(s, true) }),
	"basicAuth":   tree(func(s *Source) any { return object{"username": s.secretRef(), "password": s.secretRef()} }),
	"endpoints.*": leaf(from(endpoints), oneOf("", "host", "http://host:80", "host:port", ":80", "a b:1", "host:123456", "[fd00::1:80", strings.Repeat("h", 262)+":1")),
	"keyPath":     leaf(from([]string{"tls.crt", "ca.key", "password"}), oneOf("")),
	"content":     leaf(oneOf("YQ==", "aGVsbG8="), oneOf("", "!", "YQ", "=")),
	"user":        tree(func(s *Source) any { return s.compound() }),
	"groups.*":    tree(func(s *Source) any { return s.compound() }),
	"fromDefinition": leaf(oneOf("metadata.name", "metadata.namespace", "spec.dataStore"),
		oneOf("", "..", "spec", "spec.nothing", "status[0]", ".metadata.name", "a\x00b")),
	"controlPlaneEndpointFrom": leaf(oneOf("admin.svc", "admin.conf"), oneOf("", "admin", "super-admin.conf", "../x")),

	// TenantControlPlane.
	"spec.kubernetes.version":                   leaf(from(versions), from(badVersions)),
	"spec.dataStore":                            leaf(func(s *Source) any { return s.dataStore() }, from(append([]string{"absent"}, badNames...))),
	"spec.dataStoreSchema":                      leaf(from([]string{"schema_a", "t1", "tenant_b"}), oneOf("", "../x", "a b", "`; drop", strings.Repeat("s", 254), "a\x00")),
	"spec.dataStoreUsername":                    leaf(from([]string{"user_a", "u1", "tenant_b"}), oneOf("", "../x", "a b", "'; drop", strings.Repeat("u", 254), "root")),
	"dataStoreOverrides.*.dataStore":            leaf(func(s *Source) any { return s.dataStore() }, from(append([]string{"absent"}, badNames...))),
	"dataStoreOverrides.*.resource":             leaf(oneOf("/events", "/leases", "apps/deployments"), oneOf("", "events", "/", " ", "a#b")),
	"networkProfile.address":                    leaf(from(ipv4), from(badIPs)),
	"networkProfile.advertiseAddress":           leaf(from(ipv4), from(badIPs)),
	"networkProfile.certSANs.*":                 leaf(from(slices.Concat(dnsNames, ipv4, ipv6)), oneOf("", "a_b", "a b", "https://x", "UPPER.example.com", "a:6443", "*", "-a")),
	"networkProfile.clusterDomain":              leaf(oneOf("cluster.local", "tenant.example"), oneOf("", "local", ".", "a..b", "UPPER.x", "a b.c", "a_b.c")),
	"networkProfile.dnsServiceIPs.*":            leaf(from(ipv4), from(badIPs)),
	"networkProfile.loadBalancerClass":          leaf(oneOf("example.com/fast", "internal"), oneOf("", "a b", "/", "UPPER/é")),
	"networkProfile.loadBalancerSourceRanges.*": leaf(from(cidrs4), from(badCIDRs)),
	"networkProfile.podCidr":                    leaf(from(cidrs4), from(badCIDRs)),
	"networkProfile.podCidrs.*":                 leaf(from(slices.Concat(cidrs4, cidrs6)), from(badCIDRs)),
	"networkProfile.serviceCidr":                leaf(from(cidrs4), from(badCIDRs)),
	"networkProfile.serviceCidrs.*":             leaf(from(slices.Concat(cidrs4, cidrs6)), from(badCIDRs)),
	"networkProfile.port":                       leaf(oneOf(6443, 443, 30443), oneOf(0, -1, 65536, 8132)),
	"preferredAddressTypes":                     leaf(oneOf([]any{"InternalIP"}, []any{"Hostname", "ExternalIP"}), oneOf([]any{"InternalIP", "InternalIP"}, []any{})),
	"configurationJSONPatches.*": tree(oneOf(
		object{"op": "add", "path": "/maxPods", "value": 200}, object{"op": "remove", "path": "/cgroupDriver"},
		object{"op": "replace", "path": "/featureGates", "value": object{"A": true}}, object{"op": "copy", "from": "/a", "path": "/b"},
	)),
	"extraArgs.*":            leaf(oneOf("--v=2", "--feature-gates=A=true", "--profiling=false"), oneOf("", "v=2", "--", " --v=2", "--v=2\n--x=y", "--secure-port=1")),
	"extraArgs.*.*":          leaf(oneOf("--v=2", "--feature-gates=A=true", "--profiling=false"), oneOf("", "v=2", "--", " --v=2", "--v=2\n--x=y", "--secure-port=1")),
	"agent.image":            leaf(oneOf("registry.k8s.io/kas-network-proxy/proxy-agent", "localhost:5000/a/b"), oneOf("", "a:tag", "UPPER/x", "a b")),
	"server.image":           leaf(oneOf("registry.k8s.io/kas-network-proxy/proxy-server", "localhost:5000/a/b"), oneOf("", "a:tag", "UPPER/x", "a b")),
	"agent.replicas":         leaf(oneOf(0), oneOf(-1, 3)),
	"agent.mode":             leaf(oneOf("DaemonSet"), oneOf("StatefulSet", "")),
	"agent.version":          leaf(oneOf("v0.34.0", "v0.33.0"), oneOf("a b", ":")),
	"server.version":         leaf(oneOf("v0.34.0", "v0.33.0"), oneOf("a b", ":")),
	"imageTag":               leaf(oneOf("v1.12.1", "1.0"), oneOf("a b", ":", "é")),
	"imageRepository":        leaf(oneOf("registry.example.com/coredns", "k8s"), oneOf("a b", "UPPER", ":x")),
	"tagSuffix":              leaf(oneOf("-fips", ""), oneOf(" ", "é", ":")),
	"registry":               leaf(oneOf("registry.k8s.io", "localhost:5000"), oneOf("a b", "https://x", "UPPER")),
	"apiServerImage":         leaf(oneOf("kube-apiserver", "k/api"), oneOf("a b", "UPPER")),
	"controllerManagerImage": leaf(oneOf("kube-controller-manager"), oneOf("a b", "UPPER")),
	"schedulerImage":         leaf(oneOf("kube-scheduler"), oneOf("a b", "UPPER")),
	"serviceAccountName":     leaf(from(words), from(badNames)),
	"runtimeClassName":       leaf(from(words), from(badNames)),
	"ingressClassName":       leaf(from(words), from(badNames)),
	"ingress.hostname":       leaf(oneOf("a.example.com", "api.example.org:443"), oneOf("", "a b", "UPPER.x", "a:b:c", "a:99999", "*", "10.0.0.1")),
	"ingress":                tree(func(s *Source) any { return object{"hostname": s.text(dnsNames[1:])} }),
	"gateway":                leaf(nil, func(s *Source) any { return object{"hostname": "a.example.com"} }),
	"sectionName":            leaf(oneOf("tls", "https"), from(badNames)),
	"deployment.replicas":    leaf(oneOf(0, 1, 2, 3), oneOf(-1, 1<<31, 1.5, "2")),
	"targetPort":             leaf(oneOf(8080, "http", 443), oneOf(0, 70000, "", "UPPER", "way-too-long-for-a-port-name", -1, "80")),
	"additionalPorts.*": tree(func(s *Source) any {
		n := s.IntN(1000)
		return object{"name": fmt.Sprintf("p%d", n), "port": 20000 + n, "targetPort": 8080, "protocol": s.text([]string{"TCP", "UDP"})}
	}),
	"appProtocol": leaf(oneOf("https", "example.com/x"), oneOf("", "a b", "/")),
	"strategy": tree(oneOf(
		object{"type": "Recreate"}, object{"type": "RollingUpdate", "rollingUpdate": object{"maxSurge": 1, "maxUnavailable": "25%"}},
	)),
	"topologySpreadConstraints.*": tree(func(s *Source) any {
		return object{"maxSkew": 1 + s.IntN(3), "topologyKey": s.text(labelKeys[1:4]), "whenUnsatisfiable": "ScheduleAnyway"}
	}),
	"affinity": tree(oneOf(object{}, object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
		"nodeSelectorTerms": []any{object{"matchExpressions": []any{object{"key": "zone", "operator": "In", "values": []any{"a"}}}}}}}})),
	"securityContext":             tree(oneOf(object{}, object{"runAsNonRoot": true, "runAsUser": 1000}, object{"readOnlyRootFilesystem": true})),
	"containerSecurityContexts.*": tree(oneOf(object{"runAsUser": 65532})),
	"containerSecurityContexts":   tree(oneOf(object{"apiServer": object{"runAsNonRoot": true, "runAsUser": 65532}}, object{})),
	"podSecurityContext":          tree(oneOf(object{}, object{"fsGroup": 1000, "runAsNonRoot": true, "runAsUser": 1})),
	"additionalContainers.*":      tree(func(s *Source) any { return s.container() }),
	"additionalInitContainers.*":  tree(func(s *Source) any { return s.container() }),
	"additionalVolumes.*":         tree(func(s *Source) any { return s.volume() }),
	// Mounts need a volume; settle makes them.
	"additionalVolumeMounts": tree(oneOf(object{})),
}

// hint finds the guide of a field.
func hint(at path) (guide, bool) {
	for i := range at {
		if g, ok := hints[at[i:].String()]; ok {
			return g, true
		}
	}
	return guide{}, false
}

func (s *Source) dataStore() any {
	if len(s.opts.DataStores) == 0 {
		return "absent"
	}
	return s.text(s.opts.DataStores)
}

func (s *Source) secretRef() any {
	if s.chance(0.2) {
		return object{"content": "aGVsbG8="}
	}
	return object{"secretReference": object{"namespace": "default", "name": s.text(words), "keyPath": s.text([]string{"tls.crt", "ca.key", "x"})}}
}

func tlsConfig(s *Source, client bool) any {
	t := object{"certificateAuthority": object{"certificate": s.secretRef(), "privateKey": s.secretRef()}}
	if client {
		t["clientCertificate"] = object{"certificate": s.secretRef(), "privateKey": s.secretRef()}
	}
	return t
}

func (s *Source) compound() any {
	if s.chance(0.5) {
		return object{"stringValue": s.text(words)}
	}
	return object{"fromDefinition": "metadata.name"}
}

func (s *Source) unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, s.IntN(1<<20)) }

func (s *Source) container() any {
	c := object{"name": s.unique("side"), "image": s.text(images[:3])}
	for _, f := range []struct {
		name  string
		value any
	}{
		{"args", []any{"--x", "y"}},
		{"command", []any{"/bin/a"}},
		{"env", []any{object{"name": "A", "value": s.text(texts)}, object{"name": "B", "valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}}}},
		{"imagePullPolicy", s.text([]string{"Always", "IfNotPresent", "Never"})},
		{"resources", object{"limits": object{"cpu": "1"}, "requests": object{"cpu": "100m", "memory": "1Mi"}}},
		{"ports", []any{object{"containerPort": 20000 + s.IntN(1000), "name": s.unique("p")}}},
		{"securityContext", object{"runAsNonRoot": true, "runAsUser": 1000}},
		{"workingDir", "/tmp"},
	} {
		if s.chance(0.3) {
			c[f.name] = f.value
		}
	}
	return c
}

func (s *Source) volume() any {
	source := []object{
		{"emptyDir": object{}}, {"emptyDir": object{"medium": "Memory", "sizeLimit": "10Mi"}}, {"configMap": object{"name": s.text(words)}},
		{"secret": object{"secretName": s.text(words), "optional": true}}, {"hostPath": object{"path": "/var/log"}},
		{"persistentVolumeClaim": object{"claimName": s.text(words)}},
		{"projected": object{"sources": []any{object{"configMap": object{"name": s.text(words)}}}}},
	}[s.IntN(7)]
	v := object{"name": s.unique("vol")}
	for k, x := range source {
		v[k] = x
	}
	return v
}

// agree makes fields agree that must.
func agree(s *Source, k *Kind, o object) {
	spec, _ := o["spec"].(object)
	switch k.Plural {
	case "datastores":
		if spec["driver"] == "etcd" {
			spec["tlsConfig"] = tlsConfig(s, true)
		} else if spec["tlsConfig"] == nil && spec["basicAuth"] == nil {
			spec["basicAuth"] = object{"username": s.secretRef(), "password": s.secretRef()}
		}
	case "tenantcontrolplanes":
		agreeTenant(s, spec)
	}
}

func agreeTenant(s *Source, spec object) {
	if len(s.opts.DataStores) == 0 && s.opts.Fill < All {
		delete(spec, "dataStore")
		delete(spec, "dataStoreOverrides")
	}
	control := spec["controlPlane"].(object)
	service := control["service"].(object)
	if service["serviceType"] != "LoadBalancer" {
		delete(service, "allocateLoadBalancerNodePorts")
		if n, ok := spec["networkProfile"].(object); ok {
			delete(n, "loadBalancerClass")
			delete(n, "loadBalancerSourceRanges")
		}
	}
	if s.opts.Fill < All { // with an ingress it is wrong, and without the Gateway API in the cluster
		delete(control, "gateway")
	}
	n, ok := spec["networkProfile"].(object)
	if !ok && service["serviceType"] == "NodePort" {
		n, ok = object{}, true
		spec["networkProfile"] = n
	}
	if ok && s.opts.Fill < All {
		agreeNetwork(s, n)
		if service["serviceType"] == "NodePort" {
			n["address"] = s.text(ipv4)
		}
	}
	if d, ok := control["deployment"].(object); ok && s.opts.Fill < All {
		if volumes, _ := d["additionalVolumes"].([]any); len(volumes) > 0 && s.chance(0.5) {
			d["additionalVolumeMounts"] = object{"apiServer": []any{
				object{"name": volumes[0].(object)["name"], "mountPath": s.text(mounts)},
			}}
		}
	}
}

// agreeNetwork makes the networks one of each family and the DNS addresses part of the Services'.
func agreeNetwork(s *Source, n object) {
	if n["serviceCidrs"] != nil || n["podCidrs"] != nil {
		if s.chance(0.4) {
			n["serviceCidrs"], n["podCidrs"] = []any{"10.96.0.0/16", "fd00:96::/112"}, []any{"10.244.0.0/16", "fd00:244::/56"}
		} else {
			n["serviceCidrs"], n["podCidrs"] = []any{"10.96.0.0/16"}, []any{"10.244.0.0/16"}
		}
	}
	if n["serviceCidr"] != nil {
		n["serviceCidr"] = "10.96.0.0/16"
	}
	if ips, ok := n["dnsServiceIPs"].([]any); ok && len(ips) > 0 {
		n["dnsServiceIPs"] = []any{"10.96.0.10"}
	}
}
