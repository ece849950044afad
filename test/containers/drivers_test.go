package containers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	tc "github.com/testcontainers/testcontainers-go"
)

// database is one that a DataStore may be of.
type database struct {
	image    string // the variable of .env
	driver   string // the package whose tests run on it
	variable string // by which these are told
	// entrypoint in place of the image's, where the images that stand in have another.
	entrypoint []string
	// standIn is the name of an image that is built here where the official one can't be pulled, if there is one.
	standIn string
}

// TestDrivers has the drivers' own tests run on the official images of the databases. Servers are containers in this machine's network,
// with the directory of the test that starts them, as the user as whom they would be processes.
func TestDrivers(t *testing.T) {
	needEngine(t)
	needOwnEngine(t)
	for name, db := range map[string]database{
		"etcd": {
			image: "ETCD_IMAGE", driver: "etcd", variable: "STOKER_TEST_ETCD", entrypoint: []string{"/usr/local/bin/etcd"}, standIn: "etcd",
		},
		"NATS":       {image: "NATS_IMAGE", driver: "nats", variable: "STOKER_TEST_NATS", entrypoint: []string{"/nats-server"}, standIn: "nats"},
		"PostgreSQL": {image: "POSTGRES_IMAGE", driver: "postgres", variable: "STOKER_TEST_POSTGRES"},
		"MariaDB":    {image: "MARIADB_IMAGE", driver: "mysql", variable: "STOKER_TEST_MYSQL"},
		"MySQL":      {image: "MYSQL_IMAGE", driver: "mysql", variable: "STOKER_TEST_MYSQL"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runner{image: environment(t, nil)[db.image], entrypoint: db.entrypoint, label: "dev.stoker.test=" + rand.Text()}
			if !there(t, r.image) {
				if db.standIn == "" {
					t.Skipf("%s can't be had here; services/datastore/driver runs the driver's tests on Debian's server", r.image)
				}
				if testing.Short() {
					t.Skip("long: services/datastore/driver runs the driver's tests on the same program as a process")
				}
				build(t, db.standIn)
				r.image = environment(t, nil, "deployments/compose/built.env")[db.image]
			}
			t.Cleanup(func() { r.clear(t) })
			server := httptest.NewServer(r)
			t.Cleanup(server.Close)
			began := time.Now()
			testDriver(t, db.driver, db.variable+"="+server.URL+"/"+name)
			if r.ran.Load() == 0 {
				t.Errorf("no container of %s was asked for", r.image)
			}
			t.Logf("%s: %d containers, %s", r.image, r.ran.Load(), time.Since(began).Round(time.Second))
		})
	}
}

// needOwnEngine skips the test where containers have neither this machine's network nor its files.
func needOwnEngine(t *testing.T) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	said, err := docker(t.Context(), "info", "--format", "{{.Name}} {{.SecurityOptions}}")
	if err != nil {
		t.Fatal(err)
	}
	if name, options, _ := strings.Cut(said, " "); name != host || strings.Contains(options, "rootless") {
		t.Skipf("set-up: containers of the engine on %q (%s) don't have the network and the files of this machine, %q", name, options, host)
	}
}

// testDriver runs the tests of a driver, built as `make test` builds them.
func testDriver(t *testing.T, driver string, variable string) {
	t.Helper()
	ctx := t.Context()
	if end, ok := t.Deadline(); ok { // leaves time to remove the containers
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-2*time.Minute))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-race", "-count=1", "-timeout=15m", "./driver/"+driver)
	cmd.Dir, cmd.Env = filepath.Join(root, "services/datastore"), append(os.Environ(), "GOWORK=", "CGO_ENABLED=1", variable)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		t.Errorf("the tests of services/datastore/driver/%s: %v", driver, err)
	}
}

// runner runs containers of an image for the drivers' tests, which are of another module and stop, pause and remove them by themselves
// (internal/testing/testserver). It answers with the container's id.
type runner struct {
	image      string
	entrypoint []string
	label      string // of all its containers
	ran        atomic.Int64
}

func (r *runner) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var want struct {
		Dir, User string
		Env, Args []string
	}
	if err := json.NewDecoder(request.Body).Decode(&want); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key, value, _ := strings.Cut(r.label, "=")
	c, err := tc.Run(request.Context(), r.image,
		tc.WithEntrypoint(r.entrypoint...), tc.WithCmd(want.Args...), tc.WithLabels(map[string]string{key: value}),
		tc.WithConfigModifier(func(c *container.Config) { c.User, c.Env = want.User, append(c.Env, want.Env...) }),
		tc.WithHostConfigModifier(func(c *container.HostConfig) { c.NetworkMode, c.Binds = "host", []string{want.Dir + ":" + want.Dir} }),
	)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.ran.Add(1)
	_, _ = w.Write([]byte(c.GetContainerID()))
}

// clear removes what the drivers' tests left, as they do when they are ended.
func (r *runner) clear(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	left, err := docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+r.label)
	if err == nil && left != "" {
		t.Logf("removed containers that were left: %s", left)
		_, err = docker(ctx, append([]string{"rm", "--force", "--volumes"}, strings.Fields(left)...)...)
	}
	if err != nil {
		t.Error(err)
	}
}
