package random

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// path of a field; "*" stands for the items of a list and the values of a map, "{}" for the keys of a map.
type path []string

func (p path) with(part string) path { return append(slices.Clip(p), part) }

func (p path) String() string { return strings.Join(p, ".") }

// value draws a value that fits the schema, by the field's hint where there is one. fill is how many optional fields there
// are on average; it gets less with depth.
func (s *Source) value(sc *schema, at path, fill float64) any {
	if h, ok := hint(at); ok && h.good != nil && (!h.tree || s.opts.Fill < All && (s.opts.Wild == 0 || s.chance(0.9))) {
		if v := clone(h.good(s)); sc.is(v) {
			return v
		}
	}
	return s.fits(sc, at, fill)
}

// is reports whether a value has the schema's type: names of fields that have a hint are used for other things, too.
func (sc *schema) is(v any) bool {
	switch v.(type) {
	case map[string]any:
		return sc.Type == "object" || sc.Any
	case []any:
		return sc.Type == "array" || sc.Any
	case string:
		return sc.Type == "string" || sc.IntOrString || sc.Any
	case int:
		return sc.Type == "integer" || sc.IntOrString || sc.Any
	}
	return false
}

// clone is a deep copy: what is drawn will be changed.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = clone(x)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, x := range v {
			l[i] = clone(x)
		}
		return l
	}
	return v
}

// fits is value without the field's own hint.
func (s *Source) fits(sc *schema, at path, fill float64) any {
	switch {
	case len(sc.Enum) > 0:
		return sc.Enum[s.IntN(len(sc.Enum))]
	case sc.Properties != nil:
		return s.object(sc, at, fill)
	case sc.Values != nil:
		m := map[string]any{}
		for range s.size(0, 3) {
			m[s.key(at)] = s.value(sc.Values, at.with("*"), fill*0.7)
		}
		return m
	case sc.Items != nil:
		return s.list(sc, at, fill)
	case sc.IntOrString && s.chance(0.5), sc.Type == "string":
		return s.string(sc)
	case sc.Type == "integer", sc.IntOrString:
		return s.integer(sc)
	case sc.Type == "number":
		return s.Float64() * 100
	case sc.Type == "boolean":
		return s.chance(0.5)
	case sc.Any:
		return s.anything(2)
	}
	return map[string]any{}
}

// size is a small number of items; everything there is takes one.
func (s *Source) size(low, high int) int {
	if s.opts.Fill >= All {
		return max(low, 1)
	}
	return low + s.IntN(high-low+1)
}

func (s *Source) object(sc *schema, at path, fill float64) map[string]any {
	m := map[string]any{}
	optional := len(sc.Properties) - len(sc.Required)
	for _, k := range slices.Sorted(maps.Keys(sc.Properties)) {
		if slices.Contains(sc.Required, k) || s.chance(fill/float64(max(optional, 1))) {
			m[k] = s.value(sc.Properties[k], at.with(k), fill*0.7)
		}
	}
	return m
}

func (s *Source) list(sc *schema, at path, fill float64) []any {
	high := 3
	if sc.MaxItems != nil {
		high = min(high, *sc.MaxItems)
	}
	var items []any
	seen := map[string]bool{}
	for range s.size(sc.MinItems, max(high, sc.MinItems)) {
		item := s.value(sc.Items, at.with("*"), fill*0.7)
		if id := identity(sc, item); !seen[id] || sc.MinItems > len(items) {
			items = append(items, item)
			seen[id] = true
		}
	}
	if items == nil {
		return []any{}
	}
	return items
}

// identity is what must differ between the items of a list.
func identity(sc *schema, item any) string {
	m, ok := item.(map[string]any)
	if !ok {
		return string(mustJSON(item))
	}
	keys := sc.ListKeys
	if len(keys) == 0 {
		keys = []string{"name", "mountPath", "resource", "port"}
	}
	var id []any
	for _, k := range keys {
		id = append(id, m[k])
	}
	return string(mustJSON(id))
}

func (s *Source) integer(sc *schema) int64 {
	low, high := int64(0), int64(100)
	if sc.Minimum != nil {
		low = int64(*sc.Minimum)
		high = max(high, low+100)
	}
	if sc.Maximum != nil {
		high = min(int64(*sc.Maximum), math.MaxInt32)
	}
	if sc.Maximum != nil && s.chance(0.1) {
		return high
	}
	if sc.Minimum != nil && s.chance(0.1) {
		return low
	}
	return low + s.Int64N(high-low+1)
}

func (s *Source) key(at path) string {
	if h, ok := hint(at.with("{}")); ok {
		if k, ok := h.good(s).(string); ok {
			return k
		}
	}
	return s.text(labelKeys)
}

// string draws one that fits pattern, format and length from the samples.
func (s *Source) string(sc *schema) string {
	fits := fitting(sc)
	if len(fits) == 0 {
		return strings.Repeat("a", sc.MinLength)
	}
	return s.text(fits)
}

var fits sync.Map // what fitting found, by schema

func fitting(sc *schema) []string {
	if known, ok := fits.Load(sc); ok {
		return known.([]string)
	}
	found := search(sc)
	fits.Store(sc, found)
	return found
}

func search(sc *schema) []string {
	var pattern *regexp.Regexp
	if sc.Pattern != "" {
		pattern = regexp.MustCompile(sc.Pattern)
	}
	var fits []string
	for _, sample := range samples(sc.Format) {
		if len(sample) < sc.MinLength || sc.MaxLength != nil && len(sample) > *sc.MaxLength {
			continue
		}
		if pattern != nil && !pattern.MatchString(sample) {
			continue
		}
		fits = append(fits, sample)
	}
	return fits
}

// anything is any JSON.
func (s *Source) anything(depth int) any {
	n := 6
	if depth == 0 {
		n = 4
	}
	switch s.IntN(n) {
	case 0:
		return s.text(texts)
	case 1:
		return s.IntN(1000)
	case 2:
		return s.chance(0.5)
	case 3:
		return nil
	case 4:
		return []any{s.anything(depth - 1), s.anything(depth - 1)}
	}
	return map[string]any{s.text(words): s.anything(depth - 1), s.text(words): s.anything(depth - 1)}
}
