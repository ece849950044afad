package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// adopted waits until intake has put its finalizer on a tenant and written its spec.
func adopted(t *testing.T, key events.Key) {
	t.Helper()
	env.Eventually(t, key.String()+" to be adopted", func() error {
		o := there(t, key)
		st, err := e.Operator.State(t.Context(), key, events.KeySpec)
		if err == nil && (st.UID != o.Metadata.UID || !slices.Contains(o.Metadata.Finalizers, name.FinalizerTenant)) {
			err = fmt.Errorf("finalizers %v, spec of %s, object %s", o.Metadata.Finalizers, st.UID, o.Metadata.UID)
		}
		return err
	})
}

// TestATenantMadeAgainIsAdoptedBesideTheEndOfTheEarlierOne has the last fact of a tenant's deletion, and the object that was made again
// under its name, come to the same turn.
func TestATenantMadeAgainIsAdoptedBesideTheEndOfTheEarlierOne(t *testing.T) {
	startIntake(t, "a")
	key, o := tenantOf(t, "again", "again")
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	adopted(t, key)
	earlier := there(t, key).Metadata.UID
	if _, err := e.Admin.Delete(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Fact(t, key, name.ServiceIntake, event.Deleting)
	hold(t, key) // nobody does: the object is gone, and what was made for it is being removed

	// A command keeps the tenant's lane busy until everything else has come.
	slow := o.DeepCopy()
	slow.Name, slow.Labels = "probe", map[string]string{"slow": ""}
	hook := hang(t, key.Namespace, 30, "has(object.metadata.labels) && 'slow' in object.metadata.labels", admissionv1.Create)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, slow.DeepCopy()) })
	certs, err := e.Bus(name.ServiceCerts)
	if err != nil {
		t.Fatal(err)
	}
	defer certs.Close()
	slow.Name = key.Name
	busy := command{key: key, verb: event.Apply, data: env.JSON(t, slow)}
	env.Publish(t, e.Portal, busy.encode(t, ""))
	env.Eventually(t, "the webhook to be asked", func() error {
		if writes, _ := hook.asked(); writes == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	removed := event.Removals{About: event.About{Namespace: key.Namespace, Name: key.Name, UID: earlier, Generation: 1}, Removed: map[string]int{}}
	if err := certs.Tell(t.Context(), key, 1, "certs-removed-again", event.Removed, removed); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the fact to be delivered", func() error {
		c, err := e.JetStream().Consumer(t.Context(), events.StreamFacts, events.Consumer(name.ServiceIntake, key.Partition()))
		if err == nil && c.CachedInfo().NumAckPending == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	next, beside := o.DeepCopy(), env.Tenant("seen-after-again", "v1.36.3")
	for _, o := range []*v1alpha1.TenantControlPlane{next, beside} { // the watch shows them in this order
		if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o); err != nil {
			t.Fatal(err)
		}
	}
	adopted(t, events.Tenant(beside.Namespace, beside.Name))
	hook.say()
	e.Fact(t, key, name.ServiceIntake, event.Removed)
	adopted(t, key)
}
