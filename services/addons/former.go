package addons

// What Kamaji left inside a tenant that was adopted: objects under its field manager, of which a server-side apply would keep what Stoker
// doesn't have (an owner with which CoreDNS would go, for one), and webhooks that refuse all writes once Kamaji, which answers them, is gone.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// kamajisWebhooks are the ValidatingWebhookConfigurations that Kamaji has in a tenant whose writes are limited, and in one that it migrates.
var kamajisWebhooks = []string{"kamaji-write-permissions", "kamaji-freeze"}

// kamajisDomain is what the names of the webhooks in them end with.
const kamajisDomain = ".kamaji.clastix.io"

// takeOver makes what Kamaji's field manager owns of objects this service's, before they are applied, so that each changes once and nothing
// that nobody asks for is left of it; and takes Kamaji's webhooks away first, which keep anything from being applied.
func (c *Cluster) takeOver(ctx context.Context, objs []*unstructured.Unstructured) error {
	var mu sync.Mutex
	var errs []error
	for _, n := range kamajisWebhooks {
		if err := retry(ctx, func() error { return c.removeWebhooks(ctx, n) }); err != nil {
			errs = append(errs, objectError(Ref{kube.ValidatingWebhookConfigurations.Kind, "", n}, err))
		}
	}
	each(objs, func(o *unstructured.Unstructured) {
		ref := RefOf(o)
		if err := retry(ctx, func() error { return c.takeOverOne(ctx, ref) }); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, objectError(ref, err))
		}
	})
	return errors.Join(errs...)
}

// removeWebhooks removes a configuration of webhooks that are all Kamaji's.
func (c *Cluster) removeWebhooks(ctx context.Context, n string) error {
	var o admissionv1.ValidatingWebhookConfiguration
	err := c.kube.Get(ctx, kube.ValidatingWebhookConfigurations, "", n, &o)
	if apierrors.IsNotFound(err) || err == nil && slices.ContainsFunc(o.Webhooks, func(w admissionv1.ValidatingWebhook) bool {
		return !strings.HasSuffix(w.Name, kamajisDomain)
	}) {
		return nil
	}
	if err == nil {
		_, err = c.kube.Delete(ctx, kube.ValidatingWebhookConfigurations, "", n, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
		})
	}
	return err
}

func (c *Cluster) takeOverOne(ctx context.Context, ref Ref) error {
	k, err := ref.kind()
	if err != nil {
		return err
	}
	var o metav1.PartialObjectMetadata
	err = c.kube.Get(ctx, k.Resource, ref.Namespace, ref.Name, &o)
	if apierrors.IsNotFound(err) || err == nil && !kube.Formerly(&o) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.kube.TakeOver(ctx, k.Resource, &o)
}
