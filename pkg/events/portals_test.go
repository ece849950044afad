package events_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

func publicNKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	must(t, err)
	key, err := pair.PublicKey()
	must(t, err)
	return key
}

func TestWhatIsWrongWithAPortalIsSaidByField(t *testing.T) {
	key := publicNKey(t)
	for what, c := range map[string]struct {
		change func(*events.Portal)
		wrong  []string // what each line of the error begins with
	}{
		"nothing, of one namespace":             {func(*events.Portal) {}, nil},
		"nothing, with a name of 40 characters": {func(p *events.Portal) { p.Name = strings.Repeat("a", 40) }, nil},
		"nothing, with all namespaces":          {func(p *events.Portal) { p.Namespaces = []string{"*"} }, nil},
		"nothing, with kinds alone": {func(p *events.Portal) {
			p.Namespaces, p.Kinds = nil, []string{event.DataStores, event.KubeconfigGenerators}
		}, nil},
		"nothing, with limits":                {func(p *events.Portal) { p.Limits = events.Limits{Connections: 1, Subscriptions: 1, Payload: 1} }, nil},
		"a name of 41":                        {func(p *events.Portal) { p.Name = strings.Repeat("a", 41) }, []string{`name "aaaa`}},
		"a name that is no label":             {func(p *events.Portal) { p.Name = "A {" }, []string{`name "A {": must be a DNS label`}},
		"the name of a service":               {func(p *events.Portal) { p.Name = "certs" }, []string{`name "certs": is a user of Stoker`}},
		"the name of the operator":            {func(p *events.Portal) { p.Name = events.UserOperator }, []string{`name "operator": is a user of Stoker`}},
		"neither namespaces nor kinds":        {func(p *events.Portal) { p.Namespaces = nil }, []string{"namespaces: name at least one"}},
		"what is no namespace":                {func(p *events.Portal) { p.Namespaces = []string{"a.>"} }, []string{`namespace "a.>": can't be`}},
		"a namespace of Kubernetes":           {func(p *events.Portal) { p.Namespaces = []string{"acme", "kube-system"} }, []string{`namespace "kube-system": belongs to`}},
		"Stoker's namespace":                  {func(p *events.Portal) { p.Namespaces = []string{"stoker-system"} }, []string{`namespace "stoker-system": belongs to`}},
		"tenants as a kind":                   {func(p *events.Portal) { p.Kinds = []string{event.TenantControlPlanes} }, []string{`kind "tenantcontrolplanes": must be`}},
		"less than no connection":             {func(p *events.Portal) { p.Limits.Connections = -1 }, []string{"maxConnections -1: must be"}},
		"less than no subscription":           {func(p *events.Portal) { p.Limits.Subscriptions = -1 }, []string{"maxSubscriptions -1: must be"}},
		"less than no payload":                {func(p *events.Portal) { p.Limits.Payload = -1 }, []string{"maxPayload -1: must be"}},
		"the nkey of an account":              {func(p *events.Portal) { p.NKey = "A" + key[1:] }, []string{`nkey "A`}},
		"the name and a namespace, both said": {func(p *events.Portal) { p.Name, p.Namespaces = "", []string{"kube-x"} }, []string{`name ""`, `namespace "kube-x"`}},
	} {
		t.Run(what, func(t *testing.T) {
			p := events.Portal{Name: "acme", Namespaces: []string{"acme"}, NKey: key}
			c.change(&p)
			var said []string
			if err := p.Validate(); err != nil {
				said = strings.Split(err.Error(), "\n")
			}
			if !slices.EqualFunc(said, c.wrong, strings.HasPrefix) {
				t.Errorf("said is %q", said)
			}
		})
	}
}

func TestAPortalKeepsTheLimitsItWasGivenAndHasDefaultsElse(t *testing.T) {
	p := events.Portal{Name: "acme", Namespaces: []string{"b", "a", "b"}, Kinds: []string{event.DataStores, event.DataStores}, NKey: publicNKey(t)}
	without := p
	must(t, without.Validate())
	if without.Limits != events.DefaultLimits() {
		t.Errorf("without limits it has %+v", without.Limits)
	}
	p.Limits.Subscriptions = 7
	must(t, p.Validate())
	want := events.DefaultLimits()
	want.Subscriptions = 7
	if p.Limits != want || want.Connections == 0 || want.Payload == 0 || !slices.Equal(p.Namespaces, []string{"a", "b"}) || len(p.Kinds) != 1 {
		t.Errorf("%+v", p)
	}
	p.Namespaces = append(p.Namespaces, events.AllNamespaces)
	must(t, p.Validate())
	if !slices.Equal(p.Namespaces, []string{events.AllNamespaces}) {
		t.Errorf("beside all namespaces it is told others: %v", p.Namespaces)
	}
}

