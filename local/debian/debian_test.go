package debian

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/local/progress"
)

func TestFind(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("STOKER_CACHE", cache)
	const pattern = "usr/lib/stoker-no-such-package/*/bin/program"

	t.Run("a package that can't be had is named with the way out", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := Find(context.Background(), "no-such-package", pattern, progress.None)
		if err == nil || !strings.Contains(err.Error(), "apt-get install no-such-package") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an unpacked one is found, the newest of its versions, with its libraries", func(t *testing.T) {
		root := filepath.Join(cache, "debian", "no-such-package_1")
		for _, file := range []string{"usr/lib/stoker-no-such-package/1/bin/program", "usr/lib/stoker-no-such-package/2/bin/program", "usr/lib/x86_64-linux-gnu/lib.so"} {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := Find(t.Context(), "no-such-package", pattern, progress.None)
		if err != nil || p.Root != root || !strings.HasSuffix(p.Path, "/2/bin/program") ||
			len(p.Env) != 1 || p.Env[0] != "LD_LIBRARY_PATH="+filepath.Join(root, "usr/lib/x86_64-linux-gnu") {
			t.Errorf("got %+v, %v", p, err)
		}
	})
}
