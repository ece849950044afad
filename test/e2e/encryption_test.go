package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestEncryptionAtRest has a tenant with two replicas whose Secrets are encrypted, by another key, and no more, while somebody writes and
// reads Secrets all the time and services are killed.
func TestEncryptionAtRest(t *testing.T) {
	env.Long(t, "services/certs shows the steps of the encryption in a real API server, services/workload that each is a rollout")
	services := e.Services(t)
	key := events.Tenant("default", "encrypted")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.ControlPlane.Deployment.Replicas = new(int32(2))
	e.Apply(t, o)
	e.Ready(t, key)
	x := &atRest{key: key, etcd: tenantEtcd(t, key), clients: clientsOf(t, key)}
	x.prefix = "/" + datastoreOf(t, key).Schema + "/secrets/"
	x.create(t, "old")
	x.is(t, "plain", func(v []byte) bool { return !bytes.HasPrefix(v, []byte("k8s:enc:")) })
	traffic := x.traffic(t)

	t.Run("switched on, all Secrets are encrypted, those of before too", func(t *testing.T) {
		o.Spec.Kubernetes.APIServer = &v1alpha1.APIServerSpec{Encryption: &v1alpha1.EncryptionSpec{}}
		e.Apply(t, o)
		services[name.ServiceCerts].Kill()
		services[name.ServiceCerts].Restart(t)
		x.settles(t, "key1")
		e.Ready(t, key)
	})
	t.Run("rotated, nothing is encrypted by the key of before, which is gone", func(t *testing.T) {
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{name.AnnotationRotate: ""}}}
		must(t, e.Admin.MergePatch(t.Context(), kube.Secrets, key.Namespace, name.Encryption(key.Name), patch, nil))
		x.phase(t, state.EncryptionSwitching)
		services[name.ServiceWorkload].Kill()
		services[name.ServiceAddons].Kill()
		services[name.ServiceWorkload].Restart(t)
		services[name.ServiceAddons].Restart(t)
		x.settles(t, "key3")
		var s corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.Encryption(key.Name), &s)
		if len(s.Data) != 1 || strings.Contains(string(s.Data[name.KeyEncryption(5)]), "key1") {
			t.Errorf("%d configurations, or the key of before is among them", len(s.Data))
		}
	})
	t.Run("a Secret that somebody deletes stays", func(t *testing.T) {
		_, err := e.Admin.Delete(t.Context(), kube.Secrets, key.Namespace, name.Encryption(key.Name), metav1.DeleteOptions{})
		must(t, err)
		x.settles(t, "key3")
	})
	t.Run("switched off, nothing is encrypted, and nothing of it is left", func(t *testing.T) {
		o.Spec.Kubernetes.APIServer = nil
		e.Apply(t, o)
		env.Eventually(t, "the Secret of the keys to go", func() error {
			err := e.Admin.Get(t.Context(), kube.Secrets, key.Namespace, name.Encryption(key.Name), &metav1.PartialObjectMetadata{})
			if err == nil {
				return errNotYet
			}
			return nil
		})
		x.is(t, "plain", func(v []byte) bool { return !bytes.HasPrefix(v, []byte("k8s:enc:")) })
		e.Ready(t, key)
	})
	for _, failure := range traffic() {
		t.Error(failure)
	}
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key)
}

// atRest is the tenant, and what its etcd has.
type atRest struct {
	key     events.Key
	etcd    *clientv3.Client
	prefix  string
	clients kubernetes.Interface
}

func clientsOf(t *testing.T, key events.Key) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig(t, key))
	must(t, err)
	config.QPS = -1
	secure, err := rest.TLSConfigFor(config)
	must(t, err)
	// Each request is a connection of its own, and so reaches one or the other of the replicas.
	each := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	clients, err := kubernetes.NewForConfigAndClient(config, each)
	must(t, err)
	return clients
}

func (x *atRest) create(t *testing.T, n string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: n}, StringData: map[string]string{"a": "b"}}
	_, err := x.clients.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{})
	must(t, err)
}

// encryption is how certs says that the encryption is.
func (x *atRest) encryption(ctx context.Context) (*state.Encryption, error) {
	var c state.Certs
	s := e.State(ctx, x.key, name.ServiceCerts)
	if s == nil {
		return nil, errNotYet
	}
	if err := json.Unmarshal(s.Data, &c); err != nil {
		return nil, err
	}
	if c.Encryption == nil {
		return nil, errors.New("there is no encryption")
	}
	return c.Encryption, nil
}

func (x *atRest) phase(t *testing.T, phase string) {
	t.Helper()
	env.Eventually(t, "the phase "+phase, func() error {
		is, err := x.encryption(t.Context())
		if err == nil && is.Phase != phase {
			err = fmt.Errorf("it is %s (%d)", is.Phase, is.Revision)
		}
		return err
	})
}

// settles waits until nothing is left to do, and checks that all is encrypted by a key.
func (x *atRest) settles(t *testing.T, by string) {
	t.Helper()
	prefix := []byte("k8s:enc:secretbox:v1:" + by + ":")
	x.phase(t, state.EncryptionSettled)
	x.is(t, by, func(v []byte) bool { return bytes.HasPrefix(v, prefix) })
}

// is checks how each Secret is stored.
func (x *atRest) is(t *testing.T, how string, right func(value []byte) bool) {
	t.Helper()
	r, err := x.etcd.Get(t.Context(), x.prefix, clientv3.WithPrefix())
	must(t, err)
	if len(r.Kvs) == 0 {
		t.Errorf("there is nothing at %s", x.prefix)
	}
	for _, kv := range r.Kvs {
		if !right(kv.Value) {
			t.Errorf("%s is not %s: %.40q", kv.Key, how, kv.Value)
		}
	}
}

// traffic writes and reads Secrets ten times a second until it is ended, and then says what failed.
func (x *atRest) traffic(t *testing.T) (end func() []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var failed []error
	var ended sync.WaitGroup
	n := 0
	ended.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		secrets := x.clients.CoreV1().Secrets("default")
		for ; ctx.Err() == nil; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := roundTrip(ctx, secrets, n); err != nil && ctx.Err() == nil {
				failed = append(failed, fmt.Errorf("%s, round %d: %w", time.Now().Format(time.TimeOnly), n, err))
			}
		}
	})
	return func() []error {
		cancel()
		ended.Wait()
		t.Logf("%d rounds", n)
		return failed
	}
}

// secretsOf is what a round needs of a client.
type secretsOf interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error)
	List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error)
	Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error)
}

// roundTrip reads a Secret, writes it with a number, reads it again and lists all, each at one or the other of the replicas.
func roundTrip(ctx context.Context, secrets secretsOf, n int) error {
	s, err := secrets.Get(ctx, "old", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	want := fmt.Sprint(n)
	s.StringData = map[string]string{"n": want}
	_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	if err != nil && !strings.Contains(err.Error(), "the object has been modified") { // it was written anew meanwhile
		return fmt.Errorf("update: %w", err)
	}
	again, readErr := secrets.Get(ctx, "old", metav1.GetOptions{})
	if readErr != nil {
		return fmt.Errorf("get again: %w", readErr)
	}
	if err == nil && string(again.Data["n"]) != want {
		return fmt.Errorf("%q was read in place of %s", again.Data["n"], want)
	}
	if _, err := secrets.List(ctx, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return nil
}
