package intake

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

const goodIssuer = `issuer: {url: "https://a.example.com", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ""}}`

func TestExpressionsAreCompiled(t *testing.T) {
	t.Parallel()
	const jwt, mapping = "spec.kubernetes.apiServer.authentication.jwt", `issuer: {url: "https://a.example.com", audiences: [a]}, claimMappings: `
	webhook := func(expression string) string {
		return `authorization: {authorizers: [{type: Node, name: node}, {type: Webhook, name: a, webhook: {kubeconfigSecret: {name: a}, failurePolicy: Deny, matchConditions: [{expression: "true"}, {expression: "` + expression + `"}]}}]}`
	}
	for sentence, test := range map[string]struct{ settings, field, value, says string }{
		"none":                        {settings: `eventTTL: 1h`},
		"claims only":                 {settings: `authentication: {jwt: [{` + goodIssuer + `}]}`},
		"anonymous alone":             {settings: `authentication: {anonymous: {enabled: true}}`},
		"expressions that compile":    {settings: `authentication: {jwt: [{` + mapping + `{username: {expression: "claims.sub"}}, userValidationRules: [{expression: "!user.username.startsWith('system:')"}]}]}`},
		"a condition that compiles":   {settings: webhook(`request.user.startsWith('staff:')`)},
		"a mapping that ends early":   {`authentication: {jwt: [{` + goodIssuer + `}, {` + mapping + `{username: {expression: "claims.sub +"}}}]}`, jwt + "[1].claimMappings.username.expression", "claims.sub +", "Syntax error"},
		"an extra that ends early":    {`authentication: {jwt: [{` + mapping + `{username: {claim: sub, prefix: ""}, extra: [{key: a.b/c, valueExpression: "claims."}]}}]}`, jwt + "[0].claimMappings.extra[0].valueExpression", "claims.", "Syntax error"},
		"a rule that isn't one":       {`authentication: {jwt: [{` + goodIssuer + `, claimValidationRules: [{expression: "claims.sub == 'a'"}, {expression: "'a'"}]}]}`, jwt + "[0].claimValidationRules[1].expression", "'a'", "must evaluate to bool"},
		"a user without such a field": {`authentication: {jwt: [{` + goodIssuer + `, userValidationRules: [{expression: "user.name == 'a'"}]}]}`, jwt + "[0].userValidationRules[0].expression", "user.name == 'a'", "undefined field 'name'"},
		"an e-mail address that nobody verified": {
			`authentication: {jwt: [{` + mapping + `{username: {expression: "claims.email"}}}]}`, jwt + "[0].claimMappings.username.expression", "claims.email", "email_verified",
		},
		"a condition about what isn't there": {webhook("request.users == 'a'"), "spec.kubernetes.apiServer.authorization.authorizers[1].webhook.matchConditions[1].expression", "request.users == 'a'", "undefined field 'users'"},
	} {
		var settings v1alpha1.APIServerSpec
		if err := yaml.UnmarshalStrict([]byte(test.settings), &settings); err != nil {
			t.Fatalf("%s: %v", sentence, err)
		}
		bad := unusable(&settings)
		switch {
		case test.field == "" && len(bad) > 0:
			t.Errorf("%s: %v", sentence, bad)
		case test.field == "":
		case len(bad) != 1 || bad[0].Field != test.field || test.value != "" && bad[0].Value != test.value || !strings.Contains(bad[0].Message, test.says):
			t.Errorf("%s: %+v", sentence, bad)
		case strings.ContainsAny(bad[0].Message, "\n|"):
			t.Errorf("%s: several lines: %q", sentence, bad[0].Message)
		}
	}
	if bad := unusable(nil); bad != nil {
		t.Error(bad)
	}
}

func TestAPatchIsJudgedByWhatItLeadsTo(t *testing.T) {
	t.Parallel()
	c := command{key: events.Tenant("default", "demo"), kind: kinds[event.TenantControlPlanes]}
	raw, err := yaml.YAMLToJSON([]byte(`{metadata: {name: demo}, spec: {kubernetes: {version: v1.36.3, apiServer: {authentication: {jwt: [{` +
		goodIssuer + `, userValidationRules: [{expression: wrong}]}]}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	there, err := c.object(raw)
	if err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct {
		spec    string
		refused bool
	}{
		"about something else":      {`{"kubernetes":{"version":"v1.36.4"}}`, false},
		"that leaves what is wrong": {`{"kubernetes":{"apiServer":{"eventTTL":"1h"}}}`, true},
		"that takes it away":        {`{"kubernetes":{"apiServer":{"authentication":null}}}`, false},
		"that takes all of it away": {`{"kubernetes":{"apiServer":null}}`, false},
	} {
		what, err := c.patching(&event.PatchCommand{Spec: []byte(test.spec)})
		if err != nil {
			t.Fatalf("%s: %v", sentence, err)
		}
		_, err = what.patch(there)
		var bad refusal
		if errors.As(err, &bad) != test.refused || err != nil && !test.refused {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
