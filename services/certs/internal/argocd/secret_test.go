package argocd

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct{ namespace, project, labels, want string }{
		"nothing is off":                                 {},
		"a namespace is enough":                          {namespace: "argocd"},
		"labels are named":                               {namespace: "argocd", project: "tenants", labels: "tier,example.com/region"},
		"a project needs a namespace":                    {project: "tenants", want: "--argocd-namespace is empty"},
		"labels need a namespace":                        {labels: "tier", want: "--argocd-namespace is empty"},
		"not where Stoker is":                            {namespace: "stoker-system", want: "--argocd-namespace stoker-system"},
		"not where the system is":                        {namespace: "kube-system", want: "--argocd-namespace kube-system"},
		"a namespace that can't be":                      {namespace: "Argo", want: `"Argo"`},
		"a project that can't be":                        {namespace: "argocd", project: "a/b", want: `"a/b"`},
		"a key that can't be":                            {namespace: "argocd", labels: "tier,", want: `""`},
		"what makes a Secret a cluster isn't a tenant's": {namespace: "argocd", labels: "argocd.argoproj.io/secret-type", want: "has a meaning"},
		"nor is what says whose it is":                   {namespace: "argocd", labels: "kamaji.clastix.io/name", want: "has a meaning"},
		"nor is Stoker's":                                {namespace: "argocd", labels: "stoker.dev/tenant", want: "has a meaning"},
		"nor is Kubernetes'":                             {namespace: "argocd", labels: "app.kubernetes.io/managed-by", want: "has a meaning"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c, err := ParseConfig(test.namespace, test.project, test.labels)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%+v, error %v, want %q", c, err, test.want)
			}
		})
	}
}

func want() *Want {
	return &Want{
		Config: Config{Namespace: "argocd", Labels: []string{"tier"}}, TenantNamespace: "acme", Tenant: "shop", Server: "https://192.0.2.7:6443",
		TenantLabels: map[string]string{"tier": "gold", "argocd.argoproj.io/secret-type": "repository", "env": "prod", name.LabelComponent: "ca"},
	}
}

func TestLabelsAreThoseThatTheOperatorNamed(t *testing.T) {
	t.Parallel()
	got := slices.Sorted(maps.Keys(want().labels()))
	if is := strings.Join(got, " "); is != "argocd.argoproj.io/secret-type kamaji.clastix.io/component kamaji.clastix.io/name kamaji.clastix.io/project "+
		"stoker.dev/partition stoker.dev/tenant stoker.dev/tenant-namespace tier" {
		t.Error(is)
	}
	if l := want().labels(); l["tier"] != "gold" || l[name.LabelArgoCDSecretType] != "cluster" || l[name.LabelComponent] != name.ComponentArgoCDCluster {
		t.Error(l)
	}
}

func TestTaken(t *testing.T) {
	t.Parallel()
	cluster := func(secret, server, called string, labels map[string]string) corev1.Secret {
		return corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: secret, Labels: labels},
			Data:       map[string][]byte{"server": []byte(server), "name": []byte(called)},
		}
	}
	tenant := func(namespace, n string) map[string]string {
		w := &Want{TenantNamespace: namespace, Tenant: n}
		return w.labels()
	}
	for sentence, test := range map[string]struct {
		server string
		other  corev1.Secret
		made   bool
		want   string
	}{
		"nobody has it":                  {other: cluster("prod", "https://192.0.2.8:6443", "prod", nil)},
		"its own":                        {other: cluster("tenant.acme.shop", "https://192.0.2.7:6443", "acme/shop", nil)},
		"another has the server":         {other: cluster("prod", "https://192.0.2.7:6443", "prod", nil), want: "argocd/prod has the server"},
		"with a slash":                   {other: cluster("prod", "https://192.0.2.7:6443/", "prod", nil), want: "argocd/prod has the server"},
		"without the port that is meant": {server: "https://prod.example.com:443", other: cluster("prod", "https://PROD.example.com", "", nil), want: "argocd/prod has the server"},
		"another has the name":           {other: cluster("prod", "https://192.0.2.8:6443", "acme/shop", nil), want: "argocd/prod has the name"},
		"Argo CD's own cluster":          {server: "https://kubernetes.default.svc:443", other: cluster("prod", "https://192.0.2.8:6443", "prod", nil), want: "the cluster that Argo CD runs in"},
		"another tenant has it":          {other: cluster("tenant.zoo.x", "https://192.0.2.7:6443", "zoo/x", tenant("zoo", "x")), want: "tenant.zoo.x"},
		"a later tenant yields":          {other: cluster("tenant.zoo.x", "https://192.0.2.7:6443", "zoo/x", tenant("zoo", "x")), made: true},
		"an earlier tenant doesn't":      {other: cluster("tenant.a.x", "https://192.0.2.7:6443", "a/x", tenant("a", "x")), made: true, want: "tenant.a.x"},
		"nor does who is no tenant":      {other: cluster("tenant.zoo.x", "https://192.0.2.7:6443", "zoo/x", nil), made: true, want: "tenant.zoo.x"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := want()
			if test.server != "" {
				w.Server = test.server
			}
			got := w.Taken([]corev1.Secret{test.other}, test.made)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestTheKubeconfigMustLeadToTheServer(t *testing.T) {
	t.Parallel()
	w := want()
	config, err := kube.Kubeconfig{Server: "https://192.0.2.8:6443", CA: []byte("a"), Cluster: "c", User: "u", Certificate: []byte("b"), Key: []byte("k")}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, kubeconfig := range [][]byte{nil, []byte("{"), config} {
		if s, err := w.Secret(kubeconfig); err == nil {
			t.Errorf("%s makes %v", kubeconfig, s.Data)
		}
	}
}

func TestTenantOf(t *testing.T) {
	t.Parallel()
	w := want()
	o := &metav1.ObjectMeta{Name: w.Name(), Labels: w.labels()}
	if key := TenantOf(o); key != events.Tenant("acme", "shop") {
		t.Error(key)
	}
	for key := range map[string]bool{name.LabelProject: true, name.LabelComponent: true, name.LabelTenant: true, name.LabelTenantNamespace: true} {
		other := &metav1.ObjectMeta{Name: w.Name(), Labels: w.labels()}
		delete(other.Labels, key)
		if got := TenantOf(other); got != (events.Key{}) {
			t.Errorf("without %s it is %v's", key, got)
		}
	}
	if got := TenantOf(&metav1.ObjectMeta{Name: "prod", Labels: w.labels()}); got != (events.Key{}) {
		t.Errorf("with another name it is %v's", got)
	}
}
