package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// localStack is a directory with the NATS server of a local stack, in which the test then is.
func localStack(t *testing.T) *natsserver.Server {
	t.Helper()
	dir := t.TempDir()
	srv, err := natsserver.Start(t.Context(), filepath.Join(dir, ".stoker", "nats"), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	if err := os.WriteFile(filepath.Join(dir, ".stoker", "nats", "url"), []byte(srv.URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("NATS_URL", "")
	return srv
}

func TestAPortalComesAndGoesWhileTheServerRuns(t *testing.T) {
	srv := localStack(t)
	intake, err := events.Connect(events.Config{
		URL: srv.URL(), User: name.ServiceIntake, SeedFile: srv.SeedFile(name.ServiceIntake), StreamReplicas: 1,
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer intake.Close()
	if err := intake.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	disconnected := make(chan struct{}, 1)
	intake.Conn().SetDisconnectErrHandler(func(*nats.Conn, error) { disconnected <- struct{}{} })

	if code, out, errs := cli(t, "", "portal", "add", "shop", "--namespace", "acme", "--namespace", "globex"); code != exitOK || !strings.Contains(out, "shop.nk") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	seed := srv.Portals().SeedFile("shop")
	if info, err := os.Stat(seed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	t.Run("the NATS command line has a context for it", func(t *testing.T) {
		fromContext(t, filepath.Join(".stoker", "nats", "context", "shop.json"))
	})
	kept := filepath.Join(t.TempDir(), "shop.nk") // a removed portal may have a copy of its seed
	if data, err := os.ReadFile(seed); err != nil || os.WriteFile(kept, data, 0o600) != nil {
		t.Fatal(err)
	}
	nkey, err := nats.NkeyOptionFromSeed(kept)
	if err != nil {
		t.Fatal(err)
	}
	shop, err := nats.Connect(srv.URL(), nkey, nats.Timeout(time.Minute), nats.MaxReconnects(0))
	if err != nil {
		t.Fatal(err)
	}
	defer shop.Close()
	for namespace, may := range map[string]bool{"acme": true, "globex": true, "default": false} {
		_, err := shop.Request(events.Tenant(namespace, "demo").CommandSubject(), nil, map[bool]time.Duration{true: time.Minute, false: 100 * time.Millisecond}[may])
		if (err == nil) != may {
			t.Errorf("commands in %s: %v", namespace, err)
		}
	}

	closed := shop.StatusChanged(nats.CLOSED)
	if code, out, errs := cli(t, "", "portal", "remove", "shop"); code != exitOK {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	<-closed
	if _, err := nats.Connect(srv.URL(), nkey, nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a portal that was removed: %v", err)
	}
	select {
	case <-disconnected:
		t.Error("others were cut off, too")
	default:
	}
	if left, err := filepath.Glob(filepath.Join(".stoker", "nats", "context", "*")); err != nil || len(left) != 2 {
		t.Errorf("of the contexts are left: %v, %v", left, err)
	}
	if code, _, errs := cli(t, "", "portal", "remove", "shop"); code != exitFailed || !strings.Contains(errs, "stoker portal list") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

// fromContext connects as the NATS command line does that is given a context.
func fromContext(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ URL, NKey string }
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	nkey, err := nats.NkeyOptionFromSeed(c.NKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // it counts wherever one is
	nc, err := nats.Connect(c.URL, nkey, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	nc.Close()
}

func TestPortalsForServersElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	do := func(wantCode int, says string, args ...string) string {
		t.Helper()
		code, out, errs := cli(t, "", append([]string{"portal", "--config-dir", dir}, args...)...)
		if code != wantCode || !strings.Contains(out+errs, says) {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
		return out
	}
	do(exitOK, "no portals", "list")
	do(exitOK, "--signal reload", "add", "shop", "--namespace", "acme", "--kind", "datastores", "--max-connections", "3")
	do(exitFailed, "there is a portal of that name", "add", "shop", "--namespace", "acme")
	do(exitFailed, "can't be the name of a namespace", "add", "other", "--namespace", "a.b")
	do(exitFailed, "belongs to Kubernetes or Stoker", "add", "other", "--namespace", "kube-system")
	do(exitFailed, "belongs to Kubernetes or Stoker", "add", "other", "--namespace", "stoker-system")
	do(exitFailed, "must be datastores or kubeconfiggenerators", "add", "other", "--namespace", "acme", "--kind", "secrets")
	do(exitFailed, "at least one", "add", "other")
	do(exitFailed, "user of Stoker itself", "add", "certs", "--namespace", "acme")
	do(exitFailed, "must be a DNS label", "add", "../other", "--namespace", "acme")
	do(exitUsage, "must be table", "list", "-o", "xml")
	do(exitOK, "acme         datastores", "list")
	var all []events.Portal
	if err := json.Unmarshal([]byte(do(exitOK, "", "list", "-o", "json")), &all); err != nil || len(all) != 1 || all[0].Limits.Connections != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 || files[0].Name() != events.PortalsFile || files[1].Name() != "shop.nk" {
		t.Errorf("%v, %v", files, err)
	}
	// The servers take it, beside what `make generate` writes.
	srv, err := natsserver.Start(t.Context(), dir, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	do(exitOK, "removed", "remove", "shop")
	do(exitFailed, "no portal of that name", "remove", "shop")
}
