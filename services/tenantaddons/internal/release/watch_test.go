package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"helm.sh/helm/v4/pkg/chart/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// watched is a release that is watched.
type watched struct {
	*Cluster
	*Installed
	told chan Event
	end  func()
}

func watching(t testing.TB, c *Cluster, in *Installed) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{Cluster: c, Installed: in, told: make(chan Event, 1000)}
	done := make(chan error, 1)
	go func() { done <- c.Watch(ctx, []*Installed{in}, func(e Event) { w.told <- e }) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch has ended: %v", err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// settle is until all objects were seen, and drift is none or what is given.
func (w *watched) settle(t testing.TB, want ...Ref) {
	t.Helper()
	poll.True(t, fmt.Sprintf("the drift is %v", want), func() bool {
		w.Installed.mu.Lock()
		unseen := w.unseen
		w.Installed.mu.Unlock()
		got := w.Drift()
		return unseen == 0 && len(got) == len(want) && !slices.ContainsFunc(want, func(r Ref) bool { return !slices.Contains(got, r) })
	})
}

// drifted is until drift is told.
func (w *watched) drifted(t testing.TB) {
	t.Helper()
	poll.True(t, "drift is told", func() bool {
		select {
		case e := <-w.told:
			return e.Drift
		default:
			return false
		}
	})
}

func (s *apiServer) patch(t testing.TB, r schema.GroupVersionResource, namespace, object, patch string, sub ...string) {
	t.Helper()
	_, err := s.admin.Resource(r).Namespace(namespace).Patch(t.Context(), object, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}, sub...)
	if err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) delete(t testing.TB, r schema.GroupVersionResource, namespace, object string) {
	t.Helper()
	if err := s.admin.Resource(r).Namespace(namespace).Delete(t.Context(), object, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestDriftIsPutBack(t *testing.T) {
	t.Parallel()
	id := newID()
	c := open(t, kube.Options{})
	in, err := c.Install(t.Context(), everything(t, id, false))
	if err != nil {
		t.Fatal(err)
	}
	ns, app := id.Namespace, id.Name
	w := watching(t, c, in)
	w.settle(t)
	config, deployment := Ref{"", "ConfigMap", ns, app}, Ref{"apps", "Deployment", ns, app}
	role, binding := Ref{"rbac.authorization.k8s.io", "Role", ns, app}, Ref{"rbac.authorization.k8s.io", "RoleBinding", ns, app}
	widget, crd := Ref{group(id), "Widget", ns, "one"}, Ref{"apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets." + group(id)}
	for _, test := range []struct {
		sentence string
		ref      Ref
		do       func()
	}{
		{"an object that is deleted", config, func() { server.delete(t, configMaps, ns, app) }},
		{"a value of a ConfigMap", config, func() { server.patch(t, configMaps, ns, app, `{"data":{"greeting":"bye"}}`) }},
		{"a key that is deleted", config, func() { server.patch(t, configMaps, ns, app, `{"data":{"greeting":null}}`) }},
		{"a label of ours", config, func() {
			server.patch(t, configMaps, ns, app, `{"metadata":{"labels":{"stoker.dev/tenant-addon":null}}}`)
		}},
		{"Helm's annotation", config, func() {
			server.patch(t, configMaps, ns, app, `{"metadata":{"annotations":{"meta.helm.sh/release-name":"x"}}}`)
		}},
		{"an image", deployment, func() {
			server.patch(t, deployments, ns, app, `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil"}]}}}}`)
		}},
		{"replicas", deployment, func() { server.patch(t, deployments, ns, app, `{"spec":{"replicas":0}}`) }},
		{"replicas that are scaled", deployment, func() { server.patch(t, deployments, ns, app, `{"spec":{"replicas":5}}`, "scale") }},
		{"rules of a Role", role, func() { server.patch(t, roles, ns, app, `{"rules":[]}`) }},
		{"subjects", binding, func() { server.patch(t, roleBindings, ns, app, `{"subjects":[]}`) }},
		{"a binding that was made anew with another role", binding, func() {
			u := server.get(t, roleBindings, ns, app)
			server.delete(t, roleBindings, ns, app)
			u.SetResourceVersion("")
			u.SetManagedFields(nil)
			u.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"}
			if _, err := server.admin.Resource(roleBindings).Namespace(ns).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}},
		{"a custom resource", widget, func() { server.patch(t, widgets(id), ns, "one", `{"spec":{"size":2}}`) }},
		{"a CRD", crd, func() {
			server.patch(t, crds, "", crd.Name, `{"spec":{"names":{"shortNames":["w"]},"versions":[{"name":"v1","served":false,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
		}},
	} {
		before := server.history(t, id)
		test.do()
		w.drifted(t)
		w.settle(t, test.ref)
		repaired, err := c.Repair(t.Context(), in, w.Drift())
		if err != nil || !slices.Equal(repaired, []Ref{test.ref}) {
			t.Errorf("%s: repaired %v, %v", test.sentence, repaired, err)
		}
		w.settle(t)
		if again, err := c.Repair(t.Context(), in, []Ref{test.ref}); err != nil || len(again) != 0 {
			t.Errorf("%s: repaired again %v, %v", test.sentence, again, err)
		}
		if after := server.history(t, id); !slices.Equal(before, after) {
			t.Errorf("%s: history is %q", test.sentence, after)
		}
	}
	wantEverything(t, id, false)
}

func TestWhatOthersAddIsNoDrift(t *testing.T) {
	t.Parallel()
	id := newID()
	c := open(t, kube.Options{})
	r := everything(t, id, false)
	r.Chart.Templates = append(r.Chart.Templates, &common.File{Name: "templates/job.yaml", Data: []byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: passing}\n" +
		"spec: {ttlSecondsAfterFinished: 1, template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'registry.example/a:1'}]}}}")})
	in, err := c.Install(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ns, app := id.Namespace, id.Name
	w := watching(t, c, in)
	w.settle(t)
	server.patch(t, deployments, ns, app, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"7"}}}`)
	server.patch(t, deployments, ns, app, `{"status":{"replicas":1,"observedGeneration":1}}`, "status")
	server.patch(t, configMaps, ns, app, `{"data":{"other":"x"}}`)
	server.patch(t, widgets(id), ns, "one", `{"status":{"phase":"fine"}}`, "status")
	server.patch(t, widgets(id), ns, "one", `{"spec":{"other":2}}`)
	server.delete(t, jobs, ns, "passing") // as the Job controller does
	// Seen after all that.
	server.delete(t, roles, ns, app)
	w.settle(t, Ref{"rbac.authorization.k8s.io", "Role", ns, app})
	if repaired, err := c.Repair(t.Context(), in, w.Drift()); err != nil || len(repaired) != 1 {
		t.Errorf("repaired %v, %v", repaired, err)
	}
	w.settle(t)
	if d := server.get(t, configMaps, ns, app).Object["data"]; fmt.Sprint(d) != "map[greeting:upgraded false other:x]" {
		t.Errorf("data is %v", d)
	}
}

// What happened while nobody watched is seen by who reads the release: objects that went, and such that are others.
func TestDriftWhileNobodyWatched(t *testing.T) {
	t.Parallel()
	id := newID()
	c := open(t, kube.Options{})
	if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	ns, app := id.Namespace, id.Name
	server.delete(t, configMaps, ns, app)
	server.patch(t, deployments, ns, app, `{"spec":{"replicas":0}}`)
	other := open(t, kube.Options{})
	in, err := other.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w := watching(t, other, in)
	w.settle(t, Ref{"", "ConfigMap", ns, app}, Ref{"apps", "Deployment", ns, app})
	if repaired, err := other.Repair(t.Context(), in, w.Drift()); err != nil || len(repaired) != 2 {
		t.Errorf("repaired %v, %v", repaired, err)
	}
	w.settle(t)
	wantEverything(t, id, false)

	// Nobody has noted how the objects should be.
	server.patch(t, secrets, ns, secretName(app, 1), `{"metadata":{"annotations":null}}`)
	w.end()
	if in, err = other.Read(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w = watching(t, other, in)
	w.settle(t, in.Objects()...)
	if repaired, err := other.Repair(t.Context(), in, w.Drift()); err != nil || len(repaired) != 0 {
		t.Errorf("repaired %v, %v", repaired, err)
	}
	w.settle(t)

	// What Helm has noted is gone.
	server.delete(t, secrets, ns, secretName(app, 1))
	w.settle(t, in.record())
	if _, err := other.Repair(t.Context(), in, w.Drift()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("repaired: %v", err)
	}
	w.end()
	if in, err := other.Read(t.Context(), id); in != nil || err != nil {
		t.Errorf("read %v, %v", in, err)
	}
	if in, err = other.Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	wantEverything(t, id, false)
	watching(t, other, in).settle(t)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	id := newID()
	c := open(t, kube.Options{})
	in, err := c.Install(t.Context(), everything(t, id, false))
	if err != nil {
		t.Fatal(err)
	}
	if h := in.Health(); h.State != Unknown {
		t.Errorf("before anybody looks, it is %v", h)
	}
	ns, app := id.Namespace, id.Name
	w := watching(t, c, in)
	want := func(state, message string) {
		t.Helper()
		poll.True(t, "it is "+state+": "+message, func() bool { return in.Health() == Health{state, message} })
	}
	want(InProgress, "Deployment "+ns+"/"+app+": Replicas: 0/1")
	status := func(available, progressing, why string) {
		server.patch(t, deployments, ns, app, `{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":`+available+
			`,"availableReplicas":`+available+`,"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Progressing","status":"`+
			progressing+`","reason":"`+why+`","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")
	}
	status("1", "True", "NewReplicaSetAvailable")
	want(Current, "")
	server.patch(t, widgets(id), ns, "one", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Broken","message":"no water"}]}}`, "status")
	want(InProgress, "Widget "+ns+"/one: no water")
	status("0", "False", "ProgressDeadlineExceeded")
	want(Failed, "Deployment "+ns+"/"+app+": Progress deadline exceeded; Widget "+ns+"/one: no water")
	server.patch(t, widgets(id), ns, "one", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	status("1", "True", "NewReplicaSetAvailable")
	want(Current, "")
	server.delete(t, deployments, ns, app)
	want(InProgress, "Deployment "+ns+"/"+app+": it isn't there")
	health := 0
	for w.end(); len(w.told) > 0; {
		if e := <-w.told; !e.Drift && e.Addon == id.Addon {
			health++
		}
	}
	if health < 6 {
		t.Errorf("health was told %d times", health)
	}
}

func TestWatchLeavesNothingRunning(t *testing.T) {
	c, err := Open(server.kubeconfig, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	id := newID()
	in, err := c.Install(t.Context(), everything(t, id, false))
	if err != nil {
		t.Fatal(err)
	}
	w := watching(t, c, in)
	w.settle(t)
	w.end()
	poll.True(t, "nothing runs", func() bool {
		c.Close() // a stream may still be ending
		err = goleak.Find(before)
		return err == nil
	})
}

// With a CRD go the objects of its kind, and with it they come back.
func TestCRDThatIsDeletedIsPutBack(t *testing.T) {
	t.Parallel()
	id := newID()
	c := open(t, kube.Options{})
	in, err := c.Install(t.Context(), everything(t, id, false))
	if err != nil {
		t.Fatal(err)
	}
	w := watching(t, c, in)
	w.settle(t)
	crd, widget := Ref{"apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets." + group(id)}, Ref{group(id), "Widget", id.Namespace, "one"}
	server.delete(t, crds, "", crd.Name)
	w.settle(t, crd, widget)
	if repaired, err := c.Repair(t.Context(), in, w.Drift()); err != nil || !slices.Equal(repaired, []Ref{crd, widget}) {
		t.Errorf("repaired %v, %v", repaired, err)
	}
	w.settle(t)
	wantEverything(t, id, false)
	w.end()

	// Also by who meets the tenant without it.
	server.delete(t, crds, "", crd.Name)
	poll.True(t, "the CRD is gone", func() bool { return !server.has(t, crds, "", crd.Name) })
	other := open(t, kube.Options{})
	if in, err = other.Read(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w = watching(t, other, in)
	poll.True(t, "the CRD is missed", func() bool { return slices.Contains(w.Drift(), crd) })
	poll.True(t, "all is put back", func() bool {
		if _, err := other.Repair(t.Context(), in, w.Drift()); err != nil {
			t.Fatal(err)
		}
		return server.has(t, widgets(id), id.Namespace, "one")
	})
	w.settle(t)
	wantEverything(t, id, false)
}
