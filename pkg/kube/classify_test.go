package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestClassify(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for what, c := range map[string]struct {
		err  error
		want intent.Intent
	}{
		"no error":                     {nil, intent.Done},
		"no connection":                {errors.New("connection refused"), intent.Wait},
		"too many requests":            {apierrors.NewTooManyRequests("busy", 1), intent.Wait},
		"a server that is stopping":    {apierrors.NewServiceUnavailable("stopping"), intent.Wait},
		"a token that has run out":     {apierrors.NewUnauthorized("who"), intent.Wait},
		"a time-out of the server":     {apierrors.NewTimeoutError("slow", 1), intent.Wait},
		"a time-out of the server's":   {apierrors.NewServerTimeout(secrets, "get", 1), intent.Wait},
		"an object that isn't there":   {apierrors.NewNotFound(secrets, "x"), intent.Retry},
		"an object that is refused":    {apierrors.NewForbidden(secrets, "x", nil), intent.Retry},
		"a webhook that fails":         {apierrors.NewInternalError(errors.New("failed calling webhook")), intent.Wait},
		"an etcd without a leader":     {generic(500, "etcdserver: no leader"), intent.Wait},
		"a proxy without a server":     {apierrors.NewGenericServerResponse(502, "get", secrets, "x", "bad gateway", 0, true), intent.Wait},
		"a gateway that waited":        {apierrors.NewGenericServerResponse(504, "get", secrets, "x", "", 0, true), intent.Wait},
		"a write that was kept back":   {fmt.Errorf("patch: %w", fence.ErrFenced), intent.HandOver},
		"a write that somebody's beat": {apierrors.NewConflict(secrets, "x", nil), intent.Retry},
	} {
		t.Run(what, func(t *testing.T) {
			err := (&Client{dependency: Dependency}).classify(t.Context(), c.err)
			if got := intent.Of(err); got != c.want || c.want == intent.Wait != IsAway(err) {
				t.Errorf("%v: intent %d, away %v", err, got, IsAway(err))
			}
			var asked, answered apierrors.APIStatus
			if errors.As(c.err, &asked) != errors.As(err, &answered) {
				t.Errorf("the server's answer is lost: %v", err)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := (&Client{}).classify(ended, errors.New("closed")); !errors.Is(err, context.Canceled) || IsAway(err) {
		t.Errorf("of a context that ended: %v", err)
	}
}

// generic is what the server makes of an error that it has no reason for.
func generic(code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
}

// A server whose etcd is away is away for all; one that can't do one thing answers the others.
func TestWhoIsAwayWithA500(t *testing.T) {
	internal := func(message string) error { return apierrors.NewInternalError(errors.New(message)) }
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"etcd has no leader":         {generic(500, "etcdserver: no leader"), Dependency},
		"etcd changes its leader":    {generic(500, "etcdserver: leader changed"), Dependency},
		"etcd has no quorum":         {generic(500, "etcdserver: request timed out"), Dependency},
		"etcd is full":               {generic(500, "etcdserver: mvcc: database space exceeded"), Dependency},
		"etcd can't be reached":      {generic(500, `rpc error: code = Unavailable desc = connection error: dial tcp 127.0.0.1:2379`), Dependency},
		"etcd is slow":               {generic(500, "context deadline exceeded"), Dependency},
		"the server is busy":         {apierrors.NewTooManyRequests("busy", 1), Dependency},
		"the server says later":      {apierrors.NewServerTimeout(schema.GroupResource{Resource: "secrets"}, "get", 1), Dependency},
		"a proxy has no server":      {apierrors.NewGenericServerResponse(502, "get", schema.GroupResource{}, "x", "", 0, true), Dependency},
		"a webhook doesn't answer":   {internal(`failed calling webhook "x": Post "https://x": context deadline exceeded`), ""},
		"a webhook can't be reached": {internal(`failed calling webhook "x": Post "https://x": dial tcp: connection refused`), ""},
		"a conversion fails":         {generic(500, `conversion webhook for a/v1 failed: Post "https://x": EOF`), ""},
		"the server panics": {apierrors.NewGenericServerResponse(500, "get", schema.GroupResource{}, "x",
			"This request caused apiserver to panic. Look in the logs for details.", 0, true), ""},
		"an object can't be decrypted": {internal("unable to transform key: no matching key"), ""},
	} {
		t.Run(what, func(t *testing.T) {
			h := health.New(slog.New(slog.DiscardHandler))
			err := (&Client{dependency: Dependency, health: h}).classify(t.Context(), c.err)
			var away *intent.Unavailable
			if !errors.As(err, &away) || away.Dependency != c.want || FailsAlone(err) != (c.want == "") {
				t.Errorf("%T %v: away is %+v, fails alone %v", err, err, away, FailsAlone(err))
			}
			mux, readyz := http.NewServeMux(), httptest.NewRecorder()
			h.Handle(mux)
			mux.ServeHTTP(readyz, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			if down := readyz.Code != http.StatusOK; down != (c.want != "") {
				t.Errorf("the API server counts as down: %v: %s", down, readyz.Body)
			}
		})
	}
}

func TestBrokenOff(t *testing.T) {
	for what, test := range map[string]struct {
		err  error
		want bool
	}{
		"an answer that was broken off":                {fmt.Errorf("patch: %w", http2.StreamError{Code: http2.ErrCodeInternal}), true},
		"a request that was refused by the connection": {http2.StreamError{Code: http2.ErrCodeRefusedStream}, false},
		"an answer": {apierrors.NewTimeoutError("later", 1), false},
		"none":      {},
	} {
		if got := BrokenOff(test.err); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
