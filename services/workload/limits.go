package workload

import "time"

// Limits and timeouts of this package.

// maxCause is the longest text of a cause in bytes.
const maxCause = 512

// endAfter is how long pods may take to end, and the kubelet to say so, before they are asked why they haven't.
const endAfter = time.Duration(terminationGrace)*time.Second + 5*time.Second

// keepAttempts is how often a Service that somebody deleted requests its old addresses, within half a second or so.
const keepAttempts = 3

// lookForPodsAfter is when the tenant is looked at again whose former pods have not ended.
const lookForPodsAfter = time.Second

// podsTimeout bounds an answer, which takes a few reads from NATS.
const podsTimeout = 3 * time.Second

// failedAfter is how long pods may take before that counts as a failure, if one that may still end well.
const failedAfter = 3 * time.Minute

// retryDenied is the time until an object that was denied is applied again.
const retryDenied = 30 * time.Second

const (
	// terminationGrace is how long, in seconds, a pod may take to stop. The API server takes shutdownDelay and then what
	// requests in flight need.
	terminationGrace int64 = 20
	// oldReplicaSets are kept by a Deployment for a roll-back, which only the spec can ask for here.
	oldReplicaSets int32 = 2
)

// Pods that aren't ready are asked why once they have been waited for this long, and then each time this has passed.
const (
	askPodsAfter = 8 * time.Second
	askPodsEvery = 15 * time.Second
)

const (
	// slotTime bounds how long a rollout holds its slot: one that can't finish must not hold up the others.
	slotTime = 3 * time.Minute
	// offerTime is how long a freed slot waits for the tenant it was offered to.
	offerTime = 5 * time.Second
)
