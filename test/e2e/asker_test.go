package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// patience is how long a client of a tenant's API waits for an answer. One that comes later, or not at all, is a failure.
const patience = 30 * time.Second

// asker asks a tenant's API without a pause, as several clients that know of no other and try nothing twice: each question and each
// write has a connection of its own, so that what a Service would show is what is seen.
type asker struct {
	cfg  *rest.Config
	stop func()

	mu       sync.Mutex
	begun    time.Time
	answered map[string]int // by what was asked
	versions map[string]int // that were told
	failed   []string
	last     time.Time     // answer
	gap      time.Duration // longest time without an answer
	slowest  time.Duration
}

// keepAsking begins to read and to write; end ends it.
func keepAsking(t *testing.T, kubeconfig []byte) *asker {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	a := &asker{cfg: cfg, begun: time.Now(), last: time.Now(), answered: map[string]int{}, versions: map[string]int{}}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { a.repeat(ctx, "read", http.MethodGet, "/version", "") })
		all.Go(func() { a.repeat(ctx, "read", http.MethodGet, "/api/v1/namespaces/kube-system", "") })
		all.Go(func() {
			a.repeat(ctx, "write", http.MethodPatch, "/api/v1/namespaces/default", `{"metadata":{"annotations":{"asked":"%d"}}}`)
		})
	}
	a.stop = func() { cancel(); all.Wait() }
	t.Cleanup(a.stop)
	return a
}

func (a *asker) repeat(ctx context.Context, what, method, path, body string) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		answer, err := a.once(ctx, method, path, strings.ReplaceAll(body, "%d", fmt.Sprint(began.UnixNano())))
		if ctx.Err() != nil {
			return
		}
		a.note(what+" "+path, began, answer, err)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// once sends a request on a new connection.
func (a *asker) once(ctx context.Context, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config, err := rest.TLSConfigFor(a.cfg)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, a.cfg.Host+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s", resp.Status, answer)
	}
	return answer, err
}

func (a *asker) note(what string, began time.Time, answer []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.slowest = max(a.slowest, now.Sub(began))
	if err != nil {
		a.failed = append(a.failed, fmt.Sprintf("%s after %s, %.1f s after the start: %v", what, now.Sub(began).Round(time.Millisecond), began.Sub(a.begun).Seconds(), err))
		return
	}
	a.answered[what]++
	a.gap, a.last = max(a.gap, now.Sub(a.last)), now
	var v struct{ GitVersion string }
	if json.Unmarshal(answer, &v) == nil && v.GitVersion != "" {
		a.versions[v.GitVersion]++
	}
}

// fewest is how often each thing is asked at least for it to say something.
const fewest = 50

// end stops asking, and fails the test if any question or write failed, or there were too few of them, or none to one of the
// versions. How long it was without an answer at most is logged.
func (a *asker) end(t *testing.T, key events.Key, versions ...string) {
	t.Helper()
	a.stop()
	t.Logf("%s: answered %v by %v in %.1f s; longest time without an answer %s, slowest answer %s", key, a.answered, a.versions,
		time.Since(a.begun).Seconds(), a.gap.Round(time.Millisecond), a.slowest.Round(time.Millisecond))
	if len(a.failed) > 0 {
		t.Errorf("%d failed:\n%s", len(a.failed), strings.Join(a.failed[:min(len(a.failed), 5)], "\n"))
	}
	for what, n := range a.answered {
		if n < fewest {
			t.Errorf("only %d answers to %s", n, what)
		}
	}
	if len(a.answered) != 3 {
		t.Errorf("answered only %v", a.answered)
	}
	for _, v := range versions {
		if a.versions[v] == 0 {
			t.Errorf("nobody was answered by %s, but by %v", v, a.versions)
		}
	}
}
