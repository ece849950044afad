package random

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// node is a value in an object, with a way to put another in its place.
type node struct {
	at     path   // with * for items
	where  string // with the items' indices
	schema *schema
	value  any
	put    func(any)
	remove func() // nil for the root and for items
}

// nodes lists every value of an object's spec.
func nodes(sc *schema, value any, n node) []node {
	n.schema, n.value = sc, value
	all := []node{n}
	switch v := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			sub, part := sc.Properties[k], k
			if sub == nil && sc.Values != nil {
				sub, part = sc.Values, "*"
			}
			if sub == nil {
				continue
			}
			all = append(all, nodes(sub, v[k], node{
				at: n.at.with(part), where: n.where + "." + k, put: func(x any) { v[k] = x }, remove: func() { delete(v, k) },
			})...)
		}
	case []any:
		for i := range v {
			if sc.Items == nil {
				break
			}
			all = append(all, nodes(sc.Items, v[i], node{
				at: n.at.with("*"), where: fmt.Sprintf("%s[%d]", n.where, i), put: func(x any) { v[i] = x },
			})...)
		}
	}
	return all
}

// spoil breaks as many things of an object as Options.Wild says, and tells which.
func (s *Source) spoil(k *Kind, o object) []string {
	if s.opts.Wild == 0 {
		return nil
	}
	var wrong []string
	for range 1 + int(s.ExpFloat64()*max(s.opts.Wild-1, 0)) {
		if s.chance(0.1) {
			wrong = append(wrong, s.spoilHead(o))
			continue
		}
		spec, ok := o["spec"]
		if !ok {
			break
		}
		all := nodes(k.root.Properties["spec"], spec, node{
			at: path{"spec"}, where: "spec", put: func(x any) { o["spec"] = x }, remove: func() { delete(o, "spec") },
		})
		// Not always the root, of which most changes are the same.
		n := all[s.IntN(len(all))]
		if len(all) > 1 && n.where == "spec" && s.chance(0.8) {
			n = all[1+s.IntN(len(all)-1)]
		}
		wrong = append(wrong, n.where+": "+s.spoilNode(n))
	}
	return wrong
}

// way is one thing that can be wrong with a value; it reports whether it applied.
type way struct {
	name string
	do   func(s *Source, n node) bool
}

var ways = []way{
	{"bad value", func(s *Source, n node) bool {
		h, ok := hint(n.at)
		if !ok || h.bad == nil {
			return false
		}
		n.put(clone(h.bad(s)))
		return true
	}},
	{"wrong type", func(s *Source, n node) bool {
		n.put(otherType(s, n.value))
		return true
	}},
	{"null", func(_ *Source, n node) bool { n.put(nil); return true }},
	{"out of range", func(s *Source, n node) bool {
		if n.schema.Type != "integer" {
			return false
		}
		n.put(oneOf(-1, 0, 65536, 1<<31, -1<<31-1, json.Number("9223372036854775808"), json.Number("1e400"), 1.5, json.Number("1e3"), json.Number("-0"))(s))
		return true
	}},
	{"odd text", func(s *Source, n node) bool {
		if _, ok := n.value.(string); !ok {
			return false
		}
		n.put(oddText(s))
		return true
	}},
	{"not of the enum", func(s *Source, n node) bool {
		if len(n.schema.Enum) == 0 {
			return false
		}
		text, _ := n.value.(string)
		n.put(oneOf(strings.ToLower(text)+"x", strings.ToUpper(text)+" ", "", "Nothing")(s))
		return true
	}},
	{"unknown field", func(s *Source, n node) bool {
		m, ok := n.value.(map[string]any)
		if !ok || n.schema.Properties == nil {
			return false
		}
		m[oneOf("colour", "", "Replicas", "a.b", "x\x00y", "ключ", "__proto__", "$ref", "spec")(s).(string)] = s.anything(2)
		return true
	}},
	{"missing", func(_ *Source, n node) bool {
		if n.remove == nil {
			return false
		}
		n.remove()
		return true
	}},
	{"duplicate item", func(s *Source, n node) bool {
		items, ok := n.value.([]any)
		if !ok || len(items) == 0 {
			return false
		}
		n.put(append(slices.Clone(items), clone(items[s.IntN(len(items))])))
		return true
	}},
	{"too many items", func(s *Source, n node) bool {
		items, ok := n.value.([]any)
		if !ok || len(items) == 0 {
			return false
		}
		n.put(clone(slices.Repeat(items, 1+200/len(items))))
		return true
	}},
	{"empty", func(_ *Source, n node) bool {
		switch n.value.(type) {
		case map[string]any:
			n.put(map[string]any{})
		case []any:
			n.put([]any{})
		default:
			n.put("")
		}
		return true
	}},
	{"by the schema only", func(s *Source, n node) bool { // no hint: unions, references and names at random
		if n.schema.Properties == nil && n.schema.Items == nil && n.schema.Values == nil {
			return false
		}
		n.put(s.fits(n.schema, n.at, s.opts.Fill*2))
		return true
	}},
	{"deep nesting", func(s *Source, n node) bool {
		if s.chance(0.7) { // they are large
			return false
		}
		depth := 50 + s.IntN(2000)
		open, end := "[", "]"
		if s.chance(0.5) {
			open, end = `{"a":`, "}"
		}
		n.put(json.RawMessage(strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)))
		return true
	}},
}

