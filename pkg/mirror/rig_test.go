package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestMain(m *testing.M) { natstest.Main(m) }

var things = kube.Resource{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, Plural: "things", Kind: "Thing", Namespaced: true}

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,
"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{"size":{"type":"integer","maximum":100}},"x-kubernetes-preserve-unknown-fields":true},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// rig is two clusters, each with a way to it that can be cut.
type rig struct {
	t        *testing.T
	servers  [2]*apiserver.Server
	gates    [2]*gate
	admin    [2]*kube.Client
	prefixes atomic.Int32
	keys     name.MirrorKeys
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, keys: name.Mirror(name.MirrorDomain)}
	for s, server := range apiserver.StartAll(t, 2) {
		server.Controllers(t)
		r.servers[s], r.gates[s], r.admin[s] = server, newGate(t, server.Address()), client(t, server.Config, "admin")
		if err := r.admin[s].ApplyRaw(t.Context(), kube.CustomResourceDefinitions, "", "things.example.com", []byte(definition), nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kind", func() error {
			return r.admin[s].List(t.Context(), things, "", "", &metav1.PartialObjectMetadataList{})
		})
	}
	return r
}

func client(t testing.TB, cfg *rest.Config, manager string) *kube.Client {
	t.Helper()
	c, err := kube.New(cfg, kube.Options{FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// gate is a way to a server that can be cut.
type gate struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	cut      bool
	conns    map[net.Conn]struct{}
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.carry(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); g.set(true); all.Wait() })
	return g
}

func (g *gate) carry(c net.Conn) {
	defer c.Close()
	there, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer there.Close()
	g.mu.Lock()
	cut := g.cut
	g.conns[c], g.conns[there] = struct{}{}, struct{}{}
	g.mu.Unlock()
	if cut {
		return
	}
	done := make(chan struct{})
	go func() { _, _ = io.Copy(there, c); _ = there.Close(); close(done) }()
	_, _ = io.Copy(c, there)
	_ = c.Close()
	<-done
}

// set cuts the way, or opens it.
func (g *gate) set(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = cut
	if cut {
		for c := range g.conns {
			_ = c.Close()
		}
		clear(g.conns)
	}
}

// eventually waits until there is no error any more.
func eventually(t testing.TB, what string, is func() error) {
	t.Helper()
	natstest.Retry(t, what, is)
}

// settled waits out a time in which something must not happen.
func settled(t testing.TB, what string, during time.Duration, still func() error) {
	t.Helper()
	for deadline := time.Now().Add(during); ; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // between two looks at a condition
		last := time.Now().After(deadline)
		if err := still(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if last {
			return
		}
	}
}

// site is a mirror of its own in namespaces of its own.
type site struct {
	*rig
	t      *testing.T
	cfg    Config
	prefix string
	stop   func()
	log    *strings.Builder
	logMu  sync.Mutex
}

// site starts a mirror for a test's time.
func (r *rig) site(t *testing.T, with ...func(*Config)) *site {
	t.Helper()
	s := &site{rig: r, t: t, prefix: fmt.Sprintf("p%d-", r.prefixes.Add(1)), log: &strings.Builder{}}
	s.cfg = Config{
		Kinds: []Kind{{Resource: things}}, NamespacePrefix: s.prefix, Namespaces: true,
		Log: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.cfg.Local = client(t, r.servers[local].Through(r.gates[local].listener.Addr().String()), name.FieldManagerMirror)
	s.cfg.Remote = client(t, r.servers[remote].Through(r.gates[remote].listener.Addr().String()), name.FieldManagerMirror)
	for _, f := range with {
		f(&s.cfg)
	}
	s.namespace(remote, s.ns())
	s.start()
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			s.logMu.Lock()
			defer s.logMu.Unlock()
			t.Log(s.log.String())
		}
	})
	return s
}

func (s *site) Write(line []byte) (int, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.log.Write(line)
}

// logged waits until the mirror has said something.
func (s *site) logged(part string) {
	s.t.Helper()
	eventually(s.t, "it says "+part, func() error {
		s.logMu.Lock()
		defer s.logMu.Unlock()
		if !strings.Contains(s.log.String(), part) {
			return errors.New("not yet")
		}
		return nil
	})
}

func (s *site) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s.cfg) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// ns is the site's first namespace.
func (s *site) ns() string { return s.prefix + "a" }

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) namespace(of side, n string) {
	s.t.Helper()
	err := s.admin[of].Create(s.t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: n}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

// thing makes an object, which an empty namespace has be in the site's.
func (s *site) thing(of side, n string, size int, meta ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"namespace": s.ns(), "name": n}, "spec": map[string]any{"size": int64(size)},
	}}
	for _, f := range meta {
		f(o)
	}
	s.must(s.admin[of].Create(s.t.Context(), things, o))
	return o
}

