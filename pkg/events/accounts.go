package events

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Accounts keep NATS users apart. Permissions alone don't: the server sends acknowledgements, answers to direct gets and what a
// consumer delivers to any reply subject that the asker names, whether that user may publish there or not. Across accounts a reply
// subject is the server's own (_R_.…) and leads back into the asker's account, where nothing of Stoker's is; so a user can name no
// subject but those its account imports.
//
// Account [AccountStoker] has JetStream, the operator and intake. intake makes streams and consumers, which is all of JetStream. Each
// other service and each portal has an account without JetStream.

// AccountStoker is the account that has the streams and buckets.
const AccountStoker = "STOKER"

// PortalsFile has the portals' accounts ([Portals]); the configuration of the servers includes it.
const PortalsFile = "portals.conf"

// Account of a user.
func Account(user string) string {
	switch user {
	case UserOperator, name.ServiceIntake:
		return AccountStoker
	case UserSystem:
		return "$SYS"
	}
	return "service-" + user
}

// Authorization is the accounts block of a NATS server's configuration. It includes [PortalsFile], beside the file it is in. Public
// nkeys are given by user; a missing one is written as a variable, STOKER_NKEY_<USER>, to be set in the server's environment. former are
// those that still count beside them, while users change from one to the other; nil for none.
func Authorization(nkeys, former map[string]string) string {
	keys := func(user string) []string {
		key := nkeys[user]
		if key == "" {
			key = "$STOKER_NKEY_" + strings.ToUpper(user)
		}
		if former[user] == "" {
			return []string{key}
		}
		return []string{key, former[user]}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "accounts {\n  %s {\n    jetstream: enabled\n", AccountStoker)
	writeUsers(&b, keys, name.ServiceIntake, UserOperator)
	b.WriteString("    exports = [\n")
	for _, subject := range portalServices {
		fmt.Fprintf(&b, "      { service: %q }\n", subject)
	}
	fmt.Fprintf(&b, "      { stream: %q }\n", AnswerSubjects)
	services := slices.DeleteFunc(name.Services(), func(s string) bool { return s == name.ServiceIntake })
	for _, subject := range advisories("") {
		fmt.Fprintf(&b, "      { stream: %q }\n", subject)
	}
	importers := map[string][]string{}
	for _, s := range services {
		for _, subject := range imports(s) {
			importers[subject] = append(importers[subject], Account(s))
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(importers)) {
		fmt.Fprintf(&b, "      { service: %q, accounts: [%s]%s }\n", subject, strings.Join(importers[subject], ", "), response(subject))
	}
	b.WriteString("    ]\n    imports = [\n")
	for _, s := range services {
		for _, subject := range asked(s) {
			fmt.Fprintf(&b, "      { service: { account: %s, subject: %q } }\n", Account(s), subject)
		}
	}
	b.WriteString("    ]\n  }\n")
	for _, s := range services {
		fmt.Fprintf(&b, "  %s {\n", Account(s))
		writeUsers(&b, keys, s)
		b.WriteString("    exports = [\n")
		for _, subject := range asked(s) {
			fmt.Fprintf(&b, "      { service: %q, accounts: [%s], response: stream }\n", subject, AccountStoker)
		}
		if s == name.ServiceStatus { // the server hands no stream on that it got by a service import
			fmt.Fprintf(&b, "      { stream: %q }\n", statusSubjects)
		}
		b.WriteString("    ]\n    imports = [\n")
		for _, subject := range imports(s) {
			fmt.Fprintf(&b, "      { service: { account: %s, subject: %q } }\n", AccountStoker, subject)
		}
		for _, subject := range advisories(s) {
			fmt.Fprintf(&b, "      { stream: { account: %s, subject: %q } }\n", AccountStoker, subject)
		}
		b.WriteString("    ]\n  }\n")
	}
	system := "{ nkey: " + strings.Join(keys(UserSystem), " }, { nkey: ") + " }"
	fmt.Fprintf(&b, "  %s {\n    users = [ %s ]\n  }\n  include %q\n}\n", Account(UserSystem), system, PortalsFile)
	return b.String()
}

// imports are the subjects of Stoker's account that a service's account imports: all that the service publishes.
func imports(service string) []string {
	publish, _ := serviceRights(service)
	return publish
}

// asked are the subjects on which a service is asked by users of Stoker's account. A question to all replicas has many answers.
func asked(service string) []string {
	if len(questions[service]) == 0 {
		return answered(service)
	}
	return append(answered(service), microSubjects)
}

// response says that requests on a subject have more than one answer.
func response(subject string) string {
	if strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT.") {
		return ", response: stream"
	}
	return ""
}

// connections are those a user may make: none that acts for others, as leaf nodes do, whose reply subjects are not checked.
const connections = `allowed_connection_types: ["STANDARD", "WEBSOCKET"]`

func writeUsers(b *strings.Builder, keys func(user string) []string, users ...string) {
	b.WriteString("    users = [\n")
	for _, user := range users {
		publish, subscribe := Permissions(user)
		responses := ""
		if slices.Contains(name.Services(), user) {
			responses = "        allow_responses: true\n"
		}
		for _, key := range keys(user) {
			fmt.Fprintf(b, "      # %s\n      { nkey: %s, %s, permissions: {\n%s%s      } }\n",
				user, key, connections, permissions(publish, denied(user), subscribe), responses)
		}
	}
	b.WriteString("    ]\n")
}

func permissions(publish, deny, subscribe []string) string {
	denied := ""
	if len(deny) > 0 {
		denied = "\n        deny: [\n" + quoted(deny) + "        ]"
	}
	return fmt.Sprintf("        publish: { allow: [\n%s        ]%s }\n        subscribe: { allow: [\n%s        ] }\n",
		quoted(publish), denied, quoted(subscribe))
}

func quoted(subjects []string) string {
	var b strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&b, "          %q\n", s)
	}
	return b.String()
}
