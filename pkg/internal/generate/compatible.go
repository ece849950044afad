package main

// Whether a schema may change as it did. Pure: from two schemas to what is wrong.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// direction says who depends on a schema.
type direction int

const (
	// written is data that Stoker writes and others read: whatever it writes, they must have expected.
	written direction = iota
	// taken is data that others write and Stoker reads: whatever they write, it must take.
	taken
)

// incompatible lists how the next version of a published schema lets those down who rely on it; nothing when it doesn't.
func incompatible(d direction, published, next any) []string {
	c := &comparison{}
	if d == written {
		c.within("", next, published)
	} else {
		c.within("", published, next)
		c.defaults("", published, next)
	}
	c.removed("", published, next)
	slices.Sort(c.problems)
	return slices.Compact(c.problems)
}

type comparison struct{ problems []string }

func (c *comparison) say(path, format string, a ...any) {
	if path == "" {
		path = "the whole"
	}
	c.problems = append(c.problems, path+": "+fmt.Sprintf(format, a...))
}

// annotations are keywords that say nothing about what is valid.
var annotations = []string{
	"$schema", "$id", "$comment", "title", "description", "default", "examples", "readOnly", "writeOnly", "deprecated", extensible,
	"x-kubernetes-map-type", // how it is merged
}

// within notes what satisfies sub and not super.
func (c *comparison) within(path string, sub, super any) {
	s, u := schemaOf(sub), schemaOf(super)
	if s == nil || u == nil { // false, which nothing satisfies
		if s != nil {
			c.say(path, "nothing is allowed any more")
		}
		return
	}
	c.types(path, s, u)
	c.values(path, s, u)
	for _, keyword := range slices.Sorted(maps.Keys(u)) {
		have, limit := s[keyword], u[keyword]
		switch keyword {
		case "type", "enum", "const", "properties", "additionalProperties", "items": // below and above
		case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
			if n, ok := have.(float64); !ok || n > limit.(float64) {
				c.say(path, "%s: %s goes beyond %v", keyword, absent(have), limit)
			}
		case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
			if n, ok := have.(float64); !ok || n < limit.(float64) {
				c.say(path, "%s: %s goes below %v", keyword, absent(have), limit)
			}
		case "required":
			for _, field := range limit.([]any) {
				if have, _ := have.([]any); !slices.Contains(have, field) {
					c.say(join(path, field.(string)), "is required on one side only")
				}
			}
		case "x-kubernetes-validations":
			for _, rule := range limit.([]any) {
				text := rule.(map[string]any)["rule"]
				if have, _ := have.([]any); !slices.ContainsFunc(have, func(r any) bool { return r.(map[string]any)["rule"] == text }) {
					c.say(path, "rule %q is on one side only", text)
				}
			}
		default:
			// Patterns and formats, and what this comparison doesn't know: only the same is safe.
			if !slices.Contains(annotations, keyword) && !reflect.DeepEqual(have, limit) {
				c.say(path, "%s: %s is not %v", keyword, absent(have), limit)
			}
		}
	}
	c.fields(path, s, u)
	if items, ok := u["items"]; ok {
		c.within(path+"[]", or(s, "items", true), items)
	}
}

// types compares what kinds of JSON are allowed.
func (c *comparison) types(path string, sub, super map[string]any) {
	allowed := typesOf(super)
	if allowed == nil {
		return
	}
	have := typesOf(sub)
	if have == nil && (sub["const"] != nil || sub["enum"] != nil) {
		return // values compares these
	}
	if have == nil {
		c.say(path, "type: any is not %s", strings.Join(allowed, " or "))
	}
	for _, t := range have {
		if !slices.Contains(allowed, t) && (t != "integer" || !slices.Contains(allowed, "number")) {
			c.say(path, "type: %s is not %s", t, strings.Join(allowed, " or "))
		}
	}
}

func typesOf(schema map[string]any) []string {
	switch t := schema["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var all []string
		for _, x := range t {
			all = append(all, x.(string))
		}
		return all
	}
	return nil
}

// values compares lists of the values that are allowed.
func (c *comparison) values(path string, sub, super map[string]any) {
	allowed, limited := valuesOf(super)
	if !limited {
		return
	}
	have, ok := valuesOf(sub)
	if !ok {
		c.say(path, "any value is not one of %v", allowed)
	}
	for _, v := range have {
		if !slices.ContainsFunc(allowed, func(a any) bool { return reflect.DeepEqual(a, v) }) {
			c.say(path, "value %v is not one of %v", v, allowed)
		}
	}
}

func valuesOf(schema map[string]any) ([]any, bool) {
	if v, ok := schema["const"]; ok {
		return []any{v}, true
	}
	v, ok := schema["enum"].([]any)
	return v, ok
}

// fields compares the members of objects.
func (c *comparison) fields(path string, sub, super map[string]any) {
	have, known := propertiesOf(sub), propertiesOf(super)
	for _, field := range slices.Sorted(maps.Keys(have)) {
		if s, ok := known[field]; ok {
			c.within(join(path, field), have[field], s)
		} else if rest := or(super, "additionalProperties", true); rest != true {
			if rest == false {
				c.say(join(path, field), "is known on one side only")
			} else {
				c.within(join(path, field), have[field], rest)
			}
		}
	}
	switch rest := or(super, "additionalProperties", true); rest {
	case true:
	case false:
		if or(sub, "additionalProperties", true) != false {
			c.say(path, "other fields are refused on one side only")
		}
	default:
		c.within(join(path, "*"), or(sub, "additionalProperties", true), rest)
	}
}

// removed notes published fields that are gone, also where an open object would allow that.
func (c *comparison) removed(path string, published, next any) {
	p, n := schemaOf(published), schemaOf(next)
	if p == nil || n == nil {
		return
	}
	there := propertiesOf(n)
	for field, s := range propertiesOf(p) {
		if _, ok := there[field]; !ok {
			c.say(join(path, field), "was removed")
			continue
		}
		c.removed(join(path, field), s, there[field])
	}
	c.removed(path+"[]", or(p, "items", false), or(n, "items", false))
	c.removed(join(path, "*"), or(p, "additionalProperties", false), or(n, "additionalProperties", false))
}

// defaults notes defaults that changed: what a sender left out means something else now.
func (c *comparison) defaults(path string, published, next any) {
	p, n := schemaOf(published), schemaOf(next)
	if p == nil || n == nil {
		return
	}
	if was, ok := p["default"]; ok && !reflect.DeepEqual(was, n["default"]) {
		c.say(path, "default: %s is not %v", absent(n["default"]), was)
	}
	there := propertiesOf(n)
	for field, s := range propertiesOf(p) {
		c.defaults(join(path, field), s, there[field])
	}
	c.defaults(path+"[]", or(p, "items", false), or(n, "items", false))
	c.defaults(join(path, "*"), or(p, "additionalProperties", false), or(n, "additionalProperties", false))
}

// schemaOf makes true an empty schema, and is nil for false.
func schemaOf(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case bool:
		if v {
			return map[string]any{}
		}
	}
	return nil
}

func propertiesOf(schema map[string]any) map[string]any {
	p, _ := schema["properties"].(map[string]any)
	return p
}

func or(schema map[string]any, keyword string, otherwise any) any {
	if v, ok := schema[keyword]; ok {
		return v
	}
	return otherwise
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

func absent(v any) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprint(v)
}
