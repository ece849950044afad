package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/local/stack"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// resting is how long processes are watched at rest; the clock of /proc counts hundredths of a second.
const resting = 2 * time.Minute

// BenchmarkRest is what nothing costs: CPU seconds a minute of each service and of a NATS server of its own, which syncs each write
// to disk, beside no tenants and beside four that run; and of that server before anything uses it, and when the services have ended.
// From its first stream on a server reads the clock ten times a second.
func BenchmarkRest(b *testing.B) {
	dir := b.TempDir()
	procs, url := map[string]*exec.Cmd{}, ""
	procs["NATS"], url = startNATS(b, dir)
	b.Run("empty", func(b *testing.B) {
		for b.Loop() {
			rest(b, procs)
		}
	})
	for _, s := range name.Services() {
		procs[s] = startService(b, dir, s, url)
	}
	sleep(b.Context(), 30*time.Second)
	for _, tenants := range []int{0, 4} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			for b.Loop() {
				for i := range tenants {
					o := env.Tenant(fmt.Sprintf("rest-%d", i), "v1.36.3")
					if err := e.Admin.Apply(b.Context(), kube.TenantControlPlanes, o); err != nil {
						b.Fatal(err)
					}
					awaitReady(b, o)
				}
				if tenants > 0 {
					sleep(b.Context(), 30*time.Second) // second looks are over
				}
				rest(b, procs)
			}
		})
	}
	for _, s := range name.Services() {
		if err := procs[s].Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		delete(procs, s)
	}
	sleep(b.Context(), 30*time.Second)
	b.Run("ended", func(b *testing.B) {
		for b.Loop() {
			rest(b, procs)
		}
	})
}

// rest watches processes that have nothing to do.
func rest(b *testing.B, procs map[string]*exec.Cmd) {
	b.Helper()
	read := func() usage {
		u := usage{}
		for n, p := range procs {
			got, err := env.UsageOf(p.Process.Pid)
			if err != nil {
				b.Fatal(err)
			}
			u[n] = got
		}
		return u
	}
	before := read()
	sleep(b.Context(), resting)
	after := read()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nat rest\tCPU s a minute\t\n")
	all := 0.0
	for _, n := range append(name.Services(), "NATS") {
		if procs[n] == nil {
			continue
		}
		c := (after[n].CPU - before[n].CPU) / resting.Minutes()
		all += c
		fmt.Fprintf(w, "%s\t%.3f\t\n", n, c)
	}
	fmt.Fprintf(w, "all\t%.3f\t\n", all)
	_ = w.Flush()
	b.ReportMetric(all, "cpu-s/min")
}

func awaitReady(b *testing.B, o *v1alpha1.TenantControlPlane) {
	b.Helper()
	env.Eventually(b, o.Name+" Ready", func() error {
		var have v1alpha1.TenantControlPlane
		if err := e.Admin.Get(b.Context(), kube.TenantControlPlanes, o.Namespace, o.Name, &have); err != nil {
			return err
		}
		for _, c := range have.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("%s is not Ready", o.Name)
	})
}

// startNATS starts a server as a process, with the users of the stack's server.
func startNATS(b *testing.B, dir string) (cmd *exec.Cmd, url string) {
	b.Helper()
	bin, err := e.Local.Images().Build(b.Context(), images.NATS, progress.None)
	if err != nil {
		b.Fatal(err)
	}
	theirs := filepath.Dir(e.NATS.JetStreamDir())
	conf, err := os.ReadFile(filepath.Join(theirs, "nats.conf"))
	if err != nil {
		b.Fatal(err)
	}
	_, accounts, found := strings.Cut(string(conf), "accounts {")
	if !found {
		b.Fatal("the stack's server has no accounts")
	}
	portals, err := os.ReadFile(filepath.Join(theirs, events.PortalsFile))
	if err != nil {
		b.Fatal(err)
	}
	ours, address := filepath.Join(dir, "nats.conf"), port.Address(b, "127.0.0.1")
	text := fmt.Sprintf("server_name: rest\nlisten: %q\njetstream { store_dir: %q, sync_interval: always }\naccounts {%s", address, dir, accounts)
	if err := errors.Join(os.WriteFile(ours, []byte(text), 0o600), os.WriteFile(filepath.Join(dir, events.PortalsFile), portals, 0o600)); err != nil {
		b.Fatal(err)
	}
	return startProcess(b, dir, "nats", exec.Command(filepath.Join(bin, "nats-server"), "-c", ours)), "nats://" + address
}

func startService(b *testing.B, dir, service, url string) *exec.Cmd {
	b.Helper()
	cfg := e.Stack.Service(service, "rest")
	cmd := exec.Command(filepath.Join(env.Root(), "bin", "test", "stoker-"+service))
	cmd.Env = append(os.Environ(), "STOKER_NATS="+url, "STOKER_NATS_SEED="+cfg.NATSSeed, "STOKER_KUBECONFIG="+cfg.Kubeconfig,
		"STOKER_REPLICA=rest", "STOKER_HTTP=127.0.0.1:0", "STOKER_DATASTORE="+stack.DefaultDataStore)
	return startProcess(b, dir, service, cmd)
}

// startProcess starts a process that logs to a file in dir, for the benchmark's time.
func startProcess(b *testing.B, dir, name string, cmd *exec.Cmd) *exec.Cmd {
	b.Helper()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait(); _ = log.Close() })
	return cmd
}
