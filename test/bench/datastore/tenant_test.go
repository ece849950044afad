package datastore

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// server is a tenant's API server, and kine beside it if there is one.
type server struct {
	address   string // of its pod
	api, kine process
	kineTook  time.Duration // from the start of kine to that of kube-apiserver
	ready     time.Duration // from the start of kube-apiserver
	client    *kubernetes.Clientset
}

// process is a container's, as the node of the local stack names it.
type process struct {
	pid     int
	started time.Time
}

// usage is what it has used; nothing if it doesn't run.
func (p process) usage(b *testing.B) env.Usage {
	b.Helper()
	if p.pid == 0 {
		return env.Usage{}
	}
	u, err := env.UsageOf(p.pid)
	check(b, err)
	return u
}

var containerID = regexp.MustCompile(`^process://(\d+)-(\d+)$`)

// processOf is a container's process while it runs.
func processOf(statuses []corev1.ContainerStatus, container string) (p process) {
	for _, s := range statuses {
		m := containerID.FindStringSubmatch(s.ContainerID)
		if s.Name == container && s.State.Running != nil && m != nil {
			p.pid, _ = strconv.Atoi(m[1])
			ns, _ := strconv.ParseInt(m[2], 10, 64)
			p.started = time.Unix(0, ns)
		}
	}
	return p
}

// podOf is the tenant's pod that isn't being deleted, nil if there is none.
func podOf(b *testing.B, key events.Key) *corev1.Pod {
	b.Helper()
	var pods corev1.PodList
	check(b, e.Admin.List(b.Context(), kube.Pods, key.Namespace, name.LabelName+"="+key.Name, &pods))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	return nil
}

// restart has another pod take the place of the tenant's, and measures how long its API server takes to be ready.
func restart(b *testing.B, key events.Key) *server {
	b.Helper()
	old := podOf(b, key).Name
	e.Kubectl(b, e.Local.Kubeconfig("admin"), "delete", "pod", "-n", key.Namespace, old, "--grace-period=1", "--wait=false")
	return serverOf(b, key, old)
}

