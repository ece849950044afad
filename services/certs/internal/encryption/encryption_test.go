package encryption

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// world is what there may be of a tenant: pods of one configuration or of two, and objects written by providers.
type world struct {
	t    *testing.T
	pods []Config
	// stored has the providers by which objects of a resource may be written.
	stored map[string]map[string]bool
	keys   map[string]Key // that there ever were, by name
	phases []string
}

func newWorld(t *testing.T, pods ...Config) *world {
	w := &world{t: t, stored: map[string]map[string]bool{}, keys: map[string]Key{}}
	for _, c := range pods {
		w.begin(c)
	}
	return w
}

// begin starts pods of a configuration beside those there are, and has all of them write.
func (w *world) begin(c Config) {
	w.t.Helper()
	w.pods = append(w.pods, c)
	for key, k := range c.Keys {
		if had, ok := w.keys[key]; ok && (had.Provider != k.Provider || !bytes.Equal(had.Secret, k.Secret)) {
			w.t.Fatalf("%s is another key than before", key)
		}
		w.keys[key] = k
	}
	for _, c := range w.pods {
		for _, resource := range []string{"secrets", "configmaps", "tokens.example.com"} {
			if w.stored[resource] == nil {
				w.stored[resource] = map[string]bool{}
			}
			w.stored[resource][c.providers(resource)[0]] = true
		}
	}
	for _, c := range w.pods {
		for resource, written := range w.stored {
			for by := range written {
				if !slices.Contains(c.providers(resource), by) {
					w.t.Fatalf("after %v: pods of configuration %d (%s) can't read %s written by %s", w.phases, c.Revision, c, resource, by)
				}
			}
		}
	}
}

// end has none but the last pods left.
func (w *world) end() { w.pods = w.pods[len(w.pods)-1:] }

// rewrite has all objects of a configuration's resources written anew.
func (w *world) rewrite(c Config) {
	for _, resource := range c.Resources() {
		w.stored[resource] = map[string]bool{c.providers(resource)[0]: true}
	}
}

// reach goes on from a configuration to what is asked for, and returns the last one. change may ask for something else after each step.
func (w *world) reach(c Config, target *Target, change func()) Config {
	w.t.Helper()
	rewritten := int64(0)
	for range 100 {
		next, phase := c.Next(*target, rewritten == c.Revision)
		w.phases = append(w.phases, phase)
		switch phase {
		case state.EncryptionSettled:
			return c
		case state.EncryptionRewriting:
			w.rewrite(c)
			rewritten = c.Revision
		default:
			if next.Revision != c.Revision+1 {
				w.t.Fatalf("revision %d after %d", next.Revision, c.Revision)
			}
			if phase == state.EncryptionIntroducing {
				target.Rotate = false
			}
			if phase == state.EncryptionRetiring {
				rewritten = next.Revision
			}
			w.begin(next)
			w.end()
			c = reparsed(w.t, next)
		}
		if change != nil {
			change()
		}
	}
	w.t.Fatalf("never settles: %v, %s", w.phases, c)
	return c
}

// reparsed is a configuration as it comes back from a Secret.
func reparsed(t *testing.T, c Config) Config {
	t.Helper()
	again, err := Parse(c.Revision, c.Marshal())
	if err != nil {
		t.Fatalf("%v: %s", err, c)
	}
	if again.String() != c.String() || !maps.EqualFunc(again.Keys, c.Keys, func(a, b Key) bool {
		return a.Provider == b.Provider && bytes.Equal(a.Secret, b.Secret)
	}) {
		t.Fatalf("%s came back as %s", c, again)
	}
	return again
}

func secretbox(resources ...string) Target {
	return Target{Resources: resources, Provider: v1alpha1.ProviderSecretbox}
}

// holds says what a configuration must be, and that nothing is stored otherwise.
func (w *world) holds(c Config, want string, keys int) {
	w.t.Helper()
	if c.String() != want || len(c.Keys) != keys {
		w.t.Errorf("%s, %d keys; want %s, %d", c, len(c.Keys), want, keys)
	}
	for resource, written := range w.stored {
		if len(written) != 1 || !written[c.providers(resource)[0]] {
			w.t.Errorf("%s is written by %v", resource, written)
		}
	}
}

