package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// edit changes a schema in place.
type edit func(*schema)

// fields are changes by path: a.b is a property, [] the elements of a list, {} the values of a map.
type fields map[string][]edit

// under returns the fields with their paths below a path. An empty path means the place itself.
func under(path string, f fields) fields {
	out := fields{}
	for p, edits := range f {
		switch {
		case p == "":
			out[path] = edits
		case strings.HasPrefix(p, "[") || strings.HasPrefix(p, "{"):
			out[path+p] = edits
		default:
			out[path+"."+p] = edits
		}
	}
	return out
}

// join is the union; changes of one path are made in the order given.
func join(all ...fields) fields {
	out := fields{}
	for _, f := range all {
		for path, edits := range f {
			out[path] = append(out[path], edits...)
		}
	}
	return out
}

// at changes the schema at a path below s. full is for the error, of a path that isn't there.
func at(s *schema, path, full string, edits []edit) error {
	if path == "" {
		for _, e := range edits {
			e(s)
		}
		return nil
	}
	switch {
	case strings.HasPrefix(path, "[]"):
		if s.Items == nil || s.Items.Schema == nil {
			return fmt.Errorf("%s: not a list where %s begins", full, path)
		}
		return at(s.Items.Schema, strings.TrimPrefix(path[2:], "."), full, edits)
	case strings.HasPrefix(path, "{}"):
		if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
			return fmt.Errorf("%s: not a map where %s begins", full, path)
		}
		return at(s.AdditionalProperties.Schema, strings.TrimPrefix(path[2:], "."), full, edits)
	}
	end := strings.IndexAny(path, ".[{")
	name, rest := path, ""
	if end >= 0 {
		name, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	}
	p, ok := s.Properties[name]
	if !ok {
		return fmt.Errorf("%s: no property %s", full, name)
	}
	err := at(&p, rest, full, edits)
	s.Properties[name] = p
	return err
}

// each visits a schema and all below it.
func each(s *schema, visit func(*schema)) {
	visit(s)
	if s.Items != nil && s.Items.Schema != nil {
		each(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		each(s.AdditionalProperties.Schema, visit)
	}
	for name, p := range s.Properties {
		each(&p, visit)
		s.Properties[name] = p
	}
}

// text is a string with at most so many characters, that matches a pattern.
func text(most int64, pattern string) edit {
	return func(s *schema) {
		s.MaxLength, s.Pattern = &most, pattern
		dropEmptyDefault(s)
	}
}

// filled is a string or list that isn't empty.
func filled(s *schema) {
	if s.Type == "array" {
		s.MinItems = new(int64(1))
		return
	}
	s.MinLength = new(int64(1))
	dropEmptyDefault(s)
}

// dropEmptyDefault: the names of what is referred to are "" by default, for no reason but the history of their types.
func dropEmptyDefault(s *schema) {
	if s.Default != nil && string(s.Default.Raw) == `""` {
		s.Default = nil
	}
}

// most bounds the characters of a string, the elements of a list, the pairs of a map.
func most(n int64) edit {
	return func(s *schema) {
		switch s.Type {
		case "array":
			s.MaxItems = &n
		case "object":
			s.MaxProperties = &n
		default: // also what can be a number or a string
			s.MaxLength = &n
		}
	}
}

// between bounds a number.
func between(low, high float64) edit {
	return func(s *schema) { s.Minimum, s.Maximum = &low, &high }
}

// oneOf lists the values of a string.
func oneOf(values ...string) edit {
	return func(s *schema) {
		s.Enum = nil
		for _, v := range values {
			raw, err := json.Marshal(v)
			if err != nil {
				panic(err) // strings can be encoded
			}
			s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: raw})
		}
	}
}

// needs lists properties that must be there.
func needs(properties ...string) edit {
	return func(s *schema) {
		for _, p := range properties {
			if _, ok := s.Properties[p]; !ok {
				panic("no property " + p)
			}
			if !slices.Contains(s.Required, p) {
				s.Required = append(s.Required, p)
			}
		}
		slices.Sort(s.Required)
	}
}

// rule is a CEL rule and what is said when it is broken.
func rule(cel, message string) edit {
	return add(apiextensionsv1.ValidationRule{Rule: cel, Message: message})
}

// ruleAt is a rule about a property of an object.
func ruleAt(path, cel, message string) edit {
	return add(apiextensionsv1.ValidationRule{Rule: cel, Message: message, FieldPath: path})
}

// says is a rule with a message that is an expression: it begins with the value at fault, which the API server names by
// itself for strings and numbers only.
func says(path, cel, value, message string) edit {
	// format, because the cost of + can't be estimated for texts that come out of a filter.
	return add(apiextensionsv1.ValidationRule{
		Rule: cel, FieldPath: path, MessageExpression: `'"%s": ` + strings.ReplaceAll(message, "'", `\'`) + "'.format([" + value + "])",
	})
}

func add(r apiextensionsv1.ValidationRule) edit {
	return func(s *schema) {
		for i, known := range s.XValidations {
			switch known.Rule {
			case begins + r.Rule + ")":
				return // made twice by ratchet
			case r.Rule:
				s.XValidations[i] = r
				return
			}
		}
		s.XValidations = append(s.XValidations, r)
	}
}

// exactlyOne says that one of some properties is set, and no other.
func exactlyOne(what string, properties ...string) edit {
	return rule(count(properties)+" == 1", "must have exactly one "+what+": "+strings.Join(properties, ", "))
}

// atMostOne says that no two of some properties are set.
func atMostOne(what string, properties ...string) edit {
	return rule(count(properties)+" <= 1", "must not have more than one "+what)
}

func count(properties []string) string {
	terms := make([]string, len(properties))
	for i, p := range properties {
		terms[i] = "(has(self." + p + ") ? 1 : 0)"
	}
	return strings.Join(terms, " + ")
}

// ratchet lets an object that breaks a rule stay as it is in that: only who begins to break it is refused. The API server
// does so for what hasn't changed at all; rules about several fields of a spec must not keep the others from changing.
//
// Each becomes two, for new objects and for changed ones: of an optional oldSelf, the cost can't be estimated.
func ratchet(s *schema) {
	var all apiextensionsv1.ValidationRules
	for _, r := range s.XValidations {
		if strings.Contains(r.Rule, "oldSelf") {
			all = append(all, r)
			continue
		}
		made, changed := r, r
		made.Rule, made.OptionalOldSelf = begins+r.Rule+")", new(true)
		changed.Rule = "(" + r.Rule + ") || !(" + itself.ReplaceAllString(r.Rule, "oldSelf") + ")"
		all = append(all, made, changed)
	}
	s.XValidations = all
}

// begins is how a rule for new objects begins.
const begins = "oldSelf.hasValue() || ("

var itself = regexp.MustCompile(`\bself\b`)
