package mirror

// What becomes of a local object whose remote one is deleted, missing, or another.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// holding are the kinds that keep a namespace which was made for objects: nobody should lose what is in one. Mirrored kinds do, too. Of kinds
// that aren't here, nobody may list all.
var holding = []kube.Resource{
	kube.ConfigMaps, kube.Secrets, kube.Services, kube.PersistentVolumeClaims, kube.Pods, kube.Deployments, kube.DaemonSets,
	{GroupVersion: kube.Deployments.GroupVersion, Plural: "statefulsets", Kind: "StatefulSet", Namespaced: true},
	{GroupVersion: batch, Plural: "jobs", Kind: "Job", Namespaced: true}, {GroupVersion: batch, Plural: "cronjobs", Kind: "CronJob", Namespaced: true},
	kube.Ingresses, kube.TenantControlPlanes, kube.KamajiControlPlanes, kube.Clusters,
}

var batch = schema.GroupVersion{Group: "batch", Version: "v1"}

// end deletes the local object of a remote one that is deleted, and lets that go when it is gone, with the namespace that was made for it.
func (l *look) end(ctx context.Context) (State, error) {
	l.index.found(l.item)
	if l.local != nil && l.whose(l.remote, l.local) == own {
		failed := l.statusUp(ctx)
		if l.local.GetDeletionTimestamp() != nil {
			return Waiting, failed
		}
		return Waiting, errors.Join(failed, l.deleteLocal(ctx))
	}
	gone, err := l.namespaceGone(ctx)
	if err != nil || !gone {
		return Waiting, err
	}
	return "", l.release(ctx)
}

// release takes the finalizer off the remote object.
func (l *look) release(ctx context.Context) error {
	if !l.claimed(l.remote) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(l.remote.GetFinalizers()), func(f string) bool { return f == l.keys.Finalizer })
	err := l.patchRemote(ctx, "finalizer", map[string]any{"metadata": map[string]any{"finalizers": left}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// missing deletes the local object of a remote one that isn't there, once that is believed. Without the finalizer that is an accident, of
// somebody or of the API.
func (l *look) missing(ctx context.Context) (State, error) {
	if l.local == nil {
		l.index.found(l.item)
		_, err := l.namespaceGone(ctx)
		return "", err
	}
	from, ours := l.recorded(l.local)
	switch {
	case !ours:
		l.index.found(l.item)
		return "", nil
	case l.local.GetDeletionTimestamp() != nil:
		return Waiting, nil
	}
	v, err := l.gone(ctx, from)
	switch {
	case err != nil:
		return "", err
	case v.gone:
		return Waiting, l.deleteLocal(ctx)
	}
	l.why = v.why
	return v.state(Missing), nil
}

// replaced deletes the local object of an earlier remote object of the name, once it is believed that the earlier one is gone, and then the
// new one is followed.
func (l *look) replaced(ctx context.Context) (State, error) {
	if l.local.GetDeletionTimestamp() != nil {
		return Waiting, nil
	}
	from, _ := l.recorded(l.local)
	v, err := l.gone(ctx, from)
	switch {
	case err != nil:
		return "", err
	case v.gone:
		return Waiting, l.deleteLocal(ctx)
	}
	return v.state(Replaced), l.tell(ctx, fmt.Sprintf("%s was made from an earlier object of this name (UID %s), and is in the way; %s. To have it "+
		"go on as this object's, set the annotation %s: \"true\" here; to begin anew at once, delete it there", l.localObject(), from, v.why, l.keys.Adopt))
}

// namespaceGone deletes the local namespace if it was made for objects of this source and nothing is left in it, and reports whether nobody need
// wait for its end: it is gone, or stays.
func (l *look) namespaceGone(ctx context.Context) (gone bool, err error) {
	if !l.Namespaces {
		return true, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	err = l.Local.Get(ctx, kube.Namespaces, "", l.localNamespace(l.item), ns)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, of(local, err)
	}
	if _, made := l.ownerOf(ns); !made {
		return true, nil
	}
	if ns.DeletionTimestamp != nil {
		return false, nil
	}
	if len(l.index.in(l.item.Namespace, l.item)) > 0 {
		return true, nil // the last one takes it along
	}
	keeps, going, err := l.keeps(ctx)
	switch {
	case err != nil:
		return false, err
	case keeps != "":
		l.Log.Info("namespace stays: it holds what isn't the mirror's", "namespace", ns.Name, "object", keeps)
		return true, nil
	case going:
		l.queue.AddAfter(l.item, lastRetry/30)
		return false, nil
	}
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion}}
	found, err := l.Local.Delete(ctx, kube.Namespaces, "", ns.Name, only)
	l.changed("namespace", found)
	return !found && err == nil, of(local, err)
}

// keeps names an object for which a namespace stays, and reports whether there are some that are about to go.
func (l *look) keeps(ctx context.Context) (object string, going bool, err error) {
	all := slices.Clone(holding)
	for _, k := range l.Kinds {
		if !slices.Contains(all, k.Resource) {
			all = append(all, k.Resource)
		}
	}
	for _, r := range all {
		var list metav1.PartialObjectMetadataList
		err := l.Local.Unscoped().List(ctx, r, l.localNamespace(l.item), "", &list)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, of(local, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			by := metav1.GetControllerOf(o)
			switch {
			case r == kube.ConfigMaps && o.Name == "kube-root-ca.crt": // every namespace has it
			case o.DeletionTimestamp != nil, by != nil && by.Name == l.item.Name && l.isOf(l.item.kind, by):
				going = true // with the object, which is gone
			default:
				return r.Kind + " " + o.Name, false, nil
			}
		}
	}
	return "", going, nil
}
