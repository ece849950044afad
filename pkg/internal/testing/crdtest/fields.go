package crdtest

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// Fields reads a list of fields: a kind and a path on each line, other lines begin with #.
func Fields(content []byte) map[string][]string {
	fields := map[string][]string{}

	for line := range strings.Lines(string(content)) {
		if kind, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok && kind != "#" {
			fields[kind] = append(fields[kind], path)
		}
	}

	return fields
}

// step splits a path of a field: the first property, and what follows it, [] for a list's elements and {} for a map's values among it.
func step(path string) (name, rest string) {
	end := strings.IndexAny(path, ".[{")
	if end < 0 {
		return path, ""
	}

	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// Defined reports whether a schema has a field.
func Defined(s *structuralschema.Structural, path string) bool {
	switch {
	case path == "":
		return true
	case strings.HasPrefix(path, "[]"):
		return s.Items != nil && Defined(s.Items, strings.TrimPrefix(path[2:], "."))
	case path == "{}":
		return s.AdditionalProperties != nil
	}

	name, rest := step(path)
	property, ok := s.Properties[name]

	return ok && Defined(&property, rest)
}

// Present reports whether an object has a field, in a list in at least one element.
func Present(value any, path string) bool {
	if path == "" {
		return value != nil
	}

	if path == "{}" {
		m, _ := value.(map[string]any)

		return len(m) > 0
	}

	if rest, ok := strings.CutPrefix(path, "[]"); ok {
		list, _ := value.([]any)

		return slices.ContainsFunc(list, func(v any) bool { return Present(v, strings.TrimPrefix(rest, ".")) })
	}

	name, rest := step(path)
	m, _ := value.(map[string]any)

	return m[name] != nil && Present(m[name], rest)
}

// Unset returns the paths of an object's fields that have their zero value, of the types of the APIs here; those of Kubernetes have
// tests of their own.
func Unset(object any) []string { return unset(reflect.ValueOf(object).Elem(), "") }

func unset(value reflect.Value, path string) []string {
	switch value.Kind() {
	case reflect.Pointer:
		return unset(value.Elem(), path)
	case reflect.Slice:
		// The last element of each list in the files sets all fields, even those that exclude each other.
		return unset(value.Index(value.Len()-1), path+"[]")
	case reflect.Struct:
		if !strings.Contains(value.Type().PkgPath(), "/stoker/pkg/api/") {
			return nil
		}

		var paths []string

		for i := range value.NumField() {
			field := path + "." + value.Type().Field(i).Name

			if value.Field(i).IsZero() {
				paths = append(paths, field)

				continue
			}

			paths = append(paths, unset(value.Field(i), field)...)
		}

		return paths
	default:
		return nil
	}
}

// RequireExplained fails a test for each field that has no description, or is optional, part of the spec and doesn't say what its default
// is. Fields below a path that foreign matches are left out.
func (d *Definition) RequireExplained(t *testing.T, foreign *regexp.Regexp) {
	t.Helper()

	var visit func(s *structuralschema.Structural, at string)

	visit = func(s *structuralschema.Structural, at string) {
		for name, property := range s.Properties {
			path := at + "." + name
			if foreign.MatchString(path) || at == "" && name == "metadata" {
				continue
			}

			if property.Description == "" {
				t.Errorf("%s has no description", path)
			}

			optional := s.ValueValidation == nil || !slices.Contains(s.ValueValidation.Required, name)
			if optional && strings.HasPrefix(path, ".spec.") && !aDefault.MatchString(property.Description) && !strings.Contains(path, ".probes.") {
				t.Errorf("%s does not say what its default is: %q", path, property.Description)
			}

			visit(&property, path)
		}

		if s.Items != nil {
			visit(s.Items, at)
		}
	}

	visit(d.Structural, "")
}

var aDefault = regexp.MustCompile(`[Dd]efault`)

// Rules returns the CEL rules of a definition, with where they stand.
func (d *Definition) Rules() []Rule {
	var all []Rule

	var visit func(s *structuralschema.Structural, at string)

	visit = func(s *structuralschema.Structural, at string) {
		for _, rule := range s.XValidations {
			all = append(all, Rule{At: at, Message: rule.Message, MessageExpression: rule.MessageExpression})
		}

		for name, property := range s.Properties {
			visit(&property, at+"."+name)
		}

		if s.Items != nil {
			visit(s.Items, at+"[]")
		}
	}

	visit(d.Structural, "")

	return all
}

// Rule is what a CEL rule says to who breaks it.
type Rule struct {
	At, Message, MessageExpression string
}

var (
	literal = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)
	value   = regexp.MustCompile(`^("?%[sd]"?|""|.*Forbidden|.*Too long)?: `)
)

// Words is the longest text in a CEL expression that makes a message, without the value it begins with.
func Words(expression string) string {
	var most string

	for _, found := range literal.FindAllStringSubmatch(expression, -1) {
		text := value.ReplaceAllString(strings.ReplaceAll(found[1], `\'`, "'"), "")
		if len(text) > len(most) && strings.Contains(text, " ") && !strings.HasPrefix(text, "spec.") && !strings.HasPrefix(text, "metadata.") {
			most = text
		}
	}

	return most
}
