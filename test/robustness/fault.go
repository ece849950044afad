package robustness

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Fault is a kind of fault. It strikes a target for a while.
type Fault struct {
	Name string
	// Weight says how often it is chosen, beside the others' weights; 0 for one that only directed schedules have.
	Weight int
	// Longest is how long it lasts at most; 0 for one that is over at once.
	Longest time.Duration
	// strike begins it and returns what ends it, nil when there is nothing to end. pick chooses the target, the same for the same
	// seed. What is struck is said for the history.
	strike func(ctx context.Context, s *Site, pick *rand.Rand) (target string, heal func(context.Context) error, err error)
}

// Faults that there are.
func Faults() []Fault {
	return []Fault{
		{"replica killed", 6, 8 * time.Second, killReplica},
		{"replica stopped and continued", 4, 15 * time.Second, onReplica(func(r *Replica) func() {
			r.Signal(syscall.SIGSTOP)
			return func() { r.Signal(syscall.SIGCONT) }
		})},
		{"replica leaves and joins", 3, 8 * time.Second, leave},
		{"NATS server killed", 3, 10 * time.Second, killNATS},
		{"NATS leader killed", 3, 10 * time.Second, killLeader},
		{"NATS leader stopped and continued", 2, 15 * time.Second, stopLeader},
		{"NATS routes slow", 1, 20 * time.Second, slowRoutes},
		{"NATS wiped", 1, 0, wipe},
		{"facts purged", 1, 0, purge(events.StreamFacts)},
		{"statuses purged", 1, 0, purge(events.StreamStatus)},
		{"API server killed", 2, 5 * time.Second, onComponent("kube-apiserver", syscall.SIGKILL)},
		{"API server stopped and continued", 2, 20 * time.Second, onComponent("kube-apiserver", syscall.SIGSTOP)},
		{"etcd of the API server killed", 1, 5 * time.Second, onComponent(etcdOfAPI, syscall.SIGKILL)},
		{"etcd of the API server stopped and continued", 2, 20 * time.Second, onComponent(etcdOfAPI, syscall.SIGSTOP)},
		{"etcd of the DataStore killed", 1, 5 * time.Second, onComponent(etcdOfDataStore, syscall.SIGKILL)},
		{"etcd of the DataStore stopped and continued", 1, 20 * time.Second, onComponent(etcdOfDataStore, syscall.SIGSTOP)},
		{"API server answers 500", 2, 2 * time.Minute, answer(http.StatusInternalServerError)},
		{"API server answers 429", 1, 30 * time.Second, answer(http.StatusTooManyRequests)},
		{"way to the API server slow", 2, 30 * time.Second, onWay(func(r *Replica) []*Link { return []*Link{r.API.Link} }, slow)},
		{"way to the API server silent", 2, 30 * time.Second, onWay(func(r *Replica) []*Link { return []*Link{r.API.Link} }, hold)},
		{"way to the API server reset", 2, 0, onWay(func(r *Replica) []*Link { return []*Link{r.API.Link} }, reset)},
		{"way to NATS slow", 2, 30 * time.Second, onWay(func(r *Replica) []*Link { return r.NATS[:] }, slow)},
		{"way to NATS silent", 2, 30 * time.Second, onWay(func(r *Replica) []*Link { return r.NATS[:] }, hold)},
		{"way to NATS reset", 2, 0, onWay(func(r *Replica) []*Link { return r.NATS[:] }, reset)},
		{"poisoned events", 2, 0, poison},
		{"clock of a replica jumps", 4, time.Minute, jumpClock},
		{"disk of a NATS server full", 2, 20 * time.Second, fillNATS},
		{"disk of the API server's etcd full", 2, 20 * time.Second, fillEtcd(etcdOfAPI)},
		{"disk of the DataStore's etcd full", 2, 20 * time.Second, fillEtcd(etcdOfDataStore)},
		{"API server answers 500 to all", 0, 0, func(_ context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
			return "all", answerAll(s.Replicas, http.StatusInternalServerError), nil
		}},
		{"a webhook hangs", 0, 0, hangWebhook},
		{"kubeconfigs of tenants name another authority", 0, 0, misdirect},
	}
}

type strike = func(context.Context, *Site, *rand.Rand) (string, func(context.Context) error, error)

// onReplica strikes one replica.
func onReplica(do func(*Replica) func()) strike {
	return func(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
		r := s.Replicas[pick.IntN(len(s.Replicas))]
		heal := do(r)
		return r.String(), func(context.Context) error { heal(); return nil }, nil
	}
}

func killReplica(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	r := s.Replicas[pick.IntN(len(s.Replicas))]
	r.Kill()
	return r.String(), func(context.Context) error { return r.Start() }, nil
}

func leave(ctx context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	r := s.Replicas[pick.IntN(len(s.Replicas))]
	return r.String(), func(context.Context) error { return r.Start() }, r.Leave(ctx)
}

func killNATS(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	return strikeServer(s, pick.IntN(servers), syscall.SIGKILL)
}

func strikeServer(s *Site, i int, sig syscall.Signal) (string, func(context.Context) error, error) {
	p := s.NATS.process(i) // a fault that overlaps may start another
	if err := p.Signal(sig); err != nil {
		return "", nil, err
	}
	return server(i), func(context.Context) error {
		if sig == syscall.SIGSTOP {
			return p.Signal(syscall.SIGCONT)
		}
		<-p.Done()
		return s.NATS.Start(i)
	}, nil
}

