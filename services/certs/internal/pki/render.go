// How a Secret is written: what a new one looks like, and the patch that puts right one that is there. Pure.

package pki

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// labelsOf returns the labels a Secret must have.
func labelsOf(in Input, w *Want) map[string]string {
	labels := name.Labels(in.Name, w.Component, name.Partition(in.Namespace, in.Name))
	if w.Lifecycle != "" {
		labels[name.LabelCertificateLifecycle] = w.Lifecycle
	}
	if w.Generator != "" {
		labels[name.LabelManagedBy], labels[name.LabelManagedFor] = w.Generator, in.Name
	}
	maps.Copy(labels, w.Labels)
	return labels
}

func ownerOf(in Input) metav1.OwnerReference {
	t := kube.TenantControlPlanes.TypeMeta()
	return metav1.OwnerReference{
		APIVersion: t.APIVersion, Kind: t.Kind, Name: in.Name, UID: types.UID(in.UID),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// newSecret renders a Secret that isn't there yet.
func newSecret(in Input, w *Want, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: w.Secret, Labels: labelsOf(in, w),
			Annotations:     map[string]string{name.AnnotationChecksum: name.Checksum(data)},
			OwnerReferences: []metav1.OwnerReference{ownerOf(in)},
		},
		Data: data, Type: cmp.Or(w.Type, corev1.SecretTypeOpaque),
	}
}

// patchOf returns the JSON merge patch that makes a Secret so, nil when it is. Labels and annotations of others stay.
func patchOf(in Input, w *Want, secret *corev1.Secret, data map[string][]byte, anew bool, now time.Time) map[string]any {
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
	if sum := name.ChecksumOf(secret, secret.Data, data); secret.Annotations[name.AnnotationChecksum] != sum {
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
