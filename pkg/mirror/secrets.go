package mirror

// Secrets that go up: what is in the local one is in the remote one, whatever anybody did with that.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// readSecrets reads the local Secrets that go up: those that the local object controls.
func (l *look) readSecrets(ctx context.Context) (all []*corev1.Secret, err error) {
	if l.local == nil {
		return nil, nil
	}
	for _, n := range l.secretNames(l.item) {
		s := &corev1.Secret{}
		err := l.Local.Get(ctx, kube.Secrets, l.localNamespace(l.item), n, s)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, of(local, fmt.Errorf("read Secret %s: %w", n, err))
		case metav1.IsControlledBy(s, l.local):
			all = append(all, s)
		}
	}
	return all, nil
}

// secretsUp makes the remote Secrets what the local ones are. What is wrong with one doesn't keep the others back.
func (l *look) secretsUp(ctx context.Context, all []*corev1.Secret) error {
	var failed []error
	for _, s := range all {
		if err := l.secretUp(ctx, s); err != nil {
			failed = append(failed, fmt.Errorf("upload Secret %s: %w", s.Name, err))
		}
	}
	return errors.Join(failed...)
}

func (l *look) secretUp(ctx context.Context, from *corev1.Secret) error {
	want, err := l.wantedSecret(from)
	if err != nil {
		return err
	}
	live := &corev1.Secret{}
	err = l.Remote.Get(ctx, kube.Secrets, want.Namespace, want.Name, live)
	if apierrors.IsNotFound(err) {
		if !l.Kinds[l.item.kind].CreateSecrets {
			return fmt.Errorf("remote Secret %s/%s isn't there and isn't to be made: make it, or have the mirror make Secrets", want.Namespace, want.Name)
		}
		err = l.Remote.Create(ctx, kube.Secrets, want)
		l.changed("secret", err == nil)
		return of(remote, err)
	}
	if err != nil {
		return of(remote, err)
	}
	return l.updateSecret(ctx, live, want)
}

// wantedSecret is the remote Secret for a local one.
func (l *look) wantedSecret(from *corev1.Secret) (*corev1.Secret, error) {
	annotations := maps.Clone(from.Annotations)
	for _, k := range append(l.keys.All(), corev1.LastAppliedConfigAnnotation) {
		delete(annotations, k)
	}
	data, err := json.Marshal([]any{from.Data, from.Type, annotations, from.Labels})
	if err != nil {
		return nil, err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[l.keys.Uploaded] = hash(data)
	return &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{
			Namespace: l.remote.GetNamespace(), Name: from.Name + l.RemoteSuffix, Labels: from.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.remote, l.r.GroupVersion.WithKind(l.r.Kind))},
		}, Type: from.Type, Data: from.Data,
	}, nil
}

// updateSecret makes a remote Secret what it should be, unless it is somebody else's.
func (l *look) updateSecret(ctx context.Context, live, want *corev1.Secret) error {
	next := live.DeepCopy()
	by := metav1.GetControllerOf(live)
	if by != nil && by.UID != l.remote.GetUID() {
		if !l.isOf(l.item.kind, by) || by.Name != l.remote.GetName() {
			return fmt.Errorf("remote Secret %s/%s belongs to %s %s and is left as it is", live.Namespace, live.Name, by.Kind, by.Name)
		}
		next.OwnerReferences = slices.DeleteFunc(next.OwnerReferences,
			func(o metav1.OwnerReference) bool { return o.UID == by.UID }) // an earlier object of the name
	}
	if !metav1.IsControlledBy(next, l.remote) {
		next.OwnerReferences = append(slices.DeleteFunc(next.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == l.remote.GetUID()
		}), want.OwnerReferences...)
	}
	next.Type, next.Data, next.Labels, next.Annotations = want.Type, want.Data, want.Labels, want.Annotations
	if reflect.DeepEqual(emptied(next), emptied(live)) {
		return nil
	}
	next.TypeMeta = kube.Secrets.TypeMeta()
	err := l.Remote.Update(ctx, kube.Secrets, next)
	l.changed("secret", err == nil)
	return of(remote, err)
}

// emptied is a Secret in which what is empty is nil.
func emptied(s *corev1.Secret) *corev1.Secret {
	s = s.DeepCopy()
	s.TypeMeta = metav1.TypeMeta{}
	if len(s.Data) == 0 {
		s.Data = nil
	}
	if len(s.Labels) == 0 {
		s.Labels = nil
	}
	return s
}
