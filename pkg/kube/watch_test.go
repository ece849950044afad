package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/health"
)

// script is an API server whose answers are given: one for each request, in order.
type script struct {
	mu       sync.Mutex
	answers  []func(http.ResponseWriter, *http.Request)
	requests []string // method, and of lists and watches the version
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Query().Get("watch")+"/"+r.URL.Query().Get("resourceVersion"))
	var answer func(http.ResponseWriter, *http.Request)
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if answer == nil {
		<-r.Context().Done()
		return
	}
	answer(w, r)
}

// sent returns the requests that have come so far.
func (s *script) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *script) client(t *testing.T) *Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	k, err := New(&rest.Config{Host: server.URL}, Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func answer(code int, body any) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func status(code int, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	}
}

func object(name, version string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version, Labels: map[string]string{"of": name}},
	}
}

func list(version string, objects ...metav1.PartialObjectMetadata) metav1.PartialObjectMetadataList {
	return metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: objects,
	}
}

type event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

func events(all ...event) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, e := range all {
			_ = json.NewEncoder(w).Encode(e)
		}
	}
}

func TestWatch(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){
		answer(http.StatusOK, list("10", object("kept", "3"), object("gone", "4"))),
		events(event{watch.Added, object("new", "11")}, event{watch.Bookmark, object("", "20")}),
		events(event{watch.Error, status(http.StatusGone, metav1.StatusReasonExpired)}),
		answer(http.StatusOK, list("30", object("kept", "3"), object("new", "11"))),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []string
	lists := 0
	err := s.client(t).WatchListed(ctx, Secrets, "", "", func(c Change) {
		seen = append(seen, fmt.Sprintf("%s %s %s", c.Type, c.Object.Name, c.Object.Labels["of"]))
	}, func() {
		if lists++; lists == 2 {
			cancel()
		}
	})
	if err != nil {
		t.Error(err)
	}
	want := []string{"ADDED kept kept", "ADDED gone gone", "ADDED new new", "ADDED kept kept", "ADDED new new", "DELETED gone gone"}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
	// From where the list was, then from the last that was seen, then anew since the server doesn't know that any more.
	if want := []string{"GET /0", "GET 1/10", "GET 1/20", "GET /0"}; !slices.Equal(s.sent()[:len(want)], want) {
		t.Errorf("requested %q, want %q", s.sent(), want)
	}
}

// A list that succeeds after it didn't says that the server is back: it may be the last thing that is asked for a long time.
func TestTenantsInAfterAnOutage(t *testing.T) {
	var said bytes.Buffer
	taken := object("a", "3")
	taken.Annotations = map[string]string{name.AnnotationDataStore: ""}
	s := &script{answers: []func(http.ResponseWriter, *http.Request){
		answer(http.StatusTooManyRequests, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)),
		answer(http.StatusOK, list("5", taken, object("b", "4"))),
	}}
	k := s.client(t)
	k.health = health.New(slog.New(slog.NewTextHandler(&said, nil)))
	var seen []string
	if err := k.TenantsIn(t.Context(), []int{name.Partition(taken.Namespace, taken.Name)}, func(o *metav1.PartialObjectMetadata) {
		seen = append(seen, o.Name)
	}); err != nil || len(seen) != 1 {
		t.Errorf("saw %v: %v", seen, err)
	}
	if away := k.health.Away(); len(away) > 0 || !strings.Contains(said.String(), "is away") {
		t.Errorf("away are %v, said was %s", away, said.String())
	}
}

func TestWatchFiltered(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){
		answer(http.StatusOK, list("10", object("ours", "3"), object("theirs", "4"))),
		events(event{watch.Modified, object("theirs", "11")}, event{watch.Modified, object("ours", "12")}, event{watch.Error, status(http.StatusGone, metav1.StatusReasonExpired)}),
		answer(http.StatusOK, list("30", object("theirs", "11"))),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []string
	lists := 0
	err := s.client(t).WatchFiltered(ctx, Secrets, "", func(_, name string) bool { return name == "ours" }, func(c Change) {
		seen = append(seen, string(c.Type)+" "+c.Object.Namespace+"/"+c.Object.Name)
	}, func() {
		if lists++; lists == 2 {
			cancel()
		}
	})
	if want := []string{"ADDED default/ours", "MODIFIED default/ours", "DELETED default/ours"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("got %q, %v, want %q", seen, err, want)
	}
}

func TestWatchEndsWhenRefused(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden))}}
	if err := s.client(t).Watch(t.Context(), Secrets, "", "", func(Change) {}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}
