package certs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/argocd"
)

const argoNamespace = "argocd"

// argoRig is a tenant that asks to be known to Argo CD, in a namespace that isn't there at first.
type argoRig struct {
	*rig
	admin *kube.Client
}

func newArgoRig(t *testing.T) *argoRig {
	t.Helper()
	admin, limited := newCluster(t)
	return runArgoRig(t, admin, limited)
}

func runArgoRig(t *testing.T, admin, certs *kube.Client) *argoRig {
	t.Helper()
	r := &argoRig{newRig(t, certs), admin}
	s := newService(r.bus("certs"), r.kube, testLog())
	s.argocd = argocd.Config{Namespace: argoNamespace, Project: "tenants", Labels: []string{"tier"}}
	r.run(&loop.Loop{Bus: r.bus("certs"), Service: "certs", Handle: s.handle, Watch: s.watch})
	return r
}

// ask has intake tell of the tenant with a value of the annotation.
func (r *argoRig) ask(number int64, value, tier string) {
	tcp := &v1alpha1.TenantControlPlane{}
	v1alpha1.Default(tcp)
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Accepted, Data: generation{number, state.Tenant{
			Namespace: key.Namespace, Name: key.Name, Spec: tcp.Spec, Labels: map[string]string{"tier": tier, "env": "production"},
			Annotations: map[string]string{name.AnnotationArgoCDCluster: value},
		}},
		Facts: []loop.Tell{{What: event.Accepted}},
	})
}

// says waits until the state says that Argo CD knows the tenant, or why not.
func (r *argoRig) says(what string) {
	r.t.Helper()
	poll.True(r.t, "Argo CD: "+what, func() bool {
		var c state.Certs
		st, err := r.bus("certs").State(r.t.Context(), key, name.ServiceCerts)
		if err != nil || json.Unmarshal(st.Data, &c) != nil || c.ArgoCD == nil {
			return false
		}
		return c.ArgoCD.Reason == what && (c.ArgoCD.Name != "" || what != "")
	})
}

// find reads the Secret, nil when there is none.
func (r *argoRig) find(n string) *corev1.Secret {
	r.t.Helper()
	o := &corev1.Secret{}
	err := r.admin.Get(r.t.Context(), kube.Secrets, argoNamespace, n, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

func (r *argoRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// right reports whether the Secret has the credentials of the administrators' kubeconfig as it is.
func (r *argoRig) right(o *corev1.Secret) bool {
	r.t.Helper()
	var admin corev1.Secret
	r.must(r.admin.Get(r.t.Context(), kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), &admin))
	want, err := clientcmd.RESTConfigFromKubeConfig(admin.Data[name.KeyAdminConf])
	r.must(err)
	var has struct {
		TLS struct {
			Insecure                  bool
			CAData, CertData, KeyData []byte
		} `json:"tlsClientConfig"`
	}
	if o == nil || json.Unmarshal(o.Data["config"], &has) != nil {
		return false
	}
	return !has.TLS.Insecure && string(o.Data["server"]) == want.Host && string(o.Data["name"]) == "default/demo" && string(o.Data["project"]) == "tenants" &&
		bytes.Equal(has.TLS.CAData, want.CAData) && bytes.Equal(has.TLS.CertData, want.CertData) && bytes.Equal(has.TLS.KeyData, want.KeyData)
}

func (r *argoRig) other(n, server string, labels map[string]string) *corev1.Secret {
	r.t.Helper()
	o := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: n, Labels: labels},
		Data: map[string][]byte{"server": []byte(server), "name": []byte(n)},
	}
	r.must(r.admin.Create(r.t.Context(), kube.Secrets, o))
	return o
}

func (r *argoRig) goes(namespace, n string) {
	r.t.Helper()
	_, err := r.admin.Delete(r.t.Context(), kube.Secrets, namespace, n, metav1.DeleteOptions{})
	r.must(err)
}

