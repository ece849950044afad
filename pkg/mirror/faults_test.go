package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

var faults = []test{
	{"a local object that nobody made remotely is left alone", testForeign},
	{"a remote object that is missing is believed to be gone after a while", testMissing},
	{"a remote that is empty, or lacks many at once, isn't believed", testEmptyRemote},
	{"a remote object that comes back in time changes nothing", testBackInTime},
	{"another remote object under the name", testReplaced},
	{"writes of others at the same time", testConflicts},
	{"a finalizer of another's is added between reading and writing", testFinalizerBetween},
	{"a kind that is defined anew remotely", testKindDefinedAnew},
	{"objects of another program that did the same are taken over", testTakenOver},
	{"replicas share the work", testShared},
	{"a mirror that is taken away for good lets the remote go", testRelease},
}

// soon is a grace that is short enough to wait for.
func soon(c *Config) { c.Grace = 700 * time.Millisecond }

func testForeign(t *testing.T, r *rig) {
	s := r.site(t, soon)
	s.namespace(local, s.ns())
	theirs := s.thing(local, "x", 5)
	settled(t, "without a remote object of the name", 1500*time.Millisecond, s.same(local, theirs))
	s.thing(remote, "x", 1)
	there := s.is(remote, "x", "it says so", says(s.keys.Message, "was not made from this object"))
	if r.held(there) {
		t.Error("the remote object is held though nothing is made for it")
	}
	s.delete(remote, "x")
	s.gone(remote, "x")
	settled(t, "after the remote object", 300*time.Millisecond, s.same(local, theirs))
	s.thing(remote, "x", 1)
	s.is(remote, "x", "it says so", says(s.keys.Message, "was not made from this object"))
	if o, err := s.get(local, "x"); err != nil || !sized(5)(o) {
		t.Errorf("it was changed: %v, %v", o, err)
	}
	s.annotate(remote, "x", s.keys.Adopt, "true") // which whoever writes there may want
	settled(t, "the remote asks for it", 300*time.Millisecond, s.same(local, theirs))
	s.annotate(local, "x", s.keys.Adopt, "true")
	if _, here := s.synced("x", 1); here.GetUID() != theirs.GetUID() {
		t.Error("it was made anew")
	}
}

func testMissing(t *testing.T, r *rig) {
	s := r.site(t, soon)
	for _, n := range []string{"x", "y"} {
		s.thing(remote, n, 1)
		s.synced(n, 1)
	}
	_, y := s.synced("y", 1)
	began := time.Now()
	s.vanish(remote, "x")
	s.gone(local, "x")
	if took := time.Since(began); took < s.cfg.Grace {
		t.Errorf("deleted after %s", took)
	}
	settled(t, "the other stays", 200*time.Millisecond, s.same(local, y))
}

func testEmptyRemote(t *testing.T, r *rig) {
	way := newGate(t, r.servers[remote].Address())
	s := r.site(t, soon, func(c *Config) {
		c.Remote = client(t, r.servers[remote].Through(way.listener.Addr().String()), name.FieldManagerMirror)
	})
	var here []*unstructured.Unstructured
	for i := range 4 {
		n := fmt.Sprint("x", i)
		s.thing(remote, n, 1)
		_, o := s.synced(n, 1)
		here = append(here, o)
	}
	all := func() (err error) {
		for _, o := range here {
			err = errors.Join(err, s.same(local, o)())
		}
		return err
	}
	way.set(true) // so that all three are missing when the first is seen to be
	for _, n := range []string{"x1", "x2", "x3"} {
		s.vanish(remote, n)
	}
	way.set(false)
	for _, n := range []string{"x1", "x2", "x3"} {
		s.logged(fmt.Sprintf(`name=%s state=held why="it isn't believed`, n))
	}
	settled(t, "three of four", 2*s.cfg.Grace, all)
	s.vanish(remote, "x0")
	s.stop()
	s.start()
	settled(t, "all, and a new start", 2*s.cfg.Grace+500*time.Millisecond, all)
	// Restored from a backup: the same objects, with other UIDs.
	s.annotateRestored(here[0])
	s.synced("x0", 1)
	settled(t, "they come back", 300*time.Millisecond, all)
}

