package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// general is text about a tenant that another's would equal.
func general(text string, key events.Key) string { return env.General(text, key.Name) }

// life is what becomes of a tenant that is made and deleted, and what each service writes meanwhile.
type life struct {
	made, removed map[string][]env.Step
	end           map[string]string
	facts         []string
}

// undisturbed is a tenant's life while nobody is killed.
func undisturbed(t *testing.T, replicas map[string][]env.Replica) life {
	t.Helper()
	key := events.Tenant("default", "kill-none")
	l := life{made: map[string][]env.Step{}, removed: map[string][]env.Step{}}
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	quiet(t, key)
	l.end, l.facts = ending(t, key), once(e.Facts(t, key))
	marks := map[*env.Tap]int{}
	steps := func(of []env.Replica) []env.Step {
		var all []env.Message
		for _, r := range of {
			messages := r.Tap.Messages(marks[r.Tap])
			marks[r.Tap] += len(messages)
			all = append(all, messages...)
		}
		return env.Steps(all, key.Name)
	}
	for service, of := range replicas {
		l.made[service] = steps(of)
	}
	accounts := account(t, key)
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key, accounts)
	for service, of := range replicas {
		l.removed[service] = steps(of)
		l.check(t, service)
	}
	return l
}

// check fails the test if the taps saw too little of a service: each works on every tenant, and would not be killed.
func (l life) check(t *testing.T, service string) {
	t.Helper()
	for what, all := range map[string][]env.Step{"made": l.made[service], "removed": l.removed[service]} {
		toBus := func(s env.Step) bool { return strings.HasPrefix(s.What, "PUB ") }
		if !slices.ContainsFunc(all, toBus) {
			t.Fatalf("while the tenant was %s, the taps saw nothing that %s wrote to NATS: %v", what, service, all)
		}
		toAPI := func(s env.Step) bool { return !toBus(s) }
		if writes := service != name.ServiceAddons; writes && what == "made" && !slices.ContainsFunc(all, toAPI) {
			t.Fatalf("while the tenant was %s, the taps saw nothing that %s wrote to the API server: %v", what, service, all)
		}
		t.Logf("%s %s it by %v", service, what, all)
	}
}

// ending is what there is of a tenant in the end, but for what differs from tenant to tenant.
func ending(t *testing.T, key events.Key) map[string]string {
	t.Helper()
	all := map[string]string{}
	var o v1alpha1.TenantControlPlane
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
	general := func(text string, key events.Key) string {
		return general(strings.NewReplacer(o.Status.Storage.Setup.User, "ACCOUNT", o.Status.Storage.Setup.Schema, "ACCOUNT").Replace(text), key)
	}
	for k, v := range whole(t, key) {
		switch {
		case strings.HasPrefix(k, "pods/"), k == measured:
			continue
		case strings.HasPrefix(k, "state/"):
			_, data, _ := strings.Cut(v, " ")
			var s state.State
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatal(err)
			}
			v = fmt.Sprintf("generation %d step %q waits for %q failure %v", s.Generation, s.Step, s.Wait.Reason, s.Failure)
		case strings.HasPrefix(k, "store/role/"):
			v = general(v, key)
		default:
			v = ""
		}
		all[general(k, key)] = v
	}
	var secrets struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Data     map[string][]byte
		}
	}
	e.List(t, kube.Secrets, key.Namespace, name.LabelName+"="+key.Name, &secrets)
	for _, s := range secrets.Items {
		all[general("secrets/"+s.Metadata.Name, key)] = fmt.Sprint(slices.Sorted(maps.Keys(s.Data)))
	}
	return all
}

// account waits until it is told what a tenant has in the DataStore: user and schema.
func account(t *testing.T, key events.Key) []string {
	t.Helper()
	var o v1alpha1.TenantControlPlane
	env.Eventually(t, "account of "+key.String(), func() error {
		get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
		if o.Status.Storage.Setup.User == "" || o.Status.Storage.Setup.Schema == "" {
			return errNotYet
		}
		return nil
	})
	return []string{o.Status.Storage.Setup.User, o.Status.Storage.Setup.Schema}
}

// nothingLeft looks that there is nothing of a deleted tenant anywhere but its history. before are its user and schema.
func nothingLeft(t *testing.T, key events.Key, before []string) {
	t.Helper()
	env.Eventually(t, "nothing left of "+key.String(), func() error {
		var o metav1.PartialObjectMetadata
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object is there: %w", err)
		}
		for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments, kube.ConfigMaps, kube.Pods} {
			var list metav1.PartialObjectMetadataList
			if err := e.Admin.List(t.Context(), r, key.Namespace, name.LabelName+"="+key.Name, &list); err != nil || len(list.Items) > 0 {
				return fmt.Errorf("%d %s left: %w", len(list.Items), r.Plural, err)
			}
		}
		if _, err := e.JetStream().KeyValue(t.Context(), key.Bucket()); !errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("its bucket: %w", err)
		}
		return nil
	})
	timers, err := e.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	info, err := timers.Info(t.Context(), jetstream.WithSubjectFilter(key.TimerSubject("*", "*")))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.State.Subjects) > 0 {
		t.Errorf("timers left: %v", info.State.Subjects)
	}
	c := e.RootEtcd(t)
	users, err := c.UserList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	held := slices.Clone(users.Users)
	for _, kv := range kept.Kvs {
		held = append(held, string(kv.Key))
	}
	if len(held) == 0 {
		t.Fatal("the DataStore holds nothing at all")
	}
	for _, h := range held {
		if strings.Contains(general(h, key), "NAME") || slices.ContainsFunc(before, func(n string) bool { return strings.Contains(h, n) }) {
			t.Errorf("the DataStore holds %s", h)
		}
	}
}

