package tenantaddons

import "time"

// Limits and timeouts of this package.

// busyAgain is when it is looked again whether there is a place, should the wake at a job's end be lost.
const busyAgain = 30 * time.Second

// defaultTimeout is spec.timeout where none is said.
const defaultTimeout = 5 * time.Minute

// jobPatience is how long the turn that starts a job waits for its end before it leaves it alone; most are done by then.
const jobPatience = 3 * time.Second

// planEvery is how often a TenantAddon has a turn at most because its AddonReleases stand otherwise.
const planEvery = 100 * time.Millisecond

// lookEvery is how often a TenantAddon is looked at, whatever was missed.
const lookEvery = 24 * time.Hour

// defaultAbandonAfter is Config.AbandonAfter where none is said.
const defaultAbandonAfter = 15 * time.Minute

const (
	// maxJobs is how many installations and removals go on side by side; maxHooked how many of them may be of charts with hooks, which may take
	// as long as spec.timeout says.
	maxJobs, maxHooked = 16, 8
	// maxFetches is how many turns fetch sources side by side.
	maxFetches = 4
)

// listFrom is from how many AddonReleases on they are listed and not read one by one.
const listFrom = 20

const (
	// maxFailing is how many tenants that have failed the status names; maxNamed how many a message does.
	maxFailing, maxNamed = 20, 3
	// maxMessage is how long a message is in the status of a TenantAddon, maxCondition that of a condition.
	maxMessage, maxCondition = 256, 1024
)

// A watch that the tenant's API ends for good, because it doesn't know our certificate or we don't know its, as in a rotation, is begun again
// with the kubeconfig as it is then: after watchPause, twice that, … longestWatchPause.
const (
	watchPause        = time.Second
	longestWatchPause = 30 * time.Second
)

// defaultMaxParallel is how many tenants are changed at once where the spec says nothing.
const defaultMaxParallel = 10
