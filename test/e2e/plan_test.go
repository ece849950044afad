package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestAPlanSaysWhatAnUpgradeMeetsAndChangesNothing(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "planned")
	tenant := env.Tenant(key.Name, "v1.35.4")
	tenant.Labels = map[string]string{"plan": "yes"}
	// An API that v1.35 and v1.36 serve when they are told to, and v1.37 doesn't.
	tenant.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{APIServer: []string{"--runtime-config=networking.k8s.io/v1beta1=true"}}
	e.Apply(t, tenant)
	before := e.Ready(t, key)
	kubeconfig := e.Kubeconfig(t, key)
	c, err := portal.Connect(portal.Config{URL: e.NATS.URL(), Source: "/test", SeedFile: e.NATS.SeedFile(events.UserPortal)})
	must(t, err)
	defer c.Close()
	plan := func(t *testing.T, version string) event.PlanReply {
		t.Helper()
		p, err := c.Plan(t.Context(), key.Namespace, key.Name, event.PlanQuery{Spec: fmt.Appendf(nil, `{"kubernetes":{"version":%q}}`, version)})
		must(t, err)
		return p
	}
	// finds fails the test unless the plan has these verdicts, and blocks if one of them does.
	finds := func(t *testing.T, p event.PlanReply, verdicts map[string]string) {
		t.Helper()
		blocks := false
		for _, c := range p.Checks {
			got := strings.TrimSpace(c.Verdict + " " + c.Reason)
			if want, listed := verdicts[c.Check]; got != want || !listed {
				t.Errorf("%s: %q, not %q: %s", c.Check, got, want, c.Message)
			}
			blocks = blocks || c.Verdict == event.VerdictBlocks
		}
		if len(p.Checks) != len(verdicts) || p.Blocked != blocks {
			t.Errorf("%+v", p)
		}
	}
	passes := event.VerdictPasses
	all := map[string]string{
		event.CheckRules: passes, event.CheckTenant: passes, event.CheckPods: passes, event.CheckDataStore: passes,
		event.CheckKubelets: passes, event.CheckAPIs: passes,
	}
	with := func(more ...string) map[string]string {
		changed := map[string]string{}
		for check, verdict := range all {
			changed[check] = verdict
		}
		for i := 0; i < len(more); i += 2 {
			changed[more[i]] = more[i+1]
		}
		return changed
	}
	t.Run("nothing is against it", func(t *testing.T) {
		p := plan(t, "v1.36.3")
		finds(t, p, all)
		if p.From != "v1.35.4" || p.Running != "v1.35.4" || p.To != "v1.36.3" || p.Generation != before.Generation {
			t.Errorf("%+v", p)
		}
		if pods := p.Checks[2].Message; !strings.HasPrefix(pods, "all 1 pods are replaced") {
			t.Error(pods)
		}
	})
	t.Run("an API that a later version removes is a warning", func(t *testing.T) {
		e.Kubectl(t, kubeconfig, "get", "--raw", "/apis/networking.k8s.io/v1beta1/ipaddresses")
		e.Kubectl(t, kubeconfig, "get", "endpoints", "-A") // deprecated without a removal: no word of it
		p := plan(t, "1.36.3")
		finds(t, p, with(event.CheckAPIs, event.VerdictWarns+" "+reason.APIDeprecated))
		want := event.DeprecatedAPI{Group: "networking.k8s.io", Version: "v1beta1", Resource: "ipaddresses", RemovedIn: "1.37"}
		if !slices.Contains(p.APIs, want) || !slices.Contains(p.APIs, event.DeprecatedAPI{Version: "v1", Resource: "endpoints"}) {
			t.Errorf("%+v", p.APIs)
		}
	})
	t.Run("a kubelet that is too old blocks, and is named", func(t *testing.T) {
		node(t, kubeconfig, "old", "v1.32.9")
		node(t, kubeconfig, "fits", "v1.33.0")
		p := plan(t, "v1.36.3")
		finds(t, p, with(event.CheckAPIs, event.VerdictWarns+" "+reason.APIDeprecated, event.CheckKubelets, event.VerdictBlocks+" "+reason.KubeletTooOld))
		if len(p.Kubelets) != 1 || p.Kubelets[0].Version != "v1.32.9" || !slices.Equal(p.Kubelets[0].Names, []string{"old"}) {
			t.Errorf("%+v", p.Kubelets)
		}
	})
	t.Run("stoker plan says the same, and exits with 4", func(t *testing.T) {
		code, out := stoker(t, "plan", key.Name, "--version", "v1.36.3")
		if code != 4 || !strings.Contains(out, "tenant default/planned: v1.35.4 to v1.36.3") || !strings.Contains(out, "v1.32.9 on old") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		if code, out = stoker(t, "plan", key.Name, "--version", "v1.35.1"); code != 0 || strings.Contains(out, event.CheckKubelets) {
			t.Errorf("another patch: exit %d:\n%s", code, out)
		}
	})
	t.Run("what the API server refuses is said in the rule's own words", func(t *testing.T) {
		for version, says := range map[string]string{
			"v1.34.4": "Kubernetes cannot go back to an earlier minor version: keep the minor version of the tenant, or name the next one",
			"v1.37.0": "is newer than v1.36, the last version that Stoker supports",
		} {
			p := plan(t, version)
			finds(t, p, map[string]string{event.CheckRules: event.VerdictBlocks + " " + reason.ChangeRefused})
			if len(p.Errors) == 0 || p.Errors[0].Field != "spec.kubernetes.version" || !strings.Contains(p.Checks[0].Message, says) {
				t.Errorf("%s: %+v", version, p)
			}
		}
	})
	t.Run("no such tenant", func(t *testing.T) {
		_, err := c.Plan(t.Context(), "default", "nobody", event.PlanQuery{Spec: []byte(`{}`)})
		if refused := (*events.Refusal)(nil); !errors.As(err, &refused) || refused.Code != "404" {
			t.Errorf("%v", err)
		}
	})
	if after := e.Ready(t, key); after.Generation != before.Generation || after.Spec.Kubernetes.Version != "v1.35.4" {
		t.Errorf("plans have changed the tenant: %+v", after.Spec.Kubernetes)
	}
	t.Run("one can't look inside a tenant that sleeps, which blocks nothing", func(t *testing.T) {
		e.Command(t, key, event.CommandType(key.Kind, event.Sleep), map[string]any{})
		e.Fact(t, key, "workload", event.Slept)
		unseen := event.VerdictUnknown + " " + reason.Asleep
		p := plan(t, "v1.36.3")
		finds(t, p, with(event.CheckKubelets, unseen, event.CheckAPIs, unseen))
		if code, out := stoker(t, "plan", key.Name, "--version", "v1.36.3", "-o", "yaml"); code != 0 || !strings.Contains(out, "blocked: false") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	})
	t.Run("a rollout stops at a tenant whose plan is blocked, and goes on when it is asked again", func(t *testing.T) {
		e.Command(t, key, event.CommandType(key.Kind, event.Wake), map[string]any{})
		e.Fact(t, key, "workload", event.Available)
		env.Eventually(t, "the tenant awake", func() error {
			if s, err := e.Status(t.Context(), key); err != nil || s.Generation < 3 {
				return errNotYet
			}
			return nil
		})
		e.Ready(t, key)
		args := []string{"-l", "plan=yes", "--version", "v1.36.3"}
		code, out := stoker(t, "rollout", args...)
		if code != 1 || !strings.Contains(out, reason.KubeletTooOld) || !strings.Contains(out, "0 of 1 tenants have v1.36.3") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		e.Kubectl(t, kubeconfig, "delete", "node", "old")
		if code, out = stoker(t, "rollout", args...); code != 0 || !strings.Contains(out, "1 of 1 tenants have v1.36.3") {
			t.Errorf("exit %d:\n%s", code, out)
		}
		if o := e.Ready(t, key); o.Status.Kubernetes.Version.Version != "v1.36.3" {
			t.Errorf("%+v", o.Status.Kubernetes.Version)
		}
		if code, out = stoker(t, "rollout", args...); code != 0 || !strings.Contains(out, "0 of 1 tenants to v1.36.3, 0 at a time; 1 have it") {
			t.Errorf("exit %d:\n%s", code, out)
		}
	})
	e.Delete(t, key)
	e.Gone(t, key)
}

// node makes a Node inside a tenant as a kubelet of a version would.
func node(t *testing.T, kubeconfig, name, version string) {
	t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"status":{"nodeInfo":{"kubeletVersion":%q}}}`, name, version)
	if out, err := e.TryKubectl(t.Context(), kubeconfig, strings.NewReader(object), "create", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
}

// stoker runs the command line as the operator.
func stoker(t *testing.T, command string, args ...string) (code int, out string) {
	t.Helper()
	flags := []string{
		command, "--nats", e.NATS.URL(), "--nkey", e.NATS.SeedFile(events.UserOperator), "--kubeconfig", e.Local.Kubeconfig("admin"),
	}
	cmd := exec.CommandContext(t.Context(), e.StokerBin(), append(flags, args...)...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), text.String()
}
