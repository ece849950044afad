package name

import (
	"strings"
	"time"
)

// DefaultUpgradeTimeout is how long pods of another version may take to become ready, unless an annotation says otherwise.
const DefaultUpgradeTimeout = 10 * time.Minute

// NeverUndone is the value of AnnotationUpgradeTimeout that has no upgrade undone, as 0 does.
const NeverUndone = "never"

// UpgradeTimeout is how long pods of another version may take to become ready by a tenant's annotations; 0 for as long as they like. What
// can't be read counts as not there: the API server lets none be written.
func UpgradeTimeout(annotations map[string]string) time.Duration {
	said := annotations[AnnotationUpgradeTimeout]
	if said == NeverUndone {
		return 0
	}
	d, err := time.ParseDuration(said)
	if err != nil || d < 0 {
		return DefaultUpgradeTimeout
	}
	return d
}

// UpgradeThrough are the versions that a tenant's annotations name for an upgrade of several minor versions, in the order in which they
// are listed.
func UpgradeThrough(annotations map[string]string) []string {
	return strings.FieldsFunc(annotations[AnnotationUpgradeThrough], func(r rune) bool { return r == ',' || r == ' ' })
}
