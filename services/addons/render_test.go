package addons

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files and rbac.yaml anew")

const testCA = "-----BEGIN CERTIFICATE-----\nMIIBmock\n-----END CERTIFICATE-----\n"

func input() Input {
	return Input{
		Name: "demo", Namespace: "default",
		Endpoint: "127.9.0.1:6443", AdvertiseAddress: "192.0.2.1", Port: 6443, Version: "v1.36.3",
		ClusterDomain: "cluster.local", ServiceCIDRs: []string{"10.96.0.0/16"}, PodCIDRs: []string{"10.244.0.0/16"},
		DNSServiceIPs: []string{"10.96.0.10"}, CACertPEM: []byte(testCA), CertSANs: []string{"API.demo.example"},
		KeyAlgorithm: "ECDSA-P256", CoreDNS: &Addon{}, KubeProxy: &Addon{},
	}
}

func TestRender(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"v1.36.3": func(*Input) {},
		"v1.35.4": func(in *Input) { in.Version = "1.35.4" },
		"v1.30.0": func(in *Input) { in.Version = "v1.30.0" },
		"dual-stack": func(in *Input) {
			in.ServiceCIDRs = []string{"10.96.0.0/16", "fd00:1::/112"}
			in.PodCIDRs = []string{"10.244.0.0/16", "fd00:2::/64"}
			in.DNSServiceIPs = []string{"10.96.0.10", "fd00:1::10", "10.96.0.11"}
		},
		"patched-kubelet": func(in *Input) {
			in.CgroupDriver = "cgroupfs"
			in.KubeletPatches = []JSONPatch{
				{Op: "add", Path: "/maxPods", Value: json.RawMessage(`42`)},
				{Op: "add", Path: "/featureGates", Value: json.RawMessage(`{"InPlacePodVerticalScaling":true}`)},
				{Op: "remove", Path: "/healthzPort"},
				{Op: "copy", From: "/clusterDomain", Path: "/providerID"},
				{Op: "replace", Path: "/clusterDNS/0", Value: json.RawMessage(`"169.254.20.10"`)},
			}
		},
		"other-images": func(in *Input) {
			in.CoreDNS = &Addon{ImageTag: "v1.14.7", Replicas: 3}
			in.KubeProxy = &Addon{ImageTag: "v1.36.1"}
			in.DNSServiceIPs = []string{"10.96.0.53"}
		},
		"other-registry": func(in *Input) {
			in.CoreDNS = &Addon{ImageRepository: "registry.example/mirror", ImageTag: "v1.14.7"}
			in.KubeProxy = &Addon{ImageRepository: "registry.example/mirror"}
		},
		"konnectivity": func(in *Input) {
			in.CoreDNS, in.KubeProxy = nil, nil
			in.Konnectivity = &Konnectivity{
				Host: "203.0.113.7", Port: 8132, Image: "registry.k8s.io/kas-network-proxy/proxy-agent:v0.36.0",
				Tolerations: []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}}, ExtraArgs: []string{"--v=4"},
			}
		},
		"konnectivity-deployment": func(in *Input) {
			in.CoreDNS, in.KubeProxy = nil, nil
			in.Konnectivity = &Konnectivity{Host: "demo.example.org", Port: 443, Image: "mirror/agent:v1", Deployment: true, Replicas: 2, HostNetwork: true}
		},
		"creation-blocked": func(in *Input) {
			in.CoreDNS, in.KubeProxy, in.WritePermissions = nil, nil, v1alpha1.Permissions{BlockCreation: true}
		},
		"all-writes-blocked": func(in *Input) {
			in.CoreDNS, in.KubeProxy = nil, nil
			in.WritePermissions = v1alpha1.Permissions{BlockCreation: true, BlockUpdate: true, BlockDeletion: true}
		},
		"addons-off": func(in *Input) { in.CoreDNS, in.KubeProxy = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			change(&in)
			objs, err := Render(in)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Render(in)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := hash(t, objs), hash(t, again); a != b {
				t.Errorf("the same input gave hash %s and %s", a, b)
			}
			for _, o := range objs {
				if o.GetLabels()[LabelProject] != Project {
					t.Errorf("%s: no project label", RefOf(o))
				}
				if len(o.GetOwnerReferences()) > 0 {
					t.Errorf("%s: has an owner", RefOf(o))
				}
				if _, err := RefOf(o).kind(); err != nil {
					t.Error(err)
				}
			}
			golden(t, name, objs)
		})
	}
}

