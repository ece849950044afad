package kube

// Objects of the management cluster that belong to a tenant. Their names are derived from the tenant's, so somebody else's object may
// bear one. Such an object is never changed or deleted: what is applied either makes the object or is applied to one that is known to
// be the tenant's, and what is deleted is the object that was looked at. Each is one request, which the server refuses when it isn't so.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// Owner is the TenantControlPlane that objects in its namespace belong to.
type Owner struct{ Name, UID string }

// Belonging says whose an object is, seen from an [Owner].
type Belonging int

// Whose an object is.
const (
	// Foreign: it has another controller, or none and not both labels of the owner.
	Foreign Belonging = iota
	// Former: its controller was an earlier object of the owner's name.
	Former
	// Own: the owner is its controller. So is an object without a controller that has the labels [name.LabelProject] and
	// [name.LabelName] of the owner: its owner was taken away, it comes from a backup, or somebody hands it over.
	Own
)

// Of says whose an object of the owner's namespace is.
func (w Owner) Of(o metav1.Object) Belonging {
	switch c := metav1.GetControllerOf(o); {
	case c == nil:
		if l := o.GetLabels(); l[name.LabelProject] == name.Project && l[name.LabelName] == w.Name {
			return Own
		}
	case c.UID == types.UID(w.UID):
		return Own
	case c.Kind == TenantControlPlanes.Kind && c.Name == w.Name:
		return Former
	}
	return Foreign
}

// TakenError means that an object bears a name of one of the tenant's and isn't the tenant's. It passes when that object goes, or
// when its owner is put right.
type TakenError struct {
	Kind, Namespace, Name string
	// By is the object's controller; nil for none.
	By *metav1.OwnerReference
	// Owner is whose it should be, Belonging how it stands to that.
	Owner     Owner
	Belonging Belonging
}

// Taken is the error for an object of a kind that isn't the owner's.
func (w Owner) Taken(kind string, o metav1.Object) *TakenError {
	return &TakenError{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), By: metav1.GetControllerOf(o), Owner: w, Belonging: w.Of(o),
	}
}

// Error says which object it is, whose, and the ways out.
func (e *TakenError) Error() string {
	object := e.Kind + " " + e.Namespace + "/" + e.Name
	if e.Belonging == Former {
		return fmt.Sprintf("%s belongs to an earlier TenantControlPlane %s (UID %s): it is waited for until Kubernetes has removed it",
			object, e.By.Name, e.By.UID)
	}
	whose := "nothing: it has no controller"
	if e.By != nil {
		whose = e.By.Kind + " " + e.By.Name
	}
	return fmt.Sprintf("%s is not this tenant's and is left as it is; it belongs to %s. Delete it, give the tenant another name, or "+
		"hand it over: no controller, and labels %s=%s and %s=%s",
		object, whose, name.LabelProject, name.Project, name.LabelName, e.Owner.Name)
}

const (
	// versionOfNone is the resourceVersion that an object is applied with which must not be there: the server makes the object then, and
	// answers with a conflict when there is one, since 1 is the version of an empty store. (With 0, which kinds of Kubernetes' own take
	// for any version, it would be applied to what is there.)
	versionOfNone = "1"
	// ownedTries is how often an object is looked at again that was made, replaced or deleted meanwhile.
	ownedTries = 4
)

// ApplyOwned is [Client.Apply] for an object of the owner. known is the UID of the owner's object, if the caller knows it: then, and
// for an object that isn't there yet, it is one request. Otherwise the object is looked at first. *[TakenError] when the object isn't
// the owner's, and [intent.ErrStale] when others keep replacing it.
func (c *Client) ApplyOwned(ctx context.Context, r Resource, obj metav1.Object, owner Owner, known types.UID) error {
	want, err := applicable(r, obj)
	if err != nil {
		return err
	}
	uid := known
	for range ownedTries {
		body, err := onto(want, uid)
		if err != nil {
			return err
		}
		applied := c.apply(ctx, r, obj.GetNamespace(), obj.GetName(), body, obj)
		if !another(applied) {
			return applied
		}
		live := &metav1.PartialObjectMetadata{}
		switch err := c.Get(ctx, r, obj.GetNamespace(), obj.GetName(), live); {
		case apierrors.IsNotFound(err):
			uid = ""
			continue
		case err != nil:
			return err
		case owner.Of(live) != Own:
			return owner.Taken(r.Kind, live)
		case live.UID == uid && apierrors.IsInvalid(applied): // for another reason
			return applied
		}
		uid = live.UID
	}
	return fmt.Errorf("%s %s/%s: %w", r.Kind, obj.GetNamespace(), obj.GetName(), intent.ErrStale)
}

