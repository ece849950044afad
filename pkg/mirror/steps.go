package mirror

// The steps of a look at a remote object that is there to stay. Each writes only what differs, and onto the very object that was read.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// longestMessage bounds what is said in an annotation, in bytes.
const longestMessage = 1000

// patchRemote changes the remote object, if nobody has since it was read. A status is changed by itself.
func (l *look) patchRemote(ctx context.Context, what string, patch map[string]any, sub ...string) error {
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	before := l.remote.GetResourceVersion()
	meta["resourceVersion"] = before
	after := &unstructured.Unstructured{}
	if err := l.Remote.MergePatch(ctx, l.r, l.remote.GetNamespace(), l.remote.GetName(), patch, after, sub...); err != nil {
		return of(remote, err)
	}
	l.remote = after
	l.changed(what, after.GetResourceVersion() != before)
	return nil
}

// changed notes a write that changed something.
func (l *look) changed(what string, is bool) {
	if is {
		l.wrote = true
		l.Metrics.wrote(l.r.Kind, what)
	}
}

// claim puts the finalizer on the remote object, before anything is made for it.
func (l *look) claim(ctx context.Context) error {
	if l.claimed(l.remote) {
		return nil
	}
	return l.patchRemote(ctx, "finalizer", map[string]any{"metadata": map[string]any{
		"finalizers": append(l.remote.GetFinalizers(), l.keys.Finalizer),
	}})
}

// statusUp makes the remote status the local one.
func (l *look) statusUp(ctx context.Context) error {
	if l.local == nil {
		return nil
	}
	want, have := fieldsOf(l.local, "status"), fieldsOf(l.remote, "status")
	if reflect.DeepEqual(want, have) {
		return nil
	}
	var status any // nil takes it off
	if want != nil {
		status = mergePatch(have, want)
	}
	return l.patchRemote(ctx, "status", map[string]any{"status": status}, "status")
}

// fieldsOf is a field that is an object, nil if it isn't there or empty.
func fieldsOf(o *unstructured.Unstructured, field string) map[string]any {
	if m, ok := o.Object[field].(map[string]any); ok && len(m) > 0 {
		return m
	}
	return nil
}

// mergePatch makes from what to is.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for k := range from {
		if _, stays := to[k]; !stays {
			patch[k] = nil
		}
	}
	for k, v := range to {
		before, there := from[k]
		was, wasMap := before.(map[string]any)
		is, isMap := v.(map[string]any)
		switch {
		case there && reflect.DeepEqual(before, v):
		case wasMap && isMap:
			patch[k] = mergePatch(was, is)
		default:
			patch[k] = v
		}
	}
	return patch
}

// down makes the local object what the remote one asks for. A state says that it can't now.
func (l *look) down(ctx context.Context) (State, error) {
	want, err := l.wanted()
	if err != nil {
		return "", err
	}
	if l.local != nil && contains(l.local.Object, want.Object) {
		return "", nil
	}
	err = l.apply(ctx, want)
	if l.local == nil && noNamespace(err) {
		if !l.Namespaces {
			message := fmt.Sprintf("namespace %s isn't there in the local cluster: make it, or have the mirror make namespaces", want.GetNamespace())
			return NoNamespace, errors.Join(errors.New(message), l.tell(ctx, message))
		}
		if err := l.makeNamespace(ctx); err != nil {
			return "", err
		}
		err = l.apply(ctx, want)
	}
	switch {
	case err == nil:
		return "", nil
	case l.Namespaces && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Waiting, nil // its end is watched
	}
	return "", errors.Join(of(local, err), l.tellRefusal(ctx, l.localObject()+" can't be made as this object asks", err))
}

// noNamespace reports whether a server didn't take an object for lack of its namespace.
func noNamespace(err error) bool {
	var answer apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil &&
		answer.Status().Details.Kind == kube.Namespaces.Plural
}

// wanted is the local object as the remote one asks for it, with the record of that.
func (l *look) wanted() (*unstructured.Unstructured, error) {
	from := l.remote.DeepCopy()
	annotations := from.GetAnnotations()
	for _, k := range append(l.keys.All(), corev1.LastAppliedConfigAnnotation) {
		delete(annotations, k)
	}
	labels := from.GetLabels()
	o := &unstructured.Unstructured{Object: from.Object}
	delete(o.Object, "status")
	o.Object["metadata"] = map[string]any{}
	o.SetNamespace(l.localNamespace(l.item))
	o.SetName(l.item.Name)
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	if down := l.Kinds[l.item.kind].Down; down != nil {
		down(o)
		o.SetNamespace(l.localNamespace(l.item))
		o.SetName(l.item.Name)
	}
	o.SetAPIVersion(l.r.GroupVersion.String())
	o.SetKind(l.r.Kind)
	data, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	record := map[string]string{
		l.keys.Source: l.Source, l.keys.RemoteUID: string(l.remote.GetUID()), l.keys.RemoteName: l.remoteObject(l.item), l.keys.Hash: hash(data),
	}
	maps.Copy(record, o.GetAnnotations())
	o.SetAnnotations(record)
	return o, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// contains reports whether live has all that want has; lists must be as long.
func contains(live, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		is, ok := live.(map[string]any)
		if !ok && len(w) > 0 {
			return false
		}
		for k, v := range w {
			if has, there := is[k]; !there || !contains(has, v) {
				return false
			}
		}
		return true
	case []any:
		is, ok := live.([]any)
		return ok && slices.EqualFunc(is, w, contains)
	}
	return reflect.DeepEqual(live, want)
}

