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
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var errNotYet = errors.New("not yet")

func get(t testing.TB, r kube.Resource, namespace, n string, out any) {
	t.Helper()
	if err := e.Admin.Get(t.Context(), r, namespace, n, out); err != nil {
		t.Fatal(err)
	}
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

// steps are the facts of a provisioning, in order.
var steps = [][2]string{
	{"intake", event.Accepted}, {"workload", event.Exposed}, {"datastore", event.Provisioned}, {"certs", event.Issued},
	{"workload", event.Available}, {"addons", event.Applied},
}

// tells has for each service the step at whose fact it is killed in `make test`, too: its own.
var tells = map[string]string{
	"intake": event.Accepted, "workload": event.Exposed, "datastore": event.Provisioned, "certs": event.Issued,
	"addons": event.Applied, "status": event.Available,
}

func TestKilledAtEachStep(t *testing.T) {
	procs := e.Services(t)
	for _, service := range name.Services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			for i, step := range steps {
				t.Run(fmt.Sprintf("when %s.%s is told", step[0], step[1]), func(t *testing.T) {
					if step[1] != tells[service] {
						env.Long(t)
					}
					key := events.Tenant("default", fmt.Sprintf("kill-%s-%d", service, i))
					count := oneCA(t, key)
					sub, err := e.Operator.Conn().SubscribeSync(key.FactSubject(step[0], step[1]))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = sub.Unsubscribe() }()
					e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
					if _, err := sub.NextMsg(2 * time.Minute); err != nil {
						e.Explain(t, key)
						t.Fatal(err)
					}
					procs[service].Kill()
					procs[service].Restart(t)
					e.Ready(t, key)
					if n := count(); n != 1 {
						t.Errorf("the CA was written %d times", n)
					}
					e.Delete(t, key)
					e.Gone(t, key)
				})
			}
		})
	}
}