// ApplyOnto is [Client.Apply] onto the object with a UID, or, with an empty one, for an object that isn't there. [intent.ErrStale] when what
// is there is another.
func (c *Client) ApplyOnto(ctx context.Context, r Resource, obj metav1.Object, uid types.UID) error {
	want, err := applicable(r, obj)
	if err != nil {
		return err
	}
	body, err := onto(want, uid)
	if err != nil {
		return err
	}
	err = c.apply(ctx, r, obj.GetNamespace(), obj.GetName(), body, obj)
	if another(err) {
		return fmt.Errorf("%s %s/%s: %w: %w", r.Kind, obj.GetNamespace(), obj.GetName(), intent.ErrStale, err)
	}
	return err
}

// onto encodes what is applied so that it depends on the object that is there: the one with the UID, or none when that is empty.
func onto(o map[string]any, uid types.UID) ([]byte, error) {
	meta, ok := o["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("an object without metadata can't be applied")
	}
	delete(meta, "resourceVersion")
	if delete(meta, "uid"); uid != "" {
		meta["uid"] = uid
	} else {
		meta["resourceVersion"] = versionOfNone
	}
	return json.Marshal(o)
}

// another reports whether an object was not applied because the one that is there is, or may be, another than was meant: it has
// another UID (invalid), there is none with that UID or one in the place of none (conflict), or it has a second controller (invalid).
func another(err error) bool {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err):
		return true
	case !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil:
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid" || c.Field == "metadata.ownerReferences"
	})
}

// DeleteOwned is [Client.Delete] for an object of the owner; anybody else's is left alone and counts as none.
func (c *Client) DeleteOwned(
	ctx context.Context, r Resource, namespace, object string, owner Owner, o metav1.DeleteOptions,
) (found bool, err error) {
	live := &metav1.PartialObjectMetadata{}
	err = c.Get(ctx, r, namespace, object, live)
	if apierrors.IsNotFound(err) || err == nil && owner.Of(live) != Own {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return c.DeleteOnly(ctx, r, live, o)
}

// HeldError means that an object was deleted and is there still, since finalizers keep it. It passes when whoever put them there takes
// them off.
type HeldError struct {
	Kind, Namespace, Name string
	// Finalizers that the object has.
	Finalizers []string
	// Since is when the object was deleted.
	Since time.Time
}

// Error says which object it is, since when it is deleted, and what keeps it.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s %s/%s to go: it was deleted at %s, and is held by what isn't Stoker's: %s",
		e.Kind, e.Namespace, e.Name, e.Since.UTC().Format(time.RFC3339), FinalizersOf(e.Finalizers))
}

// Held describes objects that are kept, of which there must be one: the kind and the text of the first by kind and name, how many more
// there are, and since when the one is kept that was deleted first.
func Held(all []*HeldError) (kind, text string, since time.Time) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *HeldError) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	kind, text, since = all[0].Kind, all[0].Error(), all[0].Since
	for _, e := range all[1:] {
		if e.Since.Before(since) {
			since = e.Since
		}
	}
	if len(all) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	return kind, text, since
}

// FinalizersOf are finalizers in words, quoted, for anybody names them as they like.
func FinalizersOf(all []string) string {
	quoted := make([]string, len(all))
	for i, f := range all {
		quoted[i] = strconv.Quote(f)
	}
	if len(all) == 1 {
		return "finalizer " + quoted[0]
	}
	return "finalizers " + strings.Join(quoted, ", ")
}

// RemoveOwned is [Client.Remove] for the owner's object of a name; anybody else's is left alone and counts as none.
func (c *Client) RemoveOwned(ctx context.Context, r Resource, namespace, object string, owner Owner) (deleted bool, err error) {
	live := &metav1.PartialObjectMetadata{}
	err = c.Get(ctx, r, namespace, object, live)
	if apierrors.IsNotFound(err) || err == nil && owner.Of(live) != Own {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return c.Remove(ctx, r, live)
}

// Remove is [Client.DeleteOnly] for whoever goes on once the object is gone: *[HeldError] while finalizers keep it. deleted reports
// whether this call had it deleted; one that is being deleted already isn't deleted again.
func (c *Client) Remove(ctx context.Context, r Resource, read *metav1.PartialObjectMetadata) (deleted bool, err error) {
	left := read
	if read.DeletionTimestamp == nil {
		only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(read.UID)}}
		left = &metav1.PartialObjectMetadata{} // what is answered: a Status, or the object as it was, when nothing is left of it
		deleted, err = c.delete(ctx, r, read.Namespace, read.Name, only, left)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if left.DeletionTimestamp == nil || len(left.Finalizers) == 0 {
		return deleted, nil
	}
	return deleted, &HeldError{
		Kind: r.Kind, Namespace: read.Namespace, Name: read.Name, Finalizers: left.Finalizers, Since: left.DeletionTimestamp.Time,
	}
}

// DeleteOnly is [Client.Delete] for the very object that was read: one that has been made in its place is left alone, and counts as
// none.
func (c *Client) DeleteOnly(ctx context.Context, r Resource, read metav1.Object, o metav1.DeleteOptions) (found bool, err error) {
	o.Preconditions = &metav1.Preconditions{UID: new(read.GetUID())}
	found, err = c.Delete(ctx, r, read.GetNamespace(), read.GetName(), o)
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return found, err
}
