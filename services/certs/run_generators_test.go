package certs

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// generated is a kubeconfig as found.
type generated struct {
	user, server, version string
	groups                []string
	labels                map[string]string
}

// world of KubeconfigGenerators around one tenant.
type generatorRig struct {
	*rig
	admin      *kube.Client
	generation int64
	labels     map[string]string
}

func (r *generatorRig) apply(g *v1alpha1.KubeconfigGenerator) {
	r.t.Helper()
	if err := r.admin.Apply(r.t.Context(), kube.KubeconfigGenerators, g); err != nil {
		r.t.Fatal(err)
	}
}

func (r *generatorRig) patch(res kube.Resource, namespace, n string, patch map[string]any) {
	r.t.Helper()
	if err := r.admin.MergePatch(r.t.Context(), res, namespace, n, patch, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *generatorRig) delete(res kube.Resource, namespace, n string) {
	r.t.Helper()
	if _, err := r.admin.Delete(r.t.Context(), res, namespace, n, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// find reads the tenant's kubeconfig of a generator; nil when there is none, or another's Secret.
func (r *generatorRig) find(generator string) *generated {
	r.t.Helper()
	secret := &corev1.Secret{}
	err := r.admin.Get(r.t.Context(), kube.Secrets, key.Namespace, name.GeneratedKubeconfig(key.Name, generator), secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		r.t.Fatal(err)
	}
	return &generated{pair.Leaf.Subject.CommonName, config.Host, secret.ResourceVersion, pair.Leaf.Subject.Organization, secret.Labels}
}

// status waits for a status of a generator.
func (r *generatorRig) status(generator, what string, is func(v1alpha1.KubeconfigGenerator) bool) v1alpha1.KubeconfigGenerator {
	r.t.Helper()
	var o v1alpha1.KubeconfigGenerator
	poll.True(r.t, "status of "+generator+": "+what, func() bool {
		o = v1alpha1.KubeconfigGenerator{}
		if err := r.admin.Get(r.t.Context(), kube.KubeconfigGenerators, "", generator, &o); err != nil {
			r.t.Fatal(err)
		}
		return o.Status.ObservedGeneration == o.Generation && is(o)
	})
	return o
}

func numbers(resources, available, errors int) func(v1alpha1.KubeconfigGenerator) bool {
	return func(o v1alpha1.KubeconfigGenerator) bool {
		s := o.Status
		return s.Resources == resources && s.AvailableResources == available && len(s.Errors) == errors
	}
}

// label changes the labels of the tenant, as intake then tells.
func (r *generatorRig) label(labels map[string]string) {
	r.t.Helper()
	patch := map[string]any{}
	for k := range r.labels {
		patch[k] = nil
	}
	for k, v := range labels {
		patch[k] = v
	}
	r.labels = maps.Clone(labels)
	r.patch(kube.TenantControlPlanes, key.Namespace, key.Name, map[string]any{"metadata": map[string]any{"labels": patch}})
	r.acceptLabelled(r.generation, labels)
}

func generatorNamed(n string, spec v1alpha1.KubeconfigGeneratorSpec) *v1alpha1.KubeconfigGenerator {
	return &v1alpha1.KubeconfigGenerator{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: spec}
}

func TestTheServiceWithGenerators(t *testing.T) {
	admin, limited := newCluster(t)
	ctx := t.Context()
	crds := kube.Resource{GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
	for _, kind := range []string{"kubeconfiggenerators", "tenantcontrolplanes"} {
		manifests(t, "crds/kamaji.clastix.io_"+kind+".yaml", func(_ string, body []byte) {
			poll.Nil(t, "the definition of "+kind, func() error { // a busy API server takes longer than a request may
				return admin.ApplyRaw(ctx, crds, "", kind+".kamaji.clastix.io", body, nil)
			})
		})
	}
	tcp := &v1alpha1.TenantControlPlane{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q,"annotations":{%q:""}},"spec":{
		"controlPlane":{"service":{"serviceType":"LoadBalancer"}},"kubernetes":{"version":"v1.36.3","kubelet":{}}}}`,
		key.Namespace, key.Name, name.AnnotationDataStore), tcp); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the tenant's object", func() bool {
		err := admin.Apply(ctx, kube.TenantControlPlanes, tcp)
		return err == nil
	})
	poll.True(t, "generators can be had", func() bool {
		return admin.List(ctx, kube.KubeconfigGenerators, "", "", &v1alpha1.KubeconfigGeneratorList{}) == nil
	})

	r := &generatorRig{rig: newRig(t, limited), admin: admin, generation: 1}
	r.uid = string(tcp.UID)
	stop := r.certs()
	text := func(s string) v1alpha1.CompoundValue { return v1alpha1.CompoundValue{StringValue: s} }
	from := func(s string) v1alpha1.CompoundValue { return v1alpha1.CompoundValue{FromDefinition: s} }
	jane := v1alpha1.KubeconfigGeneratorSpec{
		User: text("jane"), Groups: []v1alpha1.CompoundValue{text("viewers"), from("metadata.labels.team")},
	}
	outer := t
	again := func() { // for longer than a subtest
		defer func(t *testing.T) { r.t = t }(r.t)
		r.t = outer
		stop = r.certs()
	}
	run := func(sentence string, f func(t *testing.T)) {
		t.Helper()
		if !t.Run(sentence, func(t *testing.T) { r.t = t; f(t) }) {
			t.FailNow()
		}
	}

	run("a tenant gets its kubeconfig once it has an endpoint, and is counted before", func(t *testing.T) {
		r.apply(generatorNamed("viewer", jane))
		r.label(map[string]string{"team": "red"})
		r.status("viewer", "one waits", numbers(1, 0, 0))
		r.expose("192.0.2.7:6443")
		poll.True(t, "the kubeconfig", func() bool { return r.find("viewer") != nil })
		g := r.find("viewer")
		if g.user != "jane" || !slices.Equal(slices.Sorted(slices.Values(g.groups)), []string{"red", "viewers"}) || g.server != "https://demo.default.svc:6443" {
			t.Errorf("%+v", g)
		}
		if g.labels[name.LabelManagedBy] != "viewer" || g.labels[name.LabelManagedFor] != "demo" || g.labels[name.LabelPartition] == "" {
			t.Errorf("%v", g.labels)
		}
		o := r.status("viewer", "all have theirs", numbers(1, 1, 0))
		if c := o.Status.Conditions; len(c) != 1 || c[0].Type != "Ready" || c[0].Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	})
	run("another user and another endpoint make it anew", func(t *testing.T) {
		spec := jane
		spec.User, spec.ControlPlaneEndpointFrom = text("joe"), name.KeyAdminConf
		begin := time.Now()
		r.apply(generatorNamed("viewer", spec))
		poll.True(t, "joe's", func() bool { g := r.find("viewer"); return g.user == "joe" && g.server == "https://192.0.2.7:6443" })
		t.Logf("after %s", time.Since(begin))
		r.status("viewer", "of this generation", numbers(1, 1, 0))
	})
	run("what is edited is put right, what is deleted is back", func(t *testing.T) {
		secret := name.GeneratedKubeconfig(key.Name, "viewer")
		before := r.find("viewer")
		r.patch(kube.Secrets, key.Namespace, secret, map[string]any{"data": map[string]any{"value": "eA==", "more": "eA=="}})
		begin := time.Now()
		poll.True(t, "it is put right", func() bool { g := r.find("viewer"); return g != nil && g.version != before.version })
		t.Logf("after %s", time.Since(begin))
		r.patch(kube.Secrets, key.Namespace, secret, map[string]any{"metadata": map[string]any{"labels": map[string]any{
			name.LabelManagedBy: nil, name.LabelComponent: "x", name.LabelProject: nil,
		}}})
		poll.True(t, "its labels are back", func() bool { return maps.Equal(r.find("viewer").labels, before.labels) })
		r.delete(kube.Secrets, key.Namespace, secret)
		begin = time.Now()
		poll.True(t, "it is back", func() bool { return r.find("viewer") != nil })
		t.Logf("after %s", time.Since(begin))
		version := r.find("viewer").version
		r.patch(kube.Secrets, key.Namespace, secret, map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}})
		poll.True(t, "it is rotated", func() bool { g := r.find("viewer"); return g != nil && g.version != version })
	})
	run("a Secret of somebody else's is not touched, and the error goes with it", func(t *testing.T) {
		own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name.GeneratedKubeconfig(key.Name, "mine")}, StringData: map[string]string{"value": "mine"}}
		if err := admin.Create(ctx, kube.Secrets, own); err != nil {
			t.Fatal(err)
		}
		r.apply(generatorNamed("mine", jane))
		o := r.status("mine", "the error", numbers(1, 0, 1))
		if e := o.Status.Errors[0]; e.Resource != "default/demo" || !strings.Contains(e.Message, "Secret default/demo-mine belongs to something else") {
			t.Errorf("%+v", e)
		}
		is := &corev1.Secret{}
		if err := admin.Get(ctx, kube.Secrets, key.Namespace, own.Name, is); err != nil || is.ResourceVersion != own.ResourceVersion {
			t.Errorf("%v, version %s was %s", err, is.ResourceVersion, own.ResourceVersion)
		}
		r.delete(kube.Secrets, key.Namespace, own.Name)
		r.status("mine", "it is made", numbers(1, 1, 0))
		r.delete(kube.KubeconfigGenerators, "", "mine")
		poll.True(t, "it is gone with its generator", func() bool { return r.find("mine") == nil })
	})
	run("while a generator is paused its kubeconfigs are left alone", func(t *testing.T) {
		pause := func(annotations map[string]any) {
			t.Helper()
			r.patch(kube.KubeconfigGenerators, "", "viewer", map[string]any{"metadata": map[string]any{"annotations": annotations}})
		}
		pause(map[string]any{name.AnnotationPaused: ""})
		r.status("viewer", "paused", func(o v1alpha1.KubeconfigGenerator) bool { return len(o.Status.Conditions) == 2 })
		r.delete(kube.Secrets, key.Namespace, name.GeneratedKubeconfig(key.Name, "viewer"))
		r.apply(generatorNamed("viewer", jane))
		r.status("viewer", "one waits", numbers(1, 0, 0))
		if r.find("viewer") != nil {
			t.Error("it was made")
		}
		until := time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339)
		pause(map[string]any{name.AnnotationPaused: nil, name.AnnotationPausedUntil: until})
		poll.True(t, "it is made when the pause ends", func() bool { return r.find("viewer") != nil })
		if end, _ := time.Parse(time.RFC3339, until); time.Now().Before(end) {
			t.Error("it was made before")
		}
		pause(map[string]any{name.AnnotationPausedUntil: nil})
		r.status("viewer", "no longer paused", func(o v1alpha1.KubeconfigGenerator) bool { return len(o.Status.Conditions) == 1 && numbers(1, 1, 0)(o) })
	})
	run("a field that isn't there is an error that names it, and stays one until it is", func(t *testing.T) {
		r.apply(generatorNamed("owner", v1alpha1.KubeconfigGeneratorSpec{User: from("metadata.annotations.owner")}))
		o := r.status("owner", "the error", numbers(1, 0, 1))
		if m := o.Status.Errors[0].Message; m != "spec.user.fromDefinition: field metadata.annotations.owner of the tenant is not there" {
			t.Error(m)
		}
		r.patch(kube.TenantControlPlanes, key.Namespace, key.Name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"owner": "ann"}}})
		r.status("owner", "it is made", numbers(1, 1, 0))
		if g := r.find("owner"); g.user != "ann" {
			t.Errorf("%+v", g)
		}
	})
	run("a label that goes takes the group's name, and what is there stays", func(t *testing.T) {
		before := r.find("viewer")
		r.label(map[string]string{"other": "x"})
		r.status("viewer", "the error", numbers(1, 0, 1))
		if g := r.find("viewer"); g == nil || g.version != before.version {
			t.Errorf("%+v", g)
		}
		r.label(map[string]string{"team": "blue"})
		poll.True(t, "the new group", func() bool { return slices.Contains(r.find("viewer").groups, "blue") })
		r.status("viewer", "no error", numbers(1, 1, 0))
	})
	run("who is no longer selected loses it: by its labels, by its namespace's", func(t *testing.T) {
		spec := jane
		spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"team": "blue"}
		r.apply(generatorNamed("viewer", spec))
		r.label(map[string]string{"team": "green"})
		poll.True(t, "gone by the tenant's label", func() bool { return r.find("viewer") == nil })
		r.status("viewer", "none", numbers(0, 0, 0))
		r.label(map[string]string{"team": "blue"})
		poll.True(t, "back by the tenant's label", func() bool { return r.find("viewer") != nil })
		spec.NamespaceSelector.MatchLabels = map[string]string{"stage": "test"}
		r.apply(generatorNamed("viewer", spec))
		poll.True(t, "gone by the selector", func() bool { return r.find("viewer") == nil })
		stage := func(value any) {
			t.Helper()
			r.patch(kube.Namespaces, "", key.Namespace, map[string]any{"metadata": map[string]any{"labels": map[string]any{"stage": value}}})
		}
		stage("test")
		poll.True(t, "back by the namespace's label", func() bool { return r.find("viewer") != nil })
		r.status("viewer", "one", numbers(1, 1, 0))
		stage(nil)
		poll.True(t, "gone by the namespace's label", func() bool { return r.find("viewer") == nil })
		r.apply(generatorNamed("viewer", jane))
		poll.True(t, "back by the selector", func() bool { return r.find("viewer") != nil })
	})
	run("what happened while the service was away is made good when it is back", func(t *testing.T) {
		r.apply(generatorNamed("short", jane))
		poll.True(t, "another's kubeconfig", func() bool { return r.find("short") != nil })
		owner := r.find("owner")
		stop()
		r.delete(kube.KubeconfigGenerators, "", "short")
		r.delete(kube.Secrets, key.Namespace, name.GeneratedKubeconfig(key.Name, "viewer"))
		r.apply(generatorNamed("late", jane))
		again()
		poll.True(t, "the deleted Secret is back", func() bool { return r.find("viewer") != nil })
		poll.True(t, "the new generator's is there", func() bool { return r.find("late") != nil })
		poll.True(t, "the deleted generator's is gone", func() bool { return r.find("short") == nil })
		if is := r.find("owner"); is == nil || is.version != owner.version {
			t.Errorf("untouched: %+v, was %+v", is, owner)
		}
	})
	run("a new CA makes all of them anew", func(t *testing.T) {
		before := []*generated{r.find("viewer"), r.find("owner"), r.find("late")}
		r.patch(kube.Secrets, key.Namespace, name.CA(key.Name), map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}})
		for i, n := range []string{"viewer", "owner", "late"} {
			poll.True(t, n+"'s is new", func() bool { return r.find(n).version != before[i].version })
		}
	})
	run("when NATS was lost, all of it is found done", func(t *testing.T) {
		names := []string{"viewer", "owner", "late"}
		before := []*generated{r.find("viewer"), r.find("owner"), r.find("late")}
		for _, s := range r.stops {
			s()
		}
		r.nats.Stop()
		r.rig = newRig(outer, limited)
		r.uid = string(tcp.UID)
		again()
		r.t = t
		r.acceptLabelled(1, r.labels)
		r.expose("192.0.2.7:6443")
		poll.True(t, "the state knows them", func() bool {
			st, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			var c state.Certs
			if errors.Is(err, events.ErrNotFound) {
				return false
			}
			if err := errors.Join(err, json.Unmarshal(st.Data, &c)); err != nil {
				t.Fatal(err)
			}
			return len(c.Generated) == 3 && !slices.ContainsFunc(slices.Collect(maps.Values(c.Generated)), func(g state.Generated) bool { return g.Inputs == "" })
		})
		for i, n := range names {
			if is := r.find(n); is == nil || is.version != before[i].version {
				t.Errorf("%s: %+v, was %+v", n, is, before[i])
			}
			r.status(n, "all have theirs", numbers(1, 1, 0))
		}
	})
	run("a tenant's deletion takes and counts them", func(t *testing.T) {
		r.delete(kube.TenantControlPlanes, key.Namespace, key.Name)
		r.do("intake", r.intake, loop.Outcome{
			Step: event.Deleting, Data: generation{2, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
			Facts: []loop.Tell{{What: event.Deleting}},
		})
		gone := event.Removals{About: event.About{Namespace: key.Namespace, Name: key.Name, UID: r.uid, Generation: 2}}
		if err := r.bus("datastore").Tell(ctx, key, 2, "gone", event.Removed, gone); err != nil {
			t.Fatal(err)
		}
		poll.True(t, "certs has removed its part", func() bool {
			select {
			case e := <-r.facts:
				return e.Service == name.ServiceCerts && e.What == event.Removed && json.Unmarshal(e.Data(), &gone) == nil
			default:
				return false
			}
		})
		if got, want := gone.Removed["certs/Secret"], len(pki.Components("demo"))+3; got != want {
			t.Errorf("%d removed, not %d", got, want)
		}
		list := &corev1.SecretList{}
		if err := admin.List(ctx, kube.Secrets, key.Namespace, name.LabelName+"="+key.Name, list); err != nil || len(list.Items) != 0 {
			t.Errorf("%v, %d left", err, len(list.Items))
		}
		for _, n := range []string{"viewer", "owner", "late"} {
			r.status(n, "none", numbers(0, 0, 0))
		}
	})
}