func (s *Source) spoilNode(n node) string {
	for {
		w := ways[s.IntN(len(ways))]
		if w.do(s, n) {
			return w.name
		}
	}
}

func otherType(s *Source, value any) any {
	for {
		var v any
		switch s.IntN(6) {
		case 0:
			v = s.text(texts)
		case 1:
			v = s.IntN(100)
		case 2:
			v = true
		case 3:
			v = []any{"a"}
		case 4:
			v = map[string]any{"a": "b"}
		case 5:
			v = 0.5
		}
		if fmt.Sprintf("%T", v) != fmt.Sprintf("%T", value) {
			return v
		}
	}
}

// invalid stands for a byte that is no UTF-8 until the object is text.
const invalid = "\uE0FF"

func oddText(s *Source) string {
	return oneOf(
		"", " ", "\x00", "a\x00b", "\n", "\t", "\u2028", "\u202Eabc", "\uFEFF", "é", "e\u0301", "🏳️‍🌈", "ﬀ", "\x7f", "\u0085",
		invalid, "a"+invalid, strings.Repeat("x", 64), strings.Repeat("x", 254), strings.Repeat("y", 5000), strings.Repeat("ü", 40<<10),
		"../../etc/passwd", "$(PATH)", "%s%n", "<script>", "';--", "{{.}}", "null", "true", "0", "-", "1e5", "0x10", "~", "\\", "\"",
	)(s).(string)
}

// spoilHead breaks what is around the spec.
func (s *Source) spoilHead(o object) string {
	meta, ok := o["metadata"].(object)
	if !ok {
		meta = object{}
	}
	type change struct {
		what string
		do   func()
	}
	set := func(m object, k string, v func(*Source) any) change {
		return change{k, func() { m[k] = clone(v(s)) }}
	}
	changes := []change{
		set(o, "apiVersion", oneOf("", "v1", "kamaji.clastix.io/v1", "kamaji.clastix.io/v1alpha2", nil, 1)),
		set(o, "kind", oneOf("", "Pod", "tenantcontrolplane", nil, []any{})),
		set(o, "metadata", oneOf(nil, "x", []any{}, object{}, 1)),
		set(o, "spec", oneOf(nil, "x", []any{}, object{}, 1)),
		set(o, "status", oneOf(nil, "x", object{"kubernetesResources": object{}}, 7)),
		set(o, "extra", oneOf(nil, "x", object{})),
		set(meta, "name", from(badNames)),
		set(meta, "namespace", from(badNames)),
		set(meta, "finalizers", oneOf([]any{"a.b/c"}, []any{}, "x", nil)),
		set(meta, "ownerReferences", oneOf([]any{object{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}}, []any{}, nil)),
		set(meta, "generateName", oneOf("x-", "")),
		set(meta, "deletionTimestamp", oneOf("2026-01-02T03:04:05Z", "never")),
		set(meta, "resourceVersion", oneOf("1", "x", 1)),
		set(meta, "uid", oneOf("00000000-0000-0000-0000-000000000000", 1)),
		set(meta, "managedFields", oneOf([]any{}, []any{object{"manager": "x"}}, nil)),
		set(meta, "labels", oneOf(object{"a b": "c"}, object{"a": strings.Repeat("x", 64)}, object{"/": ""}, object{"a": 1}, "x", nil, object{"stoker.dev/partition": "99"})),
		set(meta, "annotations", oneOf(object{"a b": "c"}, object{"a": strings.Repeat("x", 300<<10)}, object{"a": nil}, []any{}, nil, object{"stoker.dev/paused-until": "tomorrow"})),
		set(meta, "colour", oneOf("red")),
	}
	c := changes[s.IntN(len(changes))]
	c.do()
	return "head: " + c.what
}

// spoilText breaks the text of an object now and then.
func (s *Source) spoilText(data []byte) ([]byte, string) {
	if at := []byte(invalid); bytes.Contains(data, at) {
		return bytes.ReplaceAll(data, at, []byte{0xff}), "text: invalid UTF-8"
	}
	if !s.chance(0.05) {
		return data, ""
	}
	switch s.IntN(6) {
	case 0:
		return data[:s.IntN(len(data))], "text: cut off"
	case 1:
		return append(slices.Clone(data), "}"...), "text: something behind it"
	case 2:
		return []byte(s.text([]string{"", "null", "[]", "\"x\"", "1", "true", "{", "\x00", "apiVersion: v1", "\xef\xbb\xbf{}"})), "text: something else"
	case 3:
		return slices.Concat([]byte(strings.Repeat("[", 20000)), data), "text: unclosed brackets"
	case 4:
		return slices.Concat([]byte(" \n\t"), data, []byte("\n ")), "text: white space"
	}
	return duplicateKey(s, data), "text: duplicate key"
}

// duplicateKey gives one of the objects in a text a key twice.
func duplicateKey(s *Source, data []byte) []byte {
	var starts []int
	for i := range data {
		if bytes.HasPrefix(data[i:], []byte(`{"`)) {
			starts = append(starts, i)
		}
	}
	if len(starts) == 0 {
		return data
	}
	i := starts[s.IntN(len(starts))] + 1
	end := bytes.IndexByte(data[i+1:], '"')
	if end < 0 {
		return data
	}
	key := string(data[i : i+end+2])
	return slices.Concat(data[:i], []byte(key+":null,"), data[i:])
}
