package addons

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// tenant is a real API server on a real etcd, and nothing else.
type tenant struct {
	*Cluster
	server     *apiserver.Server
	rest       *rest.RESTClient // what somebody with kubectl has
	in         Input
	kubeconfig []byte
	intake     *events.Bus // what serve writes the tenant's spec by
}

// shared is the API server of tests that don't run in parallel. An earlier test may have left its addons there.
var shared apiserver.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// startTenant returns a tenant on an API server of its own, without addons.
func startTenant(t testing.TB) *tenant {
	t.Helper()
	return newTenant(t, apiserver.Run(t, apiserver.Options{}))
}

// sharedTenant returns a tenant on the API server that tests share.
func sharedTenant(t testing.TB) *tenant {
	t.Helper()
	return newTenant(t, shared.Server(t, apiserver.Options{}))
}

func newTenant(t testing.TB, server *apiserver.Server) *tenant {
	t.Helper()
	tn := &tenant{server: server, kubeconfig: server.Kubeconfig, in: input()}
	tn.in.Endpoint, tn.in.CACertPEM = server.Address, server.CA
	var err error
	if tn.Cluster, err = NewCluster(tn.kubeconfig, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tn.Close)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(tn.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.WarningHandler, cfg.NegotiatedSerializer = -1, rest.NoWarnings{}, scheme.Codecs.WithoutConversion()
	if tn.rest, err = rest.UnversionedRESTClientFor(cfg); err != nil {
		t.Fatal(err)
	}
	return tn
}

// another starts a second API server on the tenant's data, at an address of its own, with more flags.
func (tn *tenant) another(t testing.TB, flags map[string]string) *tenant {
	t.Helper()
	return newTenant(t, apiserver.Run(t, apiserver.Options{Etcd: tn.server.Etcd, Flags: flags}))
}

// restart starts the tenant's API server again.
func (tn *tenant) restart(t testing.TB) {
	t.Helper()
	if err := tn.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// raw does as somebody with kubectl would.
func (tn *tenant) raw(t testing.TB, method, path, contentType, body string) {
	t.Helper()
	if err := tn.rest.Verb(method).AbsPath(path).SetHeader("Content-Type", contentType).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

const merge = "application/merge-patch+json"

// probe changes one object of each kind that is watched and returns how many kinds there are.
func (tn *tenant) probe(t testing.TB, objs []*unstructured.Unstructured) int {
	t.Helper()
	probed := map[string]bool{}
	for _, o := range objs {
		if k, _ := RefOf(o).kind(); !probed[k.Kind] && !unwatched(RefOf(o).String()) {
			probed[k.Kind] = true
			tn.raw(t, http.MethodPatch, k.Path(o.GetNamespace(), o.GetName()), merge, `{"metadata":{"annotations":{"probe":"`+time.Now().String()+`"}}}`)
		}
	}
	return len(probed)
}

// watched collects what Watch tells.
type watched struct {
	mu   sync.Mutex
	seen []Event
}

func (e *watched) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, event)
}

// kinds counts the kinds of objects that were told.
func (e *watched) kinds() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := map[string]bool{}
	for _, event := range e.seen {
		kinds[event.Ref.Kind] = true
	}
	return len(kinds)
}

func (e *watched) take() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.seen
	e.seen = nil
	return seen
}

// next waits for the next event.
func (e *watched) next(t testing.TB) Event {
	t.Helper()
	var first Event
	poll.True(t, "there is an event", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.seen) == 0 {
			return false
		}
		first, e.seen = e.seen[0], e.seen[1:]
		return true
	})
	return first
}

