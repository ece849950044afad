package kube

// Objects that Kamaji wrote before, as whole objects: what it set is its field manager's, so that an apply that has no such field leaves it.

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

// formerManagers are Kamaji's field managers: the name of its program, and that of its image for development.
var formerManagers = sets.New("kamaji", "manager")

// Formerly reports whether Kamaji's field manager owns anything of an object but its status.
func Formerly(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return formerManagers.Has(f.Manager) && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
	})
}

// TakeOver makes what Kamaji's field manager owns of an object that was read this client's, so that its next apply removes what it doesn't
// have. Nothing else of the object changes. [intent.ErrStale] when it was changed since it was read.
func (c *Client) TakeOver(ctx context.Context, r Resource, read interface {
	metav1.Object
	runtime.Object
}) error {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(read, formerManagers, c.manager)
	if err != nil || len(patch) == 0 {
		return err
	}
	var operations []map[string]any
	if err := json.Unmarshal(patch, &operations); err != nil {
		return err
	}
	operations = append([]map[string]any{{"op": "test", "path": "/metadata/uid", "value": read.GetUID()}}, operations...)
	err = c.JSONPatch(ctx, r, read.GetNamespace(), read.GetName(), operations, nil)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return intent.ErrStale
	}
	return err
}
