package node

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestTranslateCommand(t *testing.T) {
	tr := translation{address: "127.20.1.5", paths: map[string]string{
		"/etc/kubernetes":     "/h/conf",
		"/etc/kubernetes/pki": "/h/pki",
		"/uds":                "/h/uds",
		"/data":               "/h/data",
	}}
	for name, test := range map[string]struct {
		program  string
		in, want []string
	}{
		"a path below a mount becomes the host's": {
			"etcd", []string{"etcd", "--data-dir=/data/member"}, []string{"etcd", "--data-dir=/h/data/member"},
		},
		"the longest mount wins": {
			"etcd",
			[]string{"etcd", "--a=/etc/kubernetes/pki/ca.crt", "--b=/etc/kubernetes/scheduler.conf", "--c", "/etc/kubernetes"},
			[]string{"etcd", "--a=/h/pki/ca.crt", "--b=/h/conf/scheduler.conf", "--c", "/h/conf"},
		},
		"a path that only begins like a mount stays": {
			"etcd", []string{"etcd", "--a=/database", "--b=/data-2", "--c=/mnt/data", "--d=x/data"},
			[]string{"etcd", "--a=/database", "--b=/data-2", "--c=/mnt/data", "--d=x/data"},
		},
		"several paths in one argument": {
			"etcd", []string{"etcd", "--a=/data/x,/uds/y:/data"}, []string{"etcd", "--a=/h/data/x,/h/uds/y:/h/data"},
		},
		"a socket's URL": {
			"etcd", []string{"etcd", "--etcd-servers=unix:///uds/kine"}, []string{"etcd", "--etcd-servers=unix:///h/uds/kine"},
		},
		"a host in a URL is no path": {
			"etcd", []string{"etcd", "--x=https://data/y"}, []string{"etcd", "--x=https://data/y"},
		},
		"all addresses become the pod's": {
			"etcd", []string{"etcd", "--a=0.0.0.0", "--b=http://0.0.0.0:2379", "--c=[::]:80", "--d=::", "--e", "0.0.0.0:1"},
			[]string{"etcd", "--a=127.20.1.5", "--b=http://127.20.1.5:2379", "--c=127.20.1.5:80", "--d=127.20.1.5", "--e", "127.20.1.5:1"},
		},
		"loopback becomes the pod's": {
			"etcd", []string{"etcd", "--a=https://127.0.0.1:6443/x", "--b=localhost:8133,localhost:8134", "--c=http://u@localhost"},
			[]string{"etcd", "--a=https://127.20.1.5:6443/x", "--b=127.20.1.5:8133,127.20.1.5:8134", "--c=http://u@127.20.1.5"},
		},
		"other hosts stay": {
			"etcd", []string{"etcd", "--a=10.0.0.0", "--b=127.0.0.10:1", "--c=localhost.example", "--d=10.96.0.0/16", "--e=::1234", "--f=my-localhost"},
			[]string{"etcd", "--a=10.0.0.0", "--b=127.0.0.10:1", "--c=localhost.example", "--d=10.96.0.0/16", "--e=::1234", "--f=my-localhost"},
		},
		"an API server listens on its pod's address only": {
			"kube-apiserver", []string{"kube-apiserver", "--secure-port=6443"},
			[]string{"kube-apiserver", "--secure-port=6443", "--bind-address=127.20.1.5"},
		},
		"unless it's told where": {
			"kube-scheduler", []string{"kube-scheduler", "--bind-address=0.0.0.0"},
			[]string{"kube-scheduler", "--bind-address=127.20.1.5"},
		},
		"a kine without a socket listens on its pod's address": {
			"kine", []string{"kine", "--endpoint=nats://u:p@127.20.0.3:4222?bucket=b"},
			[]string{"kine", "--endpoint=nats://u:p@127.20.0.3:4222?bucket=b", "--metrics-bind-address=127.20.1.5:8080", "--listen-address=127.20.1.5:2379"},
		},
		"kine tells how it is on its pod's address only, and its database is where it was": {
			"kine", []string{"kine", "--listen-address=unix:///uds/kine", "--endpoint=mysql://u:p@tcp(127.20.0.3:3306)/data"},
			[]string{"kine", "--listen-address=unix:///h/uds/kine", "--endpoint=mysql://u:p@tcp(127.20.0.3:3306)/data", "--metrics-bind-address=127.20.1.5:8080"},
		},
		"konnectivity's server listens on its pod's address only": {
			"proxy-server", []string{"proxy-server", "--agent-port=8132", "--kubeconfig=/etc/kubernetes/konnectivity-server.conf"},
			[]string{
				"proxy-server", "--agent-port=8132", "--kubeconfig=/h/conf/konnectivity-server.conf", "--agent-bind-address=127.20.1.5",
				"--health-bind-address=127.20.1.5", "--admin-bind-address=127.20.1.5",
			},
		},
		"as two arguments, too": {
			"kube-scheduler", []string{"kube-scheduler", "--bind-address", "127.0.0.1"},
			[]string{"kube-scheduler", "--bind-address", "127.20.1.5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tr.command(test.program, test.in); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestTranslateFile(t *testing.T) {
	tr := translation{address: "127.20.1.5"}
	const config = `apiVersion: v1
kind: Config
clusters:
- name: a
  cluster: {certificate-authority-data: Y2E=, server: "https://127.0.0.1:6443"}
- name: b
  cluster: {server: "https://localhost:8132"}
- name: c
  cluster: {server: "https://example.org:6443"}
`
	t.Run("a kubeconfig of the pod itself leads to its address and keeps the name to verify", func(t *testing.T) {
		got, err := clientcmd.Load(tr.file("scheduler.conf", []byte(config)))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][2]string{
			"a": {"https://127.20.1.5:6443", "127.0.0.1"},
			"b": {"https://127.20.1.5:8132", "localhost"},
			"c": {"https://example.org:6443", ""},
		} {
			if c := got.Clusters[name]; c.Server != want[0] || c.TLSServerName != want[1] {
				t.Errorf("cluster %s: server %q, tls-server-name %q, want %q", name, c.Server, c.TLSServerName, want)
			}
		}
		if string(got.Clusters["a"].CertificateAuthorityData) != "ca" {
			t.Error("the CA is lost")
		}
	})
	t.Run("an egress selector configuration names the socket where it is", func(t *testing.T) {
		tr := translation{address: "127.20.1.5", paths: map[string]string{"/run/konnectivity": "/h/uds"}}
		got := tr.file("egress-selector-configuration.yaml", []byte("udsName: /run/konnectivity/konnectivity-server.socket\n"))
		if string(got) != "udsName: /h/uds/konnectivity-server.socket\n" {
			t.Errorf("%s", got)
		}
	})
	t.Run("anything else stays byte for byte", func(t *testing.T) {
		for name, data := range map[string]string{
			"notes.txt":   config,
			"ca.conf":     "server: https://127.0.0.1:6443\n",
			"kubeconfig":  strings.ReplaceAll(strings.ReplaceAll(config, "127.0.0.1", "10.0.0.1"), "localhost", "h"),
			"broken.conf": ":\t:",
		} {
			if got := tr.file(name, []byte(data)); string(got) != data {
				t.Errorf("%s became %q", name, got)
			}
		}
	})
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "1", "B": "x y"}
	get := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for in, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"--a=$(A)":     "--a=1",
		"$(A)$(B)":     "1x y",
		"$(MISSING)":   "$(MISSING)",
		"$$(A)":        "$(A)",
		"$A $ $(open":  "$A $ $(open",
		"cost: 5$":     "cost: 5$",
		"$(A) $(C)":    "1 $(C)",
		"$$$(A)":       "$1",
		"nested $(A)$": "nested 1$",
	} {
		if got := expand(in, get); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}
