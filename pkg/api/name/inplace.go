package name

import (
	"slices"
	"strings"
	"time"
)

// InPlace is what AnnotationRestoreInPlace asks for.
type InPlace struct {
	// Backup is location/namespace/name/ID.
	Backup string
	// Namespace and Name are those of the tenant that the backup is of.
	Namespace, Name string
	// At is when it was asked for (UTC). Another time asks for the same backup once more.
	At time.Time
}

// String is the value of the annotation: location/namespace/name/ID@time, the time as RFC 3339 has it.
func (p InPlace) String() string { return p.Backup + "@" + p.At.UTC().Format(time.RFC3339Nano) }

// ParseInPlace reads a value of the annotation.
func ParseInPlace(value string) (p InPlace, ok bool) {
	backup, at, _ := strings.Cut(value, "@")
	parts := strings.Split(backup, "/")
	asked, err := time.Parse(time.RFC3339, at)
	if err != nil || len(parts) != 4 || slices.Contains(parts, "") {
		return InPlace{}, false
	}
	return InPlace{Backup: backup, Namespace: parts[1], Name: parts[2], At: asked.UTC()}, true
}