// annotateRestored makes a remote object as it comes from a backup.
func (s *site) annotateRestored(of *unstructured.Unstructured) {
	s.t.Helper()
	s.thing(remote, of.GetName(), 1, func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{s.keys.Finalizer})
		o.SetAnnotations(map[string]string{s.keys.LocalUID: string(of.GetUID()), s.keys.LocalGeneration: "1", s.keys.RemoteGeneration: "1"})
	})
}

func testBackInTime(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) { c.Grace = 8 * time.Second })
	for _, n := range []string{"x", "y"} {
		s.thing(remote, n, 1)
		s.synced(n, 1)
	}
	_, here := s.synced("x", 1)
	s.vanish(remote, "x")
	s.logged("name=x state=missing")
	s.annotateRestored(here)
	s.synced("x", 1)
	s.vanish(remote, "y")
	s.gone(local, "y") // which began to be missing later
	settled(t, "it is there", 100*time.Millisecond, s.same(local, here))
}

func testReplaced(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) { c.Grace = 4 * time.Second }) // long enough to see the message
	for _, n := range []string{"x", "y", "z"} {
		s.thing(remote, n, 1)
		s.synced(n, 1)
	}
	_, x := s.synced("x", 1)
	began := time.Now()
	s.vanish(remote, "x")
	s.thing(remote, "x", 2)
	s.is(remote, "x", "it says so", says(s.keys.Message, "was made from an earlier object of this name"))
	_, again := s.synced("x", 2)
	if again.GetUID() == x.GetUID() || time.Since(began) < s.cfg.Grace {
		t.Errorf("UID %s after %s", again.GetUID(), time.Since(began))
	}
	_, y := s.synced("y", 1)
	s.vanish(remote, "y")
	s.thing(remote, "y", 3, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{s.keys.Adopt: "true"}) })
	if _, now := s.synced("y", 3); now.GetUID() != y.GetUID() {
		t.Error("it was made anew though it was to go on")
	}
	_, z := s.synced("z", 1)
	s.delete(local, "z")
	s.gone2(local, z)
	s.synced("z", 1)
}

// gone2 waits until an object is gone, whatever has its name.
func (s *site) gone2(of side, was *unstructured.Unstructured) {
	s.t.Helper()
	eventually(s.t, was.GetName()+" is gone", func() error {
		o, err := get(s.t.Context(), s.admin[of], things, s.ns(), was.GetName())
		if err == nil && o != nil && o.GetUID() == was.GetUID() {
			err = errors.New("still there")
		}
		return err
	})
}

// testConflicts has others write to both objects all the time, among it finalizers of theirs.
func testConflicts(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 0)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	others := make(chan struct{})
	go func() {
		defer close(others)
		for i := 0; ctx.Err() == nil; i++ {
			_ = s.admin[local].MergePatch(ctx, things, s.ns(), "x",
				map[string]any{"spec": map[string]any{"size": 90 + i%10}, "metadata": map[string]any{"labels": map[string]any{"n": fmt.Sprint(i)}}}, nil)
			_ = s.admin[local].MergePatch(ctx, things, s.ns(), "x", map[string]any{"status": map[string]any{"phase": fmt.Sprint(i)}}, nil, "status")
		}
	}()
	for i := range 30 {
		eventually(t, "a finalizer of another's", func() error {
			o, err := s.get(remote, "x")
			if err != nil {
				return err
			}
			return s.admin[remote].MergePatch(t.Context(), things, s.ns(), "x", map[string]any{"metadata": map[string]any{
				"resourceVersion": o.GetResourceVersion(), "finalizers": append(o.GetFinalizers(), fmt.Sprint("example.com/", i)),
			}}, nil)
		})
		s.resize(remote, "x", i)
	}
	<-others
	there, here := s.synced("x", 29)
	for i := range 30 {
		if !slices.Contains(there.GetFinalizers(), fmt.Sprint("example.com/", i)) {
			t.Errorf("finalizer %d is lost: %v", i, there.GetFinalizers())
		}
	}
	want, _, _ := unstructured.NestedString(here.Object, "status", "phase")
	s.is(remote, "x", "the last status", phase(want))
	s.patch(remote, "x", map[string]any{"metadata": map[string]any{"finalizers": []string{s.keys.Finalizer}}})
	s.delete(remote, "x")
	s.gone(remote, "x")
	s.gone(local, "x")
}

