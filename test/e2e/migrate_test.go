package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestMigration moves a tenant's data from database to database while clients write, read and watch.
func TestMigration(t *testing.T) {
	e.Services(t)
	drivers := map[string]string{"other": local.DriverEtcd, "moved-sql": local.DriverPostgres}
	var way []string // else the command line's moves, below, are all
	if !testing.Short() {
		// Two DataStores of each driver, and all pairs of drivers.
		drivers["moved-my"], drivers["other-sql"], drivers["other-my"] = local.DriverMySQL, local.DriverPostgres, local.DriverMySQL
		drivers["moved-nats"], drivers["other-nats"] = local.DriverNATS, local.DriverNATS
		way = []string{
			"other", "moved-sql", "other-sql", "moved-my", "other-my", "moved-sql", "other", "moved-my", "other",
			"moved-nats", "other-nats", "moved-sql", "moved-nats", "moved-my", "moved-nats", "other",
		}
	}
	for n, driver := range drivers {
		must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: n, Driver: driver}))
	}
	key := events.Tenant("default", "moving")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.DataStore = "default"
	o.Annotations = map[string]string{name.AnnotationMigrationGrace: "0"}
	e.Apply(t, o)
	e.Ready(t, key)
	c := clientOf(t, e.Kubeconfig(t, key))
	fill(t, c, 500)

	t.Run("a plan says what is against a move, and begins none", func(t *testing.T) {
		for to, want := range map[string]struct {
			code int
			says string
		}{"nowhere": {1, reason.DataStoreMissing}, "default": {1, reason.AlreadyThere}, "other": {0, "default (etcd) to other (etcd)"}} {
			if code, text := stoker(t, "migrate", key.Name, "--to", to, "--plan"); code != want.code || !strings.Contains(text, want.says) {
				t.Errorf("to %s: exit %d\n%s", to, code, text)
			}
		}
		if d := storedAs(t, key); d.Move != nil || d.DataStore != "default" {
			t.Errorf("%+v", d)
		}
	})
	from := "default"
	for _, to := range way {
		t.Run(from+" to "+to, func(t *testing.T) {
			w := watchAndWrite(t, c)
			began := time.Now()
			moveTo(t, key, to)
			arrived(t, key, to)
			t.Logf("moved after %s; writes were held for %s", time.Since(began).Round(100*time.Millisecond), heldOf(t, key))
			w.end(t)
			if n := len(list(t, c)); n != 500 {
				t.Errorf("%d of 500 objects", n)
			}
		})
		from = to
	}
	t.Run("stoker migrate moves them and says when they are there", func(t *testing.T) {
		w := watchAndWrite(t, c)
		code, text := stoker(t, "migrate", key.Name, "--to", "moved-sql", "--wait", "--timeout", "5m")
		if code != 0 || !strings.Contains(text, "default/moving: the data are in DataStore moved-sql; writes waited for ") {
			t.Errorf("exit %d\n%s", code, text)
		}
		arrived(t, key, "moved-sql") // until then its pods have gates still
		w.end(t)
	})
	t.Run("stoker drain moves all out of a DataStore, and a service that is killed goes on with a move that is "+state.MoveGoingOver, func(t *testing.T) {
		w := watchAndWrite(t, c)
		drain := func(says string, flags ...string) {
			code, text := stoker(t, "drain", append([]string{"moved-sql", "--to", from}, flags...)...)
			if code != 0 || !strings.Contains(text, says) {
				t.Errorf("stoker drain %s: exit %d\n%s", flags, code, text)
			}
			t.Logf("stoker drain %s\n%s", flags, text)
		}
		drain("default     moving", "--plan")
		var draining sync.WaitGroup
		defer draining.Wait()
		draining.Go(func() { drain("moved are the data of 1 of 1 tenants", "--timeout", "5m") })
		stage(t, key, state.MoveGoingOver)
		killDatastore(t)
		draining.Wait()
		arrived(t, key, from)
		drain("no data are to be moved from DataStore moved-sql")
		w.end(t)
	})
	t.Run("a move that is taken back leaves the tenant as it was", func(t *testing.T) {
		env.Long(t, "services/datastore shows moves that are taken back (TestResourcesMove, TestTransfer)")
		w := watchAndWrite(t, c)
		moveTo(t, key, "moved-sql")
		stage(t, key, state.MoveCopying, state.MoveFollowing)
		moveTo(t, key, from)
		arrived(t, key, from)
		w.end(t)
		if d := storedAs(t, key); d.Move != nil {
			t.Errorf("the move is still there: %+v", d.Move)
		}
	})
	t.Run("one that takes too long is given up, and says so", func(t *testing.T) {
		env.Long(t, "a move that is given up ends by the steps of one that is taken back, which services/datastore shows")
		annotate(t, key, name.AnnotationMigrationTimeout, "1s")
		moveTo(t, key, "moved-sql")
		env.Eventually(t, "the failure", func() error {
			if s := e.State(t.Context(), key, name.ServiceDatastore); s == nil || !s.Failed() || s.Failure.Reason != reason.MigrationUndone {
				return errNotYet
			}
			return nil
		})
		annotate(t, key, name.AnnotationMigrationTimeout, nil)
		moveTo(t, key, from)
		arrived(t, key, from)
	})
	t.Run("a service that is killed goes on with a move that is "+state.MoveCopying, func(t *testing.T) {
		env.Long(t, "the drain above shows a kill in the last stage of a move; the stages before change nothing of the tenant")
		w := watchAndWrite(t, c)
		moveTo(t, key, "moved-sql")
		stage(t, key, state.MoveCopying)
		killDatastore(t)
		arrived(t, key, "moved-sql")
		w.end(t)
		moveTo(t, key, from)
		arrived(t, key, from)
	})
	t.Run("nothing is left where the data were", func(t *testing.T) {
		env.Eventually(t, "the data of before to be removed", func() error {
			if d := storedAs(t, key); len(d.Kept) > 0 || d.Move != nil {
				return errNotYet
			}
			return nil
		})
	})
	e.Delete(t, key)
	if s := e.Gone(t, key); len(s.Left) > 0 {
		t.Errorf("left behind: %v", s.Left)
	}
	nothingLeft(t, key)
}

