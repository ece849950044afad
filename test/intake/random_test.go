package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/random"
)

// all is how many objects there are; STOKER_TEST_OBJECTS says otherwise.
const all = 10000

// both is how many of them go both ways.
const both = 1000

// shares of the kinds.
var shares = []struct {
	plural string
	share  float64
}{
	{event.TenantControlPlanes, 0.6},
	{event.DataStores, 0.25},
	{event.KubeconfigGenerators, 0.15},
}

// shared is how many names most of the objects share, so that they change what is there; the others are new.
const shared = 100

var resources = map[string]kube.Resource{
	event.TenantControlPlanes: kube.TenantControlPlanes, event.DataStores: kube.DataStores, event.KubeconfigGenerators: kube.KubeconfigGenerators,
}

// dataStores are there from the start, so that tenants can name one.
var dataStores = []string{"main", "spare"}

// TestTenThousandRandomObjects sends objects of every kind, right and wrong, half of them as events and half as any client
// of the API server would. Every one is answered, nothing is left undone, and a good tenant at the end doesn't wait.
func TestTenThousandRandomObjects(t *testing.T) {
	n := all
	if testing.Short() {
		n = all / 10
		t.Logf("make test sends %d, make test-all %d", n, all)
	}
	if s := os.Getenv("STOKER_TEST_OBJECTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	kinds, err := random.Kinds(filepath.Join(env.Root(), "deployments", "crds"))
	if err != nil {
		t.Fatal(err)
	}
	source := random.Seeded(t)
	intake := e.Service(t, name.ServiceIntake, "a")
	e.PrivilegedFields(t, env.IntakeUser, true)
	for _, d := range dataStores {
		o := source.Draw(kinds[event.DataStores], "", d, random.Options{})
		for o.Object()["spec"].(map[string]any)["driver"] != "etcd" { // which alone takes overrides
			o = source.Draw(kinds[event.DataStores], "", d, random.Options{})
		}
		if no, err := newClient(t, "test").apply(t.Context(), o, false); no != nil || err != nil {
			t.Fatal(no, err)
		}
	}
	awaitPolicies(t, kinds, dataStores)
	portal := newPortal(t)
	started := time.Now()

	t.Run("both ways have the same verdict", func(t *testing.T) { bothWays(t, source, kinds, portal, both*n/all) })
	n -= both * n / all
	var wg sync.WaitGroup
	clients, senders := random.New(source.Uint64()), random.New(source.Uint64())
	defer wg.Wait() // also when what follows ends the test
	wg.Go(func() { byClients(t, clients, kinds, n/2) })
	byEvents(t, senders, kinds, portal, n/2)
	wg.Wait()
	t.Logf("%d objects in %.1f s", n, time.Since(started).Seconds())

	t.Run("a good tenant is accepted at once", func(t *testing.T) {
		o := env.Tenant("last", "v1.36.3")
		sent := time.Now()
		if a := portal.ask(t, events.Tenant(o.Namespace, o.Name), event.TenantApply, mustJSON(o)); !a.accepted() {
			t.Fatalf("%+v", a)
		}
		if took := time.Since(sent); took > time.Minute {
			t.Errorf("after %s", took)
		}
	})
	if t.Failed() {
		t.Log("the seed is above; the log of intake:", intake.Log())
	}
	t.Run("every tenant's spec is the object's", everySpecIsKnown)
	t.Run("no command and no fact waits for intake", nothingPending)
	t.Run("no dead letters", func(t *testing.T) {
		s, err := e.JetStream().Stream(t.Context(), events.StreamDead)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n > 0 {
			m, err := s.GetMsg(t.Context(), s.CachedInfo().State.LastSeq)
			t.Errorf("%d; the last: %v %v", n, m, err)
		}
	})
	t.Run("intake neither panicked nor grew", func(t *testing.T) {
		log, err := os.ReadFile(intake.Log())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(log), "panic") {
			t.Error("intake's log tells of a panic")
		}
		u, err := intake.Usage()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("intake: %.1f CPU s, %.1f MB; of all: %+v", u.CPU, u.MB, e.Usages())
		if u.MB > 400 { // the race detector takes several times what the service does
			t.Errorf("%.1f MB", u.MB)
		}
	})
}

// awaitPolicies waits until the API server's policies know the DataStores: they read the ConfigMap that intake writes, by a watch.
func awaitPolicies(t *testing.T, kinds map[string]*random.Kind, names []string) {
	t.Helper()
	c := newClient(t, "test")
	for _, n := range names {
		o := env.Tenant("first", "v1.36.3")
		o.Spec.DataStore = n
		d := random.Drawn{Kind: kinds[event.TenantControlPlanes], Namespace: o.Namespace, Name: o.Name, JSON: mustJSON(o)}
		env.Eventually(t, "the policies to know DataStore "+n, func() error {
			no, err := c.apply(t.Context(), d, true)
			if err == nil && no != nil {
				err = errors.New(no.Message)
			}
			return err
		})
	}
}

