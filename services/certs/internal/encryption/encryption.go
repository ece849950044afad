// Package encryption decides by which configurations (EncryptionConfiguration) a tenant's API servers encrypt what they store, one after
// the other: so that none of them meets what it can't read, while pods of one configuration and of the next run side by side. Pure.
//
// config.go is a configuration as the API server reads it, encryption.go what comes after it.
//
// The rule: a configuration follows another only once all pods have that one, and in no two that follow each other does either write
// what the other can't read. A key is forgotten only once everything was written anew after all pods had stopped using it.
package encryption

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Target is what the spec asks for.
type Target struct {
	// Resources that are to be encrypted, none for none.
	Resources []string
	// Provider by which, v1alpha1.Provider….
	Provider string
	// Rotate asks for another key than there is.
	Rotate bool
}

// Wanted says what a target is, whether or not keys are rotated.
func (t Target) Wanted() string {
	if len(t.Resources) == 0 {
		return ""
	}
	return strings.Join(append([]string{t.Provider}, slices.Sorted(slices.Values(t.Resources))...), ",")
}

// Start is the configuration to begin with. Where there may be API servers, they have none, and learn to read first; where there are none
// yet, the first ones write by the key at once.
//
// revision must be higher than those of configurations that the tenant had before.
func Start(t Target, revision int64, running bool) (Config, string) {
	t.Rotate = false
	next, phase := Config{Revision: revision - 1}.next(t, false)
	if !running {
		next, phase = next.next(t, false)
	}
	next.Revision = revision
	return next, phase
}

// Next is the configuration after one that all pods have, and its phase: the same one when it is to stay. rewritten says that everything
// was written anew since all pods have had it.
func (c Config) Next(t Target, rewritten bool) (Config, string) {
	next, phase := c.next(t, rewritten)
	if phase != state.EncryptionRewriting && phase != state.EncryptionSettled {
		next.Revision = c.Revision + 1
	}
	return next, phase
}

// next says which step comes first; of all resources together, so that each is one rollout.
func (c Config) next(t Target, rewritten bool) (Config, string) {
	if c.Off() && len(t.Resources) == 0 {
		return c, state.EncryptionSettled
	}
	writer, made := c.writer(t)
	introduced, changed := c.clone(), false
	if made != nil {
		introduced.Keys[writer] = *made
	}
	for _, resource := range union(c.resources(), t.Resources) {
		w := writerOf(t, resource, writer)
		have := c.providers(resource)
		if !slices.Contains(have, w) {
			have, changed = append(have, w), true
		}
		introduced.Providers[resource] = have
	}
	if changed {
		return introduced, state.EncryptionIntroducing
	}
	switched := c.clone()
	for resource, have := range c.Providers {
		if w := writerOf(t, resource, writer); have[0] != w {
			switched.Providers[resource], changed = inFront(have, w), true
		}
	}
	switch {
	case changed:
		return switched, state.EncryptionSwitching
	case !rewritten:
		return c, state.EncryptionRewriting
	}
	retired := c.clone()
	for resource, have := range c.Providers {
		switch w := writerOf(t, resource, writer); {
		case w == Identity:
			delete(retired.Providers, resource)
			changed = true
		case len(have) > 2:
			retired.Providers[resource], changed = []string{w, Identity}, true
		}
	}
	if changed {
		retired.forgetKeys()
		return retired, state.EncryptionRetiring
	}
	return c, state.EncryptionSettled
}

// writer is the name of the key by which the target is written, and the key if it is a new one; empty when nothing is to be encrypted.
func (c Config) writer(t Target) (key string, made *Key) {
	if len(t.Resources) == 0 {
		return "", nil
	}
	if newest := c.newest(); newest != "" && c.Keys[newest].Provider == t.Provider && !t.Rotate {
		return newest, nil
	}
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // never fails
	return "key" + strconv.FormatInt(c.Revision+1, 10), &Key{Provider: t.Provider, Secret: secret}
}

// writerOf is the provider by which a resource is to be written.
func writerOf(t Target, resource, writer string) string {
	if writer == "" || !slices.Contains(t.Resources, resource) {
		return Identity
	}
	return writer
}

// inFront moves a provider to the front, where it is the one that writes.
func inFront(providers []string, writer string) []string {
	rest := slices.DeleteFunc(slices.Clone(providers), func(p string) bool { return p == writer })
	return append([]string{writer}, rest...)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
