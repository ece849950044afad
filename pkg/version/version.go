// Package version says which build of Stoker a program is. `make` stamps what it says into every program; one that was
// built without make knows as much as the Go toolchain noted.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set at link time: -ldflags "-X github.com/stoker-k8s/stoker/pkg/version.version=v1.2.3 -X ….revision=<commit>".
var version, revision string

// Unknown is the version and the revision of a build that nobody stamped and that Go knows nothing of, such as a test.
const Unknown = "unknown"

// Info describes a build. Every field has a value.
type Info struct {
	// Version is the release, or what git describe says of a build between two: v1.2.3-4-g03893b0.
	Version string `json:"version"`
	// Revision is the git commit; it ends in -dirty if files had been changed since.
	Revision string `json:"revision"`
	// Go is the version of the Go toolchain.
	Go string `json:"goVersion"`
	// Platform is the operating system and the architecture that the program was built for: linux/amd64.
	Platform string `json:"platform"`
}

// Get describes the running program.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return describe(version, revision, build)
}

// describe prefers what was stamped to what Go noted.
func describe(version, revision string, build *debug.BuildInfo) Info {
	noted, changed := "", ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			noted = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "-dirty"
		}
	}
	if noted != "" {
		noted += changed
	}
	module := build.Main.Version
	if module == "(devel)" {
		module = ""
	}
	return Info{
		Version:  cmp.Or(version, module, Unknown),
		Revision: cmp.Or(revision, noted, Unknown),
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String is one line for a person: v1.2.3 (revision 03893b0…, go1.26.0, linux/amd64).
func (i Info) String() string {
	return fmt.Sprintf("%s (revision %s, %s, %s)", i.Version, i.Revision, i.Go, i.Platform)
}
