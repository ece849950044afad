package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var errNotYet = errors.New("not yet")

func get(t testing.TB, r kube.Resource, namespace, n string, out any) {
	t.Helper()
	e.Get(t, r, namespace, n, out)
}

// oneCA watches a tenant's CA Secret and returns a function that says how many different ones there ever were.
func oneCA(t *testing.T, key events.Key) (count func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	seen := map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Admin.Watch(ctx, kube.Secrets, key.Namespace, name.LabelName+"="+key.Name+","+name.LabelComponent+"="+name.ComponentCA, func(c kube.Change) {
			mu.Lock()
			defer mu.Unlock()
			seen[string(c.Object.UID)+"/"+c.Object.ResourceVersion] = true
		})
	}()
	return func() int {
		cancel()
		<-done
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

func TestReplicas(t *testing.T) {
	a := e.Services(t)
	b := map[string]*env.Process{}
	for _, s := range name.Services() {
		b[s] = e.Service(t, s, "b")
	}
	t.Cleanup(func() {
		for _, p := range b {
			p.Remove(t)
		}
	})
	t.Run("work is shared: each replica holds half of the partitions, and no partition is held by both or by none", func(t *testing.T) {
		for _, s := range name.Services() {
			share(t, a[s], b[s])
		}
	})
	for _, service := range slices.DeleteFunc(name.Services(), name.Optional) { // those that work on every tenant
		t.Run("the replica of "+service+" that holds a tenant is killed with work in flight", func(t *testing.T) {
			t.Parallel()
			key := events.Tenant("default", "over-"+service)
			holder, other := holders(t, key, a[service], b[service])
			// What is delivered to a stopped process it has not begun, and can't end.
			holder.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
			inFlight(t, service, key)
			holder.Kill()
			e.Ready(t, key)
			env.Eventually(t, service+" "+other.Replica+" to log that it has done something", func() error {
				did := other.Did(t, key, stopped)
				if did.IsZero() {
					return errNotYet
				}
				t.Logf("%s %s took the work over after %.1f s", service, other.Replica, did.Sub(stopped).Seconds())
				return nil
			})
			holder.Restart(t)
			e.Delete(t, key)
			e.Gone(t, key)
		})
	}
}

// share waits until each of two replicas holds half of the partitions.
func share(t *testing.T, a, b *env.Process) {
	t.Helper()
	env.Eventually(t, "the replicas of "+a.Name+" to share", func() error {
		ours, theirs := a.Held(t), b.Held(t)
		if len(ours) != name.Partitions/2 || len(slices.Compact(slices.Sorted(slices.Values(slices.Concat(ours, theirs))))) != name.Partitions {
			return fmt.Errorf("%v and %v", ours, theirs)
		}
		return nil
	})
}

// holders waits until two replicas share the partitions, and returns first the replica that holds a tenant. Before that, a replica that has just
// started may take the tenant from the other one.
func holders(t *testing.T, key events.Key, a, b *env.Process) (holder, other *env.Process) {
	t.Helper()
	share(t, a, b)
	if a.Holds(t, key) {
		return a, b
	}
	return b, a
}

// inFlight waits until a service's consumer has delivered what isn't acknowledged. On a busy machine another replica may have taken over before
// that, and done the work.
func inFlight(t *testing.T, service string, key events.Key) {
	t.Helper()
	env.Eventually(t, "work in flight at "+service, func() error {
		stream := events.StreamFacts
		if service == name.ServiceIntake {
			stream = events.StreamIntake
		}
		c, err := e.JetStream().Consumer(t.Context(), stream, events.Consumer(service, key.Partition()))
		if err != nil {
			return err
		}
		if c.CachedInfo().NumAckPending > 0 {
			return nil
		}
		if e.State(t.Context(), key, service) != nil {
			t.Logf("%s was taken over before anything was delivered", service)
			return nil
		}
		return errNotYet
	})
}

// rolledOut waits until no pod of an earlier generation is left.
func rolledOut(t *testing.T, key events.Key) {
	t.Helper()
	env.Eventually(t, "the old pods gone", func() error {
		var pods metav1.PartialObjectMetadataList
		if err := e.Admin.List(t.Context(), kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
}

// whole is the world with what is inside the tenant and in the DataStore.
func whole(t *testing.T, key events.Key) image {
	t.Helper()
	w := world(t, key)
	inside, err := e.Inside(t.Context(), key)
	if err != nil || len(inside) < 10 {
		t.Fatalf("%d objects inside %s, %v", len(inside), key, err)
	}
	maps.Copy(w, inside)
	maps.Copy(w, e.Stored(t, key))
	return w
}

// image is the world as far as a tenant goes: every object's version and every state's revision.
type image map[string]string

func world(t testing.TB, key events.Key) image {
	t.Helper()
	w := image{}
	for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments, kube.ConfigMaps, kube.Pods} {
		var list metav1.PartialObjectMetadataList
		e.List(t, r, key.Namespace, name.LabelName+"="+key.Name, &list)
		for _, o := range list.Items {
			version := o.ResourceVersion
			if r.Plural == "pods" || r.Plural == "deployments" {
				version = fmt.Sprint(o.UID, "/", o.Generation) // their status is the kubelet's
			}
			w[r.Plural+"/"+o.Name] = version
		}
	}
	var o v1alpha1.TenantControlPlane
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
	w["tenantcontrolplane"] = o.ResourceVersion
	if o.Status.Storage.Usage != nil {
		w[measured] = o.Status.Storage.Usage.MeasuredAt.String()
	}
	kv, err := e.JetStream().KeyValue(t.Context(), key.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{events.KeySpec, "certs", "datastore", "workload", "addons", "status"} {
		entry, err := kv.Get(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		w["state/"+of] = fmt.Sprint(entry.Revision(), " ", string(entry.Value()))
	}
	return w
}

// measured is when it was measured what the tenant holds, in an image.
const measured = "measured"

// diff says what is another. That a tenant was measured meanwhile, because it was time, is no difference.
func (w image) diff(other image) string {
	var b strings.Builder
	was := w[measured] != other[measured]
	w, other = maps.Clone(w), maps.Clone(other)
	for _, k := range []string{measured, "tenantcontrolplane", "state/datastore", "state/status"} {
		if was {
			delete(w, k)
			delete(other, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(w)) {
		if other[k] != w[k] {
			fmt.Fprintf(&b, "%s: %s → %s\n", k, w[k], other[k])
		}
	}
	for k := range other {
		if _, ok := w[k]; !ok {
			fmt.Fprintf(&b, "%s: new\n", k)
		}
	}
	return b.String()
}

// TestEveryEventTwiceAndOutOfOrder repeats all that was ever said about a tenant: of each of its generations, and of another
// tenant that had its name before.
func TestEveryEventTwiceAndOutOfOrder(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "twice")
	former := env.Tenant(key.Name, "v1.35.4")
	former.Spec.ControlPlane.Deployment.Replicas = new(int32(0))
	e.Apply(t, former)
	e.Fact(t, key, name.ServiceCerts, event.Issued)
	e.Delete(t, key)
	e.Gone(t, key)
	const generations = 3
	for i := range generations {
		o := env.Tenant(key.Name, []string{"v1.35.4", "v1.35.4", "v1.36.3"}[i])
		if i > 0 {
			o.Spec.NetworkProfile.CertSANs = []string{fmt.Sprintf("generation-%d.example", i+1)}
		}
		e.Apply(t, o)
		env.Eventually(t, fmt.Sprint("generation ", i+1), func() error {
			var now metav1.PartialObjectMetadata
			if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &now); err != nil || now.Generation != int64(i+1) {
				return fmt.Errorf("generation %d, %w", now.Generation, err)
			}
			return nil
		})
		e.Ready(t, key)
	}
	rolledOut(t, key)
	env.Eventually(t, "what the tenant keeps to be measured", func() error { // by the clock, and not by events
		var d state.Datastore
		s := e.State(t.Context(), key, name.ServiceDatastore)
		if s == nil || json.Unmarshal(s.Data, &d) != nil || d.MeasuredAt.IsZero() {
			return errNotYet
		}
		return nil
	})
	quiet(t, key)
	before := whole(t, key)
	// Commands and facts again, under new message ids, each twice, in random order, each by the user that may publish it.
	var all []*nats.Msg
	all = append(all, history(t, events.StreamFacts, key.FactSubject("*", "*"))...)
	for _, m := range e.Commands() {
		if m.Subject == key.CommandSubject() {
			again := nats.NewMsg(m.Subject)
			maps.Copy(again.Header, m.Header)
			again.Data = m.Data
			all = append(all, again)
		}
	}
	said := map[string]bool{} // tenants and generations that facts are about
	for _, m := range all {
		var about event.About
		if json.Unmarshal(m.Data, &about) == nil && about.UID != "" {
			said[fmt.Sprint(about.UID, "/", about.Generation)] = true
		}
	}
	if len(said) < 1+generations {
		t.Fatalf("%d messages about %v only", len(all), slices.Sorted(maps.Keys(said)))
	}
	all = append(all, all...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d messages about %d generations of two tenants", seed, len(all), len(said))
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	users := map[string]*events.Bus{}
	for i, old := range all {
		m := &nats.Msg{Subject: old.Subject, Header: maps.Clone(old.Header), Data: old.Data}
		user := events.UserPortal
		if parts := strings.Split(m.Subject, "."); parts[1] == "fact" {
			user = parts[5]
		}
		if users[user] == nil {
			b, err := e.Bus(user)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			users[user] = b
		}
		m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("again-%d-%d", seed, i))
		env.Publish(t, users[user], m)
	}
	quiet(t, key)
	if diff := before.diff(whole(t, key)); diff != "" {
		t.Errorf("the world changed:\n%s", diff)
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

// history reads what a stream holds for a subject.
func history(t testing.TB, stream, filter string) []*nats.Msg {
	t.Helper()
	var all []*nats.Msg
	for _, m := range e.Messages(t, stream, filter) {
		msg := nats.NewMsg(m.Subject())
		maps.Copy(msg.Header, m.Headers())
		msg.Data = slices.Clone(m.Data())
		all = append(all, msg)
	}
	return all
}

// quiet waits until every service's consumer of a tenant's partition is there, is asked for more by a replica, and has nothing to
// deliver or to be acknowledged.
func quiet(t testing.TB, key events.Key) {
	t.Helper()
	calm := 0
	env.Eventually(t, "all events handled", func() error {
		if err := idle(t.Context(), key); err != nil {
			calm = 0
			return err
		}
		if calm++; calm < 10 {
			return errNotYet
		}
		return nil
	})
}

// idle returns an error unless all consumers of a tenant's partition wait for more.
func idle(ctx context.Context, key events.Key) error {
	look := func(stream, service string) error {
		c, err := e.JetStream().Consumer(ctx, stream, events.Consumer(service, key.Partition()))
		if err != nil {
			return fmt.Errorf("consumer of %s: %w", service, err)
		}
		i := c.CachedInfo()
		if i.NumPending > 0 || i.NumAckPending > 0 || i.NumWaiting == 0 {
			return fmt.Errorf("%s of %s has %d events to deliver, %d to be acknowledged, and is asked for more %d times",
				i.Name, stream, i.NumPending, i.NumAckPending, i.NumWaiting)
		}
		return nil
	}
	for _, service := range name.Services() {
		if err := look(events.StreamFacts, service); err != nil {
			return err
		}
	}
	return look(events.StreamIntake, name.ServiceIntake)
}

func TestJetStreamLost(t *testing.T) {
	e.Services(t)
	var keys []events.Key
	for i := range 2 {
		key := events.Tenant("default", fmt.Sprintf("lost-%d", i))
		keys = append(keys, key)
		e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	}
	before, restarted := map[events.Key]image{}, map[events.Key]int32{}
	objects := func(key events.Key) image {
		w := world(t, key)
		maps.DeleteFunc(w, func(k, _ string) bool { return strings.HasPrefix(k, "state/") || k == "tenantcontrolplane" })
		return w
	}
	for _, key := range keys {
		e.Ready(t, key)
		quiet(t, key)
		before[key], restarted[key] = objects(key), restarts(t, key)
	}
	e.NATS.Stop()
	if err := os.RemoveAll(e.NATS.JetStreamDir()); err != nil {
		t.Fatal(err)
	}
	if err := e.NATS.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		e.Ready(t, key)
		quiet(t, key)
		if diff := before[key].diff(objects(key)); diff != "" {
			t.Errorf("%s: certificates or pods changed:\n%s", key, diff)
		}
		if n := restarts(t, key); n != restarted[key] {
			t.Errorf("the API server of %s was restarted: %d times, was %d", key, n, restarted[key])
		}
	}
	for _, key := range keys {
		e.Delete(t, key)
		e.Gone(t, key)
	}
}

// restarts is how often the API servers in a tenant's pods were started again.
func restarts(t *testing.T, key events.Key) (n int32) {
	t.Helper()
	var pods corev1.PodList
	e.List(t, kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods)
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == name.ContainerAPIServer {
				n += c.RestartCount
			}
		}
	}
	return n
}

func TestDriftIsRepaired(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "drift")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	quiet(t, key)
	kubeconfig := e.Kubeconfig(t, key)
	tenant, err := kube.FromKubeconfig(readFile(t, kubeconfig), kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	for _, c := range []struct {
		client       *kube.Client
		resource     kube.Resource
		namespace, n string
	}{
		{tenant, kube.Deployments, "kube-system", "coredns"},
		{tenant, kube.ClusterRoleBindings, "", "kubeadm:get-nodes"},
		{tenant, kube.ClusterRoleBindings, "", "kubeadm:cluster-admins"},
		{tenant, kube.ConfigMaps, "kube-public", "cluster-info"},
		{tenant, kube.Services, "kube-system", "kube-dns"},
		{e.Admin, kube.Secrets, "default", name.AdminKubeconfig("drift")},
		{e.Admin, kube.Secrets, "default", name.DatastoreConfig("drift")},
		{e.Admin, kube.Secrets, "default", name.APIServerCertificate("drift")},
		{e.Admin, kube.Deployments, "default", "drift"},
		{e.Admin, kube.Services, "default", "drift"},
	} {
		t.Run(c.resource.Kind+" "+c.n+" is back as it was", func(t *testing.T) {
			var before whatIs
			env.Eventually(t, "it to be read", func() error {
				before = content(t, c.client, c.resource, c.namespace, c.n)
				return before.differs(before)
			})
			deleted := time.Now()
			if _, err := c.client.Delete(t.Context(), c.resource, c.namespace, c.n, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "a new one like the old", func() error {
				var after metav1.PartialObjectMetadata
				if err := c.client.Get(t.Context(), c.resource, c.namespace, c.n, &after); err != nil {
					return err
				}
				if after.UID == before.uid {
					return errNotYet
				}
				return before.differs(content(t, c.client, c.resource, c.namespace, c.n))
			})
			t.Logf("back after %d ms", time.Since(deleted).Milliseconds())
			e.Ready(t, key)
			quiet(t, key)
		})
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDependenciesAway(t *testing.T) {
	procs := e.Services(t)
	for _, c := range []struct {
		what, component, ready string
		service                string
	}{
		{"the DataStore's etcd", "etcd-default", "datastore default", "datastore"},
		{"the management API", "kube-apiserver", "kubernetes", "workload"},
		{"NATS", "", "nats", "certs"},
	} {
		t.Run(c.what, func(t *testing.T) {
			key := events.Tenant("default", "away-"+strings.ReplaceAll(c.ready, " ", "-"))
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
			e.Fact(t, key, "intake", event.Accepted)
			away(t, c.component, func() {
				env.Eventually(t, c.service+" says on /readyz what it waits for", func() error {
					body, err := procs[c.service].Readyz(t.Context())
					if err != nil {
						return err
					}
					if !strings.Contains(body, "[-]"+c.ready) {
						return errors.New(body)
					}
					return nil
				})
			})
			e.Ready(t, key)
			env.Eventually(t, "ready again", func() error {
				body, err := procs[c.service].Readyz(t.Context())
				if err == nil && strings.Contains(body, "[-]") {
					err = errors.New(body)
				}
				return err
			})
			e.Delete(t, key)
			e.Gone(t, key)
		})
	}
}

// away takes a component down, does something meanwhile, and brings it back.
func away(t *testing.T, component string, meanwhile func()) {
	t.Helper()
	if component == "" {
		e.NATS.Stop()
		defer func() {
			if err := e.NATS.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}()
	} else {
		c := e.Local.Component(component)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}()
	}
	meanwhile()
	if d, err := time.ParseDuration(os.Getenv("STOKER_TEST_OUTAGE")); err == nil {
		time.Sleep(d) //nolint:forbidigo // longer outages than a test has time for, when asked for
	}
}
