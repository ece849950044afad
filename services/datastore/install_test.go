package datastore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	natsserver "github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

var (
	// namespaces counts those of installations.
	namespaces atomic.Int32
	// starting is held by the one that starts: many who start at once take longer than any waits for its streams.
	starting sync.Mutex
)

// installation is NATS and the datastore service, with a bus for the services around it, and a part of the management
// cluster: a namespace, and DataStores with its label.
type installation struct {
	*management
	t         *testing.T
	namespace string
	nats      *natsserver.Server
	dir       string
	bus       map[string]*events.Bus
	facts     chan fact
}

type fact struct {
	key, what string
	data      []byte
}

func install(t *testing.T) *installation {
	t.Helper()
	in := &installation{management: manage(t), t: t, dir: drivertest.TempDir(t), bus: map[string]*events.Bus{}, facts: make(chan fact, 1000)}
	in.namespace = fmt.Sprint("test-", namespaces.Add(1))
	in.must(in.kube.Create(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: in.namespace}}))
	starting.Lock()
	defer starting.Unlock()
	var err error
	in.nats, err = natsserver.Start(t.Context(), filepath.Join(in.dir, "nats"), "127.0.0.1:0", nil)
	in.must(err)
	t.Cleanup(in.nats.Stop)
	for _, user := range []string{name.ServiceIntake, name.ServiceWorkload, name.ServiceDatastore, events.UserOperator} {
		in.bus[user], err = events.Connect(events.Config{
			URL: in.nats.URL(), User: user, SeedFile: in.nats.SeedFile(user), RequestTimeout: 30 * time.Second,
		})
		in.must(err)
		t.Cleanup(in.bus[user].Close)
	}
	in.must(in.bus[name.ServiceIntake].Provision(t.Context())) // as intake does
	_, err = in.bus[events.UserOperator].Conn().Subscribe("stoker.fact.*.*.*.datastore.*", func(m *nats.Msg) {
		p := strings.Split(m.Subject, ".")
		in.facts <- fact{p[3] + "/" + p[4], p[6], m.Data}
	})
	in.must(err)
	return in
}

func (in *installation) must(err error) {
	in.t.Helper()
	if err != nil {
		in.t.Fatal(err)
	}
}

// run starts the service; the returned function stops it.
func (in *installation) run() (stop func()) {
	ctx, cancel := context.WithCancel(in.t.Context())
	done := make(chan struct{})
	t, kubeFile := in.t, filepath.Join(in.dir, "kubeconfig")
	in.must(os.WriteFile(kubeFile, in.kubeconfig, 0o600))
	go func() {
		defer close(done)
		if err := datastore.Run(ctx, datastore.Config{SecretNamespaces: in.namespace, Config: service.Config{
			Name: name.ServiceDatastore, NATS: in.nats.URL(), NATSSeed: in.nats.SeedFile(name.ServiceDatastore), Kubeconfig: kubeFile,
			Namespace: in.namespace, WatchFilter: in.namespace, Replica: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}}); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// await returns the next fact of a kind about an object.
func (in *installation) await(key, what string, v any) {
	in.t.Helper()
	in.awaitOf(key, "", what, v)
}

// awaitOf returns the next fact of a kind about the object of a UID.
func (in *installation) awaitOf(key, uid, what string, v any) {
	in.t.Helper()
	late := time.After(3 * time.Minute)
	for {
		select {
		case f := <-in.facts:
			var about event.About
			if f.key != key || f.what != what || uid != "" && (json.Unmarshal(f.data, &about) != nil || about.UID != uid) {
				continue
			}
			in.must(json.Unmarshal(f.data, v))
			return
		case <-late:
			in.t.Fatalf("no %s of %s; at work are\n%s", what, key, working())
		}
	}
}

// working are the stacks of the goroutines that are in this service's code.
func working() string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	var own []string
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(stack, "stoker/services/datastore.") || strings.Contains(stack, "stoker/services/datastore/") {
			own = append(own, stack)
		}
	}
	return strings.Join(own, "\n\n")
}

// dataStore is the object of one, which goes with the test.
func (in *installation) dataStore(n string, spec v1alpha1.DataStoreSpec) {
	in.t.Helper()
	ds := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{name.LabelWatchFilter: in.namespace}}, Spec: spec}
	in.must(in.kube.Create(in.t.Context(), kube.DataStores, ds))
	in.t.Cleanup(func() { _, _ = in.kube.Delete(context.Background(), kube.DataStores, "", n, metav1.DeleteOptions{}) })
}