// TestKilledAtEachStep kills each service that works on every tenant (SIGKILL) before and after each write that it makes for a tenant, to the
// API server and to NATS: a tap on its connections saw these writes in the life of an undisturbed tenant. Each service is killed several times in the
// life of one tenant. The tests of services/datastore kill it at what it sends to databases.
//
// A service has three replicas. Replicas of the same name hold the same tenants, and are a lane: the lanes go on side by side.
func TestKilledAtEachStep(t *testing.T) {
	e.NoServices(t)
	replicas, lanes := map[string][]env.Replica{}, map[string][]env.Replica{}
	for _, service := range name.Services() {
		if name.Optional(service) {
			e.Service(t, service, "a")
			continue
		}
		replicas[service] = e.Replicas(t, service, "a", "b", "c")
		for _, r := range replicas[service] {
			lanes[r.Process.Replica] = append(lanes[r.Process.Replica], r)
		}
	}
	for _, of := range replicas {
		env.Shared(t, of)
	}
	l := undisturbed(t, replicas)
	left := map[string]*env.Kills{}
	for service := range replicas {
		left[service] = env.NewKills(l.made[service], l.removed[service])
	}
	// Nothing of what is begun may be left when the services end.
	t.Run("lanes", func(t *testing.T) {
		for n, lane := range lanes {
			t.Run(n, func(t *testing.T) {
				t.Parallel()
				l.killed(t, lane, left)
			})
		}
	})
	for service, kills := range left {
		if err := kills.Left(); err != nil && !t.Failed() {
			t.Errorf("%s: %v", service, err)
		}
	}
}

// killed kills the replicas of a lane, until no kill of their services is left.
func (l life) killed(t *testing.T, lane []env.Replica, left map[string]*env.Kills) {
	t.Helper()
	dataStore := map[string]bool{} // whether it holds the DataStore, about which another replica would write
	for _, r := range lane {
		dataStore[r.Name] = r.Holds(t, events.DataStore(stack.DefaultDataStore))
	}
	take := func(removed bool) (targets []env.Target) {
		for _, r := range lane {
			may := func(k env.Kill) bool { return dataStore[r.Name] || !strings.Contains(k.What, "/datastores/") }
			targets = append(targets, left[r.Name].Targets(r, removed, may)...)
		}
		return targets
	}
	for n := 0; ; n++ {
		creation, deletion := take(false), take(true)
		if len(creation)+len(deletion) == 0 {
			return
		}
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			key := env.TenantOf(t, lane, fmt.Sprintf("kill-%s-%d", lane[0].Process.Replica, n), "")
			l.makes(t, key, creation)
			removes(t, key, deletion)
		})
		if !ok {
			return
		}
	}
}

// kill kills replicas at their steps in the life of a tenant, which begin begins and which is over with a phase.
func kill(t *testing.T, key events.Key, targets []env.Target, begin func(), phase string) {
	t.Helper()
	defer func() {
		if !t.Failed() {
			return
		}
		e.Explain(t, key)
		for _, target := range targets {
			all := target.Tap.Messages(0)
			for _, m := range all[max(0, len(all)-20):] {
				t.Logf("%s %s %s, lost: %v", target.Name, m.Time.Format(time.StampMilli), m.What, m.Lost)
			}
		}
	}()
	env.KillAll(t, key.Name, targets, begin, over(t, key, phase))
}

// removes has a tenant deleted and replicas killed during this time, and checks that nothing is left.
func removes(t *testing.T, key events.Key, targets []env.Target) {
	t.Helper()
	accounts := account(t, key)
	kill(t, key, targets, func() { e.Delete(t, key) }, "Deleted")
	e.Gone(t, key)
	nothingLeft(t, key, accounts)
}

// makes makes a tenant, has replicas killed during this time, and checks that the end is the one of a tenant that was left alone.
func (l life) makes(t *testing.T, key events.Key, targets []env.Target) {
	t.Helper()
	count := oneCA(t, key)
	kill(t, key, targets, func() { e.Apply(t, env.Tenant(key.Name, "v1.36.3")) }, "Ready")
	e.Ready(t, key)
	quiet(t, key)
	if end := ending(t, key); !maps.Equal(l.end, end) {
		t.Errorf("the end is another:\n%s", image(l.end).diff(end))
	}
	env.Eventually(t, "the facts of a tenant that was left alone", func() error { // what it holds is measured by the clock
		facts := e.Facts(t, key)
		for _, f := range l.facts {
			if !slices.Contains(facts, f) {
				return fmt.Errorf("%s was not told: %v", f, facts)
			}
		}
		return nil
	})
	if n := count(); n != 1 {
		t.Errorf("the CA was written %d times", n)
	}
}

// over returns a function that reports whether a tenant's life has come to a phase, and all events about the tenant are handled.
func over(t *testing.T, key events.Key, phase string) func() bool {
	return func() bool {
		s, err := e.Status(t.Context(), key)
		return err == nil && s.Phase == phase && idle(t.Context(), key) == nil
	}
}

// once is a list without what it has already.
func once(all []string) (each []string) {
	for _, s := range all {
		if !slices.Contains(each, s) {
			each = append(each, s)
		}
	}
	return each
}
