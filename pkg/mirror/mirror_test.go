package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// test is one of all that are tried on the same two clusters.
type test struct {
	name string
	run  func(*testing.T, *rig)
}

func TestMirror(t *testing.T) {
	r := newRig(t)
	t.Run("alone", func(t *testing.T) {
		for _, one := range []test{
			{"what the local API refuses is said on the remote object", testRefused},
			{"either API is away", testAway},
		} {
			t.Run(one.name, func(t *testing.T) { one.run(t, r) })
		}
	})
	t.Run("beside others", func(t *testing.T) {
		for _, one := range slices.Concat(semantics, faults, secrets) {
			t.Run(one.name, func(t *testing.T) { t.Parallel(); one.run(t, r) })
		}
	})
	t.Run("a crash before and after each write", func(t *testing.T) { testCrashes(t, r) })
}

var semantics = []test{
	{"spec, labels and annotations come down, status goes up", testSynced},
	{"what only the local object has stays, what goes remotely goes", testLocalOnly},
	{"paused on either side, nothing is done", testPaused},
	{"a local object that is deleted is made again", testLocalMissing},
	{"a namespace is made only when that is asked for", testNamespaceMissing},
	{"a deleted remote object takes its local one along, and the namespace that was made for it", testDeleted},
	{"a namespace stays that holds anything else", testNamespaceHolds},
	{"a remote object is held until the local one is gone", testHeldRemote},
	{"what depends on a local object is deleted before it, after it, or stays", testPropagation},
	{"suffixes and prefix", testNames},
}

func testSynced(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1, func(o *unstructured.Unstructured) {
		o.SetLabels(map[string]string{"team": "a"})
		o.SetAnnotations(map[string]string{"note": "b", corev1.LastAppliedConfigAnnotation: "{}"})
	})
	_, here := s.synced("x", 1)
	if a := here.GetAnnotations(); here.GetLabels()["team"] != "a" || a["note"] != "b" || a[corev1.LastAppliedConfigAnnotation] != "" || a[s.keys.Source] != "remote" {
		t.Errorf("came down as %v", here.Object["metadata"])
	}
	s.status(local, "x", "Fine")
	s.is(remote, "x", "status up", phase("Fine"))
	s.patch(local, "x", map[string]any{"status": map[string]any{"phase": nil, "nodes": []any{"a", "b"}}}, "status")
	s.is(remote, "x", "what isn't in the status any more", func(o *unstructured.Unstructured) bool {
		nodes, _, _ := unstructured.NestedStringSlice(o.Object, "status", "nodes")
		return len(nodes) == 2 && phase("")(o)
	})
	s.status(remote, "x", "Lie")
	s.is(remote, "x", "the local status is the truth", phase(""))
	s.resize(remote, "x", 2)
	there, here := s.synced("x", 2)
	settled(t, "at rest nobody writes", 500*time.Millisecond, func() error {
		a, err := s.get(remote, "x")
		b, err2 := s.get(local, "x")
		if err = errors.Join(err, err2); err == nil && (a.GetResourceVersion() != there.GetResourceVersion() || b.GetResourceVersion() != here.GetResourceVersion()) {
			there, here = a, b
			err = errors.New("somebody wrote")
		}
		return err
	})
}

func testLocalOnly(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1, func(o *unstructured.Unstructured) {
		o.SetLabels(map[string]string{"team": "a"})
		o.Object["spec"].(map[string]any)["colour"] = "red"
	})
	s.synced("x", 1)
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"labels": map[string]any{"ours": "1"}, "finalizers": []string{"example.com/ours"}},
		"spec": map[string]any{"size": 7, "place": "here"}})
	_, here := s.synced("x", 1)
	if place, _, _ := unstructured.NestedString(here.Object, "spec", "place"); here.GetLabels()["ours"] != "1" || here.GetLabels()["team"] != "a" || place != "here" {
		t.Errorf("now %v", here.Object)
	}
	s.patch(remote, "x", map[string]any{"metadata": map[string]any{"labels": nil}, "spec": map[string]any{"colour": nil}})
	s.is(local, "x", "what was taken off", func(o *unstructured.Unstructured) bool {
		_, coloured, _ := unstructured.NestedString(o.Object, "spec", "colour")
		return o.GetLabels()["team"] == "" && o.GetLabels()["ours"] == "1" && !coloured && len(o.GetFinalizers()) == 1
	})
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

func testRefused(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	s.synced("x", 1)
	limited := strings.ReplaceAll(definition, `"maximum":100`, `"maximum":10`)
	s.must(s.admin[local].ApplyRaw(t.Context(), kube.CustomResourceDefinitions, "", "things.example.com", []byte(limited), nil))
	defer func() {
		s.must(s.admin[local].ApplyRaw(t.Context(), kube.CustomResourceDefinitions, "", "things.example.com", []byte(definition), nil))
		s.synced("x", 50)
	}()
	eventually(t, "the limit", func() error {
		err := s.admin[local].MergePatch(kube.DryRun(t.Context()), things, s.ns(), "x", map[string]any{"spec": map[string]any{"size": 11}}, nil)
		if err == nil {
			err = errors.New("not yet")
		} else if apierrors.IsInvalid(err) {
			err = nil
		}
		return err
	})
	s.resize(remote, "x", 50)
	s.is(remote, "x", "it says so", says(s.keys.Message, "should be less than or equal to 10"))
	s.status(local, "x", "Still")
	s.is(remote, "x", "status goes up all the same", phase("Still"))
}

