package capi

// The Secrets that Cluster API reads: the kubeconfig by which it works in the tenant, and the authority that machines trust when they join.

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// hand copies the tenant's kubeconfig and authority to where Cluster API reads them.
func (w *work) hand(ctx context.Context) error {
	key := kubeconfigKey(w.o)
	from := w.tenant.Status.KubeConfig.Admin.SecretName
	authority := w.tenant.Status.Certificates.CA.SecretName
	if from == "" || authority == "" {
		return waits("the tenant's kubeconfig and authority have not been issued yet")
	}
	data, err := w.dataOf(ctx, from, key)
	if err != nil {
		return err
	}
	if w.visit != nil { // Cluster API, which takes it, would run a command in it, or read a file
		if err := kube.CheckKubeconfig(data[key]); err != nil {
			return cannot("key %s of Secret %s in the tenant's cluster: %s", key, from, err)
		}
	}
	if err := w.keep(ctx, w.o, w.of, "kubeconfig", map[string][]byte{"value": data[key]}); err != nil {
		return err
	}
	if w.visit == nil && authority == w.of.Name+"-ca" { // the tenant's own, in which certs has what Cluster API reads, too
		return nil
	}
	if data, err = w.dataOf(ctx, authority, "ca.crt", "ca.key"); err != nil {
		return err
	}
	return w.keep(ctx, w.o, w.of, "ca", map[string][]byte{corev1.TLSCertKey: data["ca.crt"], corev1.TLSPrivateKeyKey: data["ca.key"]})
}

// kubeconfigKey is the key, in the Secret with the administrators' kubeconfigs, of the one that Cluster API gets.
func kubeconfigKey(o *controlplane.KamajiControlPlane) string {
	switch key := o.Annotations[name.AnnotationKubeconfigSecretKey]; {
	case key != "":
		return key
	case o.Spec.Network.AdvertiseAddress != "":
		return "admin.svc"
	}
	return "admin.conf"
}

// dataOf reads keys of a Secret of the tenant's, each of which must be there.
func (w *work) dataOf(ctx context.Context, from string, keys ...string) (map[string][]byte, error) {
	var secret corev1.Secret
	err := w.ask(ctx, func(ctx context.Context) error { return w.client.Get(ctx, kube.Secrets, w.at.Namespace, from, &secret) })
	if apierrors.IsNotFound(err) {
		return nil, waits("Secret %s is not there", from)
	}
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return nil, waits("Secret %s has no key %s", from, key)
		}
	}
	return secret.Data, nil
}

// keep makes a Secret of the Cluster so, if it isn't.
func (s *svc) keep(ctx context.Context, o *controlplane.KamajiControlPlane, of *cluster, purpose string, data map[string][]byte) error {
	want := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: of.Name + "-" + purpose, OwnerReferences: []metav1.OwnerReference{ownerOf(o)},
			Labels: map[string]string{
				name.LabelClusterName: of.Name, name.LabelComponent: name.ComponentCAPI, name.LabelCAPISecret: purpose,
				name.LabelCAPICluster: of.Name, name.LabelCAPITenant: o.Name,
			},
		},
		Type: name.SecretTypeClusterAPI, Data: data,
	}
	if filter, ok := o.Labels[name.LabelWatchFilter]; ok { // Cluster API sees no Secret without it then
		want.Labels[name.LabelWatchFilter] = filter
	}
	var has corev1.Secret
	err := s.kube.Get(ctx, kube.Secrets, want.Namespace, want.Name, &has)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !metav1.IsControlledBy(&has, o):
		return cannot("Secret %s is there and isn't this control plane's; it is left as it is. Delete it, or give the Cluster another name", want.Name)
	case sameSecret(&has, want):
		return nil
	}
	return s.kube.ApplyOnto(ctx, kube.Secrets, want, has.UID)
}

// sameSecret reports whether a Secret has all of another.
func sameSecret(has, want *corev1.Secret) bool {
	for k, v := range want.Data {
		if !bytes.Equal(has.Data[k], v) {
			return false
		}
	}
	for k, v := range want.Labels {
		if has.Labels[k] != v {
			return false
		}
	}
	return has.Type == want.Type
}
