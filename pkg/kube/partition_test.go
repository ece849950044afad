package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// sights are what a watch has told, in order.
type sights struct {
	t    *testing.T
	mu   sync.Mutex
	all  []string
	news chan struct{}
}

func newSights(t *testing.T) *sights { return &sights{t: t, news: make(chan struct{}, 1000)} }

func (s *sights) add(format string, args ...any) {
	s.mu.Lock()
	s.all = append(s.all, fmt.Sprintf(format, args...))
	s.mu.Unlock()
	s.news <- struct{}{}
}

// await waits until so much has been told, and takes it.
func (s *sights) await(n int) []string {
	s.t.Helper()
	deadline := time.After(3 * time.Minute) // on a machine that is busy
	for {
		s.mu.Lock()
		all := slices.Clone(s.all)
		if len(all) >= n {
			s.all = nil
			s.mu.Unlock()
			return all
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-deadline:
			s.t.Fatalf("no more was told than %q", all)
		}
	}
}

// follow runs a watch of ConfigMaps until the test ends.
func (s *sights) follow(c *Client, held *partition.Held, selector string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.WatchPartitions(ctx, ConfigMaps, PartitionWatch{
			Held: held, Selector: selector,
			Changed: func(c Change) { s.add("%s %s", c.Type, c.Object.Name) },
			Moved:   func(stayed []int) { s.add("stayed %v", stayed) },
			Listed:  func(partitions []int) { s.add("listed %v", partitions) },
		})
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func inPartition(p int, n, version string) metav1.PartialObjectMetadata {
	o := object(n, version)
	o.Labels[name.LabelPartition] = strconv.Itoa(p)
	return o
}

// goingOn are events after which the watch goes on.
func goingOn(all ...event) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		events(all...)(w, r)
		w.(http.Flusher).Flush() //nolint:forcetypeassert // as net/http's are
		<-r.Context().Done()
	}
}

func TestAWatchThatMovedTellsNothingTwiceAndListsAllOfItWhenItIsTooOld(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){
		answer(http.StatusOK, list("10", inPartition(1, "a", "3"), inPartition(2, "b", "4"))),
		goingOn(event{watch.Modified, inPartition(2, "b", "12")}),
		answer(http.StatusServiceUnavailable, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
		answer(http.StatusOK, list("20", inPartition(3, "c", "15"))),
		events(event{watch.Deleted, inPartition(3, "c", "13")}, event{watch.Added, inPartition(3, "c", "15")},
			event{watch.Modified, inPartition(2, "b", "16")}, event{watch.Modified, inPartition(3, "c", "21")},
			event{watch.Error, status(http.StatusGone, metav1.StatusReasonExpired)}),
		answer(http.StatusOK, list("30", inPartition(3, "c", "21"))),
	}}
	held, seen := partition.Of(1, 2), newSights(t)
	seen.follow(s.client(t), held, "")
	want := []string{"ADDED a", "ADDED b", "listed [1 2]", "MODIFIED b"}
	if got := seen.await(len(want)); !slices.Equal(got, want) {
		t.Errorf("at first %q", got)
	}
	held.Hold([]int{2, 3})
	want = []string{"stayed [2]", "ADDED c", "listed [3]", "MODIFIED b", "MODIFIED c", "ADDED c", "DELETED b", "listed [2 3]"}
	if got := seen.await(len(want)); !slices.Equal(got, want) {
		t.Errorf("then %q", got)
	}
	// What is gained is listed no older than the watch, and the watch goes on from where it was.
	if want := []string{"GET /0", "GET 1/10", "GET /12", "GET /12", "GET 1/12", "GET /0"}; !slices.Equal(s.sent()[:len(want)], want) {
		t.Errorf("requested %q", s.sent())
	}
}

func TestAWatchMovesWithThePartitions(t *testing.T) {
	server := startServer(t)
	c, requests := server.client("stoker-test")
	admin, _ := server.client("admin")
	ctx := context.WithoutCancel(t.Context())
	write := func(n string, p int, value string) {
		t.Helper()
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: n, Labels: map[string]string{name.LabelPartition: strconv.Itoa(p), "of": "test"},
			}, Data: map[string]string{"key": value},
		}
		if err := admin.Apply(ctx, ConfigMaps, o); err != nil {
			t.Error(err)
			return
		}
		server.awaitCache(ctx, admin, ConfigMaps, o.ResourceVersion)
	}
	var mu sync.Mutex
	var lists []string
	before := func(r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "" {
			return
		}
		mu.Lock()
		lists = append(lists, q.Get("labelSelector"))
		first := len(lists) == 2
		mu.Unlock()
		if first { // nobody watches at this moment
			write("stays", 2, "moved")
			write("lost", 1, "moved")
		}
	}
	requests.before.Store(&before)
	write("lost", 1, "")
	write("stays", 2, "")
	write("gained", 3, "")
	held, seen := partition.Of(), newSights(t)
	held.Hold([]int{1, 2})
	seen.follow(c, held, "of=test")
	if got := seen.await(3); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"ADDED lost", "ADDED stays", "listed [1 2]"}) {
		t.Errorf("at first %q", got)
	}
	write("gained", 3, "changed before")
	held.Hold([]int{2, 3})
	if got := seen.await(4); !slices.Equal(got, []string{"stayed [2]", "ADDED gained", "listed [3]", "MODIFIED stays"}) {
		t.Errorf("when it moved %q", got)
	}
	write("lost", 1, "of others")
	write("gained", 3, "changed")
	if got := seen.await(1); !slices.Equal(got, []string{"MODIFIED gained"}) {
		t.Errorf("then %q", got)
	}
	held.Hold([]int{2})
	write("gained", 3, "while another holds it")
	held.Hold([]int{2, 3}) // whether the watch saw it go or not
	for {
		if got := seen.await(1); slices.Contains(got, "listed [3]") {
			break
		}
	}
	write("stays", 2, "at last")
	for got := []string(nil); !slices.Contains(got, "MODIFIED stays"); {
		got = seen.await(1)
	}
	in := func(partitions string) string { return name.LabelPartition + " in (" + partitions + "),of=test" }
	mu.Lock()
	defer mu.Unlock()
	if want := []string{in("1,2"), in("3"), in("3")}; !slices.Equal(lists, want) {
		t.Errorf("it listed %q", lists)
	}
}
