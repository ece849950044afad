package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if len(s.requests) != 1 {
		t.Errorf("sent %q", s.requests)
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
	if !slices.Equal(s.requests, []string{"GET /"}) {
		t.Errorf("sent %q", s.requests)
	}
}
