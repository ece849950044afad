package events_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestACommandAsLargeAsTheServerAllowsIsBuried(t *testing.T) {
	s := startNATS(t)
	run(t, &events.Loop{Bus: connect(t, s, "intake", ""), Service: "intake", Commands: true, Handle: func(context.Context, *events.Turn) error {
		return &events.Permanent{Reason: "TooLarge", Message: "far too large"}
	}})
	portal := connect(t, s, events.UserPortal, "")
	key := events.Tenant("default", "demo")
	m := events.Encode(key.CommandSubject(), portal.NewEvent(key, "1", event.TenantApply, nil, time.Now()))
	m.Data = []byte{}
	overhead := m.Size() - len(m.Subject)
	m.Data = []byte(strings.Repeat("x", int(portal.Conn().MaxPayload())-overhead-16))
	if _, err := portal.JetStream().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	st, err := connect(t, s, events.UserOperator, "").JetStream().Stream(t.Context(), events.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command in the dead letters, cut short", func() bool {
		m, err := st.GetLastMsgForSubject(t.Context(), key.DeadSubject("intake"))
		return err == nil && m.Header.Get("Stoker-Truncated") != "" && len(m.Data) == events.MaxPayload && m.Header.Get("ce-id") == "1"
	})
}

func TestIsInbox(t *testing.T) {
	for subject, want := range map[string]bool{
		"_INBOX.abc": true, "_INBOX.abc.1": true, "_INBOX_operator.abc.x-1": false,
		"": false, "_INBOX": false, "_INBOX.": false, "_INBOX.>": false, "_INBOX.*": false, "_INBOX.a b": false, "_INBOX.a\r\nPUB x": false,
		"_INBOXes.a": false, "stoker.fact.1.default.demo.intake.deleting": false, "$JS.API.STREAM.PURGE.STOKER_FACTS": false,
		"_INBOX." + strings.Repeat("a", 300): false,
	} {
		if got := events.IsInbox(subject); got != want {
			t.Errorf("IsInbox(%q) = %v", subject, got)
		}
	}
}