// testFinalizerBetween has another add a finalizer after each reading, before the mirror writes its own, and before it takes that off.
func testFinalizerBetween(t *testing.T, r *rig) {
	s := r.site(t, soon)
	s.stop()
	var n atomic.Int32
	s.cfg.Remote = s.refusing(func(q *http.Request) bool {
		if i := n.Load(); q.Method == http.MethodPatch && i < 2 && n.CompareAndSwap(i, i+1) {
			if o, err := s.get(remote, "x"); err == nil && o.GetDeletionTimestamp() == nil {
				s.patch(remote, "x", map[string]any{"metadata": map[string]any{"finalizers": append(o.GetFinalizers(), fmt.Sprint("example.com/", i))}})
			}
		}
		return false
	})
	s.start()
	s.thing(remote, "x", 1)
	there, _ := s.synced("x", 1)
	for i := range 2 {
		if !slices.Contains(there.GetFinalizers(), fmt.Sprint("example.com/", i)) {
			t.Errorf("finalizer %d is lost: %v", i, there.GetFinalizers())
		}
	}
	s.delete(remote, "x")
	there = s.is(remote, "x", "the mirror's is taken off", func(o *unstructured.Unstructured) bool { return !r.held(o) })
	if len(there.GetFinalizers()) != 2 {
		t.Errorf("others' are lost: %v", there.GetFinalizers())
	}
	s.patch(remote, "x", map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

func testAway(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) { c.Grace = 3 * time.Second }) // long enough to cut the way before it is over
	for _, n := range []string{"x", "y"} {
		s.thing(remote, n, 1)
		s.synced(n, 1)
	}
	_, here := s.synced("x", 1)
	t.Run("remote", func(t *testing.T) {
		r.gates[remote].set(true)
		s.status(local, "x", "Meanwhile")
		s.resize(remote, "x", 2)
		s.vanish(remote, "y")
		settled(t, "nothing is concluded from silence", 2*s.cfg.Grace, func() error {
			o, err := s.get(local, "y")
			if err == nil && o.GetDeletionTimestamp() != nil {
				err = errors.New("y was deleted")
			}
			return errors.Join(err, s.same(local, here)())
		})
		back := time.Now()
		r.gates[remote].set(false)
		s.synced("x", 2)
		s.is(remote, "x", "status up", phase("Meanwhile"))
		s.gone(local, "y")
		if took := time.Since(back); took < s.cfg.Grace {
			t.Errorf("y was deleted %s after the API was back", took)
		}
	})
	t.Run("remote, after an object was seen to be missing", func(t *testing.T) {
		s.thing(remote, "w", 1)
		s.synced("w", 1)
		s.vanish(remote, "w")
		s.logged("name=w state=missing")
		r.gates[remote].set(true)
		settled(t, "x is there", s.cfg.Grace+300*time.Millisecond, s.same(local, here))
		back := time.Now()
		r.gates[remote].set(false)
		s.gone(local, "w")
		if took := time.Since(back); took < s.cfg.Grace {
			t.Errorf("w was deleted %s after the API was back", took)
		}
	})
	t.Run("local", func(t *testing.T) {
		r.gates[local].set(true)
		s.resize(remote, "x", 3)
		s.thing(remote, "z", 1)
		s.status(local, "x", "Then")
		settled(t, "nothing is done", 500*time.Millisecond, func() error {
			if o, err := s.get(local, "x"); err != nil || !sized(2)(o) {
				return fmt.Errorf("changed: %w", err)
			}
			return nil
		})
		r.gates[local].set(false)
		s.synced("x", 3)
		s.synced("z", 1)
		s.is(remote, "x", "status up", phase("Then"))
	})
	t.Run("status can't go up, so spec doesn't come down", func(t *testing.T) {
		s.cfg.Remote = s.refusing(func(q *http.Request) bool { return q.Method == http.MethodPatch && hasSuffix(q, "/status") })
		s.stop()
		s.start()
		s.status(local, "x", "Untold")
		s.resize(remote, "x", 4)
		settled(t, "spec", 700*time.Millisecond, func() error {
			if o, err := s.get(local, "x"); err != nil || !sized(3)(o) {
				return fmt.Errorf("it came down: %w", err)
			}
			return nil
		})
	})
}

