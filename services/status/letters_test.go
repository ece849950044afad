package status

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestDeadLettersAreCountedInNATS(t *testing.T) {
	s, now := start(t), time.Now()
	l := newLetters(s.status, prometheus.NewRegistry())
	l.now = func() time.Time { return now }
	asked := 0
	stream := l.count
	l.count = func(ctx context.Context) (uint64, error) { asked++; return stream(ctx) }
	shows := func(what string, want uint64, known bool, questions int) {
		t.Helper()
		if n, is := l.ask(); is != known || is && n != want || asked != questions {
			t.Errorf("%s: %d (known: %v) by %d questions, want %d (%v) by %d", what, n, is, asked, want, known, questions)
		}
	}
	shows("by a replica without the first partition", 0, false, 0)
	l.keep([]int{0, 3})
	shows("when there are none", 0, true, 1)
	dead := nats.NewMsg(events.Tenant("default", "demo").DeadSubject(name.ServiceStatus))
	if _, err := s.status.PublishMsg(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	shows("a moment later, nobody is asked", 0, true, 1)
	now = now.Add(lettersFor)
	shows("then there is one", 1, true, 2)
	l.count = func(context.Context) (uint64, error) { asked++; return 0, errors.New("away") }
	now = now.Add(lettersFor)
	shows("while NATS is away, it shows none", 0, false, 3)
	shows("and doesn't ask at once again", 0, false, 3)
	l.keep([]int{3})
	l.count, now = stream, now.Add(lettersFor)
	shows("when another replica has the first partition", 0, false, 3)
}
