package mirror

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

var secrets = []test{
	{"Secrets that are there are updated, none is made", testSecretsUpdated},
	{"Secrets are made when asked for, and put right when changed", testSecretsMade},
	{"a remote Secret of somebody else's is left alone, and keeps nothing else back", testSecretForeign},
}

// secret makes a Secret; controller may be nil.
func (s *site) secret(of side, namespace, n, value string, controller *unstructured.Unstructured) *corev1.Secret {
	s.t.Helper()
	o := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: n, Labels: map[string]string{"of": value}, Annotations: map[string]string{"note": value},
	}, Data: map[string][]byte{"token": []byte(value)}}
	if controller != nil {
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(controller, things.GroupVersion.WithKind("Thing"))}
	}
	s.must(s.admin[of].Create(s.t.Context(), kube.Secrets, o))
	return o
}

func (s *site) secretIs(namespace, n string, ok func(*corev1.Secret) error) {
	s.t.Helper()
	eventually(s.t, "remote Secret "+n, func() error {
		o := &corev1.Secret{}
		if err := s.admin[remote].Get(s.t.Context(), kube.Secrets, namespace, n, o); err != nil {
			return err
		}
		return ok(o)
	})
}

// holds reports whether a Secret holds a value and nothing else, and belongs to an object.
func holds(value, key string, by *unstructured.Unstructured) func(*corev1.Secret) error {
	return func(o *corev1.Secret) error {
		annotations := maps.Clone(o.Annotations)
		hash := annotations[key]
		delete(annotations, key)
		if string(o.Data["token"]) != value || len(o.Data) != 1 || !maps.Equal(o.Labels, map[string]string{"of": value}) ||
			!maps.Equal(annotations, map[string]string{"note": value}) || len(hash) != 64 || !metav1.IsControlledBy(o, by) {
			return fmt.Errorf("labels %v, annotations %v, owners %v, %d keys", o.Labels, o.Annotations, o.OwnerReferences, len(o.Data))
		}
		return nil
	}
}

func testSecretsUpdated(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) {
		c.Kinds[0].Secrets = []string{"{name}-token"}
		c.RemoteSuffix, c.LocalNamespaceSuffix = "-eu", "-local"
	})
	there := s.thing(remote, "x-eu", 1)
	here := &unstructured.Unstructured{}
	eventually(t, "it comes down", func() error { return s.admin[local].Get(t.Context(), things, s.ns()+"-local", "x", here) })
	s.secret(local, s.ns()+"-local", "x-token", "one", here)
	s.secret(local, s.ns()+"-local", "x-other", "private", here)
	settled(t, "none is made", 500*time.Millisecond, func() error {
		var all corev1.SecretList
		err := s.admin[remote].List(t.Context(), kube.Secrets, s.ns(), "", &all)
		if err == nil && len(all.Items) > 0 {
			err = fmt.Errorf("there is %s", all.Items[0].Name)
		}
		return err
	})
	s.secret(remote, s.ns(), "x-token-eu", "empty", nil)
	s.annotate(remote, "x-eu", "look", "again")
	s.secretIs(s.ns(), "x-token-eu", holds("one", s.keys.Uploaded, there))
	// A local Secret that changes is news in itself, also in a namespace with a suffix.
	s.must(s.admin[local].MergePatch(t.Context(), kube.Secrets, s.ns()+"-local", "x-token", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"of": "two"}, "annotations": map[string]any{"note": "two"}},
		"data":     map[string]any{"token": []byte("two")},
	}, nil))
	s.secretIs(s.ns(), "x-token-eu", holds("two", s.keys.Uploaded, there))
}

func testSecretsMade(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) {
		c.Kinds[0].Secrets, c.Kinds[0].CreateSecrets, c.Kinds[0].WatchSecrets = []string{"token"}, true, true
	})
	there := s.thing(remote, "x", 1)
	_, here := s.synced("x", 1)
	s.secret(local, s.ns(), "token", "one", here)
	s.secretIs(s.ns(), "token", holds("one", s.keys.Uploaded, there))
	s.must(s.admin[remote].MergePatch(t.Context(), kube.Secrets, s.ns(), "token", map[string]any{"data": map[string]any{"token": []byte("bad"), "more": []byte("x")}}, nil))
	s.secretIs(s.ns(), "token", holds("one", s.keys.Uploaded, there))
	_, err := s.admin[remote].Delete(t.Context(), kube.Secrets, s.ns(), "token", metav1.DeleteOptions{})
	s.must(err)
	s.secretIs(s.ns(), "token", holds("one", s.keys.Uploaded, there))
}

func testSecretForeign(t *testing.T, r *rig) {
	s := r.site(t, func(c *Config) { c.Kinds[0].Secrets, c.Kinds[0].CreateSecrets = []string{"a", "b"}, true })
	theirs := s.secret(remote, s.ns(), "a", "theirs", s.thing(remote, "y", 2))
	there := s.thing(remote, "x", 1)
	_, here := s.synced("x", 1)
	s.secret(local, s.ns(), "a", "one", here)
	s.secret(local, s.ns(), "b", "one", here)
	s.secretIs(s.ns(), "b", holds("one", s.keys.Uploaded, there))
	s.resize(remote, "x", 2)
	s.synced("x", 2)
	s.secretIs(s.ns(), "a", func(o *corev1.Secret) error {
		if o.ResourceVersion != theirs.ResourceVersion {
			return errors.New("it was changed")
		}
		return nil
	})
}
