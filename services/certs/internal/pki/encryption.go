// The Secret of the configurations by which the API server encrypts: how it is written and removed. Its keys are nowhere else, so a
// finalizer keeps it from whoever deletes it by mistake; what is in it, package encryption decides.

package pki

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// WriteEncryption makes the Secret of the encryption's configurations so and returns it. found is the Secret as it was read, nil when it
// isn't there; rotated notes that a rotation which somebody asked for has begun. Errors are *[kube.TakenError], [intent.ErrStale] when
// somebody else wrote meanwhile, and those of [Secrets.Ensure].
func (s *Secrets) WriteEncryption(
	ctx context.Context, in Input, found *corev1.Secret, data map[string][]byte, rewritten string, rotated bool, now time.Time,
) (*corev1.Secret, error) {
	w := &Want{Component: name.ComponentEncryption, Secret: name.Encryption(in.Name)}
	if found == nil {
		secret := newSecret(in, w, data)
		secret.Finalizers = []string{name.FinalizerEncryption}
		err := s.Kube.Create(ctx, kube.Secrets, secret)
		if apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("secret %s: %w", w.Secret, intent.ErrStale)
		}
		if err != nil {
			return nil, refused(fmt.Errorf("create Secret %s: %w", w.Secret, err))
		}
		return secret, nil
	}
	if err := checkOwner(in, w, found); err != nil {
		return nil, err
	}
	patch := withHold(patchOf(in, w, found, data, rotated, now), found, rewritten)
	if patch == nil {
		return found, nil
	}
	written, err := s.write(ctx, in, w, data, patch)
	if err == nil && written == nil {
		err = fmt.Errorf("secret %s: %w", w.Secret, intent.ErrStale)
	}
	return written, err
}

// withHold adds to a patch what this Secret has beside others.
func withHold(patch map[string]any, found *corev1.Secret, rewritten string) map[string]any {
	if found.Annotations[name.AnnotationRewritten] == rewritten &&
		(found.DeletionTimestamp != nil || slices.Contains(found.Finalizers, name.FinalizerEncryption)) {
		return patch
	}
	meta := map[string]any{"resourceVersion": found.ResourceVersion}
	if patch == nil {
		patch = map[string]any{}
	} else if has, ok := patch["metadata"].(map[string]any); ok {
		meta = has
	}
	annotations := map[string]string{}
	if has, ok := meta["annotations"].(map[string]string); ok {
		maps.Copy(annotations, has)
	}
	if rewritten != "" {
		annotations[name.AnnotationRewritten] = rewritten
	}
	meta["annotations"] = annotations
	if found.DeletionTimestamp == nil && !slices.Contains(found.Finalizers, name.FinalizerEncryption) { // else none can be added
		meta["finalizers"] = append(slices.Clone(found.Finalizers), name.FinalizerEncryption)
	}
	patch["metadata"] = meta
	return patch
}

// letGo takes this service's finalizer off a Secret that is to be removed, and off what was read of it.
func (s *Secrets) letGo(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	if !slices.Contains(o.Finalizers, name.FinalizerEncryption) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == name.FinalizerEncryption })
	patch := map[string]any{"metadata": map[string]any{"finalizers": rest, "resourceVersion": o.ResourceVersion}}
	err := s.Kube.MergePatch(ctx, kube.Secrets, o.Namespace, o.Name, patch, nil)
	switch {
	case apierrors.IsNotFound(err):
	case apierrors.IsConflict(err):
		return fmt.Errorf("secret %s: %w", o.Name, intent.ErrStale)
	case err != nil:
		return fmt.Errorf("take the finalizer off Secret %s: %w", o.Name, err)
	}
	o.Finalizers = rest
	return nil
}
