package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Portal is a program that orders tenants, as NATS knows it: an account of its own without JetStream, with one user. It may send
// commands about the objects it was given, hear the answers to them, ask for plans of tenants, and read the statuses of tenants.
// With Join it may also have tokens made by which machines join them.
type Portal struct {
	// Name of the portal, a DNS label of at most 40 characters.
	Name string `json:"name"`
	// Namespaces whose tenants it orders; AllNamespaces for all there are and will be.
	Namespaces []string `json:"namespaces"`
	// Kinds without a namespace that it orders, too (event.DataStores, event.KubeconfigGenerators).
	Kinds []string `json:"kinds,omitempty"`
	// Join lets it have tokens by which machines become nodes of its tenants.
	Join bool `json:"join,omitempty"`
	// Limits of its account; zero ones are [DefaultLimits].
	Limits Limits `json:"limits"`
	// NKey is the public nkey of its user.
	NKey string `json:"nkey"`
}

// AllNamespaces as the namespace of a portal stands for every namespace.
const AllNamespaces = "*"

// Limits of a portal's account, over all its connections. There is none on messages a second: NATS has no such limit. What may
// wait to be carried out is bounded by the stream of commands (docs/operations.md).
type Limits struct {
	Connections   int `json:"maxConnections"`
	Subscriptions int `json:"maxSubscriptions"`
	// Payload is the size of a message in bytes, headers included.
	Payload int `json:"maxPayload"`
}

// DefaultLimits are those of a portal that was given none. A command of the largest size passes.
func DefaultLimits() Limits {
	return Limits{Connections: 16, Subscriptions: 1000, Payload: maxCommand}
}

// ForbiddenNamespace reports whether no portal may order in a namespace: Kubernetes' own and Stoker's.
func ForbiddenNamespace(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == "stoker-system"
}

// Validate reports everything that is wrong with a portal, by field; it sorts lists and sets what was left to defaults.
func (p *Portal) Validate() error {
	var errs []error
	if len(validation.IsDNS1123Label(p.Name)) > 0 || len(p.Name) > 40 {
		errs = append(errs, fmt.Errorf("name %q: must be a DNS label of at most 40 characters (lower-case letters, digits and -)", p.Name))
	} else if slices.Contains(Users(), p.Name) {
		errs = append(errs, fmt.Errorf("name %q: is a user of Stoker itself; take another", p.Name))
	}
	if len(p.Namespaces)+len(p.Kinds) == 0 {
		errs = append(errs, errors.New("namespaces: name at least one whose tenants the portal orders"))
	}
	for _, n := range p.Namespaces {
		switch {
		case n == AllNamespaces:
		case len(validation.IsDNS1123Label(n)) > 0:
			errs = append(errs, fmt.Errorf("namespace %q: can't be the name of a namespace", n))
		case ForbiddenNamespace(n):
			errs = append(errs, fmt.Errorf("namespace %q: belongs to Kubernetes or Stoker; tenants are in namespaces of their own", n))
		}
	}
	for _, k := range p.Kinds {
		if k != event.DataStores && k != event.KubeconfigGenerators {
			errs = append(errs, fmt.Errorf("kind %q: must be %s or %s; tenants come with their namespaces",
				k, event.DataStores, event.KubeconfigGenerators))
		}
	}
	for field, n := range map[string]int{
		"maxConnections": p.Limits.Connections, "maxSubscriptions": p.Limits.Subscriptions, "maxPayload": p.Limits.Payload,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: must be positive", field, n))
		}
	}
	if !nkeys.IsValidPublicUserKey(p.NKey) {
		errs = append(errs, fmt.Errorf("nkey %q: must be the public nkey of a user (U…)", p.NKey))
	}
	// A subject that an account imports twice would be published twice.
	p.Namespaces = slices.Compact(slices.Sorted(slices.Values(p.Namespaces)))
	p.Kinds = slices.Compact(slices.Sorted(slices.Values(p.Kinds)))
	if slices.Contains(p.Namespaces, AllNamespaces) {
		p.Namespaces = []string{AllNamespaces}
	}
	d := DefaultLimits()
	p.Limits.Connections = cmp.Or(p.Limits.Connections, d.Connections)
	p.Limits.Subscriptions = cmp.Or(p.Limits.Subscriptions, d.Subscriptions)
	p.Limits.Payload = cmp.Or(p.Limits.Payload, d.Payload)
	return errors.Join(errs...)
}

