package source

import "time"

// Limits and timeouts of this package.

// Limits of archives: all that is in one, those in it included.
const (
	maxUnpacked = 100 << 20
	maxChart    = 32 << 20
	maxFiles    = 10_000
	// maxParsed is how much YAML is parsed: that takes thirty times its size.
	maxParsed = 5 << 20
	// maxNested is how deep charts may lie in charts.
	maxNested = 4
)

// Limits of what is fetched.
const (
	fetchTimeout = 60 * time.Second
	maxDownload  = 20 << 20
	maxIndex     = 50 << 20
	maxRedirects = 5
)

// maxManifest bounds the manifest of an artifact.
const maxManifest = 4 << 20

// revisionLength is how many hex digits of its hash a revision has.
const revisionLength = 16

const (
	// cacheSize is how many bytes of contents a Fetcher keeps.
	cacheSize = 64 << 20
	// maxFetches is how many sources are fetched at once: each takes some times its size for a moment.
	maxFetches = 8
	// maxBuilds is how many are unpacked and built at once.
	maxBuilds = 2
)

// Bounds of a template: of what it makes, of each value in it, of its steps, and of its time. In a value each element counts beside its bytes.
const (
	maxOutput   = 1 << 20
	maxValue    = 1 << 20
	elementSize = 16
	maxNumber   = 10_000
	maxSteps    = 20_000
	maxDuration = 10 * time.Second
)
