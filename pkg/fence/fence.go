// Package fence says whether this process may still write. A replica may work on a tenant while it holds a lease; a process
// that was stopped and goes on finds its lease over and must change nothing. Whoever writes (the Kubernetes client, the drivers
// of DataStores, events.Bus, loop's write of a state) calls [Check] just before it does.
package fence

import (
	"context"
	"errors"
)

// ErrFenced means that this replica may no longer work on the tenant: its lease ran out, or its partition moved to another
// replica.
var ErrFenced = errors.New("this replica no longer holds the partition")

type heldKey struct{}

// With returns a context whose work may write while held returns true. held is called before every write, from any goroutine.
func With(ctx context.Context, held func() bool) context.Context {
	return context.WithValue(ctx, heldKey{}, held)
}

// Check returns [ErrFenced] when the replica that works under ctx may write no longer, and nil under a context that no fence was
// put on.
func Check(ctx context.Context) error {
	if held, ok := ctx.Value(heldKey{}).(func() bool); ok && !held() {
		return ErrFenced
	}
	return nil
}