// golden compares what differs between cases, one file for each group; the rest is rbac.yaml.
func golden(t *testing.T, test string, objs []*unstructured.Unstructured) {
	t.Helper()
	groups := map[string]*bytes.Buffer{}
	for _, o := range objs {
		group := "rbac"
		switch n := o.GetName(); {
		case strings.Contains(n, "coredns") || n == "kube-dns":
			group = "coredns"
		case strings.Contains(n, "prox"):
			group = "kube-proxy"
		case n == name.WritePermissions:
			group = "write-permissions"
		case o.GetKind() == "ConfigMap":
			group = "config"
		}
		doc, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if groups[group] == nil {
			groups[group] = &bytes.Buffer{}
		}
		groups[group].WriteString("---\n")
		groups[group].Write(doc)
	}
	if test != "v1.36.3" {
		delete(groups, "rbac")
	}
	dir := filepath.Join("testdata", test)
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for group, text := range groups {
			if err := os.WriteFile(filepath.Join(dir, group+".yaml"), text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(groups) {
		t.Errorf("%d golden files in %s, %d groups rendered", len(files), dir, len(groups))
	}
	for group, text := range groups {
		want, err := os.ReadFile(filepath.Join(dir, group+".yaml"))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(want, text.Bytes()) {
			t.Errorf("%s differs from its golden file (-update writes it):\n%s", group, text)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		field  string
		change func(*Input)
	}{
		"a version that is none":     {"Version", func(in *Input) { in.Version = "latest" }},
		"an endpoint that is none":   {"Endpoint", func(in *Input) { in.Endpoint = "https://demo:6443" }},
		"an empty advertise address": {"AdvertiseAddress", func(in *Input) { in.AdvertiseAddress = "" }},
		"a bad second service CIDR":  {"ServiceCIDRs[1]", func(in *Input) { in.ServiceCIDRs = append(in.ServiceCIDRs, "x") }},
		"a bad pod CIDR":             {"PodCIDRs[0]", func(in *Input) { in.PodCIDRs = []string{"10.0.0.0/33"} }},
		"a bad DNS address":          {"DNSServiceIPs[0]", func(in *Input) { in.DNSServiceIPs = []string{"dns"} }},
		"no CA":                      {"CACertPEM", func(in *Input) { in.CACertPEM = nil }},
		"an unknown cgroup driver":   {"CgroupDriver", func(in *Input) { in.CgroupDriver = "none" }},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			c.change(&in)
			_, err := Render(in)
			var bad *InputError
			if !errors.As(err, &bad) || bad.Field != c.field {
				t.Errorf("got %v, want an error of field %s", err, c.field)
			}
		})
	}
}

func TestRemoved(t *testing.T) {
	in := withTunnel()
	in.WritePermissions.BlockUpdate = true
	deployment := Ref{"Deployment", "kube-system", "konnectivity-agent"}
	if refs := Removed(in); !slices.Equal(refs, []Ref{deployment}) {
		t.Errorf("with all addons on, %v is to be removed", refs)
	}
	with, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Konnectivity.Deployment = true
	daemons := Ref{"DaemonSet", "kube-system", "konnectivity-agent"}
	if refs := Removed(in); !slices.Equal(refs, []Ref{daemons}) {
		t.Errorf("with agents of a Deployment, %v is to be removed", refs)
	}
	in.CoreDNS, in.KubeProxy, in.Konnectivity, in.WritePermissions = nil, nil, nil, v1alpha1.Permissions{}
	without, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[Ref]bool{deployment: true}
	for _, o := range with {
		gone[RefOf(o)] = true
	}
	for _, o := range without {
		delete(gone, RefOf(o))
	}
	for _, ref := range Removed(in) {
		if !gone[ref] {
			t.Errorf("%s is removed but no addon renders it", ref)
		}
		delete(gone, ref)
	}
	for ref := range gone {
		t.Errorf("%s of an addon isn't removed with it", ref)
	}
}

func hash(t *testing.T, objs []*unstructured.Unstructured) string {
	t.Helper()
	h, err := Hash(objs)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func BenchmarkRender(b *testing.B) {
	in := input()
	b.ReportAllocs()
	for b.Loop() {
		objs, err := Render(in)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Hash(objs); err != nil {
			b.Fatal(err)
		}
	}
}