func TestEveryStepIsReadableToTheOneBefore(t *testing.T) {
	t.Parallel()
	none := Config{}
	target := secretbox("secrets")
	c, phase := Start(target, 1, true)
	w := newWorld(t, none)
	w.phases = append(w.phases, phase)
	w.begin(c)
	w.end()
	c = w.reach(reparsed(t, c), &target, nil)
	w.holds(c, "secrets: key1, identity", 1)

	target.Rotate = true
	c = w.reach(c, &target, nil)
	w.holds(c, "secrets: key3, identity", 1)

	target = secretbox("configmaps", "secrets")
	c = w.reach(c, &target, nil)
	w.holds(c, "configmaps: key3, identity; secrets: key3, identity", 1)

	target.Provider, target.Resources = v1alpha1.ProviderAESCBC, []string{"configmaps"}
	c = w.reach(c, &target, nil)
	w.holds(c, "configmaps: key8, identity", 1)
	if !bytes.Contains(c.Marshal(), []byte("aescbc:")) {
		t.Errorf("%s", c)
	}

	target = Target{}
	c = w.reach(c, &target, nil)
	w.holds(c, "", 0)
	if !c.Off() {
		t.Error("it isn't off")
	}
	want := []string{
		"Introducing", "Switching", "Rewriting", "Settled",
		"Introducing", "Switching", "Rewriting", "Retiring", "Settled",
		"Introducing", "Switching", "Rewriting", "Settled",
		"Introducing", "Switching", "Rewriting", "Retiring", "Settled",
		"Switching", "Rewriting", "Retiring", "Settled",
	}
	if !slices.Equal(w.phases, want) {
		t.Errorf("%v\n%v", w.phases, want)
	}
}

func TestATenantWithoutPodsBeginsEncrypted(t *testing.T) {
	t.Parallel()
	target := secretbox("secrets")
	c, phase := Start(target, 4, false)
	if phase != state.EncryptionSwitching || c.Revision != 4 || c.String() != "secrets: key4, identity" {
		t.Fatalf("%s: %d, %s", phase, c.Revision, c)
	}
	w := newWorld(t, c)
	w.holds(w.reach(c, &target, nil), "secrets: key4, identity", 1)
}

// TestAMindThatChanges asks for something else between any two steps.
func TestAMindThatChanges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func() Target {
		target := Target{Provider: v1alpha1.ProviderSecretbox, Rotate: random.IntN(4) == 0}
		if random.IntN(3) == 0 {
			target.Provider = v1alpha1.ProviderAESCBC
		}
		for _, resource := range []string{"secrets", "configmaps", "tokens.example.com"} {
			if random.IntN(2) == 0 {
				target.Resources = append(target.Resources, resource)
			}
		}
		return target
	}
	times := 2000
	if testing.Short() {
		times = 300
	}
	for range times {
		target := draw()
		for len(target.Resources) == 0 {
			target = draw()
		}
		c, _ := Start(target, 1, true)
		w := newWorld(t, Config{})
		w.begin(c)
		w.end()
		left := random.IntN(12)
		c = w.reach(c, &target, func() {
			if left--; left >= 0 && random.IntN(2) == 0 {
				target = draw()
			}
		})
		for _, resource := range target.Resources {
			if c.Keys[c.providers(resource)[0]].Provider != target.Provider {
				t.Fatalf("%v: %s", target, c)
			}
		}
		if len(c.Providers) != len(target.Resources) || len(c.Keys) > 1 {
			t.Fatalf("%v: %s, %d keys", target, c, len(c.Keys))
		}
		for resource, written := range w.stored {
			if len(written) != 1 || !written[c.providers(resource)[0]] {
				t.Fatalf("%s is written by %v: %s", resource, written, c)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good, _ := Start(secretbox("secrets"), 1, false)
	for what, change := range map[string]func(string) string{
		"a key that is too short": func(s string) string { return s[:bytes.Index([]byte(s), []byte("secret: "))] + "secret: YQ==\n" },
		"no identity":             func(s string) string { return string(bytes.Replace([]byte(s), []byte("- identity: {}"), nil, 1)) },
		"a field of its own":      func(s string) string { return s + "more: true\n" },
		"nothing":                 func(string) string { return "" },
	} {
		text := change(string(good.Marshal()))
		if _, err := Parse(1, []byte(text)); err == nil {
			t.Errorf("%s: it was taken", what)
		}
	}
}
