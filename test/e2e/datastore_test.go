package e2e

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/addons"
	"github.com/stoker-k8s/stoker/services/capi"
	"github.com/stoker-k8s/stoker/services/certs"
	"github.com/stoker-k8s/stoker/services/datastore"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/services/status"
	"github.com/stoker-k8s/stoker/services/tenantaddons"
	"github.com/stoker-k8s/stoker/services/workload"
	"github.com/stoker-k8s/stoker/test/env"
)

// installation is one of several on the management cluster, told from the others by its label.
type installation struct {
	filter string
	bus    *events.Bus // the operator's
	portal *events.Bus
	nats   *natsserver.Server
}

// install runs the eight services of an installation in this process until the test ends; tenants that name no DataStore are
// placed. Installations without a filter work on everything, so those must not run meanwhile.
func install(t *testing.T, filter string) *installation {
	t.Helper()
	e.NoServices(t)
	in := &installation{filter: filter}
	var err error
	in.nats, err = natsserver.Start(t.Context(), filepath.Join(t.TempDir(), "nats"), "127.0.0.1:0", nil, env.Portal())
	must(t, err)
	t.Cleanup(in.nats.Stop)
	for user, bus := range map[string]**events.Bus{events.UserOperator: &in.bus, events.UserPortal: &in.portal} {
		*bus, err = events.Connect(events.Config{
			URL: in.nats.URL(), User: user, SeedFile: in.nats.SeedFile(user), Replica: filter, RequestTimeout: 30 * time.Second,
		})
		must(t, err)
		t.Cleanup((*bus).Close)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, n := range name.Services() {
		cfg := e.Stack.Service(n, filter)
		cfg.NATS, cfg.NATSSeed, cfg.WatchFilter = in.nats.URL(), in.nats.SeedFile(n), filter
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("installation", filter)
		wg.Go(func() {
			if err := serve(ctx, cfg); err != nil {
				t.Errorf("%s: %v", n, err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return in
}

// serve runs one service until ctx ends.
func serve(ctx context.Context, cfg service.Config) error {
	switch cfg.Name {
	case name.ServiceIntake:
		return intake.Run(ctx, intake.Config{Config: cfg})
	case name.ServiceCerts:
		return certs.Run(ctx, certs.Config{Config: cfg})
	case name.ServiceDatastore:
		return datastore.Run(ctx, datastore.Config{Config: cfg})
	case name.ServiceWorkload:
		return workload.Run(ctx, workload.Config{Config: cfg})
	case name.ServiceAddons:
		return addons.Run(ctx, cfg)
	case name.ServiceCAPI:
		return capi.Run(ctx, capi.Config{Config: cfg})
	case name.ServiceTenantAddons:
		return tenantaddons.Run(ctx, tenantaddons.Config{Config: cfg})
	}
	return status.Run(ctx, cfg)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create writes an object as kubectl create would, with the installation's label.
func (in *installation) create(t testing.TB, r kube.Resource, o metav1.Object) {
	t.Helper()
	must(t, in.tryCreate(t, r, o))
}

func (in *installation) tryCreate(t testing.TB, r kube.Resource, o metav1.Object) error {
	t.Helper()
	labels := map[string]string{name.LabelWatchFilter: in.filter}
	for k, v := range o.GetLabels() {
		labels[k] = v
	}
	o.SetLabels(labels)
	m := env.JSON(t, o)
	m["apiVersion"], m["kind"] = r.GroupVersion.String(), r.Kind
	return e.Admin.Create(t.Context(), r, &loose{o, m})
}

// loose is an object whose JSON is m.
type loose struct {
	metav1.Object
	m map[string]any
}

func (l *loose) MarshalJSON() ([]byte, error) { return event.Marshal(l.m), nil }
func (l *loose) UnmarshalJSON(_ []byte) error { return nil }

// dataStore makes another DataStore on the etcd of the default one.
func (in *installation) dataStore(t testing.TB, n string, labels map[string]string, change ...func(*v1alpha1.DataStore)) {
	t.Helper()
	var o v1alpha1.DataStore
	get(t, kube.DataStores, "", stack.DefaultDataStore, &o)
	o.ObjectMeta = metav1.ObjectMeta{Name: n, Labels: labels}
	for _, f := range change {
		f(&o)
	}
	in.create(t, kube.DataStores, &o)
}

// tenant makes one that sleeps, so that it costs no pods.
func (in *installation) tenant(t testing.TB, n string, change ...func(*v1alpha1.TenantControlPlane)) events.Key {
	t.Helper()
	o := asleep(n)
	for _, f := range change {
		f(o)
	}
	in.create(t, kube.TenantControlPlanes, o)
	return events.Tenant(o.Namespace, o.Name)
}

func asleep(n string) *v1alpha1.TenantControlPlane {
	o := env.Tenant(n, "v1.36.3")
	o.Spec.ControlPlane.Deployment.Replicas = new(int32(0))
	return o
}

// selecting limits a tenant's choice of DataStores.
func selecting(selector string) func(*v1alpha1.TenantControlPlane) {
	return func(o *v1alpha1.TenantControlPlane) {
		o.Annotations = map[string]string{name.AnnotationDatastoreSelector: selector}
	}
}

func read(t testing.TB, key events.Key) *v1alpha1.TenantControlPlane {
	t.Helper()
	o := &v1alpha1.TenantControlPlane{}
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, o)
	return o
}

func readStore(t testing.TB, n string) *v1alpha1.DataStore {
	t.Helper()
	o := &v1alpha1.DataStore{}
	get(t, kube.DataStores, "", n, o)
	return o
}

func merge(t testing.TB, r kube.Resource, namespace, n string, patch map[string]any) {
	t.Helper()
	must(t, e.Admin.MergePatch(t.Context(), r, namespace, n, patch, nil))
}

func annotations(pairs map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": pairs}}
}

// state reads what a service of the installation keeps of a tenant; nil when it keeps nothing.
func (in *installation) state(t testing.TB, key events.Key, of string, data any) *state.State {
	t.Helper()
	s, err := in.bus.State(t.Context(), key, of)
	var away *intent.Unavailable
	if errors.Is(err, events.ErrNotFound) || errors.As(err, &away) { // its bucket is just being made
		return nil
	}
	must(t, err)
	if data != nil {
		must(t, json.Unmarshal(s.Data, data))
	}
	return s
}

// placed waits until a tenant is asleep on the DataStore it was given, and returns its name.
func (in *installation) placed(t testing.TB, key events.Key) string {
	t.Helper()
	var o *v1alpha1.TenantControlPlane
	env.Eventually(t, key.String()+" on a DataStore", func() error {
		o = read(t, key)
		if o.Status.Storage.DataStoreName == "" || o.Status.ObservedGeneration != o.Generation {
			return fmt.Errorf("labels %v, conditions %+v", o.Labels, o.Status.Conditions)
		}
		return nil
	})
	if o.Annotations[name.AnnotationDataStore] != o.Status.Storage.DataStoreName || o.Labels[name.LabelDataStore] != o.Status.Storage.DataStoreName {
		t.Errorf("%s is in %s, its annotations say %v, its labels %v", key, o.Status.Storage.DataStoreName, o.Annotations, o.Labels)
	}
	return o.Status.Storage.DataStoreName
}

func datastoreState(t testing.TB, in *installation, key events.Key) state.Datastore {
	t.Helper()
	var d state.Datastore
	if in.state(t, key, name.ServiceDatastore, &d) == nil {
		t.Fatalf("no datastore state of %s", key)
	}
	return d
}

// storeSays waits until a condition of a DataStore is as it should be.
func storeSays(t testing.TB, n, condition string, status metav1.ConditionStatus, reason string) *v1alpha1.DataStore {
	t.Helper()
	var o *v1alpha1.DataStore
	env.Eventually(t, fmt.Sprintf("DataStore %s: %s %s %s", n, condition, status, reason), func() error {
		o = readStore(t, n)
		c := meta.FindStatusCondition(o.Status.Conditions, condition)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != o.Generation {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
	return o
}

// usedBy waits until a DataStore says so who uses it.
func usedBy(t testing.TB, n string, keys ...events.Key) {
	t.Helper()
	want := []string{}
	for _, k := range keys {
		want = append(want, k.String())
	}
	slices.Sort(want)
	reason, status := v1alpha1.DataStoreReasonStillUsed, metav1.ConditionFalse
	if len(keys) == 0 {
		reason, status = v1alpha1.DataStoreReasonUnused, metav1.ConditionTrue
	}
	env.Eventually(t, fmt.Sprintf("DataStore %s used by %v", n, want), func() error {
		o := readStore(t, n)
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.DataStoreConditionAllowedDeletion)
		if !slices.Equal(o.Status.UsedBy, want) || c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})
}

// erase deletes an object as kubectl delete --wait=false would.
func erase(t testing.TB, r kube.Resource, namespace, n string) {
	t.Helper()
	_, err := e.Admin.Delete(t.Context(), r, namespace, n, metav1.DeleteOptions{})
	must(t, err)
}

// A pause is long until the test has seen it, and is then shortened.
const far, soon = time.Hour, 2 * time.Second

// pauseUntil has a pause of an object end after a time, and returns when that is.
func pauseUntil(t testing.TB, r kube.Resource, namespace, n string, after time.Duration) time.Time {
	t.Helper()
	until := time.Now().Add(after).UTC().Truncate(time.Second)
	merge(t, r, namespace, n, annotations(map[string]any{name.AnnotationPausedUntil: until.Format(time.RFC3339)}))
	return until
}

// vanished waits until an object is gone.
func vanished(t testing.TB, r kube.Resource, namespace, n string) {
	t.Helper()
	env.Eventually(t, r.Kind+" "+n+" gone", func() error {
		o := &metav1.PartialObjectMetadata{}
		err := e.Admin.Get(t.Context(), r, namespace, n, o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, fmt.Errorf("finalizers %v", o.Finalizers))
	})
}

func TestDataStores(t *testing.T) {
	in := install(t, "stores")
	in.dataStore(t, "silver-1", map[string]string{"tier": "silver"})
	in.dataStore(t, "silver-2", map[string]string{"tier": "silver"})
	for _, n := range []string{"silver-1", "silver-2"} {
		o := storeSays(t, n, v1alpha1.DataStoreConditionValid, metav1.ConditionTrue, v1alpha1.DataStoreReasonValid)
		if !o.Status.Ready || o.Status.ObservedGeneration != o.Generation {
			t.Errorf("%+v", o.Status)
		}
		env.Eventually(t, "intake to hold DataStore "+n, func() error { // which doesn't wait for datastore, nor that for intake
			if o = readStore(t, n); !slices.Contains(o.Finalizers, name.FinalizerDataStore) {
				return fmt.Errorf("finalizers %v", o.Finalizers)
			}
			return nil
		})
		usedBy(t, n)
	}
	var one, two, three, four, gold events.Key
	t.Run("tenants that name none spread over those that are ready, the least used first, ties by name", func(t *testing.T) {
		for i, key := range []*events.Key{&one, &two, &three} {
			*key = in.tenant(t, fmt.Sprintf("spread-%d", i))
			if got, want := in.placed(t, *key), []string{"silver-1", "silver-2", "silver-1"}[i]; got != want {
				t.Errorf("%s is on %s, not on %s", key, got, want)
			}
		}
		usedBy(t, "silver-1", one, three)
		usedBy(t, "silver-2", two)
		if o := read(t, one); o.Spec.DataStore != "" {
			t.Errorf("its author's spec was changed: %s", o.Spec.DataStore)
		}
	})
	t.Run("one made by a command is written once, with its DataStore", func(t *testing.T) {
		o := asleep("spread-3")
		four = events.Tenant(o.Namespace, o.Name)
		command := in.portal.NewEvent(four, "four", event.TenantApply, env.JSON(t, o), time.Now())
		env.Publish(t, in.portal, events.Encode(four.CommandSubject(), command))
		env.Eventually(t, "the object", func() error {
			return e.Admin.Get(t.Context(), kube.TenantControlPlanes, four.Namespace, four.Name, o)
		})
		if got := in.placed(t, four); got != "silver-2" {
			t.Errorf("it is on %s", got)
		}
		for _, f := range read(t, four).ManagedFields {
			if f.Manager == name.FieldManagerIntake && f.Operation != metav1.ManagedFieldsOperationApply && f.Subresource == "" {
				t.Errorf("a second write: %s", f.FieldsV1)
			}
		}
		usedBy(t, "silver-2", two, four)
	})
	t.Run("a DataStore and then a tenant on it, by commands: what was accepted can be named at once", func(t *testing.T) {
		c, err := portal.New(in.portal.Conn(), "/test")
		must(t, err)
		var o v1alpha1.DataStore
		get(t, kube.DataStores, "", stack.DefaultDataStore, &o)
		for i := range 5 {
			n := fmt.Sprintf("quick-%d", i)
			ds := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"tier": "quick"}}, Spec: o.Spec}
			_, err := c.Apply(t.Context(), ds)
			must(t, err)
			tcp := asleep(n)
			tcp.Spec.DataStore = n
			_, err = c.Apply(t.Context(), tcp)
			must(t, err)
		}
		for i := range 5 {
			key := events.Tenant("default", fmt.Sprintf("quick-%d", i))
			if got := in.placed(t, key); got != key.Name {
				t.Errorf("it is on %s", got)
			}
			usedBy(t, key.Name, key)
			_, err := c.Delete(t.Context(), events.DataStore(key.Name))
			must(t, err)
			_, err = c.Delete(t.Context(), key)
			must(t, err)
		}
		for i := range 5 {
			vanished(t, kube.DataStores, "", fmt.Sprintf("quick-%d", i))
		}
	})
	t.Run("what an earlier version wrote into the status is taken over, and nobody fights", func(t *testing.T) {
		old, err := kube.Connect(e.Local.Kubeconfig("admin"), kube.Options{FieldManager: name.FieldManagerStatus, Timeout: apiserver.Patience})
		must(t, err)
		defer old.Close()
		s := readStore(t, "silver-1").Status
		s.UsedBy = nil
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type == v1alpha1.DataStoreConditionAllowedDeletion {
				c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.DataStoreReasonUnused, "no tenant uses the DataStore"
			}
		}
		must(t, old.ApplyStatus(t.Context(), kube.DataStores, &metav1.ObjectMeta{Name: "silver-1"}, s))
		usedBy(t, "silver-1", one, three)
		merge(t, kube.DataStores, "", "silver-1", map[string]any{"spec": map[string]any{"basicAuth": map[string]any{
			"username": map[string]any{"content": "cm9vdA=="}, "password": map[string]any{"content": "cm9vdA=="},
		}}})
		env.Eventually(t, "each to own its part", func() error {
			o := readStore(t, "silver-1")
			if o.Status.ObservedGeneration != o.Generation {
				return errNotYet
			}
			for _, f := range o.ManagedFields {
				fields := ""
				if f.FieldsV1 != nil {
					fields = f.FieldsV1.GetRawString()
				}
				if f.Manager == name.FieldManagerStatus && (strings.Contains(fields, v1alpha1.DataStoreConditionAllowedDeletion) || strings.Contains(fields, "usedBy")) {
					return errors.New(fields)
				}
			}
			return nil
		})
		usedBy(t, "silver-1", one, three)
	})
	t.Run("a selector limits the choice", func(t *testing.T) {
		in.dataStore(t, "gold", map[string]string{"tier": "gold"})
		gold = in.tenant(t, "golden", selecting("tier=gold"))
		if got := in.placed(t, gold); got != "gold" {
			t.Errorf("it is on %s", got)
		}
	})
	t.Run("one that is full takes nobody but who names it, and who waits goes on when its limit is raised or somebody goes", func(t *testing.T) {
		limit := func(n string) map[string]any { return annotations(map[string]any{name.AnnotationMaxTenants: n}) }
		in.dataStore(t, "small", map[string]string{"tier": "small"}, func(o *v1alpha1.DataStore) {
			o.Annotations = map[string]string{name.AnnotationMaxTenants: "1"}
		})
		first := in.tenant(t, "small-0", selecting("tier=small"))
		in.placed(t, first)
		waiting := func(key events.Key, why string) {
			env.Eventually(t, key.String()+" waits: "+why, func() error {
				var tenant state.Tenant
				in.state(t, key, events.KeySpec, &tenant)
				if !strings.Contains(tenant.Unplaced, why) {
					return fmt.Errorf("%q", tenant.Unplaced)
				}
				return nil
			})
		}
		raised, freed := in.tenant(t, "small-1", selecting("tier=small")), in.tenant(t, "small-2", selecting("tier=small"))
		waiting(raised, "small: full (1 of 1 tenants)")
		waiting(freed, "small: full (1 of 1 tenants)")
		merge(t, kube.DataStores, "", "small", limit("2"))
		env.Eventually(t, "one of them to go on", func() error {
			if len(readStore(t, "small").Status.UsedBy) != 2 {
				return errNotYet
			}
			return nil
		})
		if read(t, raised).Annotations[name.AnnotationDataStore] == "" {
			raised, freed = freed, raised
		}
		in.placed(t, raised)
		waiting(freed, "small: full (2 of 2 tenants)")
		explicit := in.tenant(t, "small-3", func(o *v1alpha1.TenantControlPlane) { o.Spec.DataStore = "small" })
		in.placed(t, explicit)
		for _, key := range []events.Key{first, explicit} {
			erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
			vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		}
		in.placed(t, freed)
		for _, key := range []events.Key{raised, freed} {
			erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
			vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		}
		erase(t, kube.DataStores, "", "small")
		vanished(t, kube.DataStores, "", "small")
	})
	t.Run("what tenants hold shows in their status and in the DataStore's", func(t *testing.T) {
		env.Eventually(t, "measurements", func() error {
			tenant, store := read(t, one).Status.Storage.Usage, readStore(t, "silver-1").Status.Usage
			if tenant == nil || tenant.MeasuredAt.IsZero() || store == nil || store.MeasuredAt.IsZero() || store.LatencyMilliseconds == 0 {
				return fmt.Errorf("%+v, %+v", tenant, store)
			}
			return nil
		})
	})
	t.Run("no tenant is an orphan, of whichever installation", func(t *testing.T) {
		m, err := in.bus.Conn().Request(event.QueryOrphans, event.Marshal(event.OrphansQuery{}), 30*time.Second)
		must(t, err)
		var reply event.OrphansReply
		must(t, json.Unmarshal(m.Data, &reply))
		if len(reply.Failed) > 0 || len(m.Header) > 0 {
			t.Errorf("%v %+v", m.Header, reply)
		}
		for _, o := range reply.Orphans {
			for _, key := range []events.Key{one, two, three, four, gold} {
				if string(read(t, key).UID) == o.Owner {
					t.Errorf("%s: %+v", key, o)
				}
			}
		}
	})
	t.Run("a DataStore that can't be used says why and gets nobody", func(t *testing.T) {
		in.dataStore(t, "broken", map[string]string{"tier": "silver"}, func(o *v1alpha1.DataStore) {
			o.Spec.TLSConfig.ClientCertificate.PrivateKey.SecretReference.Name = "nowhere"
		})
		o := storeSays(t, "broken", v1alpha1.DataStoreConditionValid, metav1.ConditionFalse, v1alpha1.DataStoreReasonTLSConfigFailed)
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.DataStoreConditionValid)
		if o.Status.Ready || !strings.Contains(c.Message, "nowhere is missing") {
			t.Errorf("%v: %s", o.Status.Ready, c.Message)
		}
		key := in.tenant(t, "elsewhere")
		if got := in.placed(t, key); got == "broken" {
			t.Error("it got a tenant")
		}
		erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		erase(t, kube.DataStores, "", "broken")
		vanished(t, kube.DataStores, "", "broken")
	})
	t.Run("a tenant for which there is none waits, says for what, and goes on when there is one", func(t *testing.T) {
		key := in.tenant(t, "patient", selecting("tier=iron"))
		env.Eventually(t, "what it waits for", func() error {
			c := meta.FindStatusCondition(read(t, key).Status.Conditions, "DatastoreReady")
			if c == nil || !strings.Contains(c.Message, `labels "tier=iron"`) {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		if s := in.state(t, key, events.KeySpec, nil); s == nil || !strings.Contains(s.Wait.Text, "tier=iron") {
			t.Errorf("%+v", s)
		}
		in.dataStore(t, "iron", map[string]string{"tier": "iron"})
		if got := in.placed(t, key); got != "iron" {
			t.Errorf("it is on %s", got)
		}
		erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
	})
	t.Run("a paused DataStore is left alone, gets nobody, and catches up", func(t *testing.T) {
		merge(t, kube.DataStores, "", "iron", annotations(map[string]any{name.AnnotationPaused: ""}))
		storeSays(t, "iron", "Paused", metav1.ConditionTrue, "Annotated")
		merge(t, kube.DataStores, "", "iron", map[string]any{"spec": map[string]any{"endpoints": []string{"192.0.2.7:2379"}}})
		key := in.tenant(t, "hasty", selecting("tier=iron"))
		env.Eventually(t, "the tenant to wait", func() error {
			s := in.state(t, key, events.KeySpec, nil)
			if s == nil || !strings.Contains(s.Wait.Text, "paused") {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		erase(t, kube.DataStores, "", "iron")
		o := readStore(t, "iron")
		if o.Status.ObservedGeneration == o.Generation || !o.Status.Ready {
			t.Errorf("checked while paused: %+v", o.Status)
		}
		merge(t, kube.DataStores, "", "iron", annotations(map[string]any{name.AnnotationPaused: nil}))
		vanished(t, kube.DataStores, "", "iron") // its deletion goes on
		erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
	})
	t.Run("a pause of a DataStore ends by itself", func(t *testing.T) {
		pauseUntil(t, kube.DataStores, "", "gold", far)
		storeSays(t, "gold", "Paused", metav1.ConditionTrue, "Annotated")
		until := pauseUntil(t, kube.DataStores, "", "gold", soon)
		env.Eventually(t, "the end of the pause", func() error {
			if c := meta.FindStatusCondition(readStore(t, "gold").Status.Conditions, "Paused"); c != nil {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		if time.Now().Before(until) {
			t.Error("it ended too early")
		}
		merge(t, kube.DataStores, "", "gold", annotations(map[string]any{name.AnnotationPausedUntil: nil}))
	})
	t.Run("deletion is held while tenants use it, which go on, and no new one gets it", func(t *testing.T) {
		erase(t, kube.DataStores, "", "gold")
		env.Eventually(t, "who holds it", func() error {
			c := meta.FindStatusCondition(readStore(t, "gold").Status.Conditions, v1alpha1.DataStoreConditionAllowedDeletion)
			if c == nil || !strings.Contains(c.Message, gold.String()) || !strings.Contains(c.Message, "no new ones") {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		late := in.tenant(t, "late", selecting("tier=gold"))
		env.Eventually(t, "the new one to wait", func() error {
			if s := in.state(t, late, events.KeySpec, nil); s == nil || !strings.Contains(s.Wait.Text, "being deleted") {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		merge(t, kube.TenantControlPlanes, gold.Namespace, gold.Name, map[string]any{"spec": map[string]any{"kubernetes": map[string]any{"version": "v1.36.2"}}})
		if got := in.placed(t, gold); got != "gold" {
			t.Errorf("it moved to %s", got)
		}
		env.Eventually(t, "the policies to know", func() error { return admission(t, "gold", "") })
		env.Eventually(t, "a tenant that names it to be refused", func() error {
			o := asleep("namer")
			o.Spec.DataStore = "gold"
			err := in.tryCreate(t, kube.TenantControlPlanes, o)
			if err != nil && strings.Contains(err.Error(), "no DataStore has this name: create it, or name another one") {
				return nil
			}
			erase(t, kube.TenantControlPlanes, o.Namespace, o.Name) // a moment too early
			return fmt.Errorf("not yet: %w", cmp.Or(err, errNotYet))
		})
		erase(t, kube.TenantControlPlanes, late.Namespace, late.Name)
		erase(t, kube.TenantControlPlanes, gold.Namespace, gold.Name)
		vanished(t, kube.DataStores, "", "gold")
		vanished(t, kube.TenantControlPlanes, gold.Namespace, gold.Name)
		var left v1alpha1.TenantControlPlaneList
		must(t, e.Admin.List(t.Context(), kube.TenantControlPlanes, "default", name.LabelDataStore+"=gold", &left))
		if len(left.Items) > 0 {
			t.Error("it went before its tenants")
		}
	})
	t.Run("what policies have to know is put right when somebody changes it", func(t *testing.T) {
		must(t, admission(t, "silver-1", "etcd"))
		merge(t, kube.ConfigMaps, name.SystemNamespace, name.AdmissionConfigMap, map[string]any{"data": map[string]any{name.AdmissionDataStore("silver-1"): nil, name.AdmissionGateway: "perhaps"}})
		env.Eventually(t, "the repair", func() error {
			return cmp.Or(admission(t, "silver-1", "etcd"), admissionHas(t, name.AdmissionGateway, "false"))
		})
		erase(t, kube.ConfigMaps, name.SystemNamespace, name.AdmissionConfigMap)
		env.Eventually(t, "the repair", func() error { return admission(t, "silver-1", "etcd") })
	})
	t.Run("a tenant's pause ends by itself, and its deletion waits for that", func(t *testing.T) {
		told := func(what string, is func(state.Tenant) bool) {
			env.Eventually(t, what, func() error {
				var spec state.Tenant
				if in.state(t, one, events.KeySpec, &spec); !is(spec) {
					return fmt.Errorf("%+v", spec)
				}
				return nil
			})
		}
		pauseUntil(t, kube.TenantControlPlanes, one.Namespace, one.Name, far)
		told("the pause", func(s state.Tenant) bool { return s.Paused && !s.PausedUntil.IsZero() })
		erase(t, kube.TenantControlPlanes, one.Namespace, one.Name)
		told("the deletion", func(s state.Tenant) bool { return s.Paused && s.Deleting })
		read(t, one) // still there
		until := pauseUntil(t, kube.TenantControlPlanes, one.Namespace, one.Name, soon)
		vanished(t, kube.TenantControlPlanes, one.Namespace, one.Name)
		if time.Now().Before(until) {
			t.Error("it went during the pause")
		}
		usedBy(t, "silver-1", three)
	})
	t.Run("when the tenants of a DataStore went first, it goes at once", func(t *testing.T) {
		for _, key := range []events.Key{two, three, four} {
			erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		}
		for _, key := range []events.Key{two, three, four} {
			vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		}
		for _, n := range []string{"silver-1", "silver-2"} {
			usedBy(t, n)
			erase(t, kube.DataStores, "", n)
			vanished(t, kube.DataStores, "", n)
			env.Eventually(t, "the policies to know", func() error { return admission(t, n, "") })
		}
	})
}

// admission reports what the policies are told of a DataStore, unless it is want; an empty want is nothing.
func admission(t testing.TB, dataStore, want string) error {
	return admissionHas(t, name.AdmissionDataStore(dataStore), want)
}

func admissionHas(t testing.TB, key, want string) error {
	var cm corev1.ConfigMap
	if err := e.Admin.Get(t.Context(), kube.ConfigMaps, name.SystemNamespace, name.AdmissionConfigMap, &cm); err != nil {
		return err
	}
	if got := cm.Data[key]; got != want {
		return fmt.Errorf("%s is %q", key, got)
	}
	return nil
}

// forward passes connections on to an address from another port of its host, so that its certificate is good for both.
func forward(t *testing.T, to string) (at string, used *atomic.Int64) {
	t.Helper()
	host, _, err := net.SplitHostPort(to)
	must(t, err)
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	used = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			used.Add(1)
			go func() {
				defer c.Close()
				d, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer d.Close()
				go func() { _, _ = io.Copy(d, c); _ = d.Close() }()
				_, _ = io.Copy(c, d)
			}()
		}
	}()
	return l.Addr().String(), used
}

// awake waits until a tenant is Ready at its generation by the word of its object.
func awake(t testing.TB, key events.Key) *v1alpha1.TenantControlPlane {
	t.Helper()
	var o *v1alpha1.TenantControlPlane
	env.Eventually(t, key.String()+" Ready", func() error {
		o = read(t, key)
		c := meta.FindStatusCondition(o.Status.Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != o.Generation || meta.IsStatusConditionTrue(o.Status.Conditions, "Reconciling") {
			return fmt.Errorf("%+v", o.Status.Conditions)
		}
		return nil
	})
	return o
}

// authority makes one with a key of its own.
func authority(t testing.TB) *etcdserver.Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return etcdserver.NewAuthority(t, key)
}

// contentOf is what a Secret says of an etcd: its authority, and the administrator's certificate of it.
func contentOf(t testing.TB, server *etcdserver.Server) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		name.KeyCACert: server.CA.PEM, name.KeyCAKey: server.CA.KeyPEM(t), name.KeyTLSCert: server.RootCert, name.KeyTLSKey: server.RootKey,
	}
}

func TestInstallationsAndChangesOfADataStore(t *testing.T) {
	left, right := install(t, "left"), install(t, "right")
	server := etcdserver.StartWith(t, authority(t), "127.0.0.2")
	must(t, e.Admin.Create(t.Context(), kube.Secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: "shared"}, Data: contentOf(t, server),
	}))
	left.dataStore(t, "shared", nil, func(o *v1alpha1.DataStore) {
		from := func(key string) v1alpha1.ContentRef {
			return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{
				SecretReference: corev1.SecretReference{Namespace: name.Namespace, Name: "shared"}, KeyPath: key,
			}}
		}
		o.Spec.Endpoints = []string{server.Endpoint}
		o.Spec.TLSConfig = &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: from(name.KeyCACert), PrivateKey: new(from(name.KeyCAKey))},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: from(name.KeyTLSCert), PrivateKey: from(name.KeyTLSKey)},
		}
	})
	key := events.Tenant("default", "mover")
	o := env.Tenant("mover", "v1.36.3")
	left.create(t, kube.TenantControlPlanes, o)
	awake(t, key)
	e.Kubectl(t, e.Kubeconfig(t, key), "create", "configmap", "kept", "--from-literal=a=b")
	usedBy(t, "shared", key)
	bystander := right.tenant(t, "bystander") // there is no DataStore of its installation
	// args are the API server's, which name the DataStore's endpoints.
	deployment := func() *appsv1.Deployment {
		d := &appsv1.Deployment{}
		get(t, kube.Deployments, key.Namespace, name.Deployment(key.Name), d)
		return d
	}
	ca := func() string {
		var s corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &s)
		return string(s.UID) + s.ResourceVersion
	}
	// rolled waits until all pods use an endpoint and are ready.
	rolled := func(t *testing.T, endpoint string) {
		t.Helper()
		env.Eventually(t, "the rollout to "+endpoint, func() error {
			d := deployment()
			uses := slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return strings.Contains(strings.Join(append(c.Command, c.Args...), " "), endpoint)
			})
			if !uses || d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 1 || d.Status.ReadyReplicas != 1 || d.Status.Replicas != 1 {
				return fmt.Errorf("in the template: %v; %+v", uses, d.Status)
			}
			return nil
		})
	}
	endpoint, through := forward(t, readStore(t, "shared").Spec.Endpoints[0])
	t.Run("another endpoint of the DataStore reaches its tenants, and their pods roll", func(t *testing.T) {
		merge(t, kube.DataStores, "", "shared", map[string]any{"spec": map[string]any{"endpoints": []string{endpoint}}})
		rolled(t, endpoint)
		if through.Load() == 0 {
			t.Error("nobody used it")
		}
		s := storeSays(t, "shared", v1alpha1.DataStoreConditionValid, metav1.ConditionTrue, v1alpha1.DataStoreReasonValid)
		if s.Status.ObservedGeneration != s.Generation {
			t.Errorf("%+v", s.Status)
		}
		if got := datastoreState(t, left, key).Endpoints; !slices.Equal(got, []string{endpoint}) {
			t.Errorf("the state says %v", got)
		}
	})
	t.Run("another authority in a Secret it refers to reaches its tenants: each gets a certificate of it", func(t *testing.T) {
		certificates := func() (ca *x509.CertPool, client *x509.Certificate) {
			t.Helper()
			var s corev1.Secret
			get(t, kube.Secrets, key.Namespace, name.DatastoreCertificate(key.Name), &s)
			ca = x509.NewCertPool()
			ca.AppendCertsFromPEM(s.Data[name.KeyDatastoreCACert])
			pair, err := tls.X509KeyPair(s.Data[name.KeyDatastoreCert], s.Data[name.KeyDatastoreKey])
			must(t, err)
			return ca, pair.Leaf
		}
		good := func(c *x509.Certificate, roots *x509.CertPool) error {
			_, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			return err
		}
		was, old := certificates()
		must(t, good(old, was))
		server.Trust(t, authority(t))
		now := x509.NewCertPool()
		now.AppendCertsFromPEM(server.CA.PEM)
		if good(old, now) == nil {
			t.Fatal("the new authority signed what the old one did")
		}
		merge(t, kube.Secrets, name.Namespace, "shared", map[string]any{"data": contentOf(t, server)})
		began := time.Now()
		env.Eventually(t, "a certificate of the new authority", func() error {
			ca, client := certificates()
			if !ca.Equal(now) {
				return errNotYet
			}
			if client.Subject.CommonName != old.Subject.CommonName || good(client, was) == nil {
				t.Fatalf("it is of %s, was of %s; good under the old authority: %v", client.Subject, old.Subject, good(client, was) == nil)
			}
			return good(client, now)
		})
		t.Logf("the tenant's Secret followed after %s", time.Since(began).Round(time.Millisecond))
		merge(t, kube.DataStores, "", "shared", map[string]any{"spec": map[string]any{"endpoints": []string{server.Endpoint}}})
		rolled(t, server.Endpoint)
		awake(t, key)
		// With the new certificate its API reads what it wrote with the old one.
		env.Eventually(t, "what was written before", func() error {
			out, err := e.TryKubectl(t.Context(), e.Kubeconfig(t, key), nil, "get", "configmap", "kept", "-o", "jsonpath={.data.a}", "--request-timeout=3s")
			if err == nil && out != "b" {
				err = fmt.Errorf("read %q", out)
			}
			return err
		})
	})
	t.Run("another installation doesn't touch it", func(t *testing.T) {
		if s := right.state(t, key, events.KeySpec, nil); s != nil {
			t.Errorf("%+v", s)
		}
		if s := left.state(t, bystander, events.KeySpec, nil); s != nil {
			t.Errorf("%+v", s)
		}
		env.Eventually(t, "the bystander to wait", func() error {
			if s := right.state(t, bystander, events.KeySpec, nil); s == nil || !strings.Contains(s.Wait.Text, "there is none") {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})
	t.Run("a tenant that is given to another installation goes on there: same keys, same pods", func(t *testing.T) {
		before, secret := deployment(), ca()
		merge(t, kube.TenantControlPlanes, key.Namespace, key.Name, map[string]any{"metadata": map[string]any{"labels": map[string]string{name.LabelWatchFilter: "right"}}})
		env.Eventually(t, "the other to have it", func() error {
			if left.state(t, key, events.KeySpec, nil) != nil {
				return errors.New("the first has not let go")
			}
			if s := right.state(t, key, name.ServiceAddons, nil); s == nil || s.Step != event.Applied {
				return fmt.Errorf("addons of the second: %+v", s)
			}
			return nil
		})
		awake(t, key)
		after := deployment()
		if ca() != secret || after.Generation != before.Generation || after.UID != before.UID {
			t.Errorf("it was changed: Deployment generation %d, then %d", before.Generation, after.Generation)
		}
		if o := read(t, key); !slices.Contains(o.Finalizers, name.FinalizerTenant) || o.DeletionTimestamp != nil {
			t.Errorf("%v %v", o.Finalizers, o.DeletionTimestamp)
		}
		env.Eventually(t, "the first one's portals to hear of it", func() error {
			c, err := portal.New(left.portal.Conn(), "/test")
			must(t, err)
			if s, err := c.Status(t.Context(), key.Namespace, key.Name); err != nil || s.Phase != "Released" {
				return fmt.Errorf("%s %w", s.Phase, cmp.Or(err, errNotYet))
			}
			return nil
		})
		usedBy(t, "shared", key) // whosever tenants they are
		erase(t, kube.DataStores, "", "shared")
		erase(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		vanished(t, kube.TenantControlPlanes, key.Namespace, key.Name)
		vanished(t, kube.DataStores, "", "shared")
	})
	erase(t, kube.TenantControlPlanes, bystander.Namespace, bystander.Name)
	vanished(t, kube.TenantControlPlanes, bystander.Namespace, bystander.Name)
}