func hasSuffix(r *http.Request, end string) bool {
	p := r.URL.Path
	return len(p) >= len(end) && p[len(p)-len(end):] == end
}

// refusing is a client of the remote whose requests are lost that lost picks.
func (s *site) refusing(lost func(*http.Request) bool) *kube.Client {
	cfg := rest.CopyConfig(s.servers[remote].Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &losing{rt, lost} })
	return client(s.t, cfg, name.FieldManagerMirror)
}

type losing struct {
	http.RoundTripper
	lost func(*http.Request) bool
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.lost(r) {
		return nil, errors.New("lost on the way")
	}
	return l.RoundTripper.RoundTrip(r)
}

func testKindDefinedAnew(t *testing.T, r *rig) {
	s := r.site(t, soon)
	s.thing(remote, "x", 1)
	_, here := s.synced("x", 1)
	// A server that doesn't have the kind says not found for all of them, one by one and together.
	var gone atomic.Bool
	gone.Store(true)
	s.stop()
	cfg := rest.CopyConfig(r.servers[remote].Config)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return elsewhere{rt, &gone}
	})
	s.cfg.Remote = client(t, cfg, name.FieldManagerMirror)
	s.start()
	settled(t, "without the kind", 2*s.cfg.Grace+500*time.Millisecond, s.same(local, here))
	gone.Store(false)
	s.resize(remote, "x", 2)
	s.synced("x", 2)
	if err := s.same(local, here)(); err != nil {
		t.Error(err)
	}
}

// elsewhere sends requests for things to where the server has none: it answers itself that it doesn't have the kind.
type elsewhere struct {
	http.RoundTripper
	is *atomic.Bool
}

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.is.Load() {
		r = r.Clone(r.Context())
		r.URL.Path = "/apis/other.example.com" + r.URL.Path[len("/apis/example.com"):]
	}
	return e.RoundTripper.RoundTrip(r)
}

// testCrashes ends a mirror before and after each of the writes that it takes to make an object, change it, and delete it, and has another
// one finish.
func testCrashes(t *testing.T, r *rig) {
	whole := &killer{}
	crash(t, r, whole)
	t.Logf("%d writes", whole.n)
	t.Run("each", func(t *testing.T) {
		for at := 1; at <= whole.n; at++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, answered %v", at, after), func(t *testing.T) {
					t.Parallel()
					crash(t, r, &killer{at: at, after: after})
				})
			}
		}
	})
}

