package datastore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
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

func newWorld(check func() error) (*world, *store) {
	w := &world{object: &v1alpha1.DataStore{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "uid", Generation: 1}}}
	w.object.Spec.Driver = v1alpha1.DriverEtcd
	s := newStores(&reader{}, map[v1alpha1.Driver]driver.Open{v1alpha1.DriverEtcd: func(driver.Config) (driver.Driver, error) {
		w.opens++
		w.line = &line{check: check}
		return w.line, nil
	}})
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
	return w, s.get("one")
}

func TestStore(t *testing.T) {
	nothing := func(driver.Driver) error { return nil }
	load := func(t *testing.T, st *store) {
		t.Helper()
		if _, opened, err := st.load(t.Context()); opened != nil || err != nil {
			t.Fatal(opened, err)
		}
	}
	t.Run("fifty tenants who come at once make one connection and one look", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, st := newWorld(func() error { time.Sleep(time.Second); return nil }) //nolint:forbidigo // the bubble's clock
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, _, _ = st.load(t.Context())
					if err := st.do(t.Context(), nothing); err != nil {
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
				if err := st.do(t.Context(), nothing); !errors.As(err, &away) || away.Dependency != "datastore one" {
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
			st.joins(events.Tenant("a", "b"))
			st.waits(events.Tenant("a", "b"))
			if st.do(t.Context(), nothing) == nil {
				t.Fatal("it is away")
			}
			w.woken = nil
			answer = nil
			time.Sleep(longestPause) //nolint:forbidigo // the bubble's clock
			if err := st.do(t.Context(), nothing); err != nil {
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
			if err := st.do(t.Context(), func(driver.Driver) error { return boom }); !errors.Is(err, boom) {
				t.Error(err)
			}
			var away *intent.Unavailable
			if err := st.do(t.Context(), func(driver.Driver) error { return fmt.Errorf("put: %w", driver.ErrAway) }); !errors.As(err, &away) {
				t.Error(err)
			}
			if err := st.do(t.Context(), func(driver.Driver) error { t.Error("called"); return nil }); !errors.As(err, &away) {
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
			st.joins(events.Tenant("a", "b"))
			old := w.line
			release := make(chan struct{})
			go func() { _ = st.do(context.Background(), func(driver.Driver) error { <-release; return nil }) }()
			synctest.Wait()
			w.cfg.ClientKey = []byte("another")
			load(t, st)
			if w.opens != 1 {
				t.Error("read again although it was fresh")
			}
			time.Sleep(fresh) //nolint:forbidigo // the bubble's clock
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
				st.stale()
				_, opened, err := st.load(t.Context())
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
					st.stale()
					return nil, driver.Config{}, errNoDataStore
				}
				return read(ctx, n)
			}
			if _, opened, _ := st.load(t.Context()); !errors.Is(opened, errNoDataStore) {
				t.Fatal(opened)
			}
			load(t, st)
			if w.opens != 1 {
				t.Error("not opened")
			}
		})
	})
	t.Run("a kind without a driver is named with those that have one", func(t *testing.T) {
		w, st := newWorld(nil)
		w.object.Spec.Driver = v1alpha1.DriverNATS
		_, opened, err := st.load(t.Context())
		if v := judge(opened, nil); err != nil || v.ready || v.reason != reason.DriverNotSupported ||
			v.message != `driver "NATS" of DataStore one is not supported, only etcd` {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

func TestConfigOf(t *testing.T) {
	ref := func(secret, key string) v1alpha1.ContentRef {
		return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{
			SecretReference: corev1.SecretReference{Namespace: "ns", Name: secret}, KeyPath: key,
		}}
	}
	key := ref("ca", "tls.key")
	ds := &v1alpha1.DataStore{Spec: v1alpha1.DataStoreSpec{
		Driver: v1alpha1.DriverEtcd, Endpoints: []string{"etcd:2379"},
		BasicAuth: &v1alpha1.BasicAuth{Username: v1alpha1.ContentRef{Content: []byte("admin")}, Password: ref("auth", "password")},
		TLSConfig: &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: ref("ca", "tls.crt"), PrivateKey: &key},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: ref("client", "tls.crt"), PrivateKey: ref("client", "tls.key")},
		},
	}}
	both := v1alpha1.ContentRef{Content: []byte("in place"), SecretReference: ds.Spec.BasicAuth.Password.SecretReference}
	secrets := func() map[string]map[string][]byte {
		return map[string]map[string][]byte{
			"ns/ca": bytesOf("tls.crt", "CA", "tls.key", "CAKEY"), "ns/client": bytesOf("tls.crt", "C", "tls.key", "CKEY"),
			"ns/auth": bytesOf("password", "secret"),
		}
	}
	for sentence, test := range map[string]struct {
		change func(ds *v1alpha1.DataStore, secrets map[string]map[string][]byte)
		verdict
	}{
		"all references are there": {nil, verdict{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}},
		"a content in place wins": {func(ds *v1alpha1.DataStore, s map[string]map[string][]byte) {
			ds.Spec.BasicAuth.Password = both
			delete(s, "ns/auth")
		}, verdict{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}},
		"a missing Secret of a certificate is named": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s, "ns/ca") },
			verdict{false, v1alpha1.DataStoreReasonTLSConfigFailed, "spec.tlsConfig.certificateAuthority.certificate: secret ns/ca is missing"},
		},
		"a missing key is named": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s["ns/client"], "tls.key") },
			verdict{false, v1alpha1.DataStoreReasonTLSConfigFailed, `spec.tlsConfig.clientCertificate.privateKey: secret ns/client has no key "tls.key", or an empty one`},
		},
		"a missing password is basic authentication's": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s, "ns/auth") },
			verdict{false, v1alpha1.DataStoreReasonBasicAuthFailed, "spec.basicAuth.password: secret ns/auth is missing"},
		},
		"neither content nor reference is named": {
			func(ds *v1alpha1.DataStore, _ map[string]map[string][]byte) {
				ds.Spec.BasicAuth.Username = v1alpha1.ContentRef{}
			},
			verdict{false, v1alpha1.DataStoreReasonBasicAuthFailed, "spec.basicAuth.username: has neither content nor secretReference"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			ds, s := ds.DeepCopy(), secrets()
			if test.change != nil {
				test.change(ds, s)
			}
			cfg, err := configOf(ds, func(namespace, n string) (*corev1.Secret, error) {
				data, ok := s[namespace+"/"+n]
				if !ok {
					return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, n)
				}
				return &corev1.Secret{Data: data}, nil
			})
			if got := judge(err, nil); got != test.verdict {
				t.Errorf("got %+v\nwant %+v", got, test.verdict)
			}
			if err == nil && (string(cfg.CA) != "CA" || string(cfg.CAKey) != "CAKEY" || string(cfg.ClientKey) != "CKEY" || string(cfg.Username) != "admin") {
				t.Error("not what the Secrets hold")
			}
			if out := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); out != "DataStore  DataStore  DataStore " {
				t.Errorf("prints %q", out)
			}
		})
	}
	t.Run("a management API that is away is not the DataStore's fault", func(t *testing.T) {
		_, err := configOf(ds, func(string, string) (*corev1.Secret, error) {
			return nil, &intent.Unavailable{Dependency: "kubernetes", Err: errors.New("refused")}
		})
		var bad *driver.ConfigError
		if err == nil || errors.As(err, &bad) {
			t.Error(err)
		}
	})
}

