package adoption

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// leases are what controllers elect their leaders by.
var leases = kube.Resource{GroupVersion: schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, Plural: "leases", Kind: "Lease", Namespaced: true}

// Names in an installation of Kamaji by its chart.
const (
	controllers      = "app.kubernetes.io/name=kamaji,app.kubernetes.io/component=controller-manager"
	lease            = "kamaji.clastix.io"
	defaultNamespace = "kamaji-system"
	webhookPrefix    = "kamaji-"
)

// Look reads what there is of a tenant.
func Look(ctx context.Context, k *kube.Client, o *v1alpha1.TenantControlPlane) (Seen, error) {
	s := Seen{Tenant: o, Secrets: map[string]*corev1.Secret{}}
	d := &appsv1.Deployment{}
	err := k.Get(ctx, kube.Deployments, o.Namespace, name.Deployment(o.Name), d)
	if err == nil {
		s.Deployment = d
	} else if !apierrors.IsNotFound(err) {
		return s, fmt.Errorf("Deployment of %s/%s: %w", o.Namespace, o.Name, err) //nolint:staticcheck // a kind
	}
	if n := cmp.Or(o.Status.Storage.DataStoreName, o.Spec.DataStore); n != "" {
		store := &v1alpha1.DataStore{}
		err := k.Get(ctx, kube.DataStores, "", n, store)
		if err == nil {
			s.DataStore = store
		} else if !apierrors.IsNotFound(err) {
			return s, fmt.Errorf("DataStore %s: %w", n, err)
		}
	}
	var list corev1.SecretList
	if err := k.List(ctx, kube.Secrets, o.Namespace, labels.FormatLabels(name.Selector(o.Name)), &list); err != nil {
		return s, fmt.Errorf("Secrets of %s/%s: %w", o.Namespace, o.Name, err) //nolint:staticcheck // a kind
	}
	for i := range list.Items {
		s.Secrets[list.Items[i].Name] = &list.Items[i]
	}
	return s, nil
}

// Working says which Kamaji is at work, or would refuse what is written; empty when none is in the way.
func Working(ctx context.Context, k *kube.Client, now time.Time) (all []string, err error) {
	var deployments appsv1.DeploymentList
	if err := k.List(ctx, kube.Deployments, "", controllers, &deployments); err != nil {
		return nil, err
	}
	namespaces := []string{defaultNamespace}
	for _, d := range deployments.Items {
		namespaces = append(namespaces, d.Namespace)
		if d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			all = append(all, fmt.Sprintf("Kamaji's controller runs: kubectl -n %s scale deployment %s --replicas 0", d.Namespace, d.Name))
		}
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		var l coordinationv1.Lease
		err := k.Get(ctx, leases, namespace, lease, &l)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && held(&l.Spec, now) {
			all = append(all, fmt.Sprintf("Lease %s/%s is held by %s: a controller of Kamaji is at work; stop it", namespace, lease, *l.Spec.HolderIdentity))
		}
	}
	webhooks, err := refusing(ctx, k)
	return append(all, webhooks...), err
}

// held reports whether somebody has a lease at a time.
func held(l *coordinationv1.LeaseSpec, now time.Time) bool {
	return l.HolderIdentity != nil && *l.HolderIdentity != "" && l.RenewTime != nil && l.LeaseDurationSeconds != nil &&
		now.Before(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second))
}

// refusing are Kamaji's webhooks, which refuse all writes of tenants once their server is gone.
func refusing(ctx context.Context, k *kube.Client) (all []string, err error) {
	for _, r := range []kube.Resource{kube.ValidatingWebhookConfigurations, kube.MutatingWebhookConfigurations} {
		var list metav1.PartialObjectMetadataList
		if err := k.List(ctx, r, "", "app.kubernetes.io/name=kamaji", &list); err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			all = append(all, fmt.Sprintf("%s %s refuses writes once Kamaji is gone: kubectl delete %s %s", r.Kind, o.Name, r.Plural, o.Name))
		}
		for _, n := range []string{webhookPrefix + "validating-webhook-configuration", webhookPrefix + "mutating-webhook-configuration"} {
			known := slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.Name == n })
			err := k.Get(ctx, r, "", n, &metav1.PartialObjectMetadata{})
			if err == nil && !known {
				all = append(all, fmt.Sprintf("%s %s refuses writes once Kamaji is gone: kubectl delete %s %s", r.Kind, n, r.Plural, n))
			}
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
	}
	return all, nil
}