// crash goes through an object's life with a mirror that is killed at one write and another that goes on.
func crash(t *testing.T, r *rig, k *killer) {
	t.Helper()
	s := r.site(t, soon)
	s.stop()
	whole := s.cfg
	through := func(of side) *kube.Client {
		cfg := rest.CopyConfig(r.servers[of].Config)
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &shared{killer: k, next: rt} })
		return client(t, cfg, name.FieldManagerMirror)
	}
	s.cfg.Local, s.cfg.Remote = through(local), through(remote)
	ctx, cancel := context.WithCancel(t.Context())
	k.kill = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := Run(ctx, s.cfg); err != nil {
			t.Error(err)
		}
		cancel()
		if t.Context().Err() == nil {
			if err := Run(t.Context(), whole); err != nil { // the next one
				t.Error(err)
			}
		}
	}()
	s.thing(remote, "x", 1)
	s.synced("x", 1)
	s.status(local, "x", "Up")
	s.is(remote, "x", "status up", phase("Up"))
	s.resize(remote, "x", 2)
	s.synced("x", 2)
	s.delete(remote, "x")
	s.gone(remote, "x")
	s.gone(local, "x")
	s.namespaceIs(false)
	t.Cleanup(func() { <-ended })
}

// shared is a way of a killer's to one of two servers.
type shared struct {
	*killer
	next http.RoundTripper
}

func (s *shared) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.killer.through(s.next, r)
}

func testTakenOver(t *testing.T, r *rig) {
	const domain = "cloud.example.com"
	s := r.site(t, soon, func(c *Config) { c.Domain = domain })
	s.stop()
	keys := name.Mirror(domain)
	s.rig = &rig{t: r.t, servers: r.servers, gates: r.gates, admin: r.admin, keys: keys}
	s.namespace(local, s.ns())
	s.must(s.admin[local].MergePatch(t.Context(), kube.Namespaces, "", s.ns(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.Owner: "x"}}}, nil))
	here := s.thing(local, "x", 1, func(o *unstructured.Unstructured) { o.Object["spec"].(map[string]any)["colour"] = "red" })
	s.thing(remote, "x", 1, func(o *unstructured.Unstructured) {
		o.Object["spec"].(map[string]any)["colour"] = "red"
		o.SetFinalizers([]string{keys.Finalizer})
		o.SetAnnotations(map[string]string{keys.LocalGeneration: "1", keys.RemoteGeneration: "1"})
	})
	s.start()
	if _, now := s.synced("x", 1); now.GetUID() != here.GetUID() {
		t.Error("it was made anew")
	}
	s.patch(remote, "x", map[string]any{"spec": map[string]any{"colour": nil}})
	s.is(local, "x", "what the remote object says no more", func(o *unstructured.Unstructured) bool {
		_, coloured, _ := unstructured.NestedString(o.Object, "spec", "colour")
		return !coloured
	})
	s.delete(remote, "x")
	s.gone(remote, "x")
	s.namespaceIs(false)
}

func testShared(t *testing.T, r *rig) {
	var mine atomic.Bool
	again := make(chan struct{})
	s := r.site(t, func(c *Config) {
		c.Owns, c.Again = func(_, n string) bool { return n != "x" || mine.Load() }, again
	})
	s.thing(remote, "x", 1)
	s.thing(remote, "y", 1)
	s.synced("y", 1)
	if o, err := s.get(remote, "x"); err != nil || r.held(o) {
		t.Errorf("another's was worked on: %v, %v", o, err)
	}
	mine.Store(true)
	again <- struct{}{}
	s.synced("x", 1)
}

func testRelease(t *testing.T, r *rig) {
	s := r.site(t)
	s.thing(remote, "x", 1)
	_, here := s.synced("x", 1)
	s.stop()
	s.must(Release(t.Context(), s.cfg))
	there, err := s.get(remote, "x")
	if err != nil || r.held(there) || len(there.GetAnnotations()) > 0 {
		t.Errorf("left: %v, %v", there, err)
	}
	s.delete(remote, "x")
	s.gone(remote, "x")
	settled(t, "the local object stays", 200*time.Millisecond, s.same(local, here))
}
