package addons

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// barred ends a turn after an error. One that is a webhook's of the tenant is noted, and everything is looked at again soon, after
// as long as that has lasted: nothing tells when the tenant has put its webhook right.
func barred(ctx context.Context, t *loop.Turn, err error) error {
	message := barredBy(err)
	if message == "" {
		return err
	}
	return t.Blocked(ctx, state.Failure{Reason: reason.TenantWebhook, Message: message}, loop.Wake{Kind: webhook})
}

// barredBy says which webhook keeps which objects from being applied; nothing when that isn't all that is wrong. The order of the errors
// makes no difference.
func barredBy(err error) string {
	all := objectErrors(err)
	if len(all) == 0 || slices.ContainsFunc(all, func(e *ObjectError) bool { return e.Webhook == "" }) {
		return ""
	}
	slices.SortFunc(all, func(a, b *ObjectError) int {
		return cmp.Or(cmp.Compare(a.Webhook, b.Webhook), cmp.Compare(a.Ref.String(), b.Ref.String()))
	})
	first := all[0]
	return fmt.Sprintf("the tenant's own webhook %q keeps %s (%d objects in all) from being as it must be: %v",
		first.Webhook, first.Ref, len(all), first.Err)
}

// objectErrors are the errors of objects that an error is, or joins.
func objectErrors(err error) []*ObjectError {
	switch e := err.(type) { //nolint:errorlint // each error of the tree is looked at
	case *ObjectError:
		return []*ObjectError{e}
	case interface{ Unwrap() []error }:
		var all []*ObjectError
		for _, of := range e.Unwrap() {
			all = append(all, objectErrors(of)...)
		}
		return all
	case interface{ Unwrap() error }:
		return objectErrors(e.Unwrap())
	}
	return nil
}
