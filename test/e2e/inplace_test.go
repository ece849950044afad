package e2e

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// brokenInPlace has a tenant set back to a backup that somebody has damaged.
func brokenInPlace(t *testing.T, key events.Key, dir, backup, identity string) {
	_, path, _ := strings.Cut(backup, "/")
	data := filepath.Join(dir, path, "data.age")
	whole, err := os.ReadFile(data)
	must(t, err)
	damaged := append([]byte(nil), whole...)
	damaged[len(damaged)/2] ^= 1
	must(t, os.WriteFile(data, damaged, 0o600))
	defer func() { must(t, os.WriteFile(data, whole, 0o600)) }()
	code, out := stoker(t, "restore", backup, "--identity", identity, "--in-place", "--wait", "--timeout", "2m")
	if code != 1 || !strings.Contains(out, "the tenant keeps its data") {
		t.Errorf("exit code %d: %s", code, out)
	}
	e.Ready(t, key)
	if told := e.Facts(t, key); slices.Contains(told, "datastore.restoring") || slices.Contains(told, "workload.slept") {
		t.Errorf("the tenant was to stop: %v", told)
	}
}

// setBack changes what a tenant keeps, has it set back to a backup while the service that does it is killed, and looks at what is there, and at
// what a client saw that went on watching.
func setBack(t *testing.T, datastore *env.Process, key events.Key, c *kubernetes.Clientset, backup, identity string, want map[string]string) {
	change := func(ctx context.Context) error {
		configMaps := c.CoreV1().ConfigMaps("default")
		all, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: "moving=true"})
		if err != nil || len(all.Items) < 2 {
			return errors.Join(err, errNotYet)
		}
		all.Items[0].Data = map[string]string{"changed": "since"}
		_, err1 := configMaps.Update(ctx, &all.Items[0], metav1.UpdateOptions{})
		err2 := configMaps.Delete(ctx, all.Items[1].Name, metav1.DeleteOptions{})
		_, err3 := configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "new-since", Labels: map[string]string{"moving": "true"}},
		}, metav1.CreateOptions{})
		return errors.Join(err1, err2, err3)
	}
	must(t, change(t.Context()))
	changed := contents(t, c)
	seen := lastRevision(t, c)

	ctx, stop := context.WithCancel(t.Context())
	f := informers.NewSharedInformerFactory(c, 0)
	w := &writing{c: c}
	configMaps := f.Core().V1().ConfigMaps()
	_, err := configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.see, UpdateFunc: func(_, now any) { w.see(now) }})
	must(t, err)
	f.Start(ctx.Done())
	defer func() { stop(); f.Shutdown() }()
	f.WaitForCacheSync(ctx.Done())

	began := time.Now()
	if code, out := stoker(t, "restore", backup, "--identity", identity, "--in-place"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	e.Fact(t, key, name.ServiceWorkload, event.Slept)
	stopped := time.Now()
	datastore.Kill()
	datastore.Restart(t)
	e.Fact(t, key, name.ServiceDatastore, event.Restored)
	e.Ready(t, key)
	t.Logf("it was set back %s after it was asked for, and worked again %s after it had stopped", time.Since(began).Round(time.Second), time.Since(stopped).Round(time.Second))

	if have := contents(t, c); !maps.Equal(have, want) || maps.Equal(have, changed) {
		t.Errorf("%d objects, not the %d of the backup", len(have), len(want))
	}
	if now := lastRevision(t, c); now <= seen {
		t.Errorf("revision %d after it was set back, and %d before", now, seen)
	}
	env.Eventually(t, "the client that watches to know what is there", func() error {
		known := map[string]bool{}
		for _, o := range configMaps.Informer().GetStore().List() {
			if o := o.(*corev1.ConfigMap); o.Labels["moving"] != "" {
				known[o.Name] = true
			}
		}
		for n := range want {
			if !known[n] {
				return errNotYet
			}
		}
		if len(known) != len(want) {
			return errNotYet
		}
		return nil
	})
	if n := w.older.Load(); n > 0 {
		t.Errorf("the client that watches saw %d older objects", n)
	}
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written-again"}} // writes go on
	_, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), again, metav1.CreateOptions{})
	must(t, err)
}
