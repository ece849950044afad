// Package events is CloudEvents on JetStream, as Stoker uses it: subjects, streams and consumers, the rights of each NATS user (the
// table of who wakes on and reads what), publishing, and the state of each tenant with its revisions. The loop that works on what
// is received is pkg/loop.
package events
