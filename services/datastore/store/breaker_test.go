package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// line is a driver that counts and answers what the test says; what drivers really do is tested against servers.
type line struct {
	driver.Driver
	check  func() error
	checks atomic.Int32
	closed atomic.Bool
}

func (l *line) Check(context.Context) error { l.checks.Add(1); return l.check() }
func (l *line) Close() error                { l.closed.Store(true); return nil }

// testKind is a row for a driver that a test makes.
func testKind(open driver.Open) Kind {
	return Kind{Open: open, Fingerprint: driver.Config.TenantsChecksum}
}

// world is what a store sees.
type world struct {
	mu     sync.Mutex
	object *v1alpha1.DataStore
	cfg    driver.Config
	err    error
	line   *line
	opens  int
	woken  []string
}

func newWorld(check func() error) (*world, *Store) {
	w := &world{object: &v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "uid", Generation: 1}}}
	w.object.Spec.Driver = v1alpha1.DriverEtcd
	s := New(nil, nil, map[v1alpha1.Driver]Kind{v1alpha1.DriverEtcd: testKind(func(driver.Config) (driver.Driver, error) {
		w.opens++
		w.line = &line{check: check}
		return w.line, nil
	})}, slog.New(slog.DiscardHandler), time.Now)
	s.read = func(context.Context, string) (*v1alpha1.DataStore, driver.Config, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.object, w.cfg, w.err
	}
	s.wake = func(key events.Key, _ loop.Wake) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woken = append(w.woken, key.String())
	}
	return w, s.Get("one")
}

func TestStore(t *testing.T) {
	nothing := func(driver.Driver) error { return nil }
	load := func(t *testing.T, st *Store) {
		t.Helper()
		if _, opened, err := st.Load(t.Context()); opened != nil || err != nil {
			t.Fatal(opened, err)
		}
	}
	t.Run("fifty tenants who come at once make one connection and one look", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { time.Sleep(time.Second); return nil }) //nolint:forbidigo // the bubble's clock
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, _, _ = st.Load(t.Context())
					if err := st.Do(t.Context(), nothing); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if w.opens != 1 || w.line.checks.Load() != 1 {
				t.Errorf("%d connections, %d looks", w.opens, w.line.checks.Load())
			}
		})
	})
	t.Run("while it is away one caller looks now and then and the others are told at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { time.Sleep(time.Second); return driver.ErrAway }) //nolint:forbidigo // the bubble's clock
			load(t, st)
			began := time.Now()
			var slow int
			for time.Since(began) < time.Minute {
				before := time.Now()
				var away *intent.Unavailable
				if err := st.Do(t.Context(), nothing); !errors.As(err, &away) || away.Dependency != "datastore one" {
					t.Fatal(err)
				}
				if time.Since(before) > 0 {
					slow++
				}
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the bubble's clock
			}
			if looks := int(w.line.checks.Load()); looks > 16 || looks < 8 || slow != looks {
				t.Errorf("%d looks in a minute, %d calls took time", looks, slow)
			}
		})
	})
	t.Run("when it is back, who waits is woken and the first caller gets through", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			answer := driver.ErrAway
			w, st := newWorld(func() error { return answer })
			load(t, st)
			st.AddTenant(events.Tenant("a", "b"))
			st.AddWaiting(events.Tenant("a", "b"))
			if st.Do(t.Context(), nothing) == nil {
				t.Fatal("it is away")
			}
			w.woken = nil
			answer = nil
			time.Sleep(longestPause) //nolint:forbidigo // the bubble's clock
			if err := st.Do(t.Context(), nothing); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(w.woken, "a/b") {
				t.Errorf("woken: %q", w.woken)
			}
		})
	})
	t.Run("an outage in the middle of a call opens the breaker for all, another error does not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { return nil })
			load(t, st)
			boom := errors.New("boom")
			if err := st.Do(t.Context(), func(driver.Driver) error { return boom }); !errors.Is(err, boom) {
				t.Error(err)
			}
			var away *intent.Unavailable
			if err := st.Do(t.Context(), func(driver.Driver) error { return fmt.Errorf("put: %w", driver.ErrAway) }); !errors.As(err, &away) {
				t.Error(err)
			}
			if err := st.Do(t.Context(), func(driver.Driver) error { t.Error("called"); return nil }); !errors.As(err, &away) {
				t.Error(err)
			}
			if w.line.checks.Load() != 1 {
				t.Errorf("%d looks", w.line.checks.Load())
			}
		})
	})
	t.Run("changed credentials replace the connection, close the old one after its last use and wake the tenants", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { return nil })
			load(t, st)
			st.AddTenant(events.Tenant("a", "b"))
			old := w.line
			release := make(chan struct{})
			go func() { _ = st.Do(context.Background(), func(driver.Driver) error { <-release; return nil }) }()
			synctest.Wait()
			w.cfg.ClientKey = []byte("another")
			load(t, st)
			if w.opens != 1 {
				t.Error("read again although it was readAgainAfter")
			}
			time.Sleep(readAgainAfter) //nolint:forbidigo // the bubble's clock
			load(t, st)
			synctest.Wait()
			if w.opens != 2 || old.closed.Load() {
				t.Errorf("%d connections, closed in use: %t", w.opens, old.closed.Load())
			}
			if !slices.Contains(w.woken, "a/b") {
				t.Errorf("woken: %q", w.woken)
			}
			close(release)
			synctest.Wait()
			if !old.closed.Load() {
				t.Error("the old connection stays open")
			}
		})
	})
	t.Run("a DataStore that stays wrong wakes nobody again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { return nil })
			w.err = &driver.ConfigError{Part: driver.PartTLS, Field: "f", Err: errors.New("missing")}
			for range 3 {
				st.Invalidate()
				_, opened, err := st.Load(t.Context())
				if opened == nil || err != nil {
					t.Fatal(opened, err)
				}
			}
			if len(w.woken) != 1 {
				t.Errorf("woken: %q", w.woken)
			}
		})
	})
	t.Run("a change during a read is not taken for seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { return nil })
			reads := 0
			read := st.of.read
			st.of.read = func(ctx context.Context, n string) (*v1alpha1.DataStore, driver.Config, error) {
				if reads++; reads == 1 {
					st.Invalidate()
					return nil, driver.Config{}, ErrNoDataStore
				}
				return read(ctx, n)
			}
			if _, opened, _ := st.Load(t.Context()); !errors.Is(opened, ErrNoDataStore) {
				t.Fatal(opened)
			}
			load(t, st)
			if w.opens != 1 {
				t.Error("not opened")
			}
		})
	})
}
