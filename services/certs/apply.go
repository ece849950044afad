// Secrets in the management cluster: one list, then for each Secret nothing, a create or a patch. Content that holds keys
// is only ever created where there is none, or replaced under the resourceVersion that was judged; whoever loses such a
// race takes what the winner wrote.

package certs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

const (
	// sideBySide bounds the API calls of one tenant in flight.
	sideBySide = 4
	// tries bounds how often a Secret is judged again because somebody else wrote it meanwhile.
	tries = 5
)

// result is what has become of a tenant's Secrets.
type result struct {
	data state.Certs
	// reasons by component, of those that were made anew or put right.
	reasons map[string]string
	// newCA is set when a CA was made though certificates of another were there.
	newCA bool
	// have are the Secrets as they were found, by name; ca is the tenant's certificate authority as it is now.
	have map[string]*corev1.Secret
	ca   *signer
}

// ensure makes the Secrets of an input so.
func (s *svc) ensure(ctx context.Context, in input, known *state.Certs, now time.Time) (*result, error) {
	roots, leaves, err := wants(in)
	if err != nil {
		return nil, err
	}
	have, err := s.list(ctx, in.Namespace, in.Name)
	if err != nil {
		return nil, err
	}
	r := &result{data: state.Certs{Secrets: map[string]state.Secret{}}, reasons: map[string]string{}, have: have}
	signers := map[string]*signer{}
	var mu sync.Mutex
	settle := func(list []want) error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(sideBySide)
		for i := range list {
			w := &list[i]
			mu.Lock()
			ca := signers[w.Signer] // of an earlier list
			mu.Unlock()
			g.Go(func() error {
				secret, v, reason, err := s.settle(ctx, in, w, have[w.Secret], ca, []byte(known.CA), now)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if w.Kind == authority {
					signers[w.Component] = v.Signer
				}
				if reason != "" {
					r.reasons[w.Component] = reason
				}
				r.data.Secrets[w.Component] = written(secret, v)
				r.data.RenewAt = earliest(r.data.RenewAt, v.RenewAt)
				return nil
			})
		}
		return g.Wait()
	}
	if err := settle(roots); err != nil {
		return nil, err
	}
	if err := settle(leaves); err != nil {
		return nil, err
	}
	r.ca = signers[name.ComponentCA]
	r.data.CA = string(r.ca.pem)
	r.newCA = known.CA != "" && known.CA != r.data.CA
	return r, nil
}

// written is what the state keeps of a Secret.
func written(secret *corev1.Secret, v verdict) state.Secret {
	return state.Secret{
		Name: secret.Name, Checksum: name.Checksum(v.Data), ResourceVersion: secret.ResourceVersion,
		NotAfter: v.NotAfter, LastUpdate: v.IssuedAt,
	}
}

// list reads the tenant's Secrets that are this service's, by name.
func (s *svc) list(ctx context.Context, namespace, tenant string) (map[string]*corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := s.kube.List(ctx, kube.Secrets, namespace, selector(tenant), list); err != nil {
		return nil, fmt.Errorf("list the Secrets of %s/%s: %w", namespace, tenant, err)
	}
	have := map[string]*corev1.Secret{}
	for i := range list.Items {
		have[list.Items[i].Name] = &list.Items[i]
	}
	return have, nil
}

// selector matches the tenant's Secrets of this service and no others.
func selector(tenant string) string {
	all := append(slices.Sorted(maps.Keys(components(tenant))), name.ComponentGeneratedKubeconfig)
	return name.LabelProject + "=" + name.Project + "," + name.LabelName + "=" + tenant + "," +
		name.LabelComponent + " in (" + strings.Join(all, ",") + ")"
}

// settle makes one Secret so and returns it as it is then, with the reason when its content was changed.
func (s *svc) settle(ctx context.Context, in input, w *want, secret *corev1.Secret, ca *signer, published []byte, now time.Time) (
	*corev1.Secret, verdict, string, error,
) {
	reason := ""
	for range tries {
		if secret != nil {
			if err := mine(in, w, secret); err != nil {
				return nil, verdict{}, "", err
			}
		}
		v := judge(w, secret, ca, published, now)
		data := v.Data
		if data == nil {
			var err error
			if data, err = w.issue(ca, now); err != nil {
				return nil, v, "", err
			}
		}
		if secret == nil {
			made := newSecret(in, w, data)
			switch err := s.kube.Create(ctx, kube.Secrets, made); {
			case err == nil:
				secret, reason = made, v.describe()
			case apierrors.IsAlreadyExists(err):
				// Without our labels, or written since the list: what is there counts.
				if secret, err = s.get(ctx, in.Namespace, w.Secret); err != nil {
					return nil, v, "", err
				}
			default:
				return nil, v, "", refused(fmt.Errorf("create Secret %s: %w", w.Secret, err), err)
			}
			continue
		}
		patch := patchOf(in, w, secret, data, v.Data == nil, now)
		if patch == nil {
			return secret, v, reason, nil
		}
		changed := &corev1.Secret{}
		switch err := s.kube.MergePatch(ctx, kube.Secrets, in.Namespace, w.Secret, patch, changed); {
		case err == nil:
			secret = changed
			if v.Reason != "" {
				reason = v.describe()
			}
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			if secret, err = s.get(ctx, in.Namespace, w.Secret); err != nil {
				return nil, v, "", err
			}
		default:
			return nil, v, "", refused(fmt.Errorf("patch Secret %s: %w", w.Secret, err), err)
		}
	}
	return nil, verdict{}, "", fmt.Errorf("somebody else keeps changing Secret %s", w.Secret)
}

