package bench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stoker-k8s/stoker/deployments/stack"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// resting is how long processes are watched at rest; the clock of /proc counts hundredths of a second.
const resting = 2 * time.Minute

// BenchmarkRest is what nothing costs: CPU seconds a minute of each service and of a NATS server of its own, which syncs each write
// to disk, beside no tenants and beside four that run; and of that server before anything uses it.
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
	conf, err := os.ReadFile(filepath.Join(filepath.Dir(e.NATS.JetStreamDir()), "nats.conf"))
	if err != nil {
		b.Fatal(err)
	}
	bin := filepath.Join(dir, "natsserver")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "./cmd/natsserver")
	build.Dir = filepath.Join(env.Root(), "deployments", "natsserver")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build natsserver: %v\n%s", err, out)
	}
	cmd = exec.Command(bin, filepath.Join(dir, "nats"), "127.0.0.1:0", "jetstream { sync_interval: always }\n"+string(conf))
	if err := os.MkdirAll(filepath.Join(dir, "nats"), 0o700); err != nil {
		b.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func startService(b *testing.B, dir, service, url string) *exec.Cmd {
	b.Helper()
	cfg := e.Stack.Service(service, "rest")
	log, err := os.Create(filepath.Join(dir, service+".log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(env.Root(), "bin", "test", "stoker-"+service))
	cmd.Env = append(os.Environ(), "STOKER_NATS="+url, "STOKER_NATS_SEED="+cfg.NATSSeed, "STOKER_KUBECONFIG="+cfg.Kubeconfig,
		"STOKER_REPLICA=rest", "STOKER_HTTP=127.0.0.1:0", "STOKER_DATASTORE="+stack.DefaultDataStore)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait(); _ = log.Close() })
	return cmd
}
