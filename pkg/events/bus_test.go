package events_test

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
)

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