func TestForbiddenNamespacesAreKubernetesAndStokers(t *testing.T) {
	for namespace, want := range map[string]bool{"kube-system": true, "kube-": true, "stoker-system": true, "kube": false, "stoker": false, "default": false} {
		if got := events.ForbiddenNamespace(namespace); got != want {
			t.Errorf("%s: %v", namespace, got)
		}
	}
}

func TestTheAccountOfAPortalHasWhatItWasGivenAndNothingElse(t *testing.T) {
	const get = "$JS.API.DIRECT.GET." + events.StreamStatus + ".stoker.status."
	for what, c := range map[string]struct {
		namespaces, kinds []string
		join              bool
		imports, hears    []string // the services it imports, which are all it publishes on, and the streams, beside its inbox all it hears
	}{
		"one namespace": {
			namespaces: []string{"acme"}, imports: []string{"stoker.intake.tenantcontrolplanes.acme.*", "stoker.plan.acme.*", get + "acme.*", "stoker.last.acme.*"},
			hears: []string{"stoker.status.acme.*", "stoker.answer.acme.*"},
		},
		"one namespace, and tokens for its tenants' nodes": {
			namespaces: []string{"acme"}, join: true,
			imports: []string{"stoker.intake.tenantcontrolplanes.acme.*", "stoker.plan.acme.*", get + "acme.*", "stoker.last.acme.*", "stoker.join.acme.*"},
			hears:   []string{"stoker.status.acme.*", "stoker.answer.acme.*"},
		},
		"DataStores, whose answers have a place of their own": {
			kinds: []string{event.DataStores}, imports: []string{"stoker.intake.datastores.-.*"}, hears: []string{"stoker.answer.-.*"},
		},
		"all: no subject twice": {
			namespaces: []string{events.AllNamespaces}, kinds: []string{event.DataStores},
			imports: []string{"stoker.intake.tenantcontrolplanes.*.*", "stoker.plan.*.*", get + "*.*", "stoker.last.*.*", "stoker.intake.datastores.-.*"},
			hears:   []string{"stoker.status.*.*", "stoker.answer.*.*"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := events.Portal{Name: "acme", Namespaces: c.namespaces, Kinds: c.kinds, Join: c.join, NKey: publicNKey(t)}
			must(t, p.Validate())
			account := events.Portals([]events.Portal{p})
			if limits := fmt.Sprintf("portal-acme {\n  limits { max_connections: 16, max_subscriptions: 1000, max_payload: %d }", p.Limits.Payload); !strings.Contains(account, limits) {
				t.Errorf("no %s in %s", limits, account)
			}
			var imports, hears []string
			for line := range strings.Lines(account) {
				switch _, subject, ok := strings.Cut(line, "subject: "); {
				case !ok:
				case strings.Contains(line, "to: "): // in the portal's account it is known by another subject, which leaf nodes carry
					from, to, _ := strings.Cut(subject, "to: ")
					if want := strings.Replace(to, "stoker.last.", get, 1); strings.Trim(from, "\" },") != strings.Trim(want, "\" }\n") {
						t.Errorf("what it knows as %s is %s", to, from)
					}
					imports = append(imports, strings.Trim(to, "\" }\n"))
				case strings.Contains(line, "{ service:"):
					imports = append(imports, strings.Trim(subject, "\" }\n"))
				case strings.Contains(line, "{ stream:"):
					hears = append(hears, strings.Trim(subject, "\" }\n"))
				}
			}
			if !slices.Equal(imports, c.imports) || !slices.Equal(hears, c.hears) {
				t.Errorf("it imports %q and hears %q", imports, hears)
			}
			var may []string
			for line := range strings.Lines(account) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, `"`) {
					may = append(may, strings.Trim(line, `"`))
				}
			}
			if want := slices.Concat(c.imports, c.hears, []string{"_INBOX.>"}); !slices.Equal(may, want) {
				t.Errorf("its user may %q", may)
			}
		})
	}
}

func TestPortalsAreReadAsTheyWereWritten(t *testing.T) {
	all := []events.Portal{
		{Name: "acme", Namespaces: []string{"acme"}, NKey: publicNKey(t)},
		{Name: "shop", Kinds: []string{event.DataStores}, NKey: publicNKey(t)},
	}
	for i := range all {
		must(t, all[i].Validate())
	}
	text := events.Portals(all)
	if !strings.HasPrefix(text, "# Accounts of portals, by `stoker portal`") {
		t.Errorf("the file doesn't say whose it is: %s", text)
	}
	if got, err := events.ParsePortals([]byte(text)); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := events.ParsePortals([]byte(text + "# portal {\n")); err == nil || !strings.Contains(err.Error(), "# portal {") {
		t.Errorf("a line that can't be read: %v", err)
	}
}