func testPaused(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	s.synced("x", 1)
	for _, of := range []side{remote, local} {
		s.annotate(of, "x", s.keys.Paused, "true")
		there, _ := s.get(remote, "x")
		size, _, _ := unstructured.NestedInt64(there.Object, "spec", "size")
		s.resize(remote, "x", int(size)+1)
		s.status(local, "x", "Paused")
		settled(t, "paused "+of.String(), 300*time.Millisecond, func() error {
			if o, err := s.get(local, "x"); err != nil || !sized(int(size))(o) {
				return fmt.Errorf("spec came down: %w", err)
			}
			if o, err := s.get(remote, "x"); err != nil || phase("Paused")(o) {
				return fmt.Errorf("status went up: %w", err)
			}
			return nil
		})
		s.annotate(of, "x", s.keys.Paused, nil)
		s.synced("x", int(size)+1)
		s.is(remote, "x", "status up", phase("Paused"))
		s.status(local, "x", "")
		s.is(remote, "x", "status up", phase(""))
	}
	until := time.Now().Add(1500 * time.Millisecond).UTC().Truncate(time.Second).Add(time.Second)
	s.annotate(remote, "x", s.keys.PausedUntil, until.Format(time.RFC3339))
	s.resize(remote, "x", 9)
	s.synced("x", 9)
	if time.Now().Before(until) {
		t.Error("it didn't wait for the end of the pause")
	}
	s.annotate(local, "x", s.keys.Paused, "true")
	_, here := s.synced("x", 9)
	s.delete(remote, "x")
	settled(t, "a deletion while it is paused", 300*time.Millisecond, s.same(local, here))
	s.annotate(local, "x", s.keys.Paused, nil)
	s.gone(remote, "x")
	s.gone(local, "x")
}

func testLocalMissing(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	_, here := s.synced("x", 1)
	s.status(local, "x", "Old")
	s.is(remote, "x", "status up", phase("Old"))
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/wait"}}})
	s.delete(local, "x")
	s.patch(local, "x", map[string]any{"status": map[string]any{"phase": "Going"}}, "status")
	s.is(remote, "x", "status of what is being deleted", phase("Going"))
	s.resize(remote, "x", 2)
	settled(t, "it is waited for", 300*time.Millisecond, func() error {
		o, err := s.get(local, "x")
		if err == nil && (o.GetUID() != here.GetUID() || !sized(1)(o)) {
			err = fmt.Errorf("now %v", o.Object)
		}
		return err
	})
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	_, again := s.synced("x", 2)
	if again.GetUID() == here.GetUID() {
		t.Error("it is the same object")
	}
	s.is(remote, "x", "the status of what is no more isn't that of the new one", phase(""))
}

func testNamespaceMissing(t *testing.T, r *rig) {
	t.Run("asked for", func(t *testing.T) {
		s := r.site(t)
		s.thing(remote, "x", 1)
		s.synced("x", 1)
		ns := &corev1.Namespace{}
		s.must(s.admin[local].Get(t.Context(), kube.Namespaces, "", s.ns(), ns))
		if ns.Annotations[s.keys.Owner] != "x" || ns.Annotations[s.keys.Source] != "remote" {
			t.Errorf("made with %v", ns.Annotations)
		}
	})
	t.Run("not asked for", func(t *testing.T) {
		s := r.site(t, func(c *Config) { c.Namespaces = false })
		s.thing(remote, "x", 1)
		s.is(remote, "x", "it says so", says(s.keys.Message, "namespace "+s.ns()+" isn't there"))
		s.namespace(local, s.ns())
		s.synced("x", 1)
		s.delete(remote, "x")
		s.gone(remote, "x")
	})
}

func (s *site) namespaceIs(there bool) {
	s.t.Helper()
	is := func() error {
		ns := &metav1.PartialObjectMetadata{}
		err := s.admin[local].Get(s.t.Context(), kube.Namespaces, "", s.ns(), ns)
		switch {
		case apierrors.IsNotFound(err) && !there:
			return nil
		case err == nil && (!there || ns.DeletionTimestamp != nil):
			return fmt.Errorf("namespace with %v, deleted %v", ns.Annotations, ns.DeletionTimestamp)
		}
		return err
	}
	if there {
		settled(s.t, "the namespace stays", 500*time.Millisecond, is)
	} else {
		eventually(s.t, "the namespace goes", is)
	}
}

