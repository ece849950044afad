package e2e

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestWatchesOfWhatIsQuiet begins watches without a resource version, as conformance's Watchers do, on resources that nobody writes. An API
// server that doesn't know whether etcd reports the progress of watches answers them with an error after 3 s (etcd-io/etcd#21663,
// kubernetes#139220): the case with etcd before v3.6.12, for a user who isn't root.
func TestWatchesOfWhatIsQuiet(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "quiet")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	kubeconfig := e.Kubeconfig(t, key)
	quiet := []string{"api/v1/limitranges", "api/v1/podtemplates", "apis/policy/v1/poddisruptionbudgets", "apis/batch/v1/cronjobs"}
	var watches sync.WaitGroup
	for n := range 20 {
		watches.Go(func() {
			// It ends by itself after 4 s, later than an API server gives up that waits for the progress.
			out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "--raw", "/"+quiet[n%len(quiet)]+"?watch=1&timeoutSeconds=4")
			if err != nil || strings.Contains(out, "ERROR") {
				t.Errorf("watch %d, of %s: %v: %s", n, quiet[n%len(quiet)], err, out)
			}
		})
	}
	watches.Wait()
	t.Run("a page's token expires once etcd is compacted", func(t *testing.T) {
		clients := clientsOf(t, key)
		page, err := clients.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
		must(t, err)
		// What datastore does every few minutes.
		const compacted = "compact_rev_key"
		root := e.RootEtcd(t)
		revision, err := strconv.ParseInt(page.ResourceVersion, 10, 64)
		must(t, err)
		_, err = root.Put(t.Context(), compacted, strconv.FormatInt(revision+1, 10))
		must(t, err)
		_, err = root.Compact(t.Context(), revision+1)
		must(t, err)
		env.Eventually(t, "the token to expire", func() error {
			_, err := clients.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.Continue})
			if apierrors.IsResourceExpired(err) {
				return nil
			}
			return cmp.Or(err, errNotYet)
		})
	})
	var store v1alpha1.DataStore
	get(t, kube.DataStores, "", "default", &store)
	for _, c := range store.Status.Conditions {
		if c.Type == v1alpha1.DataStoreConditionValid && c.Reason != v1alpha1.DataStoreReasonValid {
			t.Errorf("%+v", c)
		}
	}
	e.Delete(t, key)
	e.Gone(t, key)
}
