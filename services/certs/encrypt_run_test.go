package certs

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestTheSecretOfTheEncryption(t *testing.T) {
	admin, limited, _ := cluster(t)
	ctx := t.Context()
	r := newRig(t, limited)
	r.certs()
	spec := &v1alpha1.TenantControlPlane{}
	spec.Spec.Kubernetes.APIServer = &v1alpha1.APIServerSpec{Encryption: &v1alpha1.EncryptionSpec{}}
	v1alpha1.Default(spec)
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Accepted, Data: generation{1, state.Tenant{Namespace: key.Namespace, Name: key.Name, Spec: spec.Spec}},
		Facts: []loop.Tell{{What: event.Accepted}},
	})
	r.expose("192.0.2.7:6443")
	var told event.CertsIssued
	r.fact(event.Issued, &told)
	read := func() *corev1.Secret {
		t.Helper()
		s := &corev1.Secret{}
		if err := admin.Get(ctx, kube.Secrets, key.Namespace, "demo-encryption", s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	failed := func() string {
		t.Helper()
		st, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
		if err != nil {
			t.Fatal(err)
		}
		if st.Failure == nil {
			return ""
		}
		return st.Failure.Reason
	}

	made := read()
	if e := r.state().Encryption; e == nil || e.Revision != 1 || e.Phase != state.EncryptionSwitching || told.Checksums[name.ComponentEncryption] != e.Checksum {
		t.Fatalf("%+v, told %v", e, told.Checksums)
	}
	if !slices.Contains(made.Finalizers, name.FinalizerEncryption) || len(made.Data) != 1 || len(made.Data[name.KeyEncryption(1)]) == 0 {
		t.Errorf("finalizers %v, %d keys", made.Finalizers, len(made.Data))
	}

	// Gone by force.
	none := map[string]any{"metadata": map[string]any{"finalizers": nil}}
	if err := admin.MergePatch(ctx, kube.Secrets, key.Namespace, made.Name, none, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Delete(ctx, kube.Secrets, key.Namespace, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "the state names the lost keys", func() bool { return failed() == reason.EncryptionKeysLost })
	if err := admin.Get(ctx, kube.Secrets, key.Namespace, made.Name, &metav1.PartialObjectMetadata{}); !apierrors.IsNotFound(err) {
		t.Errorf("another is made: %v", err)
	}

	restored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: made.Name, Labels: made.Labels, OwnerReferences: made.OwnerReferences},
		Data:       made.Data,
	}
	if err := admin.Create(ctx, kube.Secrets, restored); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "all is well again", func() bool { return failed() == "" })
	if s := read(); !slices.Contains(s.Finalizers, name.FinalizerEncryption) || name.Checksum(s.Data) != name.Checksum(made.Data) {
		t.Errorf("finalizers %v", s.Finalizers)
	}

	// Deleted with the tenant, although somebody's deletion was held before.
	if _, err := admin.Delete(ctx, kube.Secrets, key.Namespace, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.DeletionTimestamp == nil {
		t.Error("it isn't held by its finalizer")
	}
	r.do("intake", r.intake, loop.Outcome{
		Step: event.Deleting, Data: generation{2, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
		Facts: []loop.Tell{{What: event.Deleting}},
	})
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: uid, Generation: 2}
	if err := r.bus("datastore").Tell(ctx, key, 2, "1", event.Removed, event.Removals{About: about}); err != nil {
		t.Fatal(err)
	}
	poll.True(t, "it goes with the tenant", func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, kube.Secrets, key.Namespace, made.Name, &metav1.PartialObjectMetadata{}))
	})
}