// draw draws the next object: a third of them meant to be valid.
func draw(s *random.Source, kinds map[string]*random.Kind, prefix string) random.Drawn {
	o := random.Options{Fill: 1 + 2*s.Float64(), DataStores: dataStores}
	if s.Float64() > 0.33 {
		o.Wild = 1 + s.Float64()
	}
	n := prefix + "-" + strconv.Itoa(s.IntN(shared))
	if s.Float64() < 0.25 {
		n = prefix + "-new-" + strconv.Itoa(s.Int())
	}
	x, i := s.Float64(), 0
	for ; x > shares[i].share; i++ {
		x -= shares[i].share
	}
	k := kinds[shares[i].plural]
	if !k.Namespaced {
		n = strings.Replace(n, "-", ".", 1) // as names of tenants can't be
	}
	return s.Draw(k, "default", n, o)
}

func key(d random.Drawn) events.Key {
	k := events.Key{Kind: d.Kind.Plural, Namespace: d.Namespace, Name: d.Name}
	if !d.Kind.Namespaced {
		k.Namespace = events.ClusterScoped
	}
	return k
}

// byClients applies objects as clients of the API server do, some at a time; intake sees them by its watch.
func byClients(t *testing.T, s *random.Source, kinds map[string]*random.Kind, n int) {
	t.Helper()
	c := newClient(t, "kubectl")
	drawn := make(chan random.Drawn)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var tally tally
	for range 4 {
		wg.Go(func() {
			for d := range drawn {
				no, err := c.apply(t.Context(), d, false)
				if err != nil || no != nil && no.Message == "" {
					t.Errorf("%v: %v %+v\n%s", d.Wrong, err, no, head(d.JSON))
				}
				mu.Lock()
				tally.add(d, no == nil, func() string { return no.Message })
				mu.Unlock()
			}
		})
	}
	for range n {
		drawn <- draw(s, kinds, "client")
	}
	close(drawn)
	wg.Wait()
	tally.log(t, "by clients")
}

// tally counts verdicts.
type tally struct {
	objects, accepted int
	meant, valid      int            // meant to be valid, and of these accepted
	refusals          map[string]int // of those meant to be valid
}

func (c *tally) add(d random.Drawn, accepted bool, why func() string) {
	c.objects++
	if accepted {
		c.accepted++
	}
	if len(d.Wrong) > 0 {
		return
	}
	c.meant++
	if accepted {
		c.valid++
		return
	}
	if c.refusals == nil {
		c.refusals = map[string]int{}
	}
	reason, _, _ := strings.Cut(why(), "\n")
	c.refusals[reason[:min(len(reason), 300)]]++
}

func (c *tally) log(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s: %d of %d accepted; of those meant to be valid %d of %d", what, c.accepted, c.objects, c.valid, c.meant)
	if c.valid < c.meant/3 {
		t.Errorf("%s: hardly anything that was meant to be valid is: %v", what, c.refusals)
	}
	if testing.Verbose() {
		for reason, n := range c.refusals {
			t.Log(n, reason)
		}
	}
}

// byEvents publishes commands as fast as the stream takes them and waits for every answer.
func byEvents(t *testing.T, s *random.Source, kinds map[string]*random.Kind, p *portal, n int) {
	t.Helper()
	const window = 200      // sent and not answered yet
	const headers = 4 << 10 // more than a command has
	waiting := map[string]random.Drawn{}
	var tally tally
	take := func() {
		id, a := p.next(t)
		d, ok := waiting[id]
		if !ok {
			return // answered twice: a command that was delivered again
		}
		delete(waiting, id)
		complete(t, d, a)
		tally.add(d, a.accepted(), func() string { return fmt.Sprint(a.Errors) })
	}
	for range n {
		d := draw(s, kinds, "event")
		for int64(len(d.JSON)) > e.Portal.Conn().MaxPayload()-headers { // more than the server takes of a portal at all
			d = draw(s, kinds, "event")
		}
		verb, data := event.Apply, d.JSON
		if s.Float64() < 0.15 {
			verb, data = change(s, d)
			d.Wrong = append(d.Wrong, verb)
		}
		waiting[p.send(t, key(d), event.CommandType(d.Kind.Plural, verb), data)] = d
		if len(waiting) >= window {
			take()
		}
	}
	for len(waiting) > 0 {
		take()
	}
	tally.log(t, "by events")
}

// change is another command than apply for an object: its spec as a merge patch, or one that takes no data, and often data
// all the same.
func change(s *random.Source, d random.Drawn) (verb string, data []byte) {
	verbs := []string{event.Patch, event.Patch, event.Pause, event.Resume, event.Sleep, event.Wake}
	verb = verbs[s.IntN(len(verbs))]
	switch {
	case verb == event.Patch && d.Object() != nil:
		return verb, mustJSON(map[string]any{"spec": d.Object()["spec"]})
	case s.Float64() < 0.7:
		return verb, []byte("{}")
	}
	return verb, d.JSON
}

