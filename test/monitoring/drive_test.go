package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

var errNotYet = errors.New("not yet")

// create orders a tenant.
func create(t *testing.T, n string) events.Key {
	t.Helper()
	e.Apply(t, env.Tenant(n, "v1.36.3"))
	return events.Tenant(metav1.NamespaceDefault, n)
}

// remove deletes a tenant and waits until it is gone.
func remove(t *testing.T, key events.Key) {
	t.Helper()
	e.Delete(t, key)
	e.Gone(t, key)
}

// refused sends a command that no tenant can be made of, without asking for an answer: it becomes a dead letter.
func refused(t *testing.T, n string) {
	t.Helper()
	o := env.JSON(t, env.Tenant(n, "v1.36.3"))
	o["spec"].(map[string]any)["kubernetes"].(map[string]any)["version"] = "newest"
	e.Command(t, events.Tenant(metav1.NamespaceDefault, n), event.TenantApply, o)
}

// byHTTP orders a change of a tenant's labels by HTTP, and sends a request that has no token.
func byHTTP(t *testing.T, key events.Key) {
	t.Helper()
	secret, err := os.ReadFile(filepath.Join(e.Local.Dir(), "http", "token"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(env.JSON(t, env.Tenant(key.Name, "v1.36.3")))
	if err != nil {
		t.Fatal(err)
	}
	for bearer, want := range map[string]bool{strings.TrimSpace(string(secret)): true, "none": false} {
		env.Eventually(t, "an answer by HTTP", func() error {
			url := "http://" + e.HTTP().Address + "/events"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(data))
			if err != nil {
				return err
			}
			for k, v := range map[string]string{
				"Authorization": "Bearer " + bearer, "Content-Type": "application/json",
				"ce-specversion": "1.0", "ce-id": fmt.Sprint(time.Now().UnixNano()), "ce-source": "/test", "ce-type": event.TenantApply, "ce-subject": key.String(),
			} {
				req.Header.Set(k, v)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			_ = resp.Body.Close()
			if taken := resp.StatusCode < http.StatusBadRequest; taken != want {
				return errors.New(resp.Status)
			}
			return nil
		})
	}
}

// limit sets an annotation of the default DataStore until undo is called.
func limit(t *testing.T, annotation, value string) (undo func()) {
	t.Helper()
	set := func(v any) {
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: v}}}
		data, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "patch", "datastore", stack.DefaultDataStore, "--type=merge", "-p", string(data))
	}
	set(value)
	return func() { set(nil) }
}

// awayStore makes a DataStore that nobody answers for, which undo removes.
func awayStore(t *testing.T, n string) (undo func()) {
	t.Helper()
	o := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta()}
	e.Get(t, kube.DataStores, "", stack.DefaultDataStore, o)
	o.ObjectMeta = metav1.ObjectMeta{Name: n}
	o.Spec.Endpoints = []string{"127.0.0.3:1"}
	if err := e.Admin.Create(t.Context(), kube.DataStores, o); err != nil {
		t.Fatal(err)
	}
	return func() { e.Kubectl(t, e.Local.Kubeconfig("admin"), "delete", "datastore", n) }
}

// busy makes an installation busy, until undo is called: tenants come by NATS and HTTP, a command is refused, a DataStore is away, another
// has limits.
func busy(t *testing.T) (undo func()) {
	t.Helper()
	unlimited, removeStore := limit(t, name.AnnotationMaxTenants, "10"), awayStore(t, "away")
	refused(t, "refused")
	first, second := create(t, "busy-0"), create(t, "busy-1")
	e.Ready(t, first)
	byHTTP(t, first)
	e.Ready(t, second)
	return func() {
		remove(t, first)
		remove(t, second)
		removeStore()
		unlimited()
	}
}