func TestKilledWhileDeleting(t *testing.T) {
	procs := e.Services(t)
	for _, service := range name.Services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			key := events.Tenant("default", "kill-del-"+service)
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
			e.Fact(t, key, "workload", event.Exposed)
			sub, err := e.Operator.Conn().SubscribeSync(key.FactSubject("*", "*"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			e.Delete(t, key)
			for { // at the moment the service before it is done
				m, err := sub.NextMsg(time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if before := map[string]string{"intake": ".certs.removed", "certs": ".datastore.removed", "datastore": ".workload.removed",
					"workload": ".addons.removed", "addons": ".intake.deleting", "status": ".intake.removed"}[service]; strings.HasSuffix(m.Subject, before) {
					break
				}
			}
			procs[service].Kill()
			procs[service].Restart(t)
			e.Gone(t, key)
			var secrets metav1.PartialObjectMetadataList
			if err := e.Admin.List(t.Context(), kube.Secrets, key.Namespace, name.LabelName+"="+key.Name, &secrets); err != nil || len(secrets.Items) > 0 {
				t.Errorf("%d Secrets left, %v", len(secrets.Items), err)
			}
		})
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
	t.Run("work is shared", func(t *testing.T) {
		env.Eventually(t, "every replica holding partitions", func() error {
			for _, s := range name.Services() {
				kv, err := e.Operator.JetStream().KeyValue(t.Context(), events.BucketReplica)
				if err != nil {
					return err
				}
				keys, err := kv.ListKeysFiltered(t.Context(), s+".*")
				if err != nil {
					return err
				}
				n := 0
				for range keys.Keys() {
					n++
				}
				if n != 2 {
					return fmt.Errorf("%d replicas of %s", n, s)
				}
			}
			return nil
		})
	})
	for _, service := range name.Services() {
		t.Run("the replica of "+service+" that holds a tenant is killed", func(t *testing.T) {
			if service != name.ServiceIntake && service != name.ServiceWorkload {
				env.Long(t)
			}
			t.Parallel()
			// One of the two holds the partition; killing a and later b, one after the other, hits the holder.
			for i, p := range []*env.Process{a[service], b[service]} {
				key := events.Tenant("default", fmt.Sprintf("over-%s-%d", service, i))
				p.Kill()
				killed := time.Now()
				e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
				e.Ready(t, key)
				t.Logf("Ready %.1f s after %s %s was killed", time.Since(killed).Seconds(), service, p.Replica)
				p.Restart(t)
				e.Delete(t, key)
				e.Gone(t, key)
			}
		})
	}
}

func TestStoppedReplicaChangesNothingWhenItGoesOn(t *testing.T) {
	a := e.Services(t)
	for _, service := range []string{"certs", "workload", "datastore", "addons"} {
		t.Run(service, func(t *testing.T) {
			if service != name.ServiceCerts && service != name.ServiceWorkload {
				env.Long(t)
			}
			t.Parallel()
			b := e.Service(t, service, "b")
			defer b.Remove(t)
			key := events.Tenant("default", "zombie-"+service)
			count := oneCA(t, key)
			sub, err := e.Operator.Conn().SubscribeSync(key.FactSubject("intake", event.Accepted))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
			if _, err := sub.NextMsg(time.Minute); err != nil {
				t.Fatal(err)
			}
			// In the middle of its work, whichever replica it is that holds the tenant.
			a[service].Signal(syscall.SIGSTOP)
			e.Ready(t, key)
			before := world(t, key)
			a[service].Signal(syscall.SIGCONT)
			awaitHeartbeats(t, service)
			if diff := before.diff(world(t, key)); diff != "" {
				t.Errorf("the world changed:\n%s", diff)
			}
			if n := count(); n != 1 {
				t.Errorf("the CA was written %d times", n)
			}
			e.Delete(t, key)
			e.Gone(t, key)
		})
	}
}

// awaitHeartbeats waits until both replicas of a service have told several times that they live: what a zombie would do when it
// goes on, it has done by then.
func awaitHeartbeats(t *testing.T, service string) {
	t.Helper()
	heard := map[string]int{}
	sub, err := e.Operator.Conn().SubscribeSync("$KV." + events.BucketReplica + "." + service + ".*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for heard["a"] < 4 || heard["b"] < 4 {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		heard[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]]++
	}
}

// image is the world as far as a tenant goes: every object's version and every state's revision.
type image map[string]string

func world(t testing.TB, key events.Key) image {
	t.Helper()
	w := image{}
	for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments, kube.ConfigMaps, kube.Pods} {
		var list metav1.PartialObjectMetadataList
		if err := e.Admin.List(t.Context(), r, key.Namespace, name.LabelName+"="+key.Name, &list); err != nil {
			t.Fatal(err)
		}
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
	kv, err := e.Operator.JetStream().KeyValue(t.Context(), key.Bucket())
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

func TestEveryEventTwiceAndOutOfOrder(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "twice")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	quiet(t, key)
	before := world(t, key)
	// Commands and facts again, under new message ids, in random order, each by the user that may publish it.
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
	if len(all) < 8 {
		t.Fatalf("only %d messages", len(all))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d messages", seed, len(all))
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	users := map[string]*events.Bus{}
	for i, m := range all {
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
		if _, err := users[user].JetStream().PublishMsg(t.Context(), m); err != nil {
			t.Fatal(m.Subject, err)
		}
	}
	quiet(t, key)
	if diff := before.diff(world(t, key)); diff != "" {
		t.Errorf("the world changed:\n%s", diff)
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

// history reads what a stream holds for a subject.
func history(t testing.TB, stream, filter string) []*nats.Msg {
	t.Helper()
	c, err := e.Operator.JetStream().OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*nats.Msg
	for {
		batch, err := c.FetchNoWait(200)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range batch.Messages() {
			n++
			msg := nats.NewMsg(m.Subject())
			maps.Copy(msg.Header, m.Headers())
			msg.Data = slices.Clone(m.Data())
			all = append(all, msg)
		}
		if n == 0 {
			return all
		}
	}
}

// quiet waits until no consumer has anything to deliver or to be acknowledged.
func quiet(t testing.TB, key events.Key) {
	t.Helper()
	calm := 0
	env.Eventually(t, "all events handled", func() error {
		for _, stream := range []string{events.StreamFacts, events.StreamIntake} {
			s, err := e.Operator.JetStream().Stream(t.Context(), stream)
			if err != nil {
				return err
			}
			list := s.ListConsumers(t.Context())
			for c := range list.Info() {
				if strings.HasSuffix(c.Name, fmt.Sprintf("-%d", key.Partition())) && (c.NumPending > 0 || c.NumAckPending > 0) {
					calm = 0
					return fmt.Errorf("%s has %d events to deliver, %d to be acknowledged", c.Name, c.NumPending, c.NumAckPending)
				}
			}
			if err := list.Err(); err != nil {
				return err
			}
		}
		if calm++; calm < 10 {
			return errNotYet
		}
		return nil
	})
}

func TestJetStreamLost(t *testing.T) {
	e.Services(t)
	var keys []events.Key
	for i := range 2 {
		key := events.Tenant("default", fmt.Sprintf("lost-%d", i))
		keys = append(keys, key)
		e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	}
	before := map[events.Key]image{}
	objects := func(key events.Key) image {
		w := world(t, key)
		maps.DeleteFunc(w, func(k, _ string) bool { return strings.HasPrefix(k, "state/") || k == "tenantcontrolplane" })
		return w
	}
	for _, key := range keys {
		e.Ready(t, key)
		quiet(t, key)
		before[key] = objects(key)
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
		var pods corev1.PodList
		if err := e.Admin.List(t.Context(), kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				if c.Name == name.ContainerAPIServer && c.RestartCount > 0 {
					t.Errorf("%s of %s was restarted", c.Name, p.Name)
				}
			}
		}
	}
	for _, key := range keys {
		e.Delete(t, key)
		e.Gone(t, key)
	}
}

func TestDriftIsRepaired(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "drift")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	quiet(t, key)
	kubeconfig := e.Kubeconfig(t, key)
	tenant, err := kube.FromKubeconfig(readFile(t, kubeconfig), kube.Options{FieldManager: "test"})
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
		t.Run(c.resource.Kind+" "+c.n+" is back", func(t *testing.T) {
			var before metav1.PartialObjectMetadata
			if err := c.client.Get(t.Context(), c.resource, c.namespace, c.n, &before); err != nil {
				t.Fatal(err)
			}
			deleted := time.Now()
			if _, err := c.client.Delete(t.Context(), c.resource, c.namespace, c.n, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.Eventually(t, "a new one", func() error {
				var after metav1.PartialObjectMetadata
				if err := c.client.Get(t.Context(), c.resource, c.namespace, c.n, &after); err != nil {
					return err
				}
				if after.UID == before.UID {
					return errNotYet
				}
				return nil
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

func TestIdentitiesHoldOnlyTheirRights(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "rights")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Fact(t, key, "workload", event.Exposed)
	as := func(service string) *kube.Client {
		c, err := kube.Connect(e.Local.Kubeconfig(service), kube.Options{FieldManager: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, service := range []string{"intake", "certs", "datastore", "addons", "status"} {
		_, err := as(service).Delete(t.Context(), kube.Deployments, "default", "rights", metav1.DeleteOptions{})
		forbidden(service+" deletes a Deployment", err)
	}
	secret := func(n string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n, Labels: name.Labels("rights", name.ComponentCA, key.Partition())}}
	}
	for _, service := range []string{"intake", "workload", "addons", "status"} {
		forbidden(service+" makes a Secret", as(service).Create(t.Context(), kube.Secrets, secret("rights-x")))
	}
	forbidden("datastore makes a CA", as("datastore").Create(t.Context(), kube.Secrets, secret("rights-x-ca")))
	forbidden("certs makes a datastore's credentials", as("certs").Create(t.Context(), kube.Secrets, secret("x"+name.DatastoreConfig("rights"))))
	_, err := as("certs").Delete(t.Context(), kube.Secrets, name.Namespace, "etcd-default-certs", metav1.DeleteOptions{})
	forbidden("certs deletes the DataStore's CA", err)
	for _, service := range []string{"certs", "datastore", "workload", "addons", "status"} {
		forbidden(service+" changes the spec", as(service).MergePatch(t.Context(), kube.TenantControlPlanes, "default", "rights", map[string]any{"metadata": map[string]any{"labels": map[string]string{"x": "y"}}}, nil))
	}
	forbidden("intake writes status", as("intake").ApplyStatus(t.Context(), kube.TenantControlPlanes, "default", "rights", map[string]any{}))

	for _, user := range []string{events.UserPortal, "certs", "workload"} {
		b, err := e.Bus(user)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if _, err := b.Publish(ctx, key.FactSubject("addons", event.Applied), b.NewEvent(key, "forged", event.FactType("addons", event.Applied), nil, time.Now())); err == nil {
			t.Errorf("%s may tell addons' facts", user)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		if s, err := b.State(ctx, key, "status"); err == nil {
			t.Errorf("%s may read status' state: %+v", user, s)
		}
		cancel()
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

func TestNoKeyLeavesTheSecrets(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "keys")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	var secrets corev1.SecretList
	if err := e.Admin.List(t.Context(), kube.Secrets, "default", name.LabelName+"="+key.Name, &secrets); err != nil {
		t.Fatal(err)
	}
	var private []string
	for _, s := range secrets.Items {
		for k, v := range s.Data {
			if strings.HasSuffix(k, ".key") {
				private = append(private, strings.Split(string(v), "\n")[1])
			}
		}
	}
	if len(private) < 7 {
		t.Fatalf("only %d keys", len(private))
	}
	var text strings.Builder
	for k, v := range world(t, key) {
		text.WriteString(k + v)
	}
	for _, m := range history(t, events.StreamFacts, key.FactSubject("*", "*")) {
		h, _ := json.Marshal(m.Header)
		text.Write(h)
		text.Write(m.Data)
	}
	for _, p := range e.Services(t) {
		text.Write(readFile(t, p.Log()))
	}
	for _, key := range private {
		if strings.Contains(text.String(), key) || strings.Contains(text.String(), key[:40]) {
			t.Error("a private key is outside its Secret")
		}
	}
	e.Delete(t, key)
	e.Gone(t, key)
}