// apply applies the local object onto the one that was read, or makes it if there was none. One that is taken over is first applied without
// the hash, so that a look that ends before its former writer is out of it is repeated.
func (l *look) apply(ctx context.Context, want *unstructured.Unstructured) error {
	if l.local == nil || l.local.GetAnnotations()[l.keys.Hash] != "" {
		return l.applyOnto(ctx, want)
	}
	unhashed := want.DeepCopy()
	unstructured.RemoveNestedField(unhashed.Object, "metadata", "annotations", l.keys.Hash)
	if err := l.applyOnto(ctx, unhashed); err != nil {
		return err
	}
	if err := l.disown(ctx); err != nil {
		return err
	}
	return l.applyOnto(ctx, want)
}

func (l *look) applyOnto(ctx context.Context, want *unstructured.Unstructured) error {
	before, onto := "", types.UID("")
	if l.local != nil {
		before, onto = l.local.GetResourceVersion(), l.local.GetUID()
	}
	applied := want.DeepCopy() // becomes what is there
	if err := l.Local.ApplyOnto(ctx, l.r, applied, onto); err != nil {
		return err
	}
	l.local = applied
	l.changed("spec", applied.GetResourceVersion() != before)
	return nil
}

// disown takes the spec of an object that is taken over from who has written it so far: what the remote object later doesn't say any more
// would stay theirs. Values stay.
func (l *look) disown(ctx context.Context) error {
	after := &unstructured.Unstructured{}
	err := l.Local.Unmanage(ctx, l.r, l.local, after, func(e metav1.ManagedFieldsEntry) bool {
		var owned map[string]any
		return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil &&
			json.Unmarshal(e.FieldsV1.GetRawBytes(), &owned) == nil && owned["f:spec"] != nil
	})
	if err == nil && after.GetUID() != "" {
		l.local = after
	}
	return err
}

// generations says on the remote object what came down of it. It is written last: after a crash before, the object isn't taken for
// synced though it isn't.
func (l *look) generations(ctx context.Context) error {
	want := map[string]string{
		l.keys.LocalGeneration:  strconv.FormatInt(l.local.GetGeneration(), 10),
		l.keys.RemoteGeneration: strconv.FormatInt(l.remote.GetGeneration(), 10),
		l.keys.LocalUID:         string(l.local.GetUID()),
	}
	patch := map[string]any{}
	has := l.remote.GetAnnotations()
	for k, v := range want {
		if has[k] != v {
			patch[k] = v
		}
	}
	if _, said := has[l.keys.Message]; said {
		patch[l.keys.Message] = nil
	}
	if len(patch) == 0 {
		return nil
	}
	return l.patchRemote(ctx, "generations", map[string]any{"metadata": map[string]any{"annotations": patch}})
}

// tell says on the remote object why it isn't mirrored.
func (l *look) tell(ctx context.Context, message string) error {
	l.why = message
	for len(message) > longestMessage || !utf8.ValidString(message) {
		message = message[:min(len(message), longestMessage+1)-1]
	}
	if l.remote.GetAnnotations()[l.keys.Message] == message {
		return nil
	}
	return l.patchRemote(ctx, "message", map[string]any{"metadata": map[string]any{"annotations": map[string]any{l.keys.Message: message}}})
}

// tellRefusal says on the remote object what an API answered that won't do something. Of what passes by itself nothing is said.
func (l *look) tellRefusal(ctx context.Context, message string, err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || stale(err) || kube.IsAway(err) {
		return nil
	}
	return l.tell(ctx, fmt.Sprintf("%s: %s", message, answer.Status().Message))
}

// makeNamespace makes the local namespace, with the mark that lets it be deleted again.
func (l *look) makeNamespace(ctx context.Context) error {
	err := l.Local.Create(ctx, kube.Namespaces, &corev1.Namespace{
		TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{
			Name: l.localNamespace(l.item), Annotations: map[string]string{l.keys.Owner: l.item.Name, l.keys.Source: l.Source},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	l.changed("namespace", err == nil)
	return of(local, err)
}
