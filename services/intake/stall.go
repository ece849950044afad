package intake

// Admission webhooks of others that hang or fail: a command whose write none lets through is refused, so that those behind it go on.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// stalls are the namespaces, by kind of object, in which a webhook hangs, each with the time of the next try. It is safe for
// concurrent use.
type stalls struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// left is how long nothing is tried for objects of a kind in a namespace, zero or less when it may be.
func (s *stalls) left(c command, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next[c.key.Kind+"/"+c.key.Namespace].Sub(now)
}

// note begins a pause for objects of a command's kind and namespace, and forgets those that are over.
func (s *stalls) note(c command, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[string]time.Time{}
	}
	for place, at := range s.next {
		if at.Before(now) {
			delete(s.next, place)
		}
	}
	s.next[c.key.Kind+"/"+c.key.Namespace] = now.Add(stallPause)
}

// admitted makes a command's write. The API server gives up on it after some seconds, whatever webhooks do meanwhile; such an error,
// an internal one, and an answer that doesn't come in time, is a refusal if it is admission's: the object can be read, and the same
// write fails although nothing is stored (a dry run). Else it is the API server's or its etcd's, and is returned.
func (s *svc) admitted(ctx context.Context, t *loop.Turn, c command, write func(context.Context) error) error {
	if left := s.stalls.left(c, time.Now()); left > 0 {
		return stalled(c, fmt.Sprintf("nothing is tried for another %s", left.Round(time.Second)))
	}
	began := time.Now()
	err := s.permitted(ctx, c, write)
	if unanswered(ctx, err) == "" {
		return err
	}
	slow, last := time.Since(began) > slowAnswer, t.Attempt() >= maxUnknown-1
	if !slow && !last {
		return err
	}
	there := &metav1.PartialObjectMetadata{}
	if e := s.kube.Get(ctx, c.kind.Resource, bare(c.key.Namespace), c.key.Name, there); e != nil && !apierrors.IsNotFound(e) {
		return err
	}
	began = time.Now()
	again := unanswered(ctx, write(kube.DryRun(ctx)))
	slow = slow && time.Since(began) > slowAnswer // else the API server was busy
	switch {
	case again == "" || !slow && !last:
		return err
	case !slow:
		return refuse("object", event.RuleInternal, "", state.ClipMessage(again))
	}
	s.stalls.note(c, time.Now())
	s.log.Warn("an admission webhook does not answer", "tenant", c.key.String(), "error", err)
	return stalled(c, again)
}

// stalled is the refusal of a command that an admission webhook doesn't let through; cause is what the API server says, which names
// the webhook unless the webhook has more time than the request.
func stalled(c command, cause string) refusal {
	return refuse("metadata.namespace", event.RuleAdmissionTimeout, bare(c.key.Namespace), state.ClipMessage(fmt.Sprintf(
		"an admission webhook for %s of this namespace does not answer (%s); repair it or exclude the namespace from it (kubectl get "+
			"validatingwebhookconfigurations,mutatingwebhookconfigurations), then send the command again", c.key.Kind, cause)))
}

// unanswered is the API server's word that it could not say yes or no to a write, or that it said nothing in time: when it is busy, its
// own time-out may come after ours, or after the answer has begun, and then it breaks the answer off by an HTTP/2 INTERNAL_ERROR. Empty
// for every other error, and for none.
func unanswered(ctx context.Context, err error) string {
	var status apierrors.APIStatus
	var no refusal
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return "the API server did not answer in time"
	case kube.BrokenOff(err):
		return "the API server broke off its answer"
	case !errors.As(err, &status), errors.As(refused(err, nil), &no):
		return ""
	}
	if s := status.Status(); s.Code == http.StatusInternalServerError || s.Code == http.StatusGatewayTimeout {
		return s.Message
	}
	return ""
}