func TestClustersOfArgoCD(t *testing.T) {
	t.Parallel()
	r := newArgoRig(t)
	ctx, n := t.Context(), name.ArgoCDCluster(key.Namespace, key.Name)
	within := func(sentence string, test func(t *testing.T)) {
		t.Run(sentence, func(t *testing.T) { r.t = t; test(t) })
	}
	good := func(what string) {
		r.t.Helper()
		poll.True(r.t, what, func() bool { return r.right(r.find(n)) })
	}
	within("without Argo CD's namespace the tenant is issued all the same, and its state says what is missing", func(t *testing.T) {
		r.ask(1, "true", "gold")
		r.expose("192.0.2.7:6443")
		r.says(reason.ArgoCDRefused)
		if own := r.state(); own.IssuedFor != 1 || own.ArgoCD.Name != "" {
			t.Errorf("%+v", own)
		}
	})
	within("another cluster's address is not taken", func(t *testing.T) {
		r.must(r.admin.Create(ctx, kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: argoNamespace}}))
		r.other("prod", "https://192.0.2.7:6443", map[string]string{name.LabelArgoCDSecretType: name.ArgoCDSecretCluster})
		r.says(reason.ArgoCDClusterTaken)
		if o := r.find(n); o != nil {
			t.Errorf("%s was made", o.Name)
		}
	})
	within("a Secret of somebody else's is left as it is", func(t *testing.T) {
		before := r.other(n, "https://192.0.2.9:6443", nil)
		r.goes(argoNamespace, "prod")
		r.says(reason.ArgoCDSecretTaken)
		if o := r.find(n); o == nil || o.ResourceVersion != before.ResourceVersion {
			t.Errorf("%v", o)
		}
	})
	within("once nothing is in the way, Argo CD knows the tenant", func(t *testing.T) {
		r.goes(argoNamespace, n)
		r.says("")
		good("the Secret")
		l := r.find(n).Labels
		if _, carried := l["env"]; carried || l["tier"] != "gold" || l[name.LabelTenant] != "demo" || l[name.LabelTenantNamespace] != "default" ||
			l[name.LabelArgoCDSecretType] != name.ArgoCDSecretCluster {
			t.Errorf("%v", l)
		}
	})
	within("which is told", func(t *testing.T) {
		poll.True(t, "the fact", func() bool {
			select {
			case e := <-r.facts:
				var f event.CertsRegistered
				r.must(json.Unmarshal(e.Data(), &f))
				return e.Service == "certs" && e.What == event.Registered && f.Secret == argoNamespace+"/"+n && f.Reason == ""
			default:
				return false
			}
		})
	})
	within("what is edited or deleted is put back, and what others add stays", func(t *testing.T) {
		r.must(r.admin.MergePatch(ctx, kube.Secrets, argoNamespace, n, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"mine": "x", "tier": "iron", name.LabelPartition: nil}},
			"data":     map[string]any{"server": []byte("https://192.0.2.66:6443"), "shard": []byte("1")},
		}, nil))
		good("the server of before")
		if o := r.find(n); o.Labels["mine"] != "x" || o.Labels["tier"] != "gold" || string(o.Data["shard"]) != "1" {
			t.Errorf("%v %s", o.Labels, o.Data["shard"])
		}
		r.goes(argoNamespace, n)
		good("the Secret again")
	})
	within("it follows labels, credentials and the endpoint", func(t *testing.T) {
		r.ask(1, "true", "silver")
		poll.True(t, "the label", func() bool { o := r.find(n); return o != nil && o.Labels["tier"] == "silver" })
		before := r.find(n).Data["config"]
		r.must(r.admin.MergePatch(ctx, kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name),
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}}, nil))
		poll.True(t, "other credentials", func() bool { o := r.find(n); return r.right(o) && !bytes.Equal(o.Data["config"], before) })
		r.expose("192.0.2.8:6443")
		poll.True(t, "the other endpoint", func() bool { o := r.find(n); return r.right(o) && string(o.Data["server"]) == "https://192.0.2.8:6443" })
	})
	within("it goes with the annotation, as it does with one that says nothing", func(t *testing.T) {
		r.ask(1, "yes", "silver")
		r.says(reason.ArgoCDUnreadable)
		poll.True(t, "the end of the Secret", func() bool { return r.find(n) == nil })
		r.ask(1, "true", "silver")
		good("the Secret again")
		r.ask(1, "false", "silver")
		poll.True(t, "the end of the Secret", func() bool { return r.find(n) == nil && r.state().ArgoCD == nil })
		r.ask(1, "true", "silver")
		good("the Secret again")
	})
	within("one whose tenant is no more is removed", func(t *testing.T) {
		w := &argocd.Want{TenantNamespace: key.Namespace, Tenant: "ghost"}
		labels := name.Labels("ghost", name.ComponentArgoCDCluster, events.Tenant(key.Namespace, "ghost").Partition())
		labels[name.LabelTenant], labels[name.LabelTenantNamespace] = "ghost", key.Namespace
		r.other(w.Name(), "https://192.0.2.10:6443", labels)
		poll.True(t, "its end", func() bool { return r.find(w.Name()) == nil })
	})
	within("it goes with the tenant, which says so", func(t *testing.T) {
		removed := r.deleted()
		if removed.Removed["certs/Secret"] != 10 || len(removed.Left) > 0 || r.find(n) != nil {
			t.Errorf("%+v", removed)
		}
	})
}

