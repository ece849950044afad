package certs

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestSecretsOfOthers(t *testing.T) {
	admin, limited, _ := cluster(t)
	ctx, r := t.Context(), newRig(t, limited)
	r.certs()
	look := func(n string) (o json.RawMessage) {
		t.Helper()
		if err := admin.Get(ctx, kube.Secrets, "default", n, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	takes := func(n string) json.RawMessage {
		t.Helper()
		o := &corev1.Secret{
			TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n},
			Data: map[string][]byte{"password": []byte("of a shop")},
		}
		if err := admin.Create(ctx, kube.Secrets, o); err != nil {
			t.Fatal(err)
		}
		return look(n)
	}
	goes := func(n string) {
		t.Helper()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", n, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	taken := func(t *testing.T, n string) {
		t.Helper()
		var f event.StepFailed
		r.fact(event.Failed, &f)
		if f.Reason != reason.NameTaken || !f.Retrying || !strings.Contains(f.Message, "Secret default/"+n) {
			t.Errorf("%+v", f)
		}
	}
	unchanged := func(t *testing.T, n string, before json.RawMessage) {
		t.Helper()
		if after := look(n); string(after) != string(before) {
			t.Errorf("%s\nwas\n%s", after, before)
		}
	}
	var issued event.CertsIssued
	t.Run("a Secret that somebody else made before is left as it is, told, and the tenant goes on once it is gone", func(t *testing.T) {
		r.t = t
		before := takes(name.CA("demo"))
		r.accept(1)
		taken(t, name.CA("demo"))
		unchanged(t, name.CA("demo"), before)
		goes(name.CA("demo"))
		r.expose("192.0.2.7:6443")
		r.fact(event.Issued, &issued)
	})
	n := name.SchedulerKubeconfig("demo")
	t.Run("so is one that was made in the place of the tenant's", func(t *testing.T) {
		poll.True(t, "another writer is quicker than the repair", func() bool {
			goes(n)
			o := &corev1.Secret{
				TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}, Data: map[string][]byte{"password": []byte("of a shop")},
			}
			return admin.Create(ctx, kube.Secrets, o) == nil
		})
		before := look(n)
		poll.True(t, "it is told", func() bool {
			s, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			return err == nil && s.Failure != nil && s.Failure.Reason == reason.NameTaken && strings.Contains(s.Failure.Message, "Secret default/"+n)
		})
		unchanged(t, n, before)
	})
	t.Run("the tenant's deletion leaves it, also with labels like the tenant's, and waits for a Secret that a finalizer keeps", func(t *testing.T) {
		r.t = t
		patch := map[string]any{"metadata": map[string]any{
			"labels":          name.Labels("demo", name.ComponentSchedulerKubeconfig, key.Partition()),
			"ownerReferences": []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "corner", UID: "f00d", Controller: new(true)}},
		}}
		if err := admin.MergePatch(ctx, kube.Secrets, "default", n, patch, nil); err != nil {
			t.Fatal(err)
		}
		before := look(n)
		keep := func(finalizers ...string) {
			t.Helper()
			patch := map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
			if err := admin.MergePatch(ctx, kube.Secrets, "default", name.CA("demo"), patch, nil); err != nil {
				t.Fatal(err)
			}
		}
		keep("example.com/hold")
		r.do("intake", r.intake, loop.Outcome{
			Step: event.Deleting, Data: generation{2, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
			Facts: []loop.Tell{{What: event.Deleting}},
		})
		poll.True(t, "certs knows of the deletion", func() bool {
			s, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			return err == nil && s.Wait.Reason == reason.EarlierRemoval
		})
		about := event.About{Namespace: key.Namespace, Name: key.Name, UID: uid, Generation: 2}
		if err := r.bus("datastore").Tell(ctx, key, 2, "1", event.Removed, event.Removals{About: about, Removed: map[string]int{}}); err != nil {
			t.Fatal(err)
		}
		poll.True(t, "certs names the Secret and the finalizer", func() bool {
			s, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			return err == nil && s.Wait.On == kube.Secrets.Kind && s.Wait.Reason == reason.ObjectHeld && s.Failure == nil &&
				strings.Contains(s.Wait.Text, "Secret default/"+name.CA("demo")) && strings.Contains(s.Wait.Text, `"example.com/hold"`)
		})
		keep()
		poll.True(t, "certs has removed its part", func() bool {
			s, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			return err == nil && s.Step == event.Removed
		})
		unchanged(t, n, before)
		if err := admin.Get(ctx, kube.Secrets, "default", name.CA("demo"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("the tenant's own is left: %v", err)
		}
	})
}
