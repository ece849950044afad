// Package random draws objects of Stoker's kinds from the schemas of their CustomResourceDefinitions: such as are meant to
// be valid, and such with something wrong in them. The same seed draws the same objects.
package random

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Kind is a kind and the schema its objects are drawn from.
type Kind struct {
	// APIVersion, Name ("DataStore") and Plural ("datastores") of the kind.
	APIVersion, Name, Plural string
	Namespaced               bool

	root *schema
}

// Kinds reads the CustomResourceDefinitions of the kinds that there are commands for; the key is the plural name.
func Kinds(dir string) (map[string]*Kind, error) {
	files, err := filepath.Glob(filepath.Join(dir, "kamaji.clastix.io_*.yaml"))
	if err != nil {
		return nil, err
	}
	kinds := map[string]*Kind{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd struct {
			Spec struct {
				Group string
				Names struct{ Kind, Plural string }
				Scope string

				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		v := crd.Spec.Versions[0]
		kinds[crd.Spec.Names.Plural] = &Kind{
			APIVersion: crd.Spec.Group + "/" + v.Name, Name: crd.Spec.Names.Kind, Plural: crd.Spec.Names.Plural,
			Namespaced: crd.Spec.Scope == "Namespaced", root: v.Schema.OpenAPIV3Schema,
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no CustomResourceDefinition in %s", dir)
	}
	return kinds, nil
}

// schema is the part of a structural schema that drawing takes.
type schema struct {
	Type        string             `json:"type"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Values      *schema            `json:"additionalProperties"`
	Enum        []any              `json:"enum"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MinLength   int                `json:"minLength"`
	MaxLength   *int               `json:"maxLength"`
	MinItems    int                `json:"minItems"`
	MaxItems    *int               `json:"maxItems"`
	Pattern     string             `json:"pattern"`
	Format      string             `json:"format"`
	IntOrString bool               `json:"x-kubernetes-int-or-string"`
	Any         bool               `json:"x-kubernetes-preserve-unknown-fields"`
	ListType    string             `json:"x-kubernetes-list-type"`
	ListKeys    []string           `json:"x-kubernetes-list-map-keys"`
}

// Options say what to draw.
type Options struct {
	// Fill is how much of what is optional is there: 0 nothing, about 2 a readable object; All everything there is, once.
	Fill float64
	// Wild is how many things are wrong with the object, on average; 0: it is meant to be valid.
	Wild float64
	// DataStores are names that a tenant may refer to; none: it names no DataStore.
	DataStores []string
	// Status draws the status, too.
	Status bool
}

// All is the Fill that draws every field.
const All = 1e9

// Drawn is an object that was drawn.
type Drawn struct {
	Kind            *Kind
	Namespace, Name string
	// JSON of the object. With Wild it may be no object, or no JSON at all.
	JSON []byte
	// Wrong says what was done to it ("spec.kubernetes.version: bad value"); empty when it is meant to be valid.
	Wrong []string
}

// Source draws objects. It is not safe for concurrent use.
type Source struct {
	*rand.Rand
	opts Options
}

// New returns the source of a seed.
func New(seed uint64) *Source {
	return &Source{Rand: rand.New(rand.NewPCG(seed, 0x5eed))}
}

// Fixed is a seed that never changes, for a test that draws some objects from it in addition to the objects of [Seed].
const Fixed = 1056970309207946855

// seedVariable sets the seed, to repeat a run.
const seedVariable = "STOKER_TEST_SEED"

// Seed is the seed in the environment variable STOKER_TEST_SEED, or a new one in each run. It is logged; a test that fails prints the
// command that repeats it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s %q: %v", seedVariable, s, err)
		}
	}
	t.Logf("drawn with %s=%d", seedVariable, seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("draw the same again:", repeat(t, seed))
		}
	})
	return seed
}

// repeat is the command that runs a test again with a seed.
func repeat(t testing.TB, seed uint64) string {
	command := fmt.Sprintf("%s=%d ", seedVariable, seed)
	if n := os.Getenv("STOKER_TEST_OBJECTS"); n != "" {
		command += "STOKER_TEST_OBJECTS=" + n + " "
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	command += "go test -C " + dir + " -count=1"
	if testing.Short() { // which draws fewer
		command += " -short"
	}
	top, _, _ := strings.Cut(t.Name(), "/")
	return command + " -run '^" + top + "$' ."
}

// Seeded returns the source of Seed.
func Seeded(t testing.TB) *Source {
	t.Helper()
	return New(Seed(t))
}

// Draw draws an object. namespace is ignored for cluster-scoped kinds.
func (s *Source) Draw(k *Kind, namespace, name string, o Options) Drawn {
	s.opts = o
	if !k.Namespaced {
		namespace = ""
	}
	object := map[string]any{"apiVersion": k.APIVersion, "kind": k.Name, "metadata": s.metadata(namespace, name)}
	for _, part := range []string{"spec", "status"} {
		if sub := k.root.Properties[part]; sub != nil && (part == "spec" || o.Status) {
			object[part] = s.value(sub, path{part}, o.Fill)
		}
	}
	agree(s, k, object)
	d := Drawn{Kind: k, Namespace: namespace, Name: name}
	d.Wrong = s.spoil(k, object)
	d.JSON = mustJSON(object)
	if len(d.Wrong) > 0 {
		var how string
		if d.JSON, how = s.spoilText(d.JSON); how != "" {
			d.Wrong = append(d.Wrong, how)
		}
	}
	return d
}

// Object is JSON decoded; nil when it can't be.
func (d Drawn) Object() map[string]any {
	var o map[string]any
	if json.Unmarshal(d.JSON, &o) != nil {
		return nil
	}
	return o
}

func (s *Source) metadata(namespace, name string) map[string]any {
	m := map[string]any{"name": name}
	if namespace != "" {
		m["namespace"] = namespace
	}
	if s.chance(s.opts.Fill / 8) {
		m["labels"] = map[string]any{s.text(labelKeys): s.text(labelValues)}
	}
	if s.chance(s.opts.Fill / 8) {
		m["annotations"] = map[string]any{s.text(labelKeys): s.text(texts)}
	}
	return m
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("what was drawn has no JSON: " + err.Error())
	}
	return data
}

func (s *Source) chance(p float64) bool { return s.Float64() < p }

func (s *Source) text(from []string) string { return from[s.IntN(len(from))] }
