package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/test/inside"
)

// asker asks a tenant's API ten times a second, each time on a new connection, and tries nothing twice.
type asker struct {
	stop func()

	mu       sync.Mutex
	answered int
	last     time.Time     // when something was answered last
	gap      time.Duration // the longest time without an answer
	failed   []string
}

// keepAsking begins to ask; end ends it.
func (i *installation) keepAsking(t *testing.T, n string) *asker {
	t.Helper()
	config := i.client(t, n)
	if config.Dial != nil {
		t.Fatalf("%s isn't reached from here at %s: run the test where the nodes' ports are reached", n, config.Host)
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true},
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := &asker{last: time.Now()}
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for begun := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				all.Go(func() { a.ask(ctx, client, config.Host, time.Since(begun)) })
			}
		}
	})
	a.stop = func() { cancel(); all.Wait() }
	t.Cleanup(a.stop)
	return a
}

func (a *asker) ask(ctx context.Context, client *http.Client, host string, after time.Duration) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/api/v1/namespaces/kube-system", nil)
	if err == nil {
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("it answers %s", response.Status)
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.answered++
		a.gap, a.last = max(a.gap, time.Since(a.last)), time.Now()
		return
	}
	a.failed = append(a.failed, fmt.Sprintf("%.1f s after the first: %v", after.Seconds(), err))
}

// keepAskingFromPod has a pod ask a tenant ten times a second, each time on a new connection; end ends it, and each request must have been answered.
func (i *installation) keepAskingFromPod(t *testing.T, n string) (end func(during string)) {
	t.Helper()
	pods, pod := i.core.CoreV1().Pods(namespace), i.runInside(t, "ask", i.client(t, n))
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	last := func() (asked inside.Asked, err error) {
		log, err := pods.GetLogs(pod, &corev1.PodLogOptions{TailLines: new(int64(1))}).DoRaw(t.Context())
		if err == nil {
			err = json.Unmarshal(log, &asked)
		}
		return asked, err
	}
	answers := func(least int) (asked inside.Asked) {
		t.Helper()
		poll.Nil(t, "a pod to ask "+n, func() (err error) {
			if asked, err = last(); err == nil && asked.Answered+asked.Failures < least {
				err = fmt.Errorf("%+v", asked)
			}
			return err
		})
		return asked
	}
	before := answers(1)
	return func(during string) {
		t.Helper()
		asked := answers(before.Answered + before.Failures + 10)
		i.report.line(t, fmt.Sprintf("during %s: %d requests answered, %d failed", during, asked.Answered, asked.Failures))
		if asked.Failures > 0 {
			t.Errorf("during %s requests failed: %q", during, asked.Failed)
		}
	}
}

// end stops asking; each request must have been answered.
func (a *asker) end(t *testing.T, r *report, during string) {
	t.Helper()
	a.endDisturbed(t, r, during)
	if len(a.failed) > 0 {
		t.Errorf("during %s requests failed: %q", during, a.failed[:min(5, len(a.failed))])
	}
}

// endDisturbed stops asking, where requests may have failed, but not all.
func (a *asker) endDisturbed(t *testing.T, r *report, during string) {
	t.Helper()
	a.stop()
	r.line(t, fmt.Sprintf("during %s: %d requests answered, %d failed, %.1f s at most without an answer",
		during, a.answered, len(a.failed), max(a.gap, time.Since(a.last)).Seconds()))
	if a.answered == 0 {
		t.Errorf("during %s no request was answered: %q", during, a.failed[:min(5, len(a.failed))])
	}
}