// delete removes a Secret, unless another has its name by now.
func (s *svc) delete(ctx context.Context, o *corev1.Secret) error {
	_, err := s.kube.Delete(ctx, kube.Secrets, o.Namespace, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
	if err != nil {
		return fmt.Errorf("delete Secret %s: %w", o.Name, err)
	}
	return nil
}

// get reads one Secret; nil when it isn't there.
func (s *svc) get(ctx context.Context, namespace, secret string) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	err := s.kube.Get(ctx, kube.Secrets, namespace, secret, out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", secret, err)
	}
	return out, nil
}

// refused says of the API server's refusals that no retry helps.
func refused(err, cause error) error {
	if apierrors.IsInvalid(cause) || apierrors.IsBadRequest(cause) || apierrors.IsRequestEntityTooLargeError(cause) {
		return &intent.Permanent{Reason: "SecretRefused", Message: "the management cluster refused a Secret", Err: err}
	}
	return err
}

// mine refuses a Secret that bears the name but is something else's, so that a user's own is never overwritten.
func mine(in input, w *want, secret *corev1.Secret) error {
	taken := func(instead string) error {
		return &intent.Permanent{
			Reason:  "NameTaken",
			Message: fmt.Sprintf("Secret %s/%s belongs to something else; delete it or give the %s another name", in.Namespace, secret.Name, instead),
		}
	}
	if w.Generator != "" {
		if generatorOf(in.Name, secret) != w.Generator {
			return taken("generator")
		}
		return nil
	}
	if owner := metav1.GetControllerOf(secret); owner != nil {
		// One of an earlier object of that name comes from a backup, and its keys with it.
		if owner.UID != types.UID(in.UID) && (owner.Kind != kube.TenantControlPlanes.Kind || owner.Name != in.Name) {
			return taken("tenant")
		}
		return nil
	}
	if tenant, ok := secret.Labels[name.LabelName]; ok && tenant != in.Name {
		return taken("tenant")
	}
	return nil
}

// labelsOf returns the labels a Secret must have.
func labelsOf(in input, w *want) map[string]string {
	labels := name.Labels(in.Name, w.Component, name.Partition(in.Namespace, in.Name))
	if w.Lifecycle != "" {
		labels[name.LabelCertificateLifecycle] = w.Lifecycle
	}
	if w.Generator != "" {
		labels[name.LabelManagedBy], labels[name.LabelManagedFor] = w.Generator, in.Name
	}
	return labels
}

func ownerOf(in input) metav1.OwnerReference {
	t := kube.TenantControlPlanes.TypeMeta()
	return metav1.OwnerReference{
		APIVersion: t.APIVersion, Kind: t.Kind, Name: in.Name, UID: types.UID(in.UID),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// newSecret renders a Secret that isn't there yet.
func newSecret(in input, w *want, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: w.Secret, Labels: labelsOf(in, w),
			Annotations:     map[string]string{name.AnnotationChecksum: name.Checksum(data)},
			OwnerReferences: []metav1.OwnerReference{ownerOf(in)},
		},
		Data: data, Type: corev1.SecretTypeOpaque,
	}
}

// patchOf returns the JSON merge patch that makes a Secret so, nil when it is. Labels and annotations of others stay.
func patchOf(in input, w *want, secret *corev1.Secret, data map[string][]byte, anew bool, now time.Time) map[string]any {
	meta := map[string]any{}
	labels := map[string]string{}
	for key, value := range labelsOf(in, w) {
		if have, ok := secret.Labels[key]; !ok || have != value {
			labels[key] = value
		}
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	annotations := map[string]string{}
	if sum := name.Checksum(data); secret.Annotations[name.AnnotationChecksum] != sum {
		annotations[name.AnnotationChecksum] = sum
	}
	if value, ok := secret.Annotations[name.AnnotationRotate]; ok && value == "" && anew {
		annotations[name.AnnotationRotate] = now.UTC().Format(time.RFC3339)
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if owner := metav1.GetControllerOf(secret); owner == nil || owner.UID != types.UID(in.UID) {
		owners := slices.DeleteFunc(slices.Clone(secret.OwnerReferences), func(o metav1.OwnerReference) bool {
			return o.UID == types.UID(in.UID) || o.Controller != nil && *o.Controller
		})
		meta["ownerReferences"] = append(owners, ownerOf(in))
	}
	patch := map[string]any{}
	if !sameData(data, secret.Data) {
		change := map[string]any{}
		for key := range secret.Data {
			if _, ok := data[key]; !ok {
				change[key] = nil
			}
		}
		for key, value := range data {
			change[key] = value
		}
		patch["data"] = change
	}
	if len(meta) == 0 && len(patch) == 0 {
		return nil
	}
	meta["resourceVersion"] = secret.ResourceVersion
	patch["metadata"] = meta
	return patch
}
