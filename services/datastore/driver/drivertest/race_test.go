//go:build race

package drivertest_test

// 2026-11: kine v0.16.4 looks keys of a bucket up in an index that it changes at the same time (pkg/drivers/nats/kv.go: List
// seeks before it locks), which the race detector rightly ends a test for. All else of TestData runs under it, and NATS
// without it.
const raced = true
