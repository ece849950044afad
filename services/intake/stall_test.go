package intake

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestAStallHoldsUpItsNamespaceAndKindForAWhile(t *testing.T) {
	var s stalls
	of := func(kind, namespace string) command {
		return command{key: events.Key{Kind: kind, Namespace: namespace, Name: "demo"}}
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	hangs := of(event.TenantControlPlanes, "a")
	if left := s.left(hangs, now); left > 0 {
		t.Errorf("%s before anything hung", left)
	}
	s.note(hangs, now)
	if left := s.left(hangs, now.Add(10*time.Second)); left != 20*time.Second {
		t.Errorf("%s after ten seconds", left)
	}
	if left := s.left(hangs, now.Add(30*time.Second)); left > 0 {
		t.Errorf("%s after half a minute", left)
	}
	for _, c := range []command{of(event.TenantControlPlanes, "b"), of(event.DataStores, "a")} {
		if left := s.left(c, now); left > 0 {
			t.Errorf("%s is held up, too: %s", c.key, left)
		}
	}
	s.note(of(event.TenantControlPlanes, "b"), now.Add(20*time.Second))
	if left := s.left(hangs, now.Add(20*time.Second)); left != 10*time.Second {
		t.Errorf("%s after another namespace's", left)
	}
	if s.note(of(event.TenantControlPlanes, "c"), now.Add(time.Minute)); len(s.next) != 1 {
		t.Errorf("what is over isn't forgotten: %v", s.next)
	}
}

func TestWhatTheAPIServerCouldNotSayYesOrNoTo(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
	}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"an error inside, as of a webhook that fails":  {status(500, metav1.StatusReasonInternalError, "failed calling webhook"), true},
		"a time-out, as of a webhook that hangs":       {status(504, metav1.StatusReasonTimeout, "timeout"), true},
		"too many requests":                            {status(429, metav1.StatusReasonTooManyRequests, "later"), false},
		"a conflict":                                   {status(409, metav1.StatusReasonConflict, "changed"), false},
		"a no":                                         {status(422, metav1.StatusReasonInvalid, "no"), false},
		"what can't be merged, which is a no, too":     {status(500, "", "failed to create typed patch object (default/a; x/v1, Kind=X): .a: duplicate entries"), false},
		"a connection that ended":                      {errors.New("EOF"), false},
		"an answer that was broken off":                {fmt.Errorf("patch: %w", http2.StreamError{Code: http2.ErrCodeInternal}), true},
		"a request that was refused by the connection": {http2.StreamError{Code: http2.ErrCodeRefusedStream}, false},
		"no answer in time":                            {context.DeadlineExceeded, true},
		"a yes":                                        {nil, false},
	} {
		if got := unanswered(t.Context(), c.err); (got != "") != c.want {
			t.Errorf("%s: %+v", what, got)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := unanswered(ended, context.DeadlineExceeded); got != "" {
		t.Errorf("of a turn that ended before the answer came: %s", got)
	}
}
