package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// moveData has a tenant with a quota, whose pods so have gates, move from one etcd to another and back while a client counts.
func moveData(t *testing.T, i *installation) {
	const n, other, objects = "moves", "stoker-etcd-other", 300
	begun := time.Now()
	if err := i.runHelm(t.Context(), i.etcd(other, "--set", "datastore.name=other,replicas=1")...); err != nil {
		t.Fatal(err)
	}
	i.report.took(t, begun, "a second etcd, of one member")
	o := i.byNodePort(n)
	o.Spec.DataStore = "default"
	o.Annotations = map[string]string{name.AnnotationQuotaObjects: "20000", name.AnnotationMigrationGrace: "0"}
	begun = time.Now()
	i.apply(t, o)
	i.ready(t, n)
	i.report.took(t, begun, "a tenant with a quota")
	c, err := kubernetes.NewForConfig(i.client(t, n))
	if err != nil {
		t.Fatal(err)
	}
	maps := c.CoreV1().ConfigMaps("default")
	for k := range objects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object-" + strconv.Itoa(k), Labels: map[string]string{"moves": "yes"}}}
		if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	asked, counting := i.keepAsking(t, n), keepCounting(t, maps)
	for _, to := range []string{"other", "default"} {
		i.moveTo(t, n, to)
	}
	counting.end(t, i.report)
	asked.end(t, i.report, "two moves")
	if all, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "moves=yes"}); err != nil || len(all.Items) != objects {
		t.Errorf("%d of %d objects: %v", len(all.Items), objects, err)
	}
	i.remove(t, n)
	deleted, err := i.objects.Delete(t.Context(), kube.DataStores, "", "other", metav1.DeleteOptions{})
	if err == nil && !deleted {
		err = errors.New("it isn't there")
	}
	if err != nil {
		t.Errorf("DataStore other: %v", err)
	}
	if err := i.runHelm(t.Context(), "uninstall", other, "--wait"); err != nil {
		t.Error(err)
	}
}

// moveTo moves a tenant's data.
func (i *installation) moveTo(t *testing.T, n, to string) {
	t.Helper()
	begun := time.Now()
	patch := map[string]any{"spec": map[string]any{"dataStore": to}}
	if err := i.objects.MergePatch(t.Context(), kube.TenantControlPlanes, namespace, n, patch, nil); err != nil {
		t.Fatal(err)
	}
	poll.Nil(t, "the data to be in DataStore "+to, func() error {
		o, err := i.get(t.Context(), n)
		if err == nil && o.Status.Storage.DataStoreName != to {
			err = fmt.Errorf("they are in %s: %+v", o.Status.Storage.DataStoreName, o.Status.Conditions)
		}
		return err
	})
	i.ready(t, n)
	i.onlyPods(t, n, 1)
	i.report.took(t, begun, "its data moved to DataStore %s, pods replaced twice", to)
}

// counter is a client that counts in an object ten times a second.
type counter struct {
	maps          typedcorev1.ConfigMapInterface
	done, refused int
	stop, stopped chan struct{}
}

// keepCounting begins to count; end ends it.
func keepCounting(t *testing.T, maps typedcorev1.ConfigMapInterface) *counter {
	t.Helper()
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := &counter{maps: maps, stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(c.stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
			patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, c.done+1)
			if _, err := maps.Patch(t.Context(), "counter", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				c.refused++
				continue
			}
			c.done++
		}
	}()
	return c
}

// end looks whether what was acknowledged is there.
func (c *counter) end(t *testing.T, r *report) {
	t.Helper()
	close(c.stop)
	<-c.stopped
	object, err := c.maps.Get(t.Context(), "counter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if have := object.Data["n"]; have != strconv.Itoa(c.done) && have != strconv.Itoa(c.done+1) { // the last one may not have been answered
		t.Errorf("the counter is %s, and %d writes were acknowledged", have, c.done)
	}
	r.line(t, fmt.Sprintf("    of its client's writes, ten a second: %d done, %d refused", c.done, c.refused))
}