// serverOf is the API server of the tenant's pod, which is another than one named.
func serverOf(b *testing.B, key events.Key, not string) *server {
	b.Helper()
	s := &server{}
	poll(b, "the pod of "+key.String()+" to run", func() bool {
		pod := podOf(b, key)
		if pod == nil || pod.Name == not {
			return false
		}
		s.address = pod.Status.PodIP
		s.api, s.kine = processOf(pod.Status.ContainerStatuses, name.ContainerAPIServer), processOf(pod.Status.InitContainerStatuses, name.ContainerKine)
		return s.api.pid != 0
	})
	config, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig(b, key))
	check(b, err)
	// The balancer in between would use this machine's CPU, too, and knows ready pods only.
	config.TLSClientConfig.ServerName = strings.Split(strings.TrimPrefix(config.Host, "https://"), ":")[0]
	config.Host = "https://" + s.address + ":6443"
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	s.client, err = kubernetes.NewForConfig(config)
	check(b, err)
	insecure := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	poll(b, key.String()+" to be ready", func() bool {
		resp, err := insecure.Get(config.Host + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	s.ready = time.Since(s.api.started)
	if s.kine.pid != 0 {
		s.kineTook = s.api.started.Sub(s.kine.started)
	}
	return s
}

// poll waits for a moment, to 10 ms.
func poll(b *testing.B, what string, is func() bool) {
	b.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(2 * time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			b.Fatalf("never happened: %s", what)
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
	}
}

const (
	namespace  = "default"
	configMaps = 5000
	writers    = 20
)

// kilobyte is what each ConfigMap holds.
var kilobyte = strings.Repeat("0123456789abcdef", 64)

// create makes ConfigMaps, so many at once, and returns how long each request took, and all together.
func (s *server) create(b *testing.B, prefix string, n, atOnce int) (each []time.Duration, all time.Duration) {
	b.Helper()
	each = make([]time.Duration, n)
	next := make(chan int)
	var work sync.WaitGroup
	failed := make(chan error, atOnce)
	began := time.Now()
	for range atOnce {
		work.Go(func() {
			for i := range next {
				sent := time.Now()
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(prefix, "-", i)}, Data: map[string]string{"data": kilobyte}}
				if _, err := s.client.CoreV1().ConfigMaps(namespace).Create(b.Context(), o, metav1.CreateOptions{}); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
				each[i] = time.Since(sent)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	work.Wait()
	all = time.Since(began)
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
	return each, all
}

// clear deletes all ConfigMaps that create made.
func (s *server) clear(b *testing.B) {
	b.Helper()
	check(b, s.client.CoreV1().ConfigMaps(namespace).DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// watch notes when it sees each ConfigMap that is made.
type watch struct {
	mu   sync.Mutex
	seen map[string]time.Time
	stop func()
}

func (s *server) watch(b *testing.B) *watch {
	b.Helper()
	list, err := s.client.CoreV1().ConfigMaps(namespace).List(b.Context(), metav1.ListOptions{Limit: 1})
	check(b, err)
	of, err := s.client.CoreV1().ConfigMaps(namespace).Watch(b.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	check(b, err)
	w := &watch{seen: map[string]time.Time{}, stop: of.Stop}
	go func() {
		for event := range of.ResultChan() {
			o, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				continue
			}
			w.mu.Lock()
			if _, again := w.seen[o.Name]; !again {
				w.seen[o.Name] = time.Now()
			}
			w.mu.Unlock()
		}
	}()
	return w
}

// at is when an object was seen; it waits for that.
func (w *watch) at(b *testing.B, object string) (at time.Time) {
	b.Helper()
	poll(b, "the watch to see "+object, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		at = w.seen[object]
		return !at.IsZero()
	})
	return at
}

// list reads all ConfigMaps, in pages or, with a limit of 0, at once: the median of five.
func (s *server) list(b *testing.B, limit int64) time.Duration {
	b.Helper()
	var took []time.Duration
	for range 5 {
		began, n, rest := time.Now(), 0, ""
		for {
			page, err := s.client.CoreV1().ConfigMaps(namespace).List(b.Context(), metav1.ListOptions{Limit: limit, Continue: rest})
			check(b, err)
			n += len(page.Items)
			if rest = page.Continue; rest == "" {
				break
			}
		}
		took = append(took, time.Since(began))
		if n < configMaps {
			b.Fatalf("%d ConfigMaps listed", n)
		}
	}
	return median(took)
}

// BenchmarkTenant measures a tenant's API server on each driver.
func BenchmarkTenant(b *testing.B) {
	e.Services(b)
	for b.Loop() {
		starts := newTable("start to ready", "kine ms", "API server ms", "with 5000 ConfigMaps: kine ms", "API server ms")
		creates := newTable("5000 ConfigMaps of 1 KB", "created/s, 20 at once", "median ms", "99 % ms", "one at a time, median ms", "sent till a watch sees it, median ms", "max")
		lists := newTable("5000 ConfigMaps listed", "all at once ms", "in pages of 500 ms")
		costs := newTable("memory and CPU", "kine MB", "after", "kine CPU s for 5000", "API server MB", "after", "API server CPU s for 5000")
		connected := newTable("connections of one pod", "while it starts", "while 20 create", "at rest")
		for _, driver := range drivers {
			open(b, driver)
			o, key := tenant("on-"+driver, driver)
			e.Apply(b, o)
			e.Ready(b, key)
			empty := restart(b, key)
			e.Ready(b, key)
			starting := empty.connections(b)

			w := empty.watch(b)
			var alone, delay []time.Duration
			for i := range 100 {
				each, _ := empty.create(b, fmt.Sprint("alone-", i), 1, 1)
				done := time.Now()
				alone = append(alone, each...)
				delay = append(delay, w.at(b, fmt.Sprint("alone-", i, "-0")).Sub(done.Add(-each[0])))
			}
			w.stop()
			kineBefore, apiBefore := empty.kine.usage(b), empty.api.usage(b)
			sampling := empty.sample(b)
			each, all := empty.create(b, "bench", configMaps, writers)
			loaded := sampling.stop()
			kineAfter, apiAfter := empty.kine.usage(b), empty.api.usage(b)
			perSecond := configMaps / all.Seconds()
			creates.row(driver, perSecond, median(each), at(each, 0.99), median(alone), median(delay), at(delay, 1))
			lists.row(driver, empty.list(b, 0), empty.list(b, 500))
			costs.row(driver, kineBefore.MB, kineAfter.MB, kineAfter.CPU-kineBefore.CPU, apiBefore.MB, apiAfter.MB, apiAfter.CPU-apiBefore.CPU)
			if empty.sql(b) {
				connected.row(driver, starting.open, loaded.open, empty.connections(b).open)
			}
			full := restart(b, key)
			starts.row(driver, empty.kineTook, empty.ready, full.kineTook, full.ready)
			b.ReportMetric(perSecond, driver+"-created/s")
			b.ReportMetric(float64(empty.ready.Milliseconds()), driver+"-ready-ms")
			e.Delete(b, key)
			e.Gone(b, key)
		}
		for _, t := range []table{starts, creates, lists, costs, connected} {
			t.print(b)
		}
	}
}

// connections are what kine tells about those it has to an SQL server.
type connections struct {
	// open at the moment, or at most.
	open int
	// waits is how often somebody had to wait for one, so far, and how long all of them.
	waits  int
	waited time.Duration
	// closed is how many were closed because too many were idle.
	closed int
}

var metric = regexp.MustCompile(`(?m)^go_sql_(\w+)\{[^}]*\} ([0-9.e+-]+)$`)

// connections asks kine. All is 0 if there is none, or none to an SQL server.
func (s *server) connections(b *testing.B) (c connections) {
	b.Helper()
	c, err := s.ask(b.Context())
	check(b, err)
	return c
}

func (s *server) ask(ctx context.Context) (c connections, err error) {
	if s.kine.pid == 0 {
		return c, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+":8080/metrics", nil)
	if err != nil {
		return c, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
		v, _ := strconv.ParseFloat(m[2], 64)
		switch m[1] {
		case "open_connections":
			c.open = int(v)
		case "wait_count_total":
			c.waits = int(v)
		case "wait_duration_seconds_total":
			c.waited = time.Duration(v * float64(time.Second))
		case "max_idle_closed_total":
			c.closed = int(v)
		}
	}
	return c, err
}

// sql reports whether kine has an SQL server.
func (s *server) sql(b *testing.B) bool { b.Helper(); return s.connections(b).open > 0 }

// sampler looks ten times a second how many connections there are.
type sampler struct {
	stop func() connections
}

// sample begins to look; stop returns the most that were open, and what happened meanwhile.
func (s *server) sample(b *testing.B) sampler {
	b.Helper()
	before := s.connections(b)
	ctx, cancel := context.WithCancel(b.Context())
	most, done := before.open, make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if c, err := s.ask(ctx); err == nil {
					most = max(most, c.open)
				}
			}
		}
	}()
	return sampler{stop: func() connections {
		cancel()
		<-done
		after := s.connections(b)
		return connections{max(most, after.open), after.waits - before.waits, after.waited - before.waited, after.closed - before.closed}
	}}
}
