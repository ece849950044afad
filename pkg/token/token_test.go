package token_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/token"
)

func entry(lines string) string {
	return "tokens:\n- name: shop\n  hash: " + token.Hash("shop's") + "\n  " + strings.ReplaceAll(lines, "\n", "\n  ") + "\n"
}

func TestParse(t *testing.T) {
	other := "\n- name: other\n  hash: " + token.Hash("other's") + "\n  namespaces: [a]\n"
	for what, c := range map[string]struct{ file, says string }{
		"one of a namespace":                         {entry("namespaces: [shop]"), ""},
		"all that can be said":                       {entry("namespaces: [shop, \"*\"]\nkinds: [tenantcontrolplanes, datastores, kubeconfiggenerators]\nexpires: 2027-01-31T18:00:00Z"), ""},
		"two":                                        {entry("namespaces: [shop]") + other, ""},
		"nobody":                                     {"# nobody\n", ""},
		"DataStores, which have no namespace":        {entry("kinds: [datastores]"), ""},
		"plain tokens, one a line, as once":          {"a-token-that-nobody-guesses\n", "stoker token add"},
		"no namespace":                               {entry("kinds: [tenantcontrolplanes]"), "tokens[0].namespaces: missing for shop"},
		"a field that is misspelt":                   {entry("namespace: [shop]"), "namespace"},
		"a namespace that can't be":                  {entry("namespaces: [shop*]"), `"shop*"`},
		"a kind there isn't":                         {entry("namespaces: [shop]\nkinds: [pods]"), `"pods"`},
		"a time that is none":                        {entry("namespaces: [shop]\nexpires: soon"), "soon"},
		"a field twice":                              {entry("namespaces: [shop]\nnamespaces: [other]"), "already set"},
		"a token instead of its hash":                {strings.Replace(entry("namespaces: [shop]"), token.Hash("shop's"), "shop's", 1), "tokens[0].hash"},
		"the same name twice":                        {entry("namespaces: [shop]") + strings.Replace(other, "other\n", "shop\n", 1), `tokens[1].name: "shop" is given twice`},
		"the same token twice":                       {entry("namespaces: [shop]") + strings.Replace(other, token.Hash("other's"), token.Hash("shop's"), 1), "tokens[1].hash"},
		"a name that would tear a line of a log":     {strings.Replace(entry("namespaces: [shop]"), "name: shop", `name: "a\nb"`, 1), "tokens[0].name"},
		"a hash of another algorithm, or of no hash": {strings.Replace(entry("namespaces: [shop]"), "sha256:", "md5:", 1), "sha256:"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := token.Parse([]byte(c.file))
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "shop's") {
				t.Errorf("the error tells a token: %v", err)
			}
		})
	}
	t.Run("what is written can be read", func(t *testing.T) {
		f, err := token.Parse([]byte(entry("namespaces: [shop]\nexpires: 2027-01-31T18:00:00Z")))
		if err != nil {
			t.Fatal(err)
		}
		data, err := f.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := token.Parse(data); err != nil || !again.Tokens[0].Expires.Equal(f.Tokens[0].Expires) || again.Tokens[0].Name != "shop" {
			t.Errorf("%s: %v", data, err)
		}
	})
}

func TestFind(t *testing.T) {
	secret := token.New()
	f := token.File{Tokens: []token.Token{{Name: "a", Hash: token.Hash("x")}, {Name: "b", Hash: token.Hash(secret)}, {Name: "c", Hash: token.Hash("y")}}}
	if found := f.Find(secret); found == nil || found.Name != "b" {
		t.Errorf("%v", found)
	}
	for _, no := range []string{"", secret + "x", token.Hash(secret), strings.ToLower(secret)} {
		if found := f.Find(no); found != nil {
			t.Errorf("%q is taken for %s's", no, found.Name)
		}
	}
	if len(secret) < 26 || token.New() == secret {
		t.Error(secret)
	}
}

func TestAllows(t *testing.T) {
	for what, c := range map[string]struct {
		token           token.Token
		kind, namespace string
		want            error
	}{
		"a tenant of its namespace":              {token.Token{Namespaces: []string{"a", "b"}}, event.TenantControlPlanes, "b", nil},
		"a tenant of another namespace":          {token.Token{Namespaces: []string{"a", "b"}}, event.TenantControlPlanes, "c", token.ErrNamespace},
		"a tenant, where any will do":            {token.Token{Namespaces: []string{token.Any}}, event.TenantControlPlanes, "c", nil},
		"a DataStore, where none is said":        {token.Token{Namespaces: []string{token.Any}}, event.DataStores, "-", token.ErrKind},
		"a DataStore, where it is said":          {token.Token{Kinds: []string{event.DataStores}}, event.DataStores, "-", nil},
		"a tenant, where only DataStores are":    {token.Token{Kinds: []string{event.DataStores}, Namespaces: []string{"a"}}, event.TenantControlPlanes, "a", token.ErrKind},
		"a generator, where only DataStores are": {token.Token{Kinds: []string{event.DataStores}}, event.KubeconfigGenerators, "-", token.ErrKind},
	} {
		t.Run(what, func(t *testing.T) {
			if got := c.token.Allows(c.kind, c.namespace); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	t.Run("a token ends at its time, and not without one", func(t *testing.T) {
		end := time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC)
		limited := token.Token{Expires: end}
		if limited.Expired(end.Add(-time.Second)) || !limited.Expired(end) || (token.Token{}).Expired(end) {
			t.Error("it doesn't")
		}
	})
}