func (s *site) get(of side, n string) (*unstructured.Unstructured, error) {
	o, err := get(context.WithoutCancel(s.t.Context()), s.admin[of], things, s.ns(), n)
	if err == nil && o == nil {
		return nil, fmt.Errorf("%s: no %s", of, n)
	}
	return o, err
}

// is waits until an object is as it should be.
func (s *site) is(of side, n, what string, ok func(*unstructured.Unstructured) bool) (found *unstructured.Unstructured) {
	s.t.Helper()
	eventually(s.t, what, func() error {
		o, err := s.get(of, n)
		if err == nil && !ok(o) {
			data, _ := json.Marshal(o.Object)
			err = fmt.Errorf("%s", data)
		}
		found = o
		return err
	})
	return found
}

func sized(n int) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size")
		return size == int64(n)
	}
}

// synced waits until a pair is in step, by what is said on the remote object and by what there is.
func (s *site) synced(n string, size int) (there, here *unstructured.Unstructured) {
	s.t.Helper()
	eventually(s.t, n+" in step", func() (err error) {
		if there, err = s.get(remote, n); err != nil {
			return err
		}
		if here, err = s.get(local, n); err != nil {
			return err
		}
		a := there.GetAnnotations()
		if a[s.keys.RemoteGeneration] != fmt.Sprint(there.GetGeneration()) || a[s.keys.LocalGeneration] != fmt.Sprint(here.GetGeneration()) ||
			a[s.keys.LocalUID] != string(here.GetUID()) || here.GetAnnotations()[s.keys.RemoteUID] != string(there.GetUID()) ||
			!slices.Contains(there.GetFinalizers(), s.keys.Finalizer) || !sized(size)(here) || !sized(size)(there) || a[s.keys.Message] != "" {
			return fmt.Errorf("%v and %v", there.Object["metadata"], here.Object)
		}
		return nil
	})
	return there, here
}

func (s *site) gone(of side, n string) {
	s.t.Helper()
	eventually(s.t, n+" is gone", func() error {
		o, err := get(s.t.Context(), s.admin[of], things, s.ns(), n)
		if err == nil && o != nil {
			err = fmt.Errorf("%s: %v", of, o.Object["metadata"])
		}
		return err
	})
}

func (s *site) delete(of side, n string) {
	s.t.Helper()
	_, err := s.admin[of].Delete(s.t.Context(), things, s.ns(), n, metav1.DeleteOptions{})
	s.must(err)
}

// vanish has an object go without its finalizers, as if its server had never had it.
func (s *site) vanish(of side, n string) {
	s.t.Helper()
	s.patch(of, n, map[string]any{"metadata": map[string]any{"finalizers": nil, "annotations": map[string]any{s.keys.Paused: "true"}}}) // so that none is put back
	s.delete(of, n)
}

func (s *site) patch(of side, n string, patch map[string]any, sub ...string) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	s.must(s.admin[of].MergePatch(s.t.Context(), things, s.ns(), n, patch, o, sub...))
	return o
}

func (s *site) annotate(of side, n, key string, value any) {
	s.t.Helper()
	s.patch(of, n, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

func (s *site) resize(of side, n string, size int) {
	s.t.Helper()
	s.patch(of, n, map[string]any{"spec": map[string]any{"size": size}})
}

func (s *site) status(of side, n, phase string) {
	s.t.Helper()
	s.patch(of, n, map[string]any{"status": map[string]any{"phase": phase}}, "status")
}

func phase(want string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		is, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return is == want
	}
}

func says(key, part string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return strings.Contains(o.GetAnnotations()[key], part) }
}

// same reports, of an object that must stay, whether it is still the one it was.
func (s *site) same(of side, was *unstructured.Unstructured) func() error {
	return func() error {
		o, err := s.get(of, was.GetName())
		if err == nil && (o.GetUID() != was.GetUID() || o.GetDeletionTimestamp() != nil) {
			err = fmt.Errorf("it was deleted: %v", o.Object["metadata"])
		}
		return err
	}
}

// killer ends a mirror at one of its writes, to whichever server.
type killer struct {
	mu    sync.Mutex
	at    int
	after bool // the server has answered
	n     int
	kill  func()
}

// through sends a request on, unless it is the one.
func (k *killer) through(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return next.RoundTrip(r)
	}
	k.mu.Lock()
	k.n++
	now := k.n == k.at
	k.mu.Unlock()
	if !now {
		return next.RoundTrip(r)
	}
	if k.after {
		if resp, err := next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	k.kill()
	return nil, context.Canceled
}
