// Package events is CloudEvents on JetStream, as Stoker uses it: subjects, streams and consumers, the rights of each NATS
// user, publishing, the state of each tenant with its revisions, and the one loop that every service runs (Loop), with the
// partitions it holds, the order of work per tenant, retries, dead letters and timers.
package events