// statusSubjects are those of all statuses.
const statusSubjects = "stoker.status.*.*"

// portalServices are what Stoker's account lets portals' accounts import, each its part of them.
var portalServices = []string{"stoker.intake.*.*.*", PlanSubjects, JoinSubjects, directGet + StreamStatus + "." + statusSubjects}

// lastStatus begins the subjects on which the last status of a tenant is asked for. lastSubjects begins those that are the same for portals
// at another server: no leaf node carries what is of JetStream's API, unless a domain is named that the portal would have to know.
const (
	lastStatus   = directGet + StreamStatus + ".stoker.status."
	lastSubjects = "stoker.last."
)

// rights are the subjects that the portal publishes on, and those on which it hears statuses and answers.
func (p *Portal) rights() (publish, statuses, answers []string) {
	for _, n := range p.Namespaces {
		publish = append(publish, "stoker.intake."+event.TenantControlPlanes+"."+n+".*", event.QueryPlan+"."+n+".*", lastStatus+n+".*", lastSubjects+n+".*")
		if p.Join {
			publish = append(publish, event.QueryJoin+"."+n+".*")
		}
		statuses = append(statuses, "stoker.status."+n+".*")
		answers = append(answers, "stoker.answer."+n+".*")
	}
	for _, k := range p.Kinds {
		publish = append(publish, "stoker.intake."+k+"."+ClusterScoped+".*")
	}
	if len(p.Kinds) > 0 && !slices.Contains(p.Namespaces, AllNamespaces) {
		answers = append(answers, "stoker.answer."+ClusterScoped+".*")
	}
	return publish, statuses, answers
}

// account is the portal's part of the accounts block. It has no limit of leaf nodes, for that would count those by which the servers
// connect out; who has the portal's key is none, by the types of connections it is for.
func (p *Portal) account() string {
	publish, statuses, answers := p.rights()
	var b strings.Builder
	fmt.Fprintf(&b, "portal-%s {\n  limits { max_connections: %d, max_subscriptions: %d, max_payload: %d }\n  imports = [\n",
		p.Name, p.Limits.Connections, p.Limits.Subscriptions, p.Limits.Payload)
	for _, subject := range publish {
		if last, ok := strings.CutPrefix(subject, lastSubjects); ok {
			fmt.Fprintf(&b, "    { service: { account: %s, subject: %q }, to: %q }\n", AccountStoker, lastStatus+last, subject)
			continue
		}
		fmt.Fprintf(&b, "    { service: { account: %s, subject: %q } }\n", AccountStoker, subject)
	}
	for _, subject := range statuses {
		fmt.Fprintf(&b, "    { stream: { account: %s, subject: %q } }\n", Account(name.ServiceStatus), subject)
	}
	for _, subject := range answers {
		fmt.Fprintf(&b, "    { stream: { account: %s, subject: %q } }\n", AccountStoker, subject)
	}
	hears := slices.Concat(statuses, answers, []string{"_INBOX.>"})
	fmt.Fprintf(&b, "  ]\n  users = [ { nkey: %s, %s, permissions: {\n%s  } } ]\n}\n", p.NKey, connections, permissions(publish, nil, hears))
	return b.String()
}

// recordPrefix starts the line of [PortalsFile] that describes a portal.
const recordPrefix = "# portal "

// Portals is the text of [PortalsFile]: the accounts of portals, each after a line that describes it for [ParsePortals].
func Portals(portals []Portal) string {
	var b strings.Builder
	b.WriteString("# Accounts of portals, by `stoker portal`; changes by hand are lost.\n")
	for _, p := range portals {
		fmt.Fprintf(&b, "%s%s\n%s", recordPrefix, event.Marshal(p), p.account())
	}
	return b.String()
}

// ParsePortals reads what [Portals] wrote.
func ParsePortals(text []byte) ([]Portal, error) {
	var all []Portal
	for line := range bytes.Lines(text) {
		record, ok := bytes.CutPrefix(line, []byte(recordPrefix))
		if !ok {
			continue
		}
		var p Portal
		if err := json.Unmarshal(record, &p); err != nil {
			return nil, fmt.Errorf("line %q: %w", Clip(string(line)), err)
		}
		all = append(all, p)
	}
	return all, nil
}