// killDatastore kills the service datastore and starts it again.
func killDatastore(t *testing.T) {
	t.Helper()
	services := e.Services(t)
	services[name.ServiceDatastore].Kill()
	services[name.ServiceDatastore].Restart(t)
}

// moveTo asks for another DataStore.
func moveTo(t testing.TB, key events.Key, to string) {
	t.Helper()
	patch := map[string]any{"spec": map[string]any{"dataStore": to}}
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil))
}

// storedAs is what the datastore service keeps of a tenant.
func storedAs(t testing.TB, key events.Key) (d state.Datastore) {
	t.Helper()
	if s := e.State(t.Context(), key, name.ServiceDatastore); s != nil {
		must(t, json.Unmarshal(s.Data, &d))
	}
	return d
}

// stage waits until a move is at one of these.
func stage(t testing.TB, key events.Key, phases ...string) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); <-time.After(10 * time.Millisecond) { // it may last for a moment only
		if m := storedAs(t, key).Move; m != nil && slices.Contains(phases, m.Phase) {
			return
		}
	}
	t.Fatalf("the move never was %s", phases[0])
}

// arrived waits until the tenant is Ready with its data in a DataStore.
func arrived(t testing.TB, key events.Key, to string) {
	t.Helper()
	env.Eventually(t, "the data to be in DataStore "+to, func() error {
		s := read(t, key).Status
		if s.Storage.DataStoreName != to {
			return fmt.Errorf("they are in %s", s.Storage.DataStoreName)
		}
		return nil
	})
	e.Ready(t, key)
}

// heldOf is for how long writes were held the last time.
func heldOf(t testing.TB, key events.Key) time.Duration {
	t.Helper()
	var held time.Duration
	for _, m := range e.Messages(t, events.StreamFacts, key.FactSubject(name.ServiceDatastore, event.Migrated)) {
		var fact event.DatastoreMigrated
		must(t, json.Unmarshal(m.Data(), &fact))
		held = time.Duration(fact.HeldMilliseconds) * time.Millisecond
	}
	return held
}

