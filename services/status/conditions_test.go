package status

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestMessagesAreShortAndReasonsValid(t *testing.T) {
	t.Parallel()
	in := complete()
	in.Certs.State.Failure = &state.Failure{Reason: "1 bad-reason", Message: strings.Repeat("é", 2000)}
	status, _ := Compute(demo(), in, clock)
	for _, c := range status.Conditions {
		if len(c.Message) > 1024 || strings.ContainsAny(c.Reason, " -") {
			t.Errorf("%s: %q, %d bytes", c.Type, c.Reason, len(c.Message))
		}
	}
}

// The reasons of a tenant that isn't Ready are in the table that docs list.
func TestReasonsAreInTheTable(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, e := range reason.Conditions() {
		listed[e.Reason] = true
	}
	for service, reasons := range notReadyReasons {
		for own, summary := range reasons {
			if !listed[own] || !listed[summary] || !strings.HasSuffix(summary, own) {
				t.Errorf("%s: %s is summed up as %s", service, own, summary)
			}
		}
		for step, done := range doneSteps[service] {
			if !strings.EqualFold(step, done) || !listed[done] {
				t.Errorf("%s: step %s has reason %s", service, step, done)
			}
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	t.Parallel()
	tenant, in := demo(), after(demo(), complete())
	later := clock.Add(time.Hour)

	t.Run("nothing new gives the same bytes an hour later", func(t *testing.T) {
		t.Parallel()
		first, kept := Compute(tenant, in, clock)
		second, again := Compute(tenant, in, later)
		for _, pair := range [][2]any{{first, second}, {kept, again}} {
			a, b := encode(t, pair[0]), encode(t, pair[1])
			if !bytes.Equal(a, b) {
				t.Errorf("\n%s\n%s", a, b)
			}
		}
	})
	t.Run("what is kept survives its own encoding", func(t *testing.T) {
		t.Parallel()
		copied := in
		copied.Previous = state.Status{}
		if err := json.Unmarshal(encode(t, in.Previous), &copied.Previous); err != nil {
			t.Fatal(err)
		}
		a, _ := Compute(tenant, in, later)
		b, _ := Compute(tenant, copied, later)
		if x, y := encode(t, a), encode(t, b); !bytes.Equal(x, y) {
			t.Errorf("\n%s\n%s", x, y)
		}
	})
	t.Run("only the condition that turned has a new time", func(t *testing.T) {
		t.Parallel()
		in := in
		in.Addons.State = &state.State{Generation: 1, Step: event.Applied, Failure: &state.Failure{Reason: "TenantRefused", Permanent: true}}
		status, next := Compute(tenant, in, later)
		for _, c := range status.Conditions {
			turned := c.Type == ConditionReady || c.Type == ConditionAddons || c.Type == ConditionStalled
			if c.LastTransitionTime.Equal(ptr(at(later))) != turned {
				t.Errorf("%s has time %s", c.Type, c.LastTransitionTime)
			}
		}
		if !next.ReadyAt.Equal(clock) || next.ReadyGeneration != 1 {
			t.Errorf("the generation's first Ready is forgotten: %+v", next)
		}
	})
	t.Run("seconds to ready count from acceptance to the first Ready", func(t *testing.T) {
		t.Parallel()
		r := Reply(event.About{Namespace: "default", Name: "demo"}, tenant, in.Previous)
		if r.SecondsToReady != 3.25 || r.Kubeconfig != "demo-admin-kubeconfig" {
			t.Errorf("%+v", r)
		}
	})
}

// Whether Argo CD knows the tenant is apart from whether it is Ready.
func TestTheConditionOfArgoCD(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		argo   *state.ArgoCD
		status metav1.ConditionStatus
		reason string
	}{
		"not asked for": {},
		"known":         {argo: &state.ArgoCD{Secret: state.Secret{Name: "tenant.default.demo"}, Namespace: "argocd", Server: "https://192.0.2.7:6443"}, status: "True", reason: reason.Registered},
		"not known":     {argo: &state.ArgoCD{Reason: reason.ArgoCDOff, Message: "no"}, status: "False", reason: reason.ArgoCDOff},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := complete()
			in.Certs.Data.ArgoCD = test.argo
			status, _ := Compute(demo(), in, clock)
			c := meta.FindStatusCondition(status.Conditions, ConditionArgoCD)
			if c == nil {
				c = &metav1.Condition{}
			}
			if c.Status != test.status || c.Reason != test.reason || !meta.IsStatusConditionTrue(status.Conditions, ConditionReady) {
				t.Errorf("%+v", status.Conditions)
			}
		})
	}
}