// complete checks that an answer says all it must.
func complete(t *testing.T, d random.Drawn, a answer) {
	t.Helper()
	if a.accepted() {
		return
	}
	if a.Type != event.FactType(name.ServiceIntake, event.Rejected) || len(a.Errors) == 0 {
		t.Errorf("%v: answer %+v", d.Wrong, a)
	}
	for _, f := range a.Errors {
		if f.Field == "" || f.Rule == "" || f.Message == "" || len(f.Value) > 300 || f.Rule == "InternalError" {
			t.Errorf("%v: %+v\n%s", d.Wrong, f, head(d.JSON))
		}
	}
}

// bothWays asks the API server, without consequence, and then intake, for the same object on the same world.
func bothWays(t *testing.T, s *random.Source, kinds map[string]*random.Kind, p *portal, n int) {
	t.Helper()
	c := newClient(t, name.FieldManager(name.ServiceIntake)) // so that both change the same fields
	var tally tally
	var slowest time.Duration
	var slow string
	for range n {
		d := draw(s, kinds, "both")
		for !comparable(d) {
			d = draw(s, kinds, "both")
		}
		no, err := c.apply(t.Context(), d, true)
		if err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		a := p.ask(t, key(d), event.CommandType(d.Kind.Plural, event.Apply), d.JSON)
		if took := time.Since(sent); took > slowest {
			slowest, slow = took, fmt.Sprintf("%v, %d bytes: %+v", d.Wrong, len(d.JSON), a)
		}
		complete(t, d, a)
		if a.accepted() != (no == nil) && (no != nil || !onlyExpressions(a)) {
			t.Errorf("%s %v: by event %+v, by client %+v\n%s", d.Kind.Name, d.Wrong, a, no, head(d.JSON))
		}
		tally.add(d, a.accepted(), func() string { return fmt.Sprint(a.Errors) })
	}
	tally.log(t, "both ways")
	t.Logf("the slowest answer took %s: %s", slowest, slow)
}

// comparable reports whether both ways can have the same verdict: a command's size is limited, what of the metadata is
// neither label nor annotation means something to clients only, and a client's text is read as YAML.
func comparable(d random.Drawn) bool {
	if event.InlineSecrets(d.Kind.Plural, d.JSON) != nil { // which commands must not hold, and objects may
		return false
	}
	same := []string{"head: apiVersion", "head: kind", "head: labels", "head: annotations", "head: spec", "head: extra", "text: duplicate key", "text: invalid UTF-8"}
	return len(d.JSON) <= events.MaxPayload && !slices.ContainsFunc(d.Wrong, func(w string) bool {
		return (strings.HasPrefix(w, "head: ") || strings.HasPrefix(w, "text: ")) && !slices.Contains(same, w)
	})
}

// onlyExpressions reports whether a command was refused only because expressions don't compile. The management cluster's API
// server can't compile them, so that it accepts the same from a client; the tenant's own API server refuses to start with them.
func onlyExpressions(a answer) bool {
	return len(a.Errors) > 0 && !slices.ContainsFunc(a.Errors, func(f event.FieldError) bool {
		return !strings.HasSuffix(f.Field, ".expression") && !strings.HasSuffix(f.Field, ".valueExpression") || f.Rule != event.RuleInvalid
	})
}

func head(data []byte) string { return string(data[:min(len(data), 1500)]) }

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// everySpecIsKnown waits until the spec that services work from is the one of the object, for every tenant there is.
func everySpecIsKnown(t *testing.T) {
	var list v1alpha1.TenantControlPlaneList
	if err := e.Admin.List(t.Context(), kube.TenantControlPlanes, "", "", &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.DeletionTimestamp != nil {
			continue // born so: the API server takes that from whoever creates an object, and nothing was made for it
		}
		k := events.Tenant(o.Namespace, o.Name)
		env.Eventually(t, "the spec of "+k.String(), func() error {
			s, err := e.Operator.State(t.Context(), k, events.KeySpec)
			if err != nil {
				return err
			}
			if s.UID != string(o.UID) || s.Generation != o.Generation {
				return fmt.Errorf("generation %d of %d", s.Generation, o.Generation)
			}
			return nil
		})
	}
	t.Logf("%d tenants", len(list.Items))
}

// nothingPending waits until intake's consumers have neither anything to deliver nor anything that isn't answered.
func nothingPending(t *testing.T) {
	for _, stream := range []string{events.StreamIntake, events.StreamFacts} {
		env.Eventually(t, "everything of "+stream+" to be done", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s, err := e.JetStream().Stream(ctx, stream)
			if err != nil {
				return err
			}
			seen := 0
			list := s.ListConsumers(ctx)
			for c := range list.Info() {
				if !strings.HasPrefix(c.Name, name.ServiceIntake+"-") {
					continue
				}
				seen++
				if c.NumPending > 0 || c.NumAckPending > 0 {
					err = fmt.Errorf("%s: %d to come, %d not done", c.Name, c.NumPending, c.NumAckPending)
				}
			}
			if seen != name.Partitions {
				return fmt.Errorf("%d consumers: %w", seen, list.Err())
			}
			return err
		})
	}
}
