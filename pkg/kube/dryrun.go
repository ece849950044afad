package kube

import "context"

// dryRunKey marks the context of DryRun.
type dryRunKey struct{}

// DryRun returns a context whose writes the API server judges as any other (schema, policies, webhooks) and does not store.
func DryRun(ctx context.Context) context.Context { return context.WithValue(ctx, dryRunKey{}, true) }

// isDryRun reports whether writes of a context are not to be stored.
func isDryRun(ctx context.Context) bool { return ctx.Value(dryRunKey{}) != nil }
