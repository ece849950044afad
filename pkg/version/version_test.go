package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	git := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "03893b0"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, test := range map[string]struct {
		version, revision string
		build             debug.BuildInfo
		want              Info
	}{
		"what was stamped counts": {
			version: "v1.2.3", revision: "abc",
			build: debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}, Settings: git("true")},
			want:  Info{Version: "v1.2.3", Revision: "abc"},
		},
		"go install knows the module's version": {
			build: debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}},
			want:  Info{Version: "v1.2.3", Revision: Unknown},
		},
		"go build in a clone knows the commit": {
			build: debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: git("false")},
			want:  Info{Version: Unknown, Revision: "03893b0"},
		},
		"a clone with changes is no commit": {
			build: debug.BuildInfo{Settings: git("true")},
			want:  Info{Version: Unknown, Revision: "03893b0-dirty"},
		},
		"nothing is known": {want: Info{Version: Unknown, Revision: Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(test.version, test.revision, &test.build)
			test.want.Go, test.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "v1.2.3", Revision: "03893b0", Go: "go1.26.0", Platform: "linux/amd64"}
	if got, want := i.String(), "v1.2.3 (revision 03893b0, go1.26.0, linux/amd64)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := Get().String(); strings.Contains(s, "  ") || strings.Contains(s, "()") {
		t.Errorf("something of %q is missing", s)
	}
}
