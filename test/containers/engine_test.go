// Package containers has the tests that need a container engine: docker-compose.yaml, and the drivers on official images.
package containers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/dotenv"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/local/debian"
)

// root of the repository.
const root = "../.."

// tag of the images that are tested.
const tag = "compose-test"

func TestMain(m *testing.M) {
	// The image of the container that removes what is left of tests can't be had everywhere; these remove what they make.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// docker runs the command line of the container engine.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// needEngine skips the test where no container engine answers.
func needEngine(t *testing.T) {
	t.Helper()
	if _, err := docker(t.Context(), "info"); err != nil {
		t.Skipf("set-up: no container engine answers: %v", err)
	}
}

// there tells whether the engine has an image, or can pull it.
func there(t *testing.T, image string) bool {
	t.Helper()
	if _, err := docker(t.Context(), "image", "inspect", image); err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, err := docker(ctx, "pull", "--quiet", image)
	if err != nil {
		t.Logf("image %s can't be pulled: %v", image, err)
	}
	return err == nil
}

// build gives the engine the images of this tree, and of others where theirs can't be pulled.
func build(t *testing.T, names ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{
		"run", "-trimpath", "./tools/imagebuilder/cmd/containerimages", "-load", "-tag", tag, "-version", tag, "-platforms", "linux/" + goarch(t),
	}, names...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// standIn gives the engine an image of Debian's Prometheus, for where its own can't be pulled.
func standIn(t *testing.T, image string) {
	t.Helper()
	program, err := debian.Find(t.Context(), "prometheus", "usr/bin/prometheus", func(line string, _ bool) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	ldd, err := exec.CommandContext(t.Context(), "ldd", program.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{program.Path: "/bin/prometheus"}
	for _, word := range strings.Fields(string(ldd)) {
		if filepath.IsAbs(word) {
			files[word] = word
		}
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to = filepath.Join(dir, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "prometheus.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "--directory", dir, "--create", "--file", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := docker(t.Context(), "import", "--change", `ENTRYPOINT ["/bin/prometheus"]`, archive, image); err != nil {
		t.Fatal(err)
	}
}

func goarch(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOARCH").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// environment is what .env and further files have, with changes.
func environment(t *testing.T, changes map[string]string, more ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range append([]string{".env"}, more...) {
		values, err := dotenv.Read(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, values)
	}
	maps.Copy(all, changes)
	return all
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	poll.Nil(t, what, func() error { return try(t.Context()) })
}
