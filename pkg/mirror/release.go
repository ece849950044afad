package mirror

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Release takes the finalizer and what is said in annotations off all remote objects that a mirror of this configuration has claimed, and
// leaves the local ones as they are: for a mirror that is taken away for good, which must not run any more. Else remote objects could never
// be deleted.
func Release(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	m := newMirror(cfg)
	defer m.queue.ShutDown()
	var failed []error
	for kind, k := range m.Kinds {
		var claimed []*metav1.PartialObjectMetadata
		err := kube.Each(ctx, m.Remote, k.Resource, "", func(o *metav1.PartialObjectMetadata) {
			if _, ok := m.ofRemote(kind, o.Namespace, o.Name); ok && m.claimed(o) {
				claimed = append(claimed, o.DeepCopy())
			}
		})
		if err != nil {
			return of(remote, err)
		}
		for _, o := range claimed {
			if err := m.releaseOne(ctx, kind, o); err != nil {
				failed = append(failed, fmt.Errorf("%s %s/%s: %w", k.Resource.Kind, o.GetNamespace(), o.GetName(), err))
			}
		}
	}
	return errors.Join(failed...)
}

func (m *mirror) releaseOne(ctx context.Context, kind int, o *metav1.PartialObjectMetadata) error {
	is := &unstructured.Unstructured{Object: map[string]any{}}
	is.SetNamespace(o.Namespace)
	is.SetName(o.Name)
	is.SetResourceVersion(o.ResourceVersion)
	is.SetFinalizers(o.Finalizers)
	l := &look{mirror: m, r: m.Kinds[kind].Resource, remote: is}
	patch := map[string]any{}
	for _, k := range []string{m.keys.LocalGeneration, m.keys.RemoteGeneration, m.keys.LocalUID, m.keys.Message} {
		if _, there := o.GetAnnotations()[k]; there {
			patch[k] = nil
		}
	}
	if err := l.patchRemote(ctx, "generations", map[string]any{"metadata": map[string]any{"annotations": patch}}); err != nil {
		return err
	}
	return l.release(ctx)
}