func testDeleted(t *testing.T, r *rig) {
	t.Run("namespace made here", func(t *testing.T) {
		s := r.site(t)
		s.thing(remote, "x", 1)
		s.synced("x", 1)
		s.delete(remote, "x")
		s.gone(remote, "x")
		s.namespaceIs(false)
		s.thing(remote, "x", 3)
		s.synced("x", 3)
	})
	t.Run("namespace of somebody else's", func(t *testing.T) {
		s := r.site(t)
		s.namespace(local, s.ns())
		s.thing(remote, "x", 1)
		s.synced("x", 1)
		s.delete(remote, "x")
		s.gone(remote, "x")
		s.gone(local, "x")
		s.namespaceIs(true)
	})
	t.Run("of two in a namespace the first leaves the second alone, the second takes the namespace", func(t *testing.T) {
		s := r.site(t)
		s.thing(remote, "x", 1)
		s.synced("x", 1)
		s.thing(remote, "y", 2)
		_, y := s.synced("y", 2)
		s.delete(remote, "x")
		s.gone(remote, "x")
		settled(t, "y stays", 500*time.Millisecond, s.same(local, y))
		s.namespaceIs(true)
		s.delete(remote, "y")
		s.gone(remote, "y")
		s.namespaceIs(false)
	})
}

func testNamespaceHolds(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	_, x := s.synced("x", 1)
	foreign := s.thing(local, "theirs", 5)
	config := &corev1.ConfigMap{TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: s.ns(), Name: "of-x", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(x, things.GroupVersion.WithKind("Thing"))}}}
	s.must(s.admin[local].Create(t.Context(), kube.ConfigMaps, config))
	s.delete(remote, "x")
	s.gone(remote, "x")
	s.gone(local, "x")
	s.namespaceIs(true)
	settled(t, "what nobody made remotely stays", 300*time.Millisecond, s.same(local, foreign))
	s.delete(local, "theirs")
	s.stop()
	s.start()
	s.namespaceIs(false)
}

func testHeldRemote(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	s.synced("x", 1)
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/wait"}}})
	s.delete(remote, "x")
	s.is(local, "x", "deleted", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	s.status(local, "x", "Going")
	there := s.is(remote, "x", "status of what is being deleted", phase("Going"))
	if !r.held(there) {
		t.Errorf("remote has %v", there.GetFinalizers())
	}
	s.patch(local, "x", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	s.gone(remote, "x")
	s.gone(local, "x")
}

func testPropagation(t *testing.T, r *rig) {
	deleted := func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }
	for policy, check := range map[metav1.DeletionPropagation]func(*site){
		metav1.DeletePropagationForeground: func(s *site) {
			s.is(local, "x", "it waits", func(o *unstructured.Unstructured) bool {
				return slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
			})
			s.is(local, "of-x", "deleted", deleted)
			s.is(remote, "x", "it is held", r.held)
		},
		metav1.DeletePropagationBackground: func(s *site) {
			s.gone(remote, "x")
			s.is(local, "of-x", "deleted", deleted)
		},
		metav1.DeletePropagationOrphan: func(s *site) {
			s.gone(remote, "x")
			s.is(local, "of-x", "nobody's", func(o *unstructured.Unstructured) bool { return len(o.GetOwnerReferences()) == 0 && !deleted(o) })
		},
	} {
		s := r.site(t, func(c *Config) { c.Propagation = policy })
		s.namespace(local, s.ns()) // one that was made for it would be waited for, with what depends on it
		s.thing(remote, "x", 1)
		_, here := s.synced("x", 1)
		s.thing(local, "of-x", 1, func(o *unstructured.Unstructured) {
			o.SetFinalizers([]string{"example.com/wait"})
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(here, here.GroupVersionKind())})
		})
		s.delete(remote, "x")
		check(s)
		s.patch(local, "of-x", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		s.gone(remote, "x")
		s.gone(local, "x")
	}
}

func (r *rig) held(o *unstructured.Unstructured) bool {
	for _, f := range o.GetFinalizers() {
		if f == r.keys.Finalizer {
			return true
		}
	}
	return false
}

func testNames(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) { c.RemoteSuffix, c.LocalNamespaceSuffix = "-eu", "-of-remote" })
	s.thing(remote, "x-eu", 1)
	s.thing(remote, "x-us", 2)
	s.thing(remote, "-eu"[1:], 2)
	here := &unstructured.Unstructured{}
	eventually(t, "it comes down", func() error {
		return s.admin[local].Get(t.Context(), things, s.ns()+"-of-remote", "x", here)
	})
	s.must(s.admin[local].MergePatch(t.Context(), things, s.ns()+"-of-remote", "x", map[string]any{"status": map[string]any{"phase": "Up"}}, nil, "status"))
	s.is(remote, "x-eu", "status up", phase("Up"))
	var all unstructured.UnstructuredList
	s.must(s.admin[local].List(t.Context(), things, s.ns()+"-of-remote", "", &all))
	if len(all.Items) != 1 {
		t.Errorf("came down: %v", all.Items)
	}
	other, err := s.get(remote, "x-us")
	if err != nil || len(other.GetFinalizers()) > 0 {
		t.Errorf("another cluster's object was touched: %v, %v", other.GetFinalizers(), err)
	}
	s.delete(remote, "x-eu")
	s.gone(remote, "x-eu")
}