func clientOf(t testing.TB, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	cfg.QPS, cfg.Burst = 500, 500
	c, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	return c
}

const movingLabel = "moving=true"

// fill makes objects of 2 kB.
func fill(t testing.TB, c *kubernetes.Clientset, n int) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object-" + strconv.Itoa(i), Labels: map[string]string{"moving": "true"}}}
				o.Data = map[string]string{"a": strings.Repeat("x", 1800)}
				if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// list is all of them, page by page.
func list(t testing.TB, c *kubernetes.Clientset) (all []corev1.ConfigMap) {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: movingLabel, Limit: 100}
	for {
		page, err := c.CoreV1().ConfigMaps("default").List(t.Context(), options)
		must(t, err)
		all = append(all, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return all
		}
	}
}

// writing is a client that counts in an object ten times a second, and an informer that watches.
type writing struct {
	c    *kubernetes.Clientset
	stop context.CancelFunc
	done sync.WaitGroup

	acknowledged, refused, longest atomic.Int64
	older                          atomic.Int64
	errs                           sync.Map // what was refused, and when
	last                           sync.Map // object to its resource version, as the informer saw it
}

const counter = "counter"

func watchAndWrite(t testing.TB, c *kubernetes.Clientset) *writing {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writing{c: c, stop: stop}
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: counter}, Data: map[string]string{"n": "0"}}
	_, err := c.CoreV1().ConfigMaps("default").Create(ctx, one, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = c.CoreV1().ConfigMaps("default").Update(ctx, one, metav1.UpdateOptions{})
	}
	must(t, err)
	f := informers.NewSharedInformerFactory(c, 0)
	configMaps := f.Core().V1().ConfigMaps().Informer()
	_, err = configMaps.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.see, UpdateFunc: func(_, now any) { w.see(now) },
		DeleteFunc: func(o any) {
			if o, ok := o.(*corev1.ConfigMap); ok && (o.Name == counter || o.Labels["moving"] != "") {
				t.Errorf("the informer saw %s deleted", o.Name)
			}
		},
	})
	must(t, err)
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	w.done.Go(func() { w.count(ctx) })
	w.done.Go(func() { <-ctx.Done(); f.Shutdown() })
	return w
}

// see notes that the informer sees an object, and whether it saw a newer one before.
func (w *writing) see(o any) {
	object := o.(*corev1.ConfigMap)
	version, _ := strconv.ParseInt(object.ResourceVersion, 10, 64)
	key := object.Namespace + "/" + object.Name
	if before, seen := w.last.Swap(key, version); seen && before.(int64) > version {
		w.older.Add(1)
	}
}

func (w *writing) count(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, w.acknowledged.Load()+1)
		_, err := w.c.CoreV1().ConfigMaps("default").Patch(ctx, counter, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.refused.Add(1)
			w.errs.Store(fmt.Sprint(began.Format("05.000"), " ", err), true)
		default:
			w.acknowledged.Add(1)
			w.longest.Store(max(w.longest.Load(), time.Since(began).Milliseconds()))
		}
	}
}

// end looks at what has become of all writes.
func (w *writing) end(t testing.TB) {
	t.Helper()
	last := w.acknowledged.Load()
	env.Eventually(t, "some writes more", func() error {
		if w.acknowledged.Load() < last+3 {
			return errNotYet
		}
		return nil
	})
	w.stop()
	w.done.Wait()
	o, err := w.c.CoreV1().ConfigMaps("default").Get(t.Context(), counter, metav1.GetOptions{})
	must(t, err)
	n, _ := strconv.ParseInt(o.Data["n"], 10, 64)
	// The last write may have been done and not answered.
	if want := w.acknowledged.Load(); n != want && n != want+1 {
		t.Errorf("the counter is %d, and %d writes were acknowledged", n, want)
	}
	if n := w.older.Load(); n > 0 {
		t.Errorf("the informer saw %d older objects", n)
	}
	w.errs.Range(func(k, _ any) bool { t.Log(k); return true })
	t.Logf("%d writes were acknowledged, the slowest after %d ms; %d failed", w.acknowledged.Load(), w.longest.Load(), w.refused.Load())
}