// A service for the tenants of one namespace has rights elsewhere only where the operator gives them.
func TestClustersOfArgoCDWithoutRights(t *testing.T) {
	t.Parallel()
	admin, limited := newCluster(t)
	ctx, n := t.Context(), name.ArgoCDCluster(key.Namespace, key.Name)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	grant := func(file, namespace string) {
		t.Helper()
		manifests(t, file, func(kind string, body []byte) {
			switch kind {
			case "ClusterRole":
				role := &rbacv1.ClusterRole{}
				must(json.Unmarshal(body, role))
				must(admin.Apply(ctx, kube.ClusterRoles, role))
			case "Role":
				role := &rbacv1.Role{}
				must(json.Unmarshal(body, role))
				role.Namespace = namespace
				must(admin.Apply(ctx, kube.Roles, role))
				must(admin.Apply(ctx, kube.RoleBindings, &rbacv1.RoleBinding{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
					Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "stoker-certs"}},
				}))
			}
		})
	}
	must(admin.Create(ctx, kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: argoNamespace}}))
	grant("rbac-namespace/certs.yaml", key.Namespace)
	poll.True(t, "the rights are small", func() bool {
		return apierrors.IsForbidden(limited.Get(ctx, kube.Secrets, argoNamespace, n, &corev1.Secret{}))
	})
	r := runArgoRig(t, admin, limited.In(key.Namespace))
	r.ask(1, "true", "gold")
	r.expose("192.0.2.7:6443")
	r.says(reason.ArgoCDRefused)
	if own := r.state(); own.IssuedFor != 1 {
		t.Errorf("%+v", own)
	}
	grant("rbac-argocd/certs.yaml", argoNamespace)
	r.says("")
	if !r.right(r.find(n)) {
		t.Error(r.find(n).Data)
	}
	_, err := admin.Delete(ctx, kube.RoleBindings, argoNamespace, "stoker-certs-clusters", metav1.DeleteOptions{})
	must(err)
	poll.True(t, "the rights are gone", func() bool {
		return apierrors.IsForbidden(limited.Get(ctx, kube.Secrets, argoNamespace, n, &corev1.Secret{}))
	})
	if removed := r.deleted(); len(removed.Left) != 1 || !strings.Contains(removed.Left[0], "Secret argocd/"+n) {
		t.Errorf("%+v", removed)
	}
}

// deleted has the tenant deleted, and returns what certs says that it has removed.
func (r *argoRig) deleted() (removed event.Removals) {
	r.t.Helper()
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Deleting, Data: generation{2, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
		Facts: []loop.Tell{{What: event.Deleting}},
	})
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: uid, Generation: 2}
	r.must(r.bus("datastore").Tell(r.t.Context(), key, 2, "1", event.Removed, event.Removals{About: about, Removed: map[string]int{}}))
	poll.True(r.t, "certs has removed its part", func() bool {
		select {
		case e := <-r.facts:
			return e.Service == "certs" && e.What == event.Removed && json.Unmarshal(e.Data(), &removed) == nil
		default:
			return false
		}
	})
	return removed
}
