package addons

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/service"
)

// logged is what the service logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) has(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), what)
}

// The tenant's API server is the management cluster as well: it holds the Secret with the kubeconfig.
func TestAWatchThatIsRefusedIsBegunAgain(t *testing.T) {
	tn := sharedTenant(t)
	objs, err := Render(tn.in)
	if err != nil {
		t.Fatal(err)
	}
	versions, err := tn.Apply(t.Context(), objs)
	if err != nil {
		t.Fatal(err)
	}
	management, err := kube.FromKubeconfig(tn.kubeconfig, kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer management.Close()
	ca, cert, certKey := apiserver.UnknownAdministrator(t)
	changed := func(change func(cluster, user *[]byte, key *[]byte)) []byte {
		cfg, err := clientcmd.Load(tn.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		user := cfg.AuthInfos["admin"]
		change(&cfg.Clusters["demo"].CertificateAuthorityData, &user.ClientCertificateData, &user.ClientKeyData)
		text, err := clientcmd.Write(*cfg)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	ways := []kube.Way{way(state.WayEndpoint, tn.in.Endpoint, "127.0.0.1")}
	for sentence, bad := range map[string][]byte{
		"the tenant's API doesn't know our certificate": changed(func(_, c, k *[]byte) { *c, *k = cert, certKey }),
		"we don't know the tenant's":                    changed(func(c, _, _ *[]byte) { *c = ca }),
	} {
		t.Run(sentence+", until the Secret is put right: then drift is told", func(t *testing.T) {
			key := events.Tenant("default", "demo")
			secret := &corev1.Secret{
				TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name.AdminKubeconfig("demo")},
				Data: map[string][]byte{name.KeySuperAdminConf: bad},
			}
			if err := management.Create(t.Context(), kube.Secrets, secret); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_, _ = management.Delete(t.Context(), kube.Secrets, "default", secret.Name, metav1.DeleteOptions{})
			}()
			log, wakes := &logged{}, make(chan loop.Wake, 1000)
			s := &svc{
				clients: &service.Clients{Kube: management, Log: slog.New(slog.NewTextHandler(log, nil))}, tenants: map[events.Key]*connection{},
				wake: func(_ events.Key, w loop.Wake) { wakes <- w },
			}
			defer s.keep(nil)
			turn := &loop.Turn{Key: key, Tenant: &state.Tenant{}}
			w, err := s.connect(t.Context(), turn, "of the Secret as it should be", ways, "")
			if err != nil {
				t.Fatal(err)
			}
			s.follow(key, w, versions)
			poll.True(t, "the watch has ended", func() bool { return log.has("watch inside the tenant ended") })
			patch := map[string]any{"data": map[string][]byte{name.KeySuperAdminConf: tn.kubeconfig}}
			if err := management.MergePatch(t.Context(), kube.Secrets, "default", secret.Name, patch, nil); err != nil {
				t.Fatal(err)
			}
			const ref = "ConfigMap/kube-system/kubelet-config"
			tn.raw(t, "DELETE", "/api/v1/namespaces/kube-system/configmaps/kubelet-config", "", "")
			poll.True(t, "the drift is told", func() bool {
				select {
				case wake := <-wakes:
					if wake.Kind == claimed { // as the loop would
						if w, err = s.connect(t.Context(), turn, w.access, ways, ""); err != nil {
							t.Fatal(err)
						}
						s.follow(key, w, versions)
					}
					return wake.Kind == drifted && wake.Object == ref && wake.Gone
				default:
					return false
				}
			})

			// The wake may be lost with a lease that lapses; the drift isn't.
			drift := w.drifted()
			if seen, drifted := drift[ref]; !drifted || seen != "" {
				t.Errorf("drift %v", drift)
			}
			after, err := w.api().Apply(t.Context(), objs)
			if err != nil {
				t.Fatal(err)
			}
			w.learn(after)
			w.repaired(drift)
			if left := w.drifted(); len(left) > 0 {
				t.Errorf("drift %v", left)
			}
			versions = after
		})
		t.Run(sentence+": that is waited for, and the next turn connects anew", func(t *testing.T) {
			c, err := NewCluster(bad, nil)
			if err != nil {
				t.Fatal(err)
			}
			key := events.Tenant("default", "demo")
			s := &svc{tenants: map[events.Key]*connection{key: {cluster: c}}}
			_, refused := c.Apply(t.Context(), objs[:1])
			if err := s.refused(key, refused); intent.Of(err) != intent.Wait || s.tenants[key] != nil {
				t.Errorf("%v, still connected: %t", err, s.tenants[key] != nil)
			}
		})
	}
}
