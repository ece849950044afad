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

	"github.com/stoker-k8s/stoker/pkg/api/event"
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
func undisturbed(t *testing.T, taps map[string]*env.Tap) life {
	t.Helper()
	key := events.Tenant("default", "kill-nobody")
	l := life{made: map[string][]env.Step{}, removed: map[string][]env.Step{}}
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	quiet(t, key)
	l.end, l.facts = ending(t, key), once(e.Facts(t, key))
	marks := map[string]int{}
	for service, tap := range taps {
		all := tap.Messages(0)
		marks[service], l.made[service] = len(all), env.Steps(all, key.Name)
	}
	accounts := account(t, key)
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key, accounts)
	for service, tap := range taps {
		l.removed[service] = env.Steps(tap.Messages(marks[service]), key.Name)
		// Every service works on a tenant: a tap that has seen nothing would have nobody killed.
		for what, all := range map[string][]env.Step{"made": l.made[service], "removed": l.removed[service]} {
			toBus := func(s env.Step) bool { return strings.HasPrefix(s.What, "PUB ") }
			if !slices.ContainsFunc(all, toBus) {
				t.Fatalf("while the tenant was %s, the tap saw nothing that %s wrote to NATS: %v", what, service, all)
			}
			toAPI := func(s env.Step) bool { return !toBus(s) }
			if writes := service != name.ServiceAddons; writes && what == "made" && !slices.ContainsFunc(all, toAPI) {
				t.Fatalf("while the tenant was %s, the tap saw nothing that %s wrote to the API server: %v", what, service, all)
			}
			t.Logf("%s %s it by %v", service, what, all)
		}
	}
	return l
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

// killAt kills a service at a step of a tenant's, after or before the write is made, and starts it again. A write that is one of several
// alike may not be needed, when the tenant's life has come to a phase without it.
func killAt(t *testing.T, p *env.Process, tap *env.Tap, key events.Key, s env.Step, after bool, begin func(), phase string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			e.Explain(t, key)
			all := tap.Messages(0)
			for _, m := range all[max(0, len(all)-20):] {
				t.Logf("%s %s, lost: %v", m.Time.Format(time.StampMilli), m.What, m.Lost)
			}
		}
	}()
	s.Kill(t, p, after, key.Name, begin, over(t, key, phase))
}

// when says whether a kill is before or after a write.
func when(after bool) string {
	if after {
		return "after"
	}
	return "before"
}

// TestKilledAtEachStep kills each service that works on every tenant (SIGKILL) before and after each write that it makes for a tenant, to the
// API server and to NATS: those that a tap on its connections saw in the life of a tenant that was left alone. What services/datastore sends to databases is
// killed at in its own tests.
func TestKilledAtEachStep(t *testing.T) {
	e.NoServices(t)
	procs, taps := map[string]*env.Process{}, map[string]*env.Tap{}
	for _, service := range name.Services() {
		if name.Optional(service) {
			e.Service(t, service, "a")
			continue
		}
		procs[service], taps[service] = e.Tapped(t, service, "a")
	}
	l := undisturbed(t, taps)
	// Nothing of what is begun may be left when the services end.
	t.Run("services", func(t *testing.T) {
		for _, service := range name.Services() {
			t.Run(service, func(t *testing.T) {
				t.Parallel()
				p, tap := procs[service], taps[service]
				for i, s := range l.made[service] {
					for _, after := range []bool{true, false} {
						t.Run(fmt.Sprintf("killed %s %s", when(after), s), func(t *testing.T) {
							if i != trap(l.made[service]) || !after {
								env.Long(t, "one step of each service is run: every write is followed by the same recovery, another turn that must be harmless")
							}
							key := events.Tenant("default", fmt.Sprintf("kill-%s-%d-%s", service, i, when(after)))
							l.makes(t, p, tap, key, s, after)
						})
					}
				}
				for i, s := range l.removed[service] {
					for _, after := range []bool{true, false} {
						t.Run(fmt.Sprintf("deleted, killed %s %s", when(after), s), func(t *testing.T) {
							if i != middle(l.removed[service]) || !after || service != name.ServiceWorkload {
								env.Long(t, "one step of a deletion is run, of workload: every write is followed by the same recovery, another turn that must be harmless")
							}
							key := events.Tenant("default", fmt.Sprintf("kill-del-%s-%d-%s", service, i, when(after)))
							e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
							e.Fact(t, key, name.ServiceWorkload, event.Exposed)
							e.Fact(t, key, name.ServiceDatastore, event.Provisioned)
							accounts := account(t, key)
							killAt(t, p, tap, key, s, after, func() { e.Delete(t, key) }, "Deleted")
							e.Gone(t, key)
							nothingLeft(t, key, accounts)
						})
					}
				}
			})
		}
	})
}

// trap is the step that `make test` kills a service at, too: its state is written, and the fact about that is not told yet.
func trap(all []env.Step) int {
	last := -1
	for i, s := range all {
		switch {
		case strings.HasPrefix(s.What, "PUB $KV."):
			last = i
		case strings.HasPrefix(s.What, "PUB stoker.fact.") && last >= 0:
			return last
		}
	}
	return last
}

// middle is the step of a deletion that `make test` kills a service at, too.
func middle(all []env.Step) int {
	for i := len(all) / 2; i > 0; i-- {
		if all[i].Nth == 1 {
			return i
		}
	}
	return 0
}

// makes makes a tenant, has a service killed meanwhile, and looks that the end is the one of a tenant that was left alone.
func (l life) makes(t *testing.T, p *env.Process, tap *env.Tap, key events.Key, s env.Step, after bool) {
	t.Helper()
	count := oneCA(t, key)
	killAt(t, p, tap, key, s, after, func() { e.Apply(t, env.Tenant(key.Name, "v1.36.3")) }, "Ready")
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
	accounts := account(t, key)
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key, accounts)
}

// over returns a function that reports whether a tenant's life has come to a phase and nothing goes on any more.
func over(t *testing.T, key events.Key, phase string) func() bool {
	calm := 0
	return func() bool {
		if s, err := e.Status(t.Context(), key); err != nil || s.Phase != phase || idle(t.Context(), key) != nil {
			calm = 0
			return false
		}
		calm++
		return calm > 20
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
