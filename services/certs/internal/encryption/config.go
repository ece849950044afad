package encryption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Identity is the provider that doesn't encrypt.
const Identity = "identity"

// keySize is the size of a key in bytes, of each provider.
const keySize = 32

// Config is a configuration of encryption.
type Config struct {
	// Revision tells it from others of the tenant; a later one has a higher one.
	Revision int64
	// Providers by resource: names of keys, and Identity, which each resource has. The first one writes, all read. What isn't in it is
	// written and read by Identity alone.
	Providers map[string][]string
	// Keys by name. A key's name ends in the revision that brought it.
	Keys map[string]Key
}

// Key encrypts.
type Key struct {
	// Provider is v1alpha1.Provider….
	Provider string
	// Secret is the key itself.
	Secret []byte
}

// Off reports whether the configuration encrypts nothing and reads nothing that is encrypted.
func (c Config) Off() bool { return len(c.Providers) == 0 }

// Resources are those that the configuration is about, sorted.
func (c Config) Resources() []string { return c.resources() }

func (c Config) resources() []string { return slices.Sorted(maps.Keys(c.Providers)) }

// providers of a resource, a copy.
func (c Config) providers(resource string) []string {
	if have, ok := c.Providers[resource]; ok {
		return slices.Clone(have)
	}
	return []string{Identity}
}

func (c Config) clone() Config {
	n := Config{Revision: c.Revision, Providers: map[string][]string{}, Keys: map[string]Key{}}
	maps.Copy(n.Providers, c.Providers)
	maps.Copy(n.Keys, c.Keys)
	return n
}

// newest is the name of the key that came last; empty for none.
func (c Config) newest() string {
	newest, last := "", int64(0)
	for key := range c.Keys {
		if n, _ := strconv.ParseInt(strings.TrimPrefix(key, "key"), 10, 64); n > last {
			newest, last = key, n
		}
	}
	return newest
}

// forgetKeys takes out keys that no resource has any more.
func (c Config) forgetKeys() {
	maps.DeleteFunc(c.Keys, func(key string, _ Key) bool {
		for _, have := range c.Providers {
			if slices.Contains(have, key) {
				return false
			}
		}
		return true
	})
}

// Below is an EncryptionConfiguration (apiserver.config.k8s.io/v1), as far as something of it is said of a tenant.
type (
	document struct {
		APIVersion string  `json:"apiVersion"`
		Kind       string  `json:"kind"`
		Resources  []entry `json:"resources"`
	}
	entry struct {
		Resources []string   `json:"resources"`
		Providers []provider `json:"providers"`
	}
	provider struct {
		Secretbox *keys     `json:"secretbox,omitempty"`
		AESCBC    *keys     `json:"aescbc,omitempty"`
		Identity  *struct{} `json:"identity,omitempty"`
	}
	keys struct {
		Keys []key `json:"keys"`
	}
	key struct {
		Name   string `json:"name"`
		Secret []byte `json:"secret"`
	}
)

// Marshal is the configuration as the API server reads it. One that is Off is none to an API server.
func (c Config) Marshal() []byte {
	doc := document{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration", Resources: []entry{}}
	for _, resource := range c.resources() {
		e := entry{Resources: []string{resource}}
		for _, p := range c.Providers[resource] {
			e.Providers = append(e.Providers, c.provider(p))
		}
		doc.Resources = append(doc.Resources, e)
	}
	data, err := yaml.Marshal(doc)
	if err != nil {
		panic("a configuration is plain data: " + err.Error())
	}
	return data
}

func (c Config) provider(p string) provider {
	if p == Identity {
		return provider{Identity: &struct{}{}}
	}
	k := c.Keys[p]
	one := &keys{Keys: []key{{Name: p, Secret: k.Secret}}}
	if k.Provider == v1alpha1.ProviderAESCBC {
		return provider{AESCBC: one}
	}
	return provider{Secretbox: one}
}

// errNot says that a document is no configuration of this package. Its errors don't repeat what they read, which holds keys.
var errNot = errors.New("is no configuration that Stoker made")

// Parse reads what Marshal wrote.
func Parse(revision int64, data []byte) (Config, error) {
	c := Config{Revision: revision, Providers: map[string][]string{}, Keys: map[string]Key{}}
	var doc document
	if yaml.UnmarshalStrict(data, &doc) != nil || doc.Kind != "EncryptionConfiguration" {
		return c, errNot
	}
	for _, e := range doc.Resources {
		var have []string
		for _, p := range e.Providers {
			one, k := p.parse()
			if one == "" || slices.Contains(have, one) {
				return c, errNot
			}
			have = append(have, one)
			if k != nil {
				c.Keys[one] = *k
			}
		}
		if len(e.Resources) != 1 || !slices.Contains(have, Identity) {
			return c, errNot
		}
		c.Providers[e.Resources[0]] = have
	}
	return c, nil
}

// parse returns the name of a provider, empty for one that can't be read, and its key unless it is Identity.
func (p provider) parse() (string, *Key) {
	of, ks := v1alpha1.ProviderSecretbox, p.Secretbox
	if p.AESCBC != nil {
		of, ks = v1alpha1.ProviderAESCBC, p.AESCBC
	}
	switch {
	case ks == nil && p.Identity != nil:
		return Identity, nil
	case ks == nil || p.Identity != nil || len(ks.Keys) != 1 || len(ks.Keys[0].Secret) != keySize || ks.Keys[0].Name == "":
		return "", nil
	}
	return ks.Keys[0].Name, &Key{Provider: of, Secret: ks.Keys[0].Secret}
}

// String says who writes and reads what, without the keys.
func (c Config) String() string {
	var parts []string
	for _, resource := range c.resources() {
		parts = append(parts, fmt.Sprintf("%s: %s", resource, strings.Join(c.Providers[resource], ", ")))
	}
	return strings.Join(parts, "; ")
}
