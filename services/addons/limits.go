package addons

import "time"

// Limits and timeouts of this package.

const (
	// patience is how long Apply and Delete retry what may pass by itself. Beyond it the loop's own retries begin.
	patience = 3 * time.Second
	// probePatience is how long Probe waits for an answer.
	probePatience = 2 * time.Second
	// parallel is how many requests Apply and Delete have under way.
	parallel = 8
)

// A watch that ends by itself is begun again after watchPause, twice that, … longestWatchPause. A tenant's API that doesn't know us, or
// that we don't know, may do so until its pods have the keys of the kubeconfig, as in a rotation.
const (
	watchPause        = time.Second
	longestWatchPause = 30 * time.Second
)

// usePatience bounds how long a tenant's API servers may take to say what they have counted: some megabytes each.
const usePatience = 10 * time.Second

// insideTimeout bounds a look inside a tenant, which may have thousands of nodes, or not answer.
const insideTimeout = 10 * time.Second

// maxJoinTokens bounds the tokens that a tenant has at a time, so that a portal that asks for ever doesn't fill its store.
const maxJoinTokens = 100

const (
	// lookPatience is how long an endpoint has to answer.
	lookPatience = 2 * time.Second
	// lookGrace is how long a turn that has applied everything waits for what came of the look beside it.
	lookGrace = 250 * time.Millisecond
	// An endpoint that doesn't answer is looked at again after soonestLook, and then each time that it has failed for twice as long, up to
	// every latestLook. One that answers is looked at when there is a reason to, and once a day.
	soonestLook = 5 * time.Second
	latestLook  = 10 * time.Minute
)

// rewriteSlice is about how long a turn writes objects anew.
const rewriteSlice = 5 * time.Second

// forbiddenPause is how long a watch that the tenant's API refuses is left alone: a server that has just started has yet to make
// its own roles.
const forbiddenPause = 5 * time.Second

const (
	// maxRequests is how many requests of a tenant are remembered at a time. Further ones are left as they are; a kubelet asks again.
	maxRequests = 1000
	// requestsATurn is how many are looked at in one turn.
	requestsATurn = 20
	// requestPatience is how much of a turn that may take.
	requestPatience = 5 * time.Second
	// requestPause is how long those are left alone about which the tenant's API gave an error.
	requestPause = 30 * time.Second
)
