// Package informer makes watches that come back quickly.
//
// The watches of client-go wait longer and longer for an API server that is away, up to a minute: right for a fleet of
// clients that a server has to survive, wrong for the one client beside it on a laptop. These ask once a second.
package informer

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const interval = time.Second

// Pods watches the pods a field selector selects.
func Pods(client kubernetes.Interface, fieldSelector string) cache.SharedIndexInformer {
	return informer(client, &corev1.Pod{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fieldSelector
			return patiently(ctx, func() (*corev1.PodList, error) { return client.CoreV1().Pods("").List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fieldSelector
			return patiently(ctx, func() (watch.Interface, error) { return client.CoreV1().Pods("").Watch(ctx, o) })
		},
	})
}

// Services watches all Services.
func Services(client kubernetes.Interface) cache.SharedIndexInformer {
	return informer(client, &corev1.Service{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return patiently(ctx, func() (*corev1.ServiceList, error) { return client.CoreV1().Services("").List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return patiently(ctx, func() (watch.Interface, error) { return client.CoreV1().Services("").Watch(ctx, o) })
		},
	})
}

// EndpointSlices watches those with a label.
func EndpointSlices(client kubernetes.Interface, label, value string) cache.SharedIndexInformer {
	selector := labels.Set{label: value}.String()
	return informer(client, &discoveryv1.EndpointSlice{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return patiently(ctx, func() (*discoveryv1.EndpointSliceList, error) {
				return client.DiscoveryV1().EndpointSlices("").List(ctx, o)
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return patiently(ctx, func() (watch.Interface, error) { return client.DiscoveryV1().EndpointSlices("").Watch(ctx, o) })
		},
	})
}

func informer(client kubernetes.Interface, object runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), object,
		cache.SharedIndexInformerOptions{
			Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	// Nobody here asks who wrote which field, and that is half of an object. The only error is "already started".
	_ = i.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(metav1.Object); ok {
			object.SetManagedFields(nil)
		}
		return obj, nil
	})
	return i
}

// patiently calls f until the API server answers it.
func patiently[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err == nil || ctx.Err() != nil || !away(err) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(interval):
		}
	}
}

// away tells whether an error says that the API server can't be reached, or isn't all there yet: it refuses everyone
// until it has read its roles.
func away(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable:
		return true
	}
	return false
}
