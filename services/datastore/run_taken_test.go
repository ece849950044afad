package datastore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	d := databases["etcd"](t)
	in := install(t)
	in.object("taken", d)
	stop := in.run()
	defer func() { stop() }()
	ctx := t.Context()
	look := func(n string) (o json.RawMessage) {
		t.Helper()
		in.must(in.kube.Get(ctx, kube.Secrets, in.namespace, n, &o))
		return o
	}
	takes := func(n string) json.RawMessage {
		t.Helper()
		in.must(in.kube.Create(ctx, kube.Secrets, &corev1.Secret{
			TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: n},
			Data: map[string][]byte{"password": []byte("of a shop")},
		}))
		return look(n)
	}
	goes := func(n string) {
		t.Helper()
		_, err := in.kube.Delete(ctx, kube.Secrets, in.namespace, n, metav1.DeleteOptions{})
		in.must(err)
	}
	unchanged := func(t *testing.T, n string, before json.RawMessage) {
		t.Helper()
		if after := look(n); string(after) != string(before) {
			t.Errorf("%s\nwas\n%s", after, before)
		}
	}
	taken := func(t *testing.T, x *tenant, n string) {
		t.Helper()
		drivertest.Eventually(t, func() error {
			if s, _ := x.state(); s.Failure == nil || s.Failure.Reason != reason.NameTaken || s.Failure.Permanent ||
				!strings.Contains(s.Failure.Message, "Secret "+in.namespace+"/"+n) {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	for i, secret := range []func(string) string{name.DatastoreConfig, name.DatastoreCertificate} {
		x := in.tenant(fmt.Sprint("taken-", i))
		x.t.Spec.DataStore = "taken"
		n := secret(x.key.Name)
		t.Run("a Secret that somebody else made before is left as it is, told, and the tenant goes on once it is gone: "+n, func(t *testing.T) {
			before := takes(n)
			x.accept()
			taken(t, x, n)
			unchanged(t, n, before)
			goes(n)
			x.await(event.Provisioned, &event.DatastoreProvisioned{})
		})
		t.Run("one made in the place of the tenant's is left by repair and by deletion: "+n, func(t *testing.T) {
			stop()
			goes(n)
			before := takes(n)
			stop = in.run()
			in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, other(secret)(x.key.Name), map[string]any{"data": map[string]any{"x": []byte("y")}}, nil))
			taken(t, x, n)
			unchanged(t, n, before)
			x.remove()
			removed := event.Removals{}
			x.await(event.Removed, &removed)
			unchanged(t, n, before)
			if removed.Removed["datastore/Secret"] != 1 {
				t.Errorf("%+v", removed)
			}
			if _, err := x.secret(other(secret)(x.key.Name)); !apierrors.IsNotFound(err) {
				t.Errorf("the tenant's own is left: %v", err)
			}
		})
	}
}

// other is the name of the tenant's other Secret.
func other(secret func(string) string) func(string) string {
	if secret("x") == name.DatastoreConfig("x") {
		return name.DatastoreCertificate
	}
	return name.DatastoreConfig
}
