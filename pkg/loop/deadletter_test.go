package loop_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/natstest"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestACommandAsLargeAsTheServerAllowsIsBuried(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	run(t, &loop.Loop{Bus: s.Connect(t, "intake", ""), Service: "intake", Commands: true, Handle: func(context.Context, *loop.Turn) error {
		return &intent.Permanent{Reason: "TooLarge", Message: "far too large"}
	}})
	portal := s.Connect(t, events.UserPortal, "")
	key := events.Tenant("default", "demo")
	m := events.Encode(key.CommandSubject(), portal.NewEvent(key, "1", event.TenantApply, nil, time.Now()))
	m.Data = []byte{}
	overhead := m.Size() - len(m.Subject)
	m.Data = []byte(strings.Repeat("x", events.DefaultLimits().Payload-overhead-1024))
	if _, err := portal.JetStream().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	st, err := s.Connect(t, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the command in the dead letters, cut short", func() bool {
		m, err := st.GetLastMsgForSubject(t.Context(), key.DeadSubject("intake"))
		return err == nil && m.Header.Get("Stoker-Truncated") != "" && len(m.Data) == events.MaxPayload && m.Header.Get("ce-id") == "1"
	})
}
