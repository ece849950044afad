package certs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

func TestWhichFactIsOwed(t *testing.T) {
	t.Parallel()
	certs := func(issuedFor int64, checksum string) *state.Certs {
		return &state.Certs{IssuedFor: issuedFor, Secrets: map[string]state.Secret{name.ComponentCA: {Checksum: checksum}}}
	}
	for sentence, test := range map[string]struct {
		before, after *state.Certs
		expected      string
	}{
		"the first time, issued":                             {&state.Certs{}, certs(7, "a"), event.Issued},
		"after the first stage, issued":                      {certs(0, "a"), certs(7, "a"), event.Issued},
		"for a new generation, issued, changed or not":       {certs(6, "a"), certs(7, "b"), event.Issued},
		"for the same generation, nothing if all stayed":     {certs(7, "a"), certs(7, "a"), ""},
		"for the same generation, rotated if content didn't": {certs(7, "a"), certs(7, "b"), event.Rotated},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := announce(test.before, test.after); got != test.expected {
				t.Errorf("got %q, want %q", got, test.expected)
			}
		})
	}
}

func TestWhenAStateIsUpToDate(t *testing.T) {
	t.Parallel()
	waits := waitFor(pki.Input{})
	for sentence, test := range map[string]struct {
		own  *state.State
		wait state.Wait
		is   bool
	}{
		"without a state, it isn't":                      {nil, state.Wait{}, false},
		"the same inputs and nothing to wait for":        {&state.State{Inputs: "x-7"}, state.Wait{}, true},
		"the same inputs, waiting for the same":          {&state.State{Inputs: "x-7", Wait: waits}, waits, true},
		"whatever the words are":                         {&state.State{Inputs: "x-7", Wait: state.Wait{Reason: waits.Reason, Text: "x"}}, waits, true},
		"other inputs":                                   {&state.State{Inputs: "x-6"}, state.Wait{}, false},
		"after a failure":                                {&state.State{Inputs: "x-7", Failure: &state.Failure{}}, state.Wait{}, false},
		"what was waited for is there":                   {&state.State{Inputs: "x-7", Wait: waits}, state.Wait{}, false},
		"a wait of the version before, still to be done": {&state.State{Inputs: "x-7", Wait: state.Wait{Text: "old"}}, waits, false},
		"a wait of the version before that has its end":  {&state.State{Inputs: "x-7", Wait: state.Wait{Text: "old"}}, state.Wait{}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := upToDate(test.own, "x-7", test.wait); got != test.is {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestWhenSecretsAreLookedAtNext(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for sentence, test := range map[string]struct{ renew, want time.Time }{
		"nothing is to be renewed":        {time.Time{}, now.Add(checkEvery)},
		"a renewal after the check":       {now.Add(checkEvery + 1), now.Add(checkEvery)},
		"a renewal before it":             {now.Add(time.Hour), now.Add(time.Hour)},
		"one that is due":                 {now, now.Add(soonest)},
		"one that is due within a moment": {now.Add(soonest - 1), now.Add(soonest)},
	} {
		if got := checkAt(test.renew, now); !got.Equal(test.want) {
			t.Errorf("%s: %s, not %s", sentence, got, test.want)
		}
	}
}

func TestWhatWakesSayOfSecretsAndGenerators(t *testing.T) {
	t.Parallel()
	wakes := []loop.Wake{{Kind: wakeSecret, Object: "ca"}, {Kind: generator.WakeKubeconfig, Object: "viewer"}}
	if got := generatorsIn(wakes); !slices.Equal(got, []string{"viewer"}) {
		t.Errorf("generators %q", got)
	}
	if got := secretsIn(wakes); !slices.Equal(got, []string{"Secret of ca", "Secret of viewer"}) {
		t.Errorf("Secrets %q", got)
	}
}

func TestWhatIsToldOfSecrets(t *testing.T) {
	t.Parallel()
	soon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	got := fact(event.About{}, &pki.Result{Data: state.Certs{Secrets: map[string]state.Secret{
		"a": {Checksum: "1", NotAfter: soon}, "b": {Checksum: "2", NotAfter: soon.Add(time.Hour)}, "c": {Checksum: "3"},
	}}})
	if !maps.Equal(got.Checksums, map[string]string{"a": "1", "b": "2", "c": "3"}) || !got.NotAfter.Equal(soon) {
		t.Errorf("%+v", got)
	}
}

// turn is a turn of a tenant that was accepted, of a loop that does nothing, until the test ends: its first one, or after failures.
func (r *rig) turn(failures int) *loop.Turn {
	r.t.Helper()
	turns := make(chan *loop.Turn)
	ctx, end := context.WithCancel(context.Background())
	stop := r.run(&loop.Loop{Bus: r.bus("certs"), Service: "certs", Handle: func(_ context.Context, t *loop.Turn) error {
		if t.Attempt() < failures {
			return errors.New("no")
		}
		select {
		case turns <- t:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return nil
	}})
	r.t.Cleanup(func() { end(); stop() })
	r.accept(1)
	return <-turns
}

var (
	unexposed = pki.Input{Namespace: "default", Name: "demo", UID: uid}
	exposed   = pki.Input{Namespace: "default", Name: "demo", UID: uid, Exposed: &pki.Exposed{Endpoint: "192.0.2.7:6443"}}
)

func TestWhetherNothingIsNewButTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 1} {
		turn := newRig(t, nil).turn(failures)
		if failures == 0 && onlyExposed(turn, exposed) {
			t.Error("without a state")
		}
		for sentence, test := range map[string]struct {
			own loop.Outcome
			in  pki.Input
			is  bool
		}{
			"that it is known":                 {loop.Outcome{}, exposed, true},
			"that it isn't known yet":          {loop.Outcome{}, unexposed, false},
			"all was issued before":            {loop.Outcome{Step: event.Issued}, exposed, false},
			"after a failure":                  {loop.Outcome{Failure: &state.Failure{Reason: "x"}}, exposed, false},
			"that it is known, and other SANs": {loop.Outcome{Inputs: "x"}, exposed, false},
		} {
			if test.own.Inputs == "" {
				test.own.Inputs = inputsOf(turn, unexposed)
			}
			if err := turn.Done(t.Context(), test.own); err != nil {
				t.Fatal(err)
			}
			if got := onlyExposed(turn, test.in); got != (test.is && failures == 0) {
				t.Errorf("%s, after %d failures: %v", sentence, failures, got)
			}
		}
	}
}

func TestWhatComesOfATurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	turn := r.turn(0)
	s := newService(r.bus("certs"), nil, testLog())
	facts, err := r.bus("intake").JetStream().Stream(t.Context(), events.StreamFacts)
	if err != nil {
		t.Fatal(err)
	}
	// done ends a turn with these Secrets and a renewal, and returns the state and whether a timer was set.
	renew := time.Now().Add(time.Hour)
	done := func(ctx context.Context, in pki.Input, renew time.Time, checksums map[string]string) (c state.Certs, timer bool, err error) {
		t.Helper()
		var own state.Certs
		if err := turn.OwnData(&own); err != nil {
			t.Fatal(err)
		}
		result := &pki.Result{Data: state.Certs{Secrets: map[string]state.Secret{}, RenewAt: renew}}
		for component, checksum := range checksums {
			result.Data.Secrets[component] = state.Secret{Checksum: checksum}
		}
		err = s.done(ctx, turn, in, &own, result, nil)
		info, e := facts.Info(t.Context(), jetstream.WithSubjectFilter("stoker.timer.>"))
		if e == nil {
			e = facts.Purge(t.Context(), jetstream.WithPurgeSubject("stoker.timer.>"))
		}
		if e := errors.Join(e, turn.OwnData(&c)); e != nil {
			t.Fatal(e)
		}
		return c, len(info.State.Subjects) > 0, err
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, timer, err := done(ended, exposed, renew, nil); err == nil || timer || turn.Own() != nil {
		t.Errorf("without a timer: %v, state %+v", err, turn.Own())
	}
	for i, checksum := range []string{"0", "1"} {
		c, timer, err := done(t.Context(), unexposed, renew, map[string]string{"a": checksum})
		if own := turn.Own(); err != nil || timer != (i == 0) || own.Step != "" || !own.Wait.Waits() || c.IssuedFor != 0 || len(own.Facts) > 0 {
			t.Errorf("the first stage: %v, timer %v, %+v", err, timer, own)
		}
	}
	all := map[string]string{"a": "1", "b": "2"}
	c, timer, err := done(t.Context(), exposed, renew, all)
	if own := turn.Own(); err != nil || timer || own.Step != event.Issued || own.Wait.Waits() || c.IssuedFor != 1 {
		t.Errorf("the second stage: %v, timer %v, %+v", err, timer, own)
	}
	var issued event.CertsIssued
	if r.fact(event.Issued, &issued); !maps.Equal(issued.Checksums, all) {
		t.Errorf("told %+v", issued)
	}
	inputs, later := turn.Own().Inputs, renew.Add(time.Hour)
	if _, timer, err = done(t.Context(), exposed, later, all); err != nil || !timer || len(turn.Own().Facts) != 1 {
		t.Errorf("another renewal: %v, timer %v, %+v", err, timer, turn.Own())
	}
	turn.Events = append(turn.Events, loop.Event{Service: name.ServiceCerts, What: event.Due})
	c, timer, err = done(t.Context(), unexposed, later, map[string]string{"a": "3"})
	if own := turn.Own(); err != nil || !timer || own.Step != event.Issued || !own.Wait.Waits() || own.Inputs != inputs || c.IssuedFor != 1 {
		t.Errorf("without the endpoint: %v, timer %v, %+v", err, timer, own)
	}
	if r.fact(event.Rotated, &issued); !maps.Equal(issued.Checksums, map[string]string{"a": "3", "b": "2"}) || len(c.Secrets) != 2 {
		t.Errorf("told %+v, noted %+v", issued, c.Secrets)
	}
	if _, _, err := done(ended, exposed, later, all); err == nil {
		t.Error("a state that can't be written is no error")
	}
}

// Whether the Secrets are looked at shows in the error: the API server isn't there.
func TestWhichTurnsLookAtSecrets(t *testing.T) {
	t.Parallel()
	config, err := kube.Kubeconfig{Server: "http://" + port.Address(t, "127.0.0.1"), Cluster: "m", User: "c"}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	nowhere, err := kube.FromKubeconfig(config, kube.Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nowhere.Close)
	r, failed := newRig(t, nil), newRig(t, nil)
	turn, again := r.turn(0), failed.turn(1)
	s := newService(r.bus("certs"), nowhere, testLog())

	accepted := []loop.Event{{Service: name.ServiceIntake, What: event.Accepted}}
	due := append(slices.Clone(accepted), loop.Event{Service: name.ServiceCerts, What: event.Due})
	echo, gone := []loop.Wake{{Kind: wakeSecret, Object: "ca", Version: "5"}}, []loop.Wake{{Kind: wakeSecret, Object: "ca", Gone: true}}
	kubeconfig := []loop.Wake{{Kind: generator.WakeKubeconfig, Object: "viewer"}}
	data := state.Certs{IssuedFor: 1, Secrets: map[string]state.Secret{"ca": {ResourceVersion: "5"}}}
	type one struct {
		events []loop.Event
		wakes  []loop.Wake
		own    *loop.Outcome // state before, nil for none
		looks  bool
		waits  bool // for the endpoint, as noted
	}
	try := func(turn *loop.Turn, sentence string, c one) {
		t.Helper()
		if turn.Events, turn.Wakes = c.events, c.wakes; c.own != nil {
			c.own.Data = data
			if err := turn.Done(t.Context(), *c.own); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.issue(t.Context(), turn); (err != nil) != c.looks {
			t.Errorf("%s: the Secrets are looked at: %v", sentence, err)
		}
		if own := turn.Own(); own != nil && own.Wait.Waits() != c.waits {
			t.Errorf("%s: waits for %+v", sentence, own.Wait)
		}
	}
	inputs := func() string {
		var w state.Workload
		if _, err := turn.Read(t.Context(), name.ServiceWorkload, &w); err != nil {
			t.Fatal(err)
		}
		return inputsOf(turn, pki.NewInput(turn.UID, turn.Tenant, &w))
	}
	before, wait := inputs(), waitFor(unexposed)
	upToDate, other := &loop.Outcome{Inputs: before, Wait: wait}, &loop.Outcome{Inputs: "x", Wait: wait}
	try(turn, "a tenant that is new", one{events: accepted, looks: true})
	try(turn, "one of which all is known", one{events: accepted, own: upToDate, waits: true})
	try(turn, "one that changed", one{events: accepted, own: other, looks: true, waits: true})
	try(turn, "an echo", one{wakes: echo, own: other, waits: true})
	try(again, "an echo after a failure", one{wakes: echo, own: other, looks: true, waits: true})
	try(turn, "a kubeconfig of which nothing is known, when there is more to do", one{wakes: kubeconfig, own: other, looks: true, waits: true})
	try(turn, "a Secret that is gone", one{wakes: gone, own: upToDate, looks: true, waits: true})
	try(turn, "the same, beside an event", one{events: accepted, wakes: gone, own: upToDate, looks: true, waits: true})
	try(turn, "a day that is over", one{events: due, own: upToDate, looks: true, waits: true})
	try(turn, "an endpoint that went", one{events: accepted, own: &loop.Outcome{Step: event.Issued, Inputs: "x"}, waits: true})
	try(turn, "a day that is over, without the endpoint", one{events: due, own: &loop.Outcome{Step: event.Issued, Inputs: "x"}, looks: true})
	r.expose("192.0.2.7:6443")
	poll.True(t, "the endpoint is known", func() bool { return inputs() != before })
	try(turn, "all was issued", one{events: accepted, own: &loop.Outcome{Step: event.Issued, Inputs: inputs()}})
	try(turn, "all was issued, for another endpoint", one{events: accepted, own: &loop.Outcome{Step: event.Issued, Inputs: "x"}, looks: true})
	r.do("workload", r.work, loop.Outcome{Step: event.Exposed, Data: "x"})
	poll.True(t, "what workload says can't be read", func() bool {
		_, err := turn.Read(t.Context(), name.ServiceWorkload, &state.Workload{})
		return err != nil
	})
	try(turn, "what workload says can't be read", one{events: accepted, own: &loop.Outcome{Step: event.Issued, Inputs: before}, looks: true})
}

func TestFormerEndpoint(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		replicas        int32
		published       string
		endpoint, serve string
		want            string
	}{
		"the endpoint is the one that was published": {1, "a:1", "a:1", "x", ""},
		"it is another, and pods serve":              {1, "a:1", "b:1", "x", "a:1"},
		"no pod has served yet":                      {1, "a:1", "b:1", "", ""},
		"the tenant sleeps":                          {0, "a:1", "b:1", "x", ""},
		"nothing was published":                      {1, "", "b:1", "x", ""},
		"it isn't known":                             {1, "a:1", "", "x", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			tenant := &state.Tenant{}
			tenant.Spec.ControlPlane.Deployment.Replicas = &test.replicas
			got := formerEndpoint(tenant, &state.Certs{Endpoint: test.published}, &state.Workload{Endpoint: test.endpoint, Serving: test.serve})
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