// observed is a driver whose survey the test says.
type observed struct {
	*line
	seen map[string]string
}

func (o *observed) Survey(context.Context, ...string) (map[string]string, error) { return o.seen, nil }

func TestSurvey(t *testing.T) {
	w, st := newWorld(func() error { return nil })
	o := &observed{seen: map[string]string{"same": "1", "changed": "2"}}
	st.of.drivers[v1alpha1.DriverEtcd] = func(driver.Config) (driver.Driver, error) {
		o.line = &line{check: func() error { return nil }}
		return o, nil
	}
	for n, fingerprint := range map[string]string{"same": "1", "changed": "1", "gone": "1", "unknown": ""} {
		key := events.Tenant("team", n)
		st.joins(key)
		st.leftAs(key, state.Datastore{DataStore: "one", Schema: n, Account: fingerprint})
	}
	st.joins(events.Tenant("team", "waits"))
	st.leftAs(events.Tenant("team", "elsewhere"), state.Datastore{Schema: "elsewhere", Account: "1"})
	if _, opened, err := st.load(t.Context()); opened != nil || err != nil {
		t.Fatal(opened, err)
	}
	w.woken = nil
	st.survey(t.Context())
	slices.Sort(w.woken)
	w.woken = slices.DeleteFunc(w.woken, func(key string) bool { return key == events.DataStore("one").String() })
	if want := []string{"team/changed", "team/gone"}; !slices.Equal(w.woken, want) {
		t.Errorf("woken are %q, not %q", w.woken, want)
	}
}
