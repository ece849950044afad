package addons

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// serve runs the service for the tenant default/demo, whose API server is the management cluster as well: it holds the Secret with
// the kubeconfig. change changes what other services say of the tenant; nil for nothing. It returns what an operator reads, and how many turns there were.
func (tn *tenant) serve(t *testing.T, key events.Key, change func(*state.Tenant, *state.Workload)) (operator *events.Bus, turns *atomic.Int64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	management, err := kube.FromKubeconfig(tn.kubeconfig, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	must(err)
	t.Cleanup(management.Close)
	must(management.Create(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name.AdminKubeconfig(key.Name)},
		Data: map[string][]byte{name.KeySuperAdminConf: tn.kubeconfig},
	}))
	t.Cleanup(func() {
		_, err := management.Delete(context.Background(), kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), metav1.DeleteOptions{})
		must(err)
	})
	nats, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", nil)
	must(err)
	t.Cleanup(nats.Stop)
	bus := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{
			URL: nats.URL(), User: user, SeedFile: nats.SeedFile(user), Replica: "test", Log: log, RequestTimeout: 30 * time.Second,
		})
		must(err)
		t.Cleanup(b.Close)
		return b
	}
	intake := bus(name.ServiceIntake)
	must(intake.Provision(t.Context()))
	must(intake.CreateBucket(t.Context(), key))
	tn.intake = intake
	tcp := &v1alpha1.TenantControlPlane{}
	tcp.Spec.Kubernetes.Version = tn.in.Version
	v1alpha1.Default(tcp)
	desired := state.Tenant{Namespace: key.Namespace, Name: key.Name, Spec: tcp.Spec}
	workload := state.Workload{
		Endpoint: tn.in.Endpoint, AdvertiseAddress: tn.in.AdvertiseAddress, Port: tn.in.Port, Version: tn.in.Version, ReadyReplicas: 1,
	}
	if change != nil {
		change(&desired, &workload)
	}
	for service, data := range map[string]any{
		name.ServiceIntake: desired,
		name.ServiceCerts: state.Certs{
			CA: string(tn.in.CACertPEM), Secrets: map[string]state.Secret{name.ComponentAdminKubeconfig: {Checksum: "1"}},
		},
		name.ServiceWorkload: workload,
	} {
		_, err := bus(service).WriteState(t.Context(), key, events.StateKey(service), &state.State{
			UID: "u", Generation: 1, UpdatedAt: time.Now(), Data: event.Marshal(data),
		}, 0)
		must(err)
	}
	s := &svc{clients: &service.Clients{Kube: management, Log: log}, tenants: map[events.Key]*connection{}}
	turns = &atomic.Int64{}
	l := &loop.Loop{
		Bus: bus(name.ServiceAddons), Service: name.ServiceAddons,
		Handle: func(ctx context.Context, turn *loop.Turn) error {
			turns.Add(1)
			return s.handle(ctx, turn)
		},
		Watch: func(ctx context.Context, held *partition.Held, wake loop.Waker) error {
			s.mu.Lock()
			s.wake = wake
			s.mu.Unlock()
			s.keep(held.Now())
			wake(key, loop.Wake{Kind: claimed})
			<-ctx.Done()
			return nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.keep(nil)
	})
	return bus(events.UserOperator), turns
}

// respec changes the tenant's spec and annotations, as intake would.
func (tn *tenant) respec(t *testing.T, key events.Key, generation int64, change func(*v1alpha1.TenantControlPlaneSpec), annotations map[string]string) {
	t.Helper()
	now, revision, err := tn.intake.ReadState(t.Context(), key, events.KeySpec)
	if err != nil {
		t.Fatal(err)
	}
	var spec state.Tenant
	if err := json.Unmarshal(now.Data, &spec); err != nil {
		t.Fatal(err)
	}
	change(&spec.Spec)
	spec.Annotations = annotations
	if _, err := tn.intake.WriteState(t.Context(), key, events.KeySpec, &state.State{
		UID: now.UID, Generation: generation, UpdatedAt: time.Now(), Data: event.Marshal(spec),
	}, revision); err != nil {
		t.Fatal(err)
	}
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: now.UID, Generation: generation}
	if err := tn.intake.Tell(t.Context(), key, generation, fmt.Sprint("spec-", generation), event.Accepted, event.IntakeAccepted{About: about}); err != nil {
		t.Fatal(err)
	}
}

func TestAnAdministratorWhoEditsInALoop(t *testing.T) {
	const path = "/api/v1/namespaces/kube-system/configmaps/kubelet-config"
	tn, key := sharedTenant(t), events.Tenant("default", "demo")
	operator, turns := tn.serve(t, key, nil)
	own := func() *state.State {
		st, err := operator.State(t.Context(), key, name.ServiceAddons)
		if err != nil {
			return &state.State{}
		}
		return st
	}
	content := func() string {
		got := &corev1.ConfigMap{}
		if err := tn.rest.Get().AbsPath(path).Do(t.Context()).Into(got); err != nil {
			t.Fatal(err)
		}
		return got.Data["kubelet"]
	}
	poll.True(t, "everything is applied", func() bool { return own().Step == event.Applied })
	want, began, applied, edits := content(), time.Now(), turns.Load(), 0
	edit := func() {
		edits++
		tn.raw(t, http.MethodPatch, path, merge, fmt.Sprintf(`{"data":{"kubelet":"%d"}}`, edits))
	}
	edit()
	poll.True(t, "the first change is put right", func() bool { return content() == want })

	poll.True(t, "it is told that it is changed again and again", func() bool {
		edit()
		f := own().Failure
		return f != nil && f.Reason == reason.KeepsDrifting
	})
	repairs := 10 + uint64(time.Since(began)/(10*time.Second)) // before it was told
	for range 500 {
		edit()
	}
	// A turn for each repair, and one for its echo.
	if n, most := turns.Load()-applied, 2*(11+int64(time.Since(began)/(10*time.Second))); n > most {
		t.Errorf("%d turns for %d changes, more than %d", n, edits, most)
	}
	poll.True(t, "the last change is put right", func() bool { return content() == want })

	facts, err := operator.JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	info, err := facts.Info(t.Context(), jetstream.WithSubjectFilter(key.FactSubject(name.ServiceAddons, "*")))
	if err != nil {
		t.Fatal(err)
	}
	told := func(what string) uint64 { return info.State.Subjects[key.FactSubject(name.ServiceAddons, what)] }
	if told(event.Repaired) > repairs || told(event.Failed) != 1 {
		t.Errorf("told of %d changes: %v", edits, info.State.Subjects)
	}
}
