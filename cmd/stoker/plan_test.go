package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// TestPlan has an intake that knows the tenant demo, which may have v1.36.3 and no other version.
func TestPlan(t *testing.T) {
	t.Parallel()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	bus, err := events.Connect(events.Config{
		URL: srv.URL(), User: name.ServiceIntake, SeedFile: srv.SeedFile(name.ServiceIntake), Replica: "test",
		RequestTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	service, err := micro.AddService(bus.Conn(), micro.Config{Name: event.IntakeService, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(r micro.Request) {
		p := event.PlanReply{About: event.About{Namespace: "default", Name: "demo"}, From: "v1.35.4", To: "v1.36.3"}
		switch {
		case r.Subject() != "stoker.plan.default.demo":
			_ = r.Error("404", "there is no such tenant", nil)
			return
		case strings.Contains(string(r.Data()), `{"spec":{"kubernetes":{"version":"v1.36.3"}}}`):
			p.Checks = []event.PlanCheck{{Check: event.CheckRules, Verdict: event.VerdictPasses, Message: "accepted"}}
		case strings.Contains(string(r.Data()), `{"apply":{`):
			p.To = p.From
			p.Checks = []event.PlanCheck{{Check: event.CheckPods, Verdict: event.VerdictPasses, Message: "no pod is replaced"}}
		default:
			p.Blocked, p.To = true, ""
			p.Checks = []event.PlanCheck{{Check: event.CheckRules, Verdict: event.VerdictBlocks, Reason: reason.ChangeRefused, Message: "not \x1b[31mthat"}}
		}
		_ = r.RespondJSON(p)
	}
	if err := service.AddEndpoint("plan", micro.HandlerFunc(answer), micro.WithEndpointSubject(events.PlanSubjects)); err != nil {
		t.Fatal(err)
	}
	if err := bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	tenant := "apiVersion: kamaji.clastix.io/v1alpha1\nkind: TenantControlPlane\nmetadata: {name: demo}\nspec: {}\n"
	for sentence, c := range map[string]struct {
		args     []string
		in       string
		code     int
		out, err string
	}{
		"nothing is against a version":  {[]string{"demo", "--version", "v1.36.3"}, "", exitOK, "tenant default/demo: v1.35.4 to v1.36.3\nCHECK ", ""},
		"a version is refused":          {[]string{"demo", "--version", "v1.20.0"}, "", exitBlocked, "ChangeRefused   not", ""},
		"a program reads that":          {[]string{"demo", "--version", "v1.20.0", "-o", "json"}, "", exitBlocked, `"blocked": true`, ""},
		"or as YAML":                    {[]string{"demo", "--version", "v1.36.3", "-o", "yaml"}, "", exitOK, "blocked: false", ""},
		"a changed object":              {[]string{"-f", "-"}, tenant, exitOK, "tenant default/demo: v1.35.4\n", ""},
		"no such tenant":                {[]string{"other", "--version", "v1.36.3"}, "", exitFailed, "", "there is no such tenant"},
		"a file with something else":    {[]string{"-f", "-"}, strings.Replace(tenant, "TenantControlPlane", "DataStore", 1), exitUsage, "", "one TenantControlPlane"},
		"a file and a version":          {[]string{"-f", "-", "--version", "v1.36.3"}, tenant, exitUsage, "", "-f has"},
		"no version":                    {[]string{"demo"}, "", exitUsage, "", "--version"},
		"a name that can't be one":      {[]string{"Demo", "--version", "v1.36.3"}, "", exitUsage, "", "can't be the name"},
		"a format that there isn't":     {[]string{"demo", "--version", "v1.36.3", "-o", "wide"}, "", exitUsage, "", "must be json or yaml"},
		"nothing steers the terminal":   {[]string{"demo", "--version", "v1.20.0"}, "", exitBlocked, "not", ""},
		"neither tenant nor its object": {nil, "", exitUsage, "", "name a tenant"},
	} {
		t.Run(sentence, func(t *testing.T) {
			code, out, errs := cli(t, c.in, append(append([]string{"plan"}, c.args...), "--nats", srv.URL(), "--nkey", srv.SeedFile(events.UserOperator))...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) || strings.Contains(out, "\x1b") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		})
	}
}
