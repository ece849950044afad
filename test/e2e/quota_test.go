package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/status"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestQuota has a tenant write as much as it can into a small etcd that another one is in, too.
func TestQuota(t *testing.T) {
	env.Long(t, "TestQuotaOfBytes and TestQuotaOfObjects in services/datastore/gate show the quotas; this test fills a whole server")
	e.Services(t)
	server := etcdserver.StartWith(t, authority(t), "127.0.0.2", "--quota-backend-bytes=33554432")
	c := server.Config(t)
	content := func(b []byte) v1alpha1.ContentRef { return v1alpha1.ContentRef{Content: b} }
	store := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	store.Spec = v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd, Endpoints: c.Endpoints, TLSConfig: &v1alpha1.TLSConfig{
		CertificateAuthority: v1alpha1.CertKeyPair{Certificate: content(c.CA), PrivateKey: new(content(c.CAKey))},
		ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: content(c.ClientCert), PrivateKey: content(c.ClientKey)},
	}}
	must(t, e.Admin.Create(t.Context(), kube.DataStores, store))
	runaway, neighbour := events.Tenant("default", "runaway"), events.Tenant("default", "neighbour")
	for _, key := range []events.Key{runaway, neighbour} {
		o := env.Tenant(key.Name, "v1.36.3")
		o.Spec.DataStore = "small"
		if key == runaway {
			o.Annotations = map[string]string{name.AnnotationQuotaBytes: "4Mi"}
		}
		e.Apply(t, o)
	}
	e.Ready(t, runaway)
	e.Ready(t, neighbour)
	flooding, living := clientOf(t, e.Kubeconfig(t, runaway)), clientOf(t, e.Kubeconfig(t, neighbour))
	// quota waits for the condition. Until a tenant is known to be within its quota it is looked at often.
	quota := func(want metav1.ConditionStatus, why string) {
		t.Helper()
		env.Eventually(t, "the condition to be "+why, func() error {
			o := read(t, runaway)
			if c := meta.FindStatusCondition(o.Status.Conditions, status.ConditionQuota); c == nil || c.Status != want || c.Reason != why {
				return fmt.Errorf("it is %v", c)
			}
			return nil
		})
	}

	t.Run("what can't be read is said, and changes nothing", func(t *testing.T) {
		annotate(t, runaway, name.AnnotationQuotaObjects, "few")
		env.Eventually(t, "the quota to be refused", func() error {
			if s := e.State(t.Context(), runaway, "spec"); s == nil || s.Wait.Reason != reason.QuotaUnreadable {
				return errNotYet
			}
			return nil
		})
		annotate(t, runaway, name.AnnotationQuotaObjects, nil)
		e.Ready(t, runaway)
	})
	t.Run("a flood fills its quota, and nothing else", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		var made, refused atomic.Int64
		var writers sync.WaitGroup
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "overwritten"}}
		padding := strings.Repeat("x", 100_000)
		for w := range 4 {
			writers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d-%d", w, n)}, Data: map[string]string{"a": padding}}
					_, err := flooding.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{})
					switch {
					case err == nil:
						made.Add(1)
					case strings.Contains(err.Error(), "the quota of this cluster"):
						refused.Add(1)
					default:
						t.Errorf("refused for another reason: %v", err)
					}
				}
			})
		}
		writers.Go(func() {
			_, _ = flooding.CoreV1().ConfigMaps("default").Create(t.Context(), one, metav1.CreateOptions{})
			for n := 0; ctx.Err() == nil; n++ {
				o := one.DeepCopy()
				o.Data = map[string]string{"a": fmt.Sprint(n%10) + padding}
				_, _ = flooding.CoreV1().ConfigMaps("default").Update(t.Context(), o, metav1.UpdateOptions{})
			}
		})
		beats := 0
		for ctx.Err() == nil {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("beat-", beats)}}
			if _, err := living.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Errorf("the neighbour can't write: %v", err)
			}
			beats++
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		writers.Wait()
		is, err := server.Root.Status(t.Context(), server.Endpoint)
		must(t, err)
		t.Logf("%d objects of 100 kB made, %d refused; the etcd has %d bytes, %d in use; the neighbour wrote %d times", made.Load(), refused.Load(), is.DbSize, is.DbSizeInUse, beats)
		if made.Load() < 20 || made.Load() > 50 || refused.Load() == 0 {
			t.Error("a quota of 4 MiB isn't what bounds it")
		}
		if len(is.Errors) > 0 {
			t.Errorf("the etcd raises %v", is.Errors)
		}
	})
	t.Run("it is said, and leaders stay", func(t *testing.T) {
		quota(metav1.ConditionFalse, reason.QuotaFull)
		e.Ready(t, runaway)
		if code, out := stoker(t, "why", runaway.Name); code != 0 || !strings.Contains(out, "Quota is reached") {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
	t.Run("it can delete its way out", func(t *testing.T) {
		all := metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}
		must(t, flooding.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, all))
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Data: map[string]string{"a": strings.Repeat("x", 10_000)}}
		env.Eventually(t, "writes to go on", func() error {
			_, err := flooding.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{})
			return err
		})
		quota(metav1.ConditionTrue, reason.WithinQuota)
	})
	for _, key := range []events.Key{runaway, neighbour} {
		e.Delete(t, key)
		e.Gone(t, key)
		nothingLeft(t, key)
	}
}
