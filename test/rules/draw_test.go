package rules

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/test/env"
)

// shape is what of a structural schema values are drawn from.
type shape struct {
	Type        string            `json:"type"`
	Properties  map[string]*shape `json:"properties"`
	Required    []string          `json:"required"`
	Items       *shape            `json:"items"`
	Values      *shape            `json:"additionalProperties"`
	Enum        []any             `json:"enum"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	MinLength   int               `json:"minLength"`
	MaxLength   *int              `json:"maxLength"`
	MinItems    int               `json:"minItems"`
	MaxItems    *int              `json:"maxItems"`
	Pattern     string            `json:"pattern"`
	IntOrString bool              `json:"x-kubernetes-int-or-string"`
}

// at is the schema of a property.
func (s *shape) at(path ...string) *shape {
	for _, p := range path {
		s = s.Properties[p]
	}
	return s
}

// tenantSchema is the schema of TenantControlPlanes.
func tenantSchema(t testing.TB) *shape {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(env.Root(), "deployments", "crds", "kamaji.clastix.io_tenantcontrolplanes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *shape `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// texts are all kinds of strings; of those that fit a field's schema one is drawn.
var texts = []string{
	"", " ", "a", "b", "c", "A", "a b", " a", "a\n", "é", "日本語", "a-", "-a", "a.b", "A_b", "a--b", "a/b", "/", "/a", "/a/b", "//", "a/../b", "..", "../a", "..a", "...", ".", "./a", "~",
	"0", "1", "-1", "100m", "1Gi", "2Mi", "0.5", "1e3", ".5", "1k", "+1", "1n", "1E", "100%", "0%", "50%", "00%",
	"app", "example.com/a", "example.com/a/b", "Example.com/A", "kubernetes.io/os", "kamaji.clastix.io/name", "a=b", "a,b", "pod-template-hash", "metadata.name",
	"metadata.labels", "metadata.labels['a']", "metadata.annotations['Example.com/a']", "status.podIP", "status.hostIPs", "spec.nodeName", "metadata.uid",
	"limits.cpu", "requests.memory", "limits.ephemeral-storage", "requests.hugepages-2Mi", "cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "storage", "example.com/device", "requests.cpu",
	"http", "1a", "12", "a1", "nginx:1.27", "registry.example.com:5000/a/b@sha256:0", "10.0.0.1", "2001:db8::1", "a.example.com", "*.a", "UPPER.example.com",
	"net.core.somaxconn", "kernel/msgmax", "iqn.2001-04.com.example:storage.disk2", "eui.0123456789abcdef", "naa.0123456789abcdef0123456789abcdef", "host:1", "host:1,other:2", ":",
	"https://a", "/subscriptions/a", "v1", "PersistentVolumeClaim", "VolumeSnapshot", "snapshot.storage.k8s.io", "example.com/signer", "example.com:signer:a", "a.b.c/d",
	"X-Header", "A B", "CAP_SYS_ADMIN", "NET_ADMIN", "localhost/a", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254), strings.Repeat("ab/", 200),
}

// likely are keys of maps that mean something somewhere.
var likely = []string{"app", "example.com/team", "cpu", "memory", "storage", "hugepages-2Mi", "example.com/device"}

var fitting sync.Map // texts by pattern and length

func (s *shape) fitting() []string {
	most := math.MaxInt
	if s.MaxLength != nil {
		most = *s.MaxLength
	}
	type key struct {
		pattern   string
		low, high int
	}
	k := key{s.Pattern, s.MinLength, most}
	if known, ok := fitting.Load(k); ok {
		return known.([]string)
	}
	re := regexp.MustCompile(s.Pattern)
	var fits []string
	for _, text := range texts {
		if n := len([]rune(text)); n >= k.low && n <= k.high && re.MatchString(text) {
			fits = append(fits, text)
		}
	}
	fitting.Store(k, fits)
	return fits
}

// draw is a value of a schema. often is the probability of each optional property, beside one or two that are there, and
// those on the path to a field that is wanted. ok is false if none can be drawn.
func (s *shape) draw(r *rand.Rand, often float64, want []string) (v any, ok bool) {
	var first string
	if len(want) > 0 {
		first, want = want[0], want[1:]
	}
	wanted := min(len(first), 1) // elements or values
	switch {
	case len(s.Enum) > 0:
		return s.Enum[r.IntN(len(s.Enum))], true
	case s.Properties != nil:
		m := map[string]any{}
		keys := slices.Sorted(maps.Keys(s.Properties))
		few := map[string]bool{}
		for range r.IntN(3) {
			few[keys[r.IntN(len(keys))]] = true
		}
		if first != "" && r.IntN(2) == 0 {
			clear(few)
		}
		few[first] = true
		for _, k := range keys {
			required := slices.Contains(s.Required, k)
			// Some of them or, with often 0, one or two, so that what is deep is reached.
			if !required && !few[k] && r.Float64() >= often {
				continue
			}
			var on []string
			if k == first {
				on = want
			}
			v, ok := s.Properties[k].draw(r, often, on)
			if ok {
				m[k] = v
			} else if required {
				return nil, false
			}
		}
		return m, true
	case s.Values != nil:
		m := map[string]any{}
		for range max(wanted, r.IntN(3)) {
			if v, ok := s.Values.draw(r, often, want); ok {
				k := texts[r.IntN(len(texts))]
				if r.IntN(2) == 0 {
					k = likely[r.IntN(len(likely))]
				}
				m[k] = v
			}
		}
		return m, true
	case s.Items != nil:
		high := 2
		if s.MaxItems != nil {
			high = min(high, *s.MaxItems)
		}
		l := []any{}
		for range max(wanted, s.MinItems+r.IntN(high+1-min(high, s.MinItems))) {
			if v, ok := s.Items.draw(r, often, want); ok {
				l = append(l, v)
			}
		}
		return l, len(l) >= s.MinItems
	case s.Type == "string", s.IntOrString && r.IntN(2) == 0:
		fits := s.fitting()
		if len(fits) == 0 {
			return nil, false
		}
		if r.IntN(2) == 0 {
			fits = fits[:min(3, len(fits))] // the same names again and again, so that they refer to each other
		}
		return fits[r.IntN(len(fits))], true
	case s.Type == "integer", s.IntOrString:
		low, high := float64(-3), float64(100000)
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = *s.Maximum
		}
		switch r.IntN(4) {
		case 0:
			return int64(low), true
		case 1:
			return int64(high), true
		}
		return int64(low) + r.Int64N(int64(min(high, low+1000)-low)+1), true
	case s.Type == "boolean":
		return r.IntN(2) == 0, true
	}
	return map[string]any{}, true
}

// fields are the paths of the schema's fields, "+" for an element of a list or a value of a map.
func (s *shape) fields(at []string) [][]string {
	all := [][]string{at}
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, s.Properties[k].fields(append(slices.Clip(at), k))...)
	}
	for _, inner := range []*shape{s.Items, s.Values} {
		if inner != nil {
			all = append(all, inner.fields(append(slices.Clip(at), "+"))...)
		}
	}
	return all
}

// seen notes the fields of a value of the schema.
func (s *shape) seen(v any, at string, all map[string]bool) {
	all[at] = true
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			switch {
			case s.Properties[k] != nil:
				s.Properties[k].seen(x, at+"."+k, all)
			case s.Values != nil:
				s.Values.seen(x, at+".+", all)
			}
		}
	case []any:
		for _, x := range v {
			if s.Items != nil {
				s.Items.seen(x, at+".+", all)
			}
		}
	}
}