// leader finds the server that leads the stream of facts.
func (s *Site) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := s.Operator.JetStream().Stream(ctx, events.StreamFacts)
	if err != nil {
		return 0, err
	}
	var i int
	_, err = fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "n%d", &i)
	return i, err
}

func killLeader(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
	i, err := s.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return strikeServer(s, i, syscall.SIGKILL)
}

func stopLeader(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
	i, err := s.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return strikeServer(s, i, syscall.SIGSTOP)
}

func slowRoutes(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	i := pick.IntN(servers)
	s.NATS.routes[i].Delay(time.Duration(pick.IntN(200)) * time.Millisecond)
	return fmt.Sprintf("n%d", i), func(context.Context) error { s.NATS.routes[i].Delay(0); return nil }, nil
}

func wipe(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
	return "all servers", nil, s.NATS.Wipe(ctx)
}

// purge removes all that a stream holds. It takes the right of intake, who may.
func purge(stream string) strike {
	return func(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
		bus, err := s.bus("intake")
		if err != nil {
			return "", nil, err
		}
		defer bus.Close()
		if stream != events.StreamFacts { // intake may not purge it, but delete it; it is made again
			return stream, nil, bus.JetStream().DeleteStream(ctx, stream)
		}
		st, err := bus.JetStream().Stream(ctx, stream)
		if err != nil {
			return "", nil, err
		}
		return stream, nil, st.Purge(ctx)
	}
}

// bus connects as one of the services, past all links.
func (s *Site) bus(user string) (*events.Bus, error) {
	return events.Connect(events.Config{
		URL: s.Operator.Config().URL, User: user, SeedFile: s.NATS.Seed(user), StreamReplicas: servers, RequestTimeout: 30 * time.Second,
	})
}

// onComponent kills or stops a process of the management cluster; a killed one is started again by itself.
func onComponent(component string, sig syscall.Signal) strike {
	return func(_ context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
		c := s.Local.Component(component)
		if c == nil {
			return "", nil, fmt.Errorf("there is no component %s", component)
		}
		heal := func(context.Context) error { return nil }
		if sig == syscall.SIGSTOP {
			heal = func(context.Context) error { return c.Resume() }
		}
		return component, heal, c.Signal(sig)
	}
}

// answer has the API server answer a status: to one replica, or to all.
func answer(code int) strike {
	return func(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
		struck, target := s.Replicas, "all"
		if i := pick.IntN(2 * len(s.Replicas)); i < len(s.Replicas) {
			struck, target = s.Replicas[i:i+1], s.Replicas[i].String()
		}
		return target, answerAll(struck, code), nil
	}
}

// answerAll has the API server answer a status to replicas, until what it returns is called.
func answerAll(replicas []*Replica, code int) (heal func(context.Context) error) {
	for _, r := range replicas {
		r.API.Answer(code)
	}
	return func(context.Context) error {
		for _, r := range replicas {
			r.API.Answer(0)
		}
		return nil
	}
}

// onWay does something to a replica's links.
func onWay(ways func(*Replica) []*Link, do func(*Link, *rand.Rand) (heal func())) strike {
	return func(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
		r := s.Replicas[pick.IntN(len(s.Replicas))]
		var heals []func()
		for _, l := range ways(r) {
			heals = append(heals, do(l, pick))
		}
		return r.String(), func(context.Context) error {
			for _, heal := range heals {
				heal()
			}
			return nil
		}, nil
	}
}

func slow(l *Link, pick *rand.Rand) func() {
	l.Delay(time.Duration(10+pick.IntN(500)) * time.Millisecond)
	return func() { l.Delay(0) }
}

func hold(l *Link, _ *rand.Rand) func() {
	l.Hold()
	return l.Release
}

func reset(l *Link, _ *rand.Rand) func() {
	l.Reset()
	return func() {}
}

// poison publishes what is no event on the subjects of tenants that are nobody's: as a command, and as a fact.
func poison(ctx context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	tenant := fmt.Sprintf("poison-%d", pick.IntN(100))
	return tenant, nil, publishPoison(ctx, s, pick, tenant)
}

// publishPoison publishes what is no event on a tenant's subjects.
func publishPoison(ctx context.Context, s *Site, pick *rand.Rand, tenant string) error {
	key := events.Tenant(namespace, tenant)
	bodies := []string{"", "{", `{"metadata":{}}`, strings.Repeat("[", 10000), `"\u0000"`}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for user, subject := range map[string]string{"intake": key.FactSubject("intake", "accepted"), events.UserOperator: key.CommandSubject()} {
		bus, err := s.bus(user)
		if err != nil {
			return err
		}
		msg := nats.NewMsg(subject)
		msg.Data = []byte(bodies[pick.IntN(len(bodies))])
		msg.Header.Set("ce-specversion", "1.0")
		msg.Header.Set("ce-id", "poison")
		_, err = bus.JetStream().PublishMsg(ctx, msg,
			jetstream.WithExpectStream(map[bool]string{true: events.StreamIntake, false: events.StreamFacts}[user == events.UserOperator]))
		bus.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// decode reads JSON that this package or the installation wrote.
func decode[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}
