package events_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// A command is worked on although the tenant's bucket, which is there, doesn't answer, as after a restart of the server: the
// state that is there must not be taken for none.
func TestCommandForABucketThatDoesNotAnswerYet(t *testing.T) {
	s := startNATS(t)
	in := connect(t, s, "intake", "")
	key := events.Tenant("default", "demo")
	answer := func(direct bool) error {
		st, err := in.JetStream().Stream(t.Context(), "KV_"+key.Bucket())
		if err != nil {
			return err
		}
		cfg := st.CachedInfo().Config
		cfg.AllowDirect = direct
		_, err = in.JetStream().UpdateStream(t.Context(), cfg)
		return err
	}
	l := intake(in)
	inner, first := l.Handle, true
	l.Handle = func(ctx context.Context, turn *events.Turn) error {
		if len(turn.Events) == 0 || turn.Events[0].ID() != "2" || !first {
			return inner(ctx, turn)
		}
		first = false
		if turn.Own() != nil {
			t.Error("the bucket answers")
		}
		err := inner(ctx, turn)
		if !errors.Is(err, events.ErrStale) {
			t.Errorf("written: %v", err)
		}
		if err := answer(true); err != nil {
			t.Error(err)
		}
		return err
	}
	run(t, l)
	portal, operator := connect(t, s, events.UserPortal, ""), connect(t, s, events.UserOperator, "")
	accepted := func(id string, generation int64) {
		t.Helper()
		apply(t, portal, key, id)
		eventually(t, "command "+id+" is accepted", func() bool {
			st, err := operator.State(t.Context(), key, "intake")
			return err == nil && st.Inputs == id && st.Generation == generation
		})
	}
	accepted("1", 1)
	if err := answer(false); err != nil {
		t.Fatal(err)
	}
	accepted("2", 2)
	if first {
		t.Error("it was not tried again")
	}
}