// checked is the last fact checked about a DataStore.
func (in *installation) checked(dataStore string) (c event.DatastoreChecked, err error) {
	m, err := in.bus[events.UserOperator].Conn().Request(
		"$JS.API.DIRECT.GET."+events.StreamFacts+"."+events.DataStore(dataStore).FactSubject("datastore", event.Checked), nil, 30*time.Second)
	if err == nil {
		err = json.Unmarshal(m.Data, &c)
	}
	return c, err
}

// quiet drops the facts told so far.
func (in *installation) quiet() {
	for len(in.facts) > 0 {
		<-in.facts
	}
}

// tenant is what intake and workload do for one tenant.
type tenant struct {
	*installation
	key  events.Key
	spec state.State
	t    state.Tenant
	ids  int
}

func (in *installation) tenant(n string) *tenant {
	x := in.tenantOf(n)
	in.must(in.bus[name.ServiceIntake].CreateBucket(in.t.Context(), x.key))
	return x
}

// tenantOf is a tenant without a bucket, or one that has it already.
func (in *installation) tenantOf(n string) *tenant {
	x := &tenant{installation: in, key: events.Tenant(in.namespace, n), spec: state.State{UID: "uid-of-" + n, Generation: 1}}
	x.t = state.Tenant{Namespace: in.namespace, Name: n, Spec: v1alpha1.TenantControlPlaneSpec{DataStore: "main"}}
	return x
}

// account is what a tenant has that asks for nothing; without its password.
func (x *tenant) account() driver.Account {
	return driver.Account{Owner: x.spec.UID, Schema: name.DataStoreSchema(x.namespace, x.key.Name, x.spec.UID), User: name.DataStoreUser(x.namespace, x.key.Name, x.spec.UID)}
}

// await returns the next fact of a kind about the tenant.
func (x *tenant) await(what string, v any) {
	x.installation.t.Helper()
	x.installation.awaitOf(x.key.String(), x.spec.UID, what, v)
}

// told returns when the last fact of a kind about the tenant was told, and an error while it wasn't; v, if not nil, gets it.
func (x *tenant) told(what string, v any) (time.Time, error) {
	msg, err := x.bus[events.UserOperator].Conn().Request("$JS.API.DIRECT.GET."+events.StreamFacts+"."+x.key.FactSubject(name.ServiceDatastore, what), nil, time.Minute)
	if err == nil && msg.Header.Get("Status") != "" {
		err = errors.New(what + " was not told")
	}
	if err == nil && v != nil {
		err = json.Unmarshal(msg.Data, v)
	}
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, msg.Header.Get("ce-time"))
}

func (x *tenant) tell(service, what string, payload any) {
	x.installation.t.Helper()
	x.spec.Data = event.Marshal(x.t)
	ctx := x.installation.t.Context()
	if service == name.ServiceIntake {
		msg := nats.NewMsg("$KV." + x.key.Bucket() + ".spec")
		msg.Data = event.Marshal(x.spec)
		_, err := x.bus[name.ServiceIntake].JetStream().PublishMsg(ctx, msg)
		x.must(err)
	}
	x.ids++
	x.must(x.bus[service].Tell(ctx, x.key, x.spec.Generation, fmt.Sprint(x.key, service, what, x.ids), what, payload))
}

func (x *tenant) about() event.About {
	return event.About{Namespace: x.namespace, Name: x.key.Name, UID: x.spec.UID, Generation: x.spec.Generation}
}

func (x *tenant) accept() {
	x.installation.t.Helper()
	x.tell(name.ServiceIntake, event.Accepted, event.IntakeAccepted{About: x.about()})
}

func (x *tenant) remove() {
	x.installation.t.Helper()
	x.t.Deleting = true
	x.tell(name.ServiceIntake, event.Deleting, event.IntakeDeleting{About: x.about()})
	x.tell(name.ServiceWorkload, event.Removed, event.Removals{About: x.about(), Removed: map[string]int{"workload/Deployment": 1}})
}

func (x *tenant) secret(n string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	return s, x.kube.Get(x.installation.t.Context(), kube.Secrets, x.namespace, n, s)
}

func (x *tenant) state() (s state.State, d state.Datastore) {
	x.installation.t.Helper()
	msg, err := x.bus[events.UserOperator].Conn().Request("$JS.API.DIRECT.GET.KV_"+x.key.Bucket()+".$KV."+x.key.Bucket()+".datastore", nil, time.Minute)
	x.must(err)
	if len(msg.Data) > 0 {
		x.must(json.Unmarshal(msg.Data, &s))
		if len(s.Data) > 0 {
			x.must(json.Unmarshal(s.Data, &d))
		}
	}
	return s, d
}
