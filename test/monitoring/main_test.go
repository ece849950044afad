// Package monitoring tries dashboards and alerts on a running installation, which a real Prometheus scrapes.
package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/debian"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) { env.Main(m, func(started *env.Env) { e = started }) }

// interval of scrapes and of rules' evaluation in tests.
const interval = time.Second

// monitored is an installation with all services, and the Prometheus that scrapes it.
type monitored struct {
	promv1.API
	services map[string]*env.Process
	targets  string   // file with the addresses that are scraped
	nats     []string // addresses of stoker nats-metrics
	since    time.Time
}

// start starts the services with all they can show, `stoker nats-metrics` for each NATS server by its monitoring URL, and a Prometheus
// with a file of rules, until the test ends.
func start(t *testing.T, rules string, servers ...string) *monitored {
	t.Helper()
	t.Setenv("STOKER_EVENTS_HTTP", e.HTTP().Address)
	t.Setenv("STOKER_EVENTS_TOKEN", e.HTTP().Tokens)
	t.Setenv("STOKER_TENANT_METRICS", "true")
	e.NoServices(t)
	m := &monitored{services: e.Services(t), since: time.Now()}
	t.Cleanup(func() { e.NoServices(t) })
	for _, server := range servers {
		at := port.Address(t, e.Local.Block().Management().String())
		run(t, exec.Command(e.StokerBin(), "nats-metrics", "--monitor", server, "--http", at))
		m.nats = append(m.nats, at)
	}

	dir := t.TempDir()
	m.targets = filepath.Join(dir, "targets.json")
	m.scrape(t)
	config := fmt.Sprintf(`global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[2]q]
scrape_configs:
  - {job_name: stoker, honor_labels: true, file_sd_configs: [{files: [%[3]q]}]}
`, interval, rules, m.targets)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := debian.Find(t.Context(), "prometheus", "usr/bin/prometheus", progress.None)
	if err != nil {
		t.Fatal(err)
	}
	address := port.Address(t, e.Local.Block().Management().String())
	cmd := exec.Command(program.Path,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Env = append(os.Environ(), program.Env...)
	run(t, cmd)
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	m.API = promv1.NewAPI(client)
	env.Eventually(t, "Prometheus to be ready", func() error { return answers(t.Context(), "http://"+address+"/-/ready") })
	return m
}

// scrape has Prometheus scrape the first replica of each service, NATS, and more.
func (m *monitored) scrape(t *testing.T, more ...string) {
	t.Helper()
	targets := append(slices.Clone(m.nats), more...)
	for _, s := range name.Services() {
		targets = append(targets, m.services[s].Address())
	}
	data, err := json.Marshal([]map[string]any{{"targets": targets}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.targets+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(m.targets+".new", m.targets); err != nil {
		t.Fatal(err)
	}
}

// run runs a program until the test ends, or stop is called.
func run(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), log.Bytes())
		}
	})
	return stop
}

// answers reports whether a URL answers 200.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