// nextOf waits for an event of ref that isn't about the version it is known by.
func (e *watched) nextOf(t testing.TB, ref Ref, known map[string]string) Event {
	t.Helper()
	for {
		event := e.next(t)
		if event.Ref == ref && event.Version != known[ref.String()] {
			return event
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestCluster(t *testing.T) {
	tn := startTenant(t)
	objs, err := Render(tn.in)
	if err != nil {
		t.Fatal(err)
	}
	begin, used := time.Now(), cpu()
	versions, err := tn.Apply(t.Context(), objs)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("applied %d objects in %s, %s of CPU", len(objs), time.Since(begin), cpu()-used)

	t.Run("applying again changes nothing", func(t *testing.T) {
		begin, used := time.Now(), cpu()
		again, err := tn.Apply(t.Context(), objs)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("applied %d unchanged objects in %s, %s of CPU", len(objs), time.Since(begin), cpu()-used)
		if len(again) != len(objs) {
			t.Errorf("%d of %d objects have a version", len(again), len(objs))
		}
		for ref, version := range again {
			if versions[ref] != version {
				t.Errorf("%s went from %s to %s", ref, versions[ref], version)
			}
		}
	})

	var seen watched
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tn.Watch(ctx, versions, seen.add, nil) }()
	coredns, last := Ref{"Deployment", "kube-system", "coredns"}, ""
	note := func() (told bool) {
		for _, e := range seen.take() {
			if e.Ref == coredns {
				last, told = e.Version, true
			}
		}
		return told
	}
	poll.True(t, "the watch tells of a change", func() (told bool) {
		tn.raw(t, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", merge,
			`{"metadata":{"annotations":{"probe":"`+time.Now().String()+`"}}}`)
		return note()
	})
	if versions, err = tn.Apply(t.Context(), objs); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the watch has told of all changes", func() bool { note(); return last == versions[coredns.String()] })

	for name, c := range map[string]struct {
		ref                             Ref
		method, path, contentType, body string
		want                            watch.EventType
	}{
		"a deleted Deployment is told": {
			Ref{"Deployment", "kube-system", "coredns"}, http.MethodDelete, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", "", "", watch.Deleted},
		"a changed Deployment is told": {
			Ref{"Deployment", "kube-system", "coredns"}, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", merge, `{"spec":{"replicas":0}}`, watch.Modified},
		"a deleted binding of the cluster's is told": {
			Ref{"ClusterRoleBinding", "", "kubeadm:cluster-admins"}, http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins", "", "", watch.Deleted},
		"a changed ConfigMap is told": {
			Ref{"ConfigMap", "kube-system", "coredns"}, http.MethodPatch, "/api/v1/namespaces/kube-system/configmaps/coredns", merge, `{"data":{"Corefile":"none"}}`, watch.Modified},
		"a lost label is told as a deletion": {
			Ref{"Service", "kube-system", "kube-dns"}, http.MethodPatch, "/api/v1/namespaces/kube-system/services/kube-dns", merge, `{"metadata":{"labels":{"` + LabelProject + `":null}}}`, watch.Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			tn.raw(t, c.method, c.path, c.contentType, c.body)
			event := seen.next(t)
			if event.Ref != c.ref || event.Type != c.want {
				t.Fatalf("got %+v, want %s %s", event, c.want, c.ref)
			}
			t.Logf("done and told in %s", time.Since(begin))
			if versions, err = tn.Apply(t.Context(), objs); err != nil {
				t.Fatal(err)
			}
			event = seen.next(t)
			if event.Ref != c.ref || event.Version != versions[c.ref.String()] {
				t.Errorf("of our repair, it told %+v; its version is %s", event, versions[c.ref.String()])
			}
		})
	}

	t.Run("a new status, a foreign object with our label and an unlabelled one are no drift", func(t *testing.T) {
		const coredns, info = "Deployment/kube-system/coredns", "ConfigMap/kube-public/cluster-info"
		seen.take()
		tn.raw(t, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/deployments/coredns/status", merge, `{"status":{"replicas":2}}`)
		tn.raw(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"foreign","labels":{"`+LabelProject+`":"`+Project+`"}}}`)
		tn.raw(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"plain"}}`)
		// What is drift comes after it in each watch: a change and our repair of a Deployment and of a ConfigMap.
		tn.raw(t, http.MethodPatch, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", merge, `{"spec":{"replicas":0}}`)
		tn.raw(t, http.MethodPatch, "/api/v1/namespaces/kube-public/configmaps/cluster-info", merge, `{"data":{"kubeconfig":"none"}}`)
		if versions, err = tn.Apply(t.Context(), objs); err != nil {
			t.Fatal(err)
		}
		told, last := map[string]int{}, map[string]string{}
		for last[coredns] != versions[coredns] || last[info] != versions[info] {
			e := seen.next(t)
			told[e.Ref.String()]++
			last[e.Ref.String()] = e.Version
		}
		if !maps.Equal(told, map[string]int{coredns: 2, info: 2}) {
			t.Errorf("told %v, want a change and a repair of each", told)
		}
	})

	t.Run("a signature in cluster-info survives, and applying over it is no write", func(t *testing.T) {
		const path = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
		tn.raw(t, http.MethodPatch, path, merge, `{"data":{"jws-kubeconfig-abcdef":"signed"}}`)
		event := seen.nextOf(t, Ref{"ConfigMap", "kube-public", "cluster-info"}, versions)
		again, err := tn.Apply(t.Context(), objs)
		if err != nil {
			t.Fatal(err)
		}
		if ref := "ConfigMap/kube-public/cluster-info"; again[ref] != event.Version {
			t.Errorf("version %s after signing, %s after applying", event.Version, again[ref])
		}
		got := &corev1.ConfigMap{}
		if err := tn.rest.Get().AbsPath(path).Do(t.Context()).Into(got); err != nil || got.Data["jws-kubeconfig-abcdef"] != "signed" {
			t.Errorf("got %v, %v", got.Data, err)
		}
	})

	t.Run("a role reference that was replaced is put back", func(t *testing.T) {
		const path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
		tn.raw(t, http.MethodDelete, path+"/kubeadm:get-nodes", "", "")
		tn.raw(t, http.MethodPost, path, "application/json", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",
			"metadata":{"name":"kubeadm:get-nodes","labels":{"`+LabelProject+`":"`+Project+`"}},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`)
		if versions, err = tn.Apply(t.Context(), objs); err != nil {
			t.Fatal(err)
		}
		got := &rbacv1.ClusterRoleBinding{}
		if err := tn.rest.Get().AbsPath(path + "/kubeadm:get-nodes").Do(t.Context()).Into(got); err != nil {
			t.Fatal(err)
		}
		if got.RoleRef.Name != "kubeadm:get-nodes" || len(got.Subjects) != 1 || got.Subjects[0].Name != "system:bootstrappers:kubeadm:default-node-token" {
			t.Errorf("%+v for %+v", got.RoleRef, got.Subjects)
		}
	})

	t.Run("another DNS address replaces the Service", func(t *testing.T) {
		in := tn.in
		in.DNSServiceIPs = []string{"10.96.0.53"}
		other, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		address := func() (string, types.UID) {
			t.Helper()
			got := &corev1.Service{}
			if err := tn.rest.Get().AbsPath("/api/v1/namespaces/kube-system/services/kube-dns").Do(t.Context()).Into(got); err != nil {
				t.Fatal(err)
			}
			return got.Spec.ClusterIP, got.UID
		}
		before, first := address()
		if _, err := tn.Apply(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if now, second := address(); now != "10.96.0.53" || second == first {
			t.Errorf("at %s, the same Service: %v", now, second == first)
		}
		if versions, err = tn.Apply(t.Context(), objs); err != nil {
			t.Fatal(err)
		}
		if now, _ := address(); now != before || before != tn.in.DNSServiceIPs[0] {
			t.Errorf("at %s, was at %s, wanted at %v", now, before, tn.in.DNSServiceIPs)
		}
	})

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for what, url := range map[string]string{
		"broken": "https://127.0.0.1:1/nobody", "silent": "https://" + silent.Addr().String() + "/waits",
	} {
		t.Run("a "+what+" webhook of the tenant is named and stops only what it intercepts", func(t *testing.T) {
			const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
			tn.raw(t, http.MethodPost, path, "application/json", `{"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},"webhooks":[{"name":"broken.example.com",
			"admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Fail","timeoutSeconds":30,
			"clientConfig":{"url":"`+url+`"},
			"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]}]}`)
			changed := objs[:0:0]
			for _, o := range objs {
				o = o.DeepCopy()
				o.SetAnnotations(map[string]string{"changed": "yes"})
				changed = append(changed, o)
			}
			var applied map[string]string
			var failed error
			poll.True(t, "the webhook is in force", func() bool {
				applied, failed = tn.Apply(t.Context(), changed)
				return failed != nil
			})
			var object *ObjectError
			if !errors.As(failed, &object) || object.Webhook != "broken.example.com" || object.Ref.Kind != "ConfigMap" {
				t.Errorf("got %v", failed)
			}
			if len(applied) < len(objs)-5 {
				t.Errorf("only %d of %d objects applied", len(applied), len(objs))
			}
			tn.raw(t, http.MethodDelete, path+"/broken", "", "")
			poll.True(t, "the webhook is no more", func() bool {
				versions, err = tn.Apply(t.Context(), objs)
				return err == nil
			})
		})
	}

	t.Run("an API server that hangs is found out by one question, before others are asked", func(t *testing.T) {
		if err := tn.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := tn.server.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tn.server.Signal(syscall.SIGCONT) }()
		turn, cancel := context.WithTimeout(t.Context(), 9*time.Second) // less than one request may take
		defer cancel()
		err := tn.Probe(turn)
		if err == nil || turn.Err() != nil {
			t.Errorf("got %v, and the turn %v", err, turn.Err())
		}
		if intent.Of(tenantAway(events.Tenant("default", "demo"), err)) != intent.Wait {
			t.Errorf("%v isn't waited for", err)
		}
	})

	t.Run("what happens while the API server is away is told when it is back", func(t *testing.T) {
		proxy := Ref{"DaemonSet", "kube-system", "kube-proxy"}
		another := tn.another(t, nil)
		seen.take()
		tn.server.Stop(syscall.SIGKILL)
		// By another API server on the same data, which ends before the first is back: no watch but a new one sees it.
		another.raw(t, http.MethodDelete, "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", "", "")
		if told := seen.take(); len(told) > 0 {
			t.Errorf("told by a server that is away: %+v", told)
		}
		another.server.Stop(syscall.SIGKILL)
		tn.restart(t)
		poll.True(t, "the deletion is told", func() bool {
			return slices.ContainsFunc(seen.take(), func(e Event) bool { return e.Type == watch.Deleted && e.Ref == proxy })
		})
		if versions, err = tn.Apply(t.Context(), objs); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a watch ends with its context", func(t *testing.T) {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		case <-time.After(3 * time.Minute):
			t.Error("it went on")
		}
	})

	t.Run("what happened before a watch is told when it starts", func(t *testing.T) {
		tn.raw(t, http.MethodDelete, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", "", "")
		tn.raw(t, http.MethodPatch, "/api/v1/namespaces/kube-system/configmaps/kubelet-config", merge, `{"data":{"kubelet":""}}`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var seen watched
		applied := versions
		go func() { _ = tn.Watch(ctx, applied, seen.add, nil) }()
		a := seen.next(t)
		b := seen.next(t)
		if a.Ref.Name != "kubelet-config" || a.Type != watch.Modified || b.Ref.Name != "kubeadm-config" || b.Type != watch.Deleted {
			t.Errorf("got %+v, %+v", a, b)
		}
		if versions, err = tn.Apply(t.Context(), objs); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a certificate of another CA ends the watch", func(t *testing.T) {
		_, cert, certKey := apiserver.UnknownAdministrator(t)
		cfg, err := clientcmd.Load(tn.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		user := cfg.AuthInfos["admin"]
		user.ClientCertificateData, user.ClientKeyData = cert, certKey
		text, err := clientcmd.Write(*cfg)
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCluster(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Watch(t.Context(), versions, func(Event) {}, nil); !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("a portal that asks for ever doesn't fill the tenant with tokens", func(t *testing.T) {
		made := 0
		var err error
		for ; err == nil && made <= maxJoinTokens; made++ {
			err = tn.makeToken(t.Context(), &event.Join{}, time.Now().Add(time.Hour))
		}
		var refusal *events.Refusal
		if !errors.As(err, &refusal) || refusal.Code != "429" || made != maxJoinTokens+1 {
			t.Errorf("token %d: %v", made, err)
		}
	})
	t.Run("addons that are off are removed, but not what isn't ours", func(t *testing.T) {
		tn.raw(t, http.MethodPatch, "/api/v1/namespaces/kube-system/configmaps/coredns", merge, `{"metadata":{"labels":{"`+LabelProject+`":null}}}`)
		in := tn.in
		in.CoreDNS, in.KubeProxy, in.WritePermissions.BlockUpdate = nil, nil, true
		deleted, err := tn.Delete(t.Context(), Removed(in))
		there := len(Removed(in)) - len(removedKonnectivity(nil)) // of the addons that were on
		if err != nil || deleted != there-1 {
			t.Errorf("deleted %d of %d: %v", deleted, there, err)
		}
		deleted, err = tn.Delete(t.Context(), Removed(in))
		if err != nil || deleted != 0 {
			t.Errorf("then deleted %d: %v", deleted, err)
		}
	})
}

// TestWatchMemory measures what a watched tenant costs this process: many watches of one API server, each with a
// connection of its own, as if of a tenant of its own.
func TestWatchMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes more memory than the test measures; make test runs it without the detector")
	}
	tn := sharedTenant(t)
	objs, err := Render(tn.in)
	if err != nil {
		t.Fatal(err)
	}
	versions, err := tn.Apply(t.Context(), objs)
	if err != nil {
		t.Fatal(err)
	}
	const tenants = 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	memory := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	watch := func(n int) {
		t.Helper()
		var seen []*watched
		for range n {
			e := &watched{}
			seen = append(seen, e)
			c, err := NewCluster(tn.kubeconfig, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			wg.Go(func() { _ = c.Watch(ctx, versions, e.add, nil) })
		}
		poll.True(t, "all watches tell of an object of each kind", func() bool {
			kinds := tn.probe(t, objs)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // between two looks at a condition
			return !slices.ContainsFunc(seen, func(e *watched) bool { return e.kinds() < kinds })
		})
	}
	watch(1) // what the first costs is for all
	before, goroutines := memory(), runtime.NumGoroutine()
	watch(tenants)
	each := (int64(memory()) - int64(before)) / tenants
	t.Logf("%d KB and %d goroutines for each watched tenant", each>>10, (runtime.NumGoroutine()-goroutines)/tenants)
	if each > 260<<10 {
		t.Errorf("more than 260 KB for each tenant")
	}
}
