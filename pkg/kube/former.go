package kube

// Objects that Kamaji wrote before, as whole objects: what it set is its field manager's, so that an apply that has no such field leaves it.

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

// formerManagers are Kamaji's field managers: the name of its program, and that of its image for development.
var formerManagers = sets.New("kamaji", "manager")

// formerApplied is, in a copy of managed fields, what one of those has by a server-side apply, as some versions of Kamaji do inside tenants.
const formerApplied = "kamaji: applied"

// Formerly reports whether Kamaji's field manager owns anything of an object but its status.
func Formerly(o metav1.Object) bool { return slices.ContainsFunc(o.GetManagedFields(), former) }

func former(f metav1.ManagedFieldsEntry) bool {
	return formerManagers.Has(f.Manager) && f.Subresource == ""
}

// TakeOver makes what Kamaji's field manager owns of an object that was read this client's, so that its next apply removes what it doesn't
// have. Nothing else of the object changes. [intent.ErrStale] when it was changed since it was read.
func (c *Client) TakeOver(ctx context.Context, r Resource, read metav1.Object) error {
	// Of one manager's entries of a kind, all but the first would be lost.
	fields := slices.Clone(read.GetManagedFields())
	for i := range fields {
		if former(fields[i]) && fields[i].Operation == metav1.ManagedFieldsOperationApply {
			fields[i].Manager, fields[i].Operation = formerApplied, metav1.ManagedFieldsOperationUpdate
		}
	}
	from := &metav1.PartialObjectMetadata{}
	from.ResourceVersion, from.ManagedFields = read.GetResourceVersion(), fields
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(from, formerManagers.Union(sets.New(formerApplied)), c.manager)
	if err != nil || len(patch) == 0 {
		return err
	}
	var operations []map[string]any
	if err := json.Unmarshal(patch, &operations); err != nil {
		return err
	}
	return c.patchRead(ctx, r, read, operations, nil)
}

// Disown takes a field, with all that is in it, from Kamaji's field manager, of an object that was read, and decodes the result into out:
// what this client applies there is then its own alone. Nothing is sent when it is already. [intent.ErrStale] when the object was changed
// since it was read.
func (c *Client) Disown(ctx context.Context, r Resource, read metav1.Object, out any, within, field string) error {
	fields, changed := slices.Clone(read.GetManagedFields()), false
	for i, f := range fields {
		var owned map[string]map[string]any
		if !former(f) || f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &owned) != nil || owned["f:"+within]["f:"+field] == nil {
			continue
		}
		delete(owned["f:"+within], "f:"+field)
		raw, err := json.Marshal(owned)
		if err != nil {
			return err
		}
		fields[i].FieldsV1, changed = metav1.NewFieldsV1(string(raw)), true
	}
	if !changed {
		return nil
	}
	return c.replaceManaged(ctx, r, read, fields, out)
}

// Unmanage takes the entries of field managers that of accepts off an object that was read, and decodes the result into out. What they own
// stays, and belongs to whoever applies it next, who can then also take it out. Nothing is sent when there is no such entry.
// [intent.ErrStale] when the object was changed since it was read.
func (c *Client) Unmanage(ctx context.Context, r Resource, read metav1.Object, out any, of func(metav1.ManagedFieldsEntry) bool) error {
	kept := slices.DeleteFunc(slices.Clone(read.GetManagedFields()), of)
	switch {
	case len(kept) == len(read.GetManagedFields()):
		return nil
	case len(kept) == 0:
		kept = append(kept, metav1.ManagedFieldsEntry{}) // an empty list would leave them all
	}
	return c.replaceManaged(ctx, r, read, kept, out)
}

// replaceManaged replaces who owns which fields of the very object that was read.
func (c *Client) replaceManaged(ctx context.Context, r Resource, read metav1.Object, fields []metav1.ManagedFieldsEntry, out any) error {
	return c.patchRead(ctx, r, read, []map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": read.GetResourceVersion()},
	}, out)
}

// patchRead patches the very object that was read.
func (c *Client) patchRead(ctx context.Context, r Resource, read metav1.Object, operations []map[string]any, out any) error {
	operations = append([]map[string]any{{"op": "test", "path": "/metadata/uid", "value": read.GetUID()}}, operations...)
	err := c.JSONPatch(ctx, r, read.GetNamespace(), read.GetName(), operations, out)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return intent.ErrStale
	}
	return err
}
