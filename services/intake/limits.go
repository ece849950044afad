package intake

import (
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Limits and timeouts of this package.

// Bounds of one token's requests at one replica, so that no portal takes all of it.
const (
	maxPerToken    = 64  // at once
	tokenPerSecond = 50  // in the long run
	tokenBurst     = 200 // at first
)

// policyLag is how long admission policies may take to hear of a change of the ConfigMap.
const policyLag = 5 * time.Second

// keepBackups is how many scheduled backups stay of a tenant that doesn't say.
const keepBackups = 7

// maxID bounds id and source of a command, in bytes.
const maxID = 256

// maxEarly is how often a command is tried that names a DataStore which admission policies have not heard of yet: some
// seconds in all.
const maxEarly = 5

// maxUnknown is how often a command is tried that the API server answers with an error that is no refusal.
const maxUnknown = 4

// maxErrors bounds what a rejection lists, and with it its size.
const maxErrors = 20

// maxRaces bounds how often a write is tried that somebody else's keeps overtaking.
const maxRaces = 10

const (
	// lookWithin is how long after its last look something is looked at again, and lookSpread how much earlier that may be, so that
	// what was made together isn't looked at together.
	lookWithin = 23 * time.Hour
	lookSpread = 4 * time.Hour
	// lookTick is how often some are looked at, and lookShares the number of ticks it takes to come to all: an hour after a start.
	lookTick   = time.Minute
	lookShares = 60
)

// deadListed is how many dead letters are listed unless more are asked for.
const deadListed = 20

// Bounds of the way in.
const (
	maxInFlight  = 256
	maxBody      = 2 * events.MaxPayload // of a structured event, in which data may be base64
	maxHeaders   = 16 << 10
	headersTime  = 5 * time.Second
	bodyTime     = 10 * time.Second
	publishTime  = 5 * time.Second
	answerTime   = 30 * time.Second
	responseTime = bodyTime + publishTime + answerTime + 10*time.Second
	idleTime     = time.Minute
	closeTime    = 5 * time.Second
)

// reservedFor is how long a reservation counts without the watch showing the tenant.
const reservedFor = 10 * time.Second

// maxTried bounds the search for a culprit: bytes that are decoded for it, and some for each try.
const maxTried = 1 << 20

// maxNamed is how many DataStores are named that a tenant waits for.
const maxNamed = 5

// askTimeout bounds what a plan waits for other services.
const askTimeout = 12 * time.Second

// questionTimeout bounds an answer, for which many messages may have to be read or written one after the other.
const questionTimeout = 25 * time.Second

// The least bounds: a control plane keeps some 300 objects and half a megabyte for itself.
const (
	leastBytes   = 4 << 20
	leastObjects = 1000
)

const (
	// looksEach is how long after each other many tenants are looked at.
	looksEach = 200 * time.Millisecond
	// timersAtOnce is how many timers are on their way to the server at once.
	timersAtOnce = 16
)

// clockShift is more than any clock is put forward or back.
const clockShift = 3 * time.Hour

// longestTimer is below the age at which the stream drops timers; what comes later is looked at in between.
const longestTimer = 14 * 24 * time.Hour

const (
	// slowAnswer is from when on an error of the API server, and the same one of a dry run, count as those of a webhook which hangs, not of
	// one that fails at once: a webhook has a second at least.
	slowAnswer = time.Second
	// stallPause is how long commands for a namespace in which a webhook hangs are refused without a try.
	stallPause = 30 * time.Second
)
