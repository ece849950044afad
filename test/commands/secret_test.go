package commands

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestACommandWithAPasswordIsRefusedAndKeptNowhere(t *testing.T) {
	startIntake(t, "a")
	password := base64.StdEncoding.EncodeToString([]byte("a-password-that-nobody-keeps"))
	inline := func(n string) command {
		key, o := dataStore(n)
		o["spec"].(map[string]any)["driver"] = "MySQL"
		o["spec"].(map[string]any)["basicAuth"] = map[string]any{"username": map[string]any{"content": "cm9vdA=="}, "password": map[string]any{"content": password}}
		return command{key: key, verb: event.Apply, data: o}
	}
	refuses(t, inline("inline"), "spec.basicAuth.password.content", "Forbidden")
	patch := command{key: events.DataStore("inline-patched"), verb: event.Patch, data: spec(fmt.Sprintf(`{"basicAuth":{"password":{"content":%q}}}`, password))}
	refuses(t, patch, "spec.basicAuth.password.content", "Forbidden")

	misspelt := inline("inline-misspelt")
	misspelt.data.(map[string]any)["spec"].(map[string]any)["basicAuth"] = map[string]any{"Password": map[string]any{"Content": password}}
	silent := inline("inline-silent")
	structured := inline("inline-structured")
	ev := e.Portal.NewEvent(structured.key, "inline-structured", event.CommandType(event.DataStores, event.Apply), structured.data, time.Now())
	whole := nats.NewMsg(structured.key.CommandSubject())
	whole.Header.Set("Content-Type", "application/cloudevents+json")
	whole.Data = event.Marshal(ev)
	for _, m := range []*nats.Msg{misspelt.encode(t, ""), silent.encode(t, ""), whole} {
		env.Publish(t, e.Portal, m)
	}
	for _, key := range []events.Key{misspelt.key, silent.key, structured.key} {
		e.Fact(t, key, name.ServiceIntake, event.Rejected)
		var there any
		if err := e.Admin.Get(t.Context(), resources[key.Kind], "", key.Name, &there); !apierrors.IsNotFound(err) {
			t.Errorf("%s was made: %v", key, err)
		}
	}
	accepts(t, command{key: structured.key, verb: event.Apply, data: func() any { _, o := dataStore("inline-structured"); return o }()})
	refusals := 0
	for _, stream := range []string{events.StreamIntake, events.StreamFacts, events.StreamDead, "KV_" + events.BucketCommands} {
		s, err := e.JetStream().Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		state := s.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
			m, err := s.GetMsg(t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(m.Data, []byte(password)) || bytes.Contains(m.Data, []byte("a-password-that")) {
				t.Errorf("%s keeps it: %s %s", stream, m.Subject, m.Data)
			}
			if stream == events.StreamFacts && bytes.Contains(m.Data, []byte(`"Forbidden"`)) {
				refusals++
			}
		}
	}
	if refusals < 5 {
		t.Errorf("the search finds %d refusals of five", refusals)
	}
}
