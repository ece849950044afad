package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// A server that is busy says when to come back; client-go would, up to ten times. When a write is repeated is for the loop to say.
func TestWritesAreSentOnce(t *testing.T) {
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "0")
		answer(http.StatusTooManyRequests, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests))(w, r)
	}
	s := &script{answers: []func(http.ResponseWriter, *http.Request){busy, busy}}
	var away *intent.Unavailable
	if err := s.client(t).Create(t.Context(), Secrets, &metav1.ObjectMeta{Namespace: "default", Name: "x"}); !errors.As(err, &away) || away.Dependency != Dependency {
		t.Errorf("got %v", err)
	}
	if sent := s.sent(); len(sent) != 1 {
		t.Errorf("sent %q", sent)
	}
}

func TestApply(t *testing.T) {
	var body, uri, contentType string
	s := &script{answers: []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body, uri, contentType = string(data), r.URL.Path+"?"+r.URL.Query().Encode(), r.Header.Get("Content-Type")
		answer(http.StatusOK, object("system:coredns", "7"))(w, r)
	}}}
	meta := &metav1.PartialObjectMetadata{}
	if err := s.client(t).ApplyRaw(t.Context(), ClusterRoles, "", "system:coredns", []byte(`{"kind":"ClusterRole"}`), meta); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(body, "{\n") || !json.Valid([]byte(body)) {
		t.Errorf("body %q", body)
	}
	want := "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns?fieldManager=test&fieldValidation=Ignore&force=true&timeout=9s"
	if uri != want || contentType != "application/apply-patch+yaml" || meta.ResourceVersion != "7" {
		t.Errorf("got %s as %s, version %s", uri, contentType, meta.ResourceVersion)
	}
}

func TestFencedWrites(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){answer(http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound))}}
	k := s.client(t)
	ctx := fence.With(t.Context(), func() bool { return false })
	if _, err := k.Delete(ctx, Secrets, "default", "x", metav1.DeleteOptions{}); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("got %v", err)
	}
	if err := k.Get(ctx, Secrets, "default", "x", &struct{}{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if sent := s.sent(); !slices.Equal(sent, []string{"GET /"}) {
		t.Errorf("sent %q", sent)
	}
}

func TestAStatusIsNotWrittenToALaterObjectOfTheName(t *testing.T) {
	s := startServer(t)
	c, requests := s.client("stoker-test")
	definitions := Resource{Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition", GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}}
	things := Resource{Plural: "things", Kind: "Thing", GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}}
	if err := c.ApplyRaw(t.Context(), definitions, "", "things.example.com", []byte(`{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster",
		"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`), nil); err != nil {
		t.Fatal(err)
	}
	create := func() types.UID {
		t.Helper()
		made := &metav1.PartialObjectMetadata{}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // between two looks at a condition
			err := c.ApplyRaw(t.Context(), things, "", "demo", []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"demo"}}`), made)
			if err == nil {
				return made.UID
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	phase := func() string {
		t.Helper()
		var o struct{ Status struct{ Phase string } }
		if err := c.Get(t.Context(), things, "", "demo", &o); err != nil {
			t.Fatal(err)
		}
		return o.Status.Phase
	}
	first := create()
	if err := c.ApplyStatus(t.Context(), things, &metav1.ObjectMeta{Name: "demo", UID: first}, map[string]string{"phase": "First"}); err != nil || phase() != "First" {
		t.Fatalf("%q: %v", phase(), err)
	}
	if _, err := c.Delete(t.Context(), things, "", "demo", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := create()
	if err := c.ApplyStatus(t.Context(), things, &metav1.ObjectMeta{Name: "demo", UID: first}, map[string]string{"phase": "First"}); !apierrors.IsNotFound(err) || phase() != "" {
		t.Errorf("the later object has the status %q of the first: %v", phase(), err)
	}
	if err := c.ApplyStatus(t.Context(), things, &metav1.ObjectMeta{Name: "demo", UID: second}, map[string]string{"phase": "Second"}); err != nil || phase() != "Second" {
		t.Errorf("%q: %v", phase(), err)
	}
	t.Run("of an object that was just read it is one request, unless somebody wrote meanwhile", func(t *testing.T) {
		read := &metav1.PartialObjectMetadata{}
		if err := c.Get(t.Context(), things, "", "demo", read); err != nil {
			t.Fatal(err)
		}
		for what, want := range map[string]int32{"Third": 1, "Fourth": 3} { // refused, read, applied
			if what == "Fourth" {
				read.ResourceVersion = "1"
			}
			requests.n.Store(0)
			err := c.ApplyStatus(t.Context(), things, &read.ObjectMeta, map[string]string{"phase": what})
			if n := requests.n.Load(); err != nil || n != want || phase() != what {
				t.Errorf("%q after %d requests: %v", phase(), n, err)
			}
			if err := c.Get(t.Context(), things, "", "demo", read); err != nil {
				t.Fatal(err)
			}
		}
	})
}
