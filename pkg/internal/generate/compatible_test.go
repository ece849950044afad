package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestIncompatible(t *testing.T) {
	// Each change with what it means for data that Stoker writes and for data that it takes: what the first problem says,
	// or nothing.
	const fine = ""
	tests := map[string]struct{ published, next, written, taken string }{
		"nothing changes": {
			`{"type":"object","properties":{"a":{"type":"string","format":"date-time"}},"required":["a"],"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":"string","format":"date-time"}},"required":["a"],"additionalProperties":false}`, fine, fine,
		},
		"a field is added to an open object": {
			`{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, fine, fine,
		},
		"a field is added to a closed object": {
			`{"properties":{"a":{"type":"string"}},"additionalProperties":false}`,
			`{"properties":{"a":{"type":"string"},"b":{}},"additionalProperties":false}`, "b: is known on one side only", fine,
		},
		"a required field is added": {
			`{"properties":{"a":{"type":"string"}},"required":["a"]}`,
			`{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`, fine, "b: is required",
		},
		"a field is removed from an open object":  {`{"properties":{"a":{},"b":{}}}`, `{"properties":{"a":{}}}`, "b: was removed", "b: was removed"},
		"a field is removed from a closed object": {`{"properties":{"a":{},"b":{}},"additionalProperties":false}`, `{"properties":{"a":{}},"additionalProperties":false}`, "b: was removed", "b: "},
		"a field of a list's elements is removed": {`{"items":{"properties":{"a":{}}}}`, `{"items":{"properties":{}}}`, "[].a: was removed", "[].a: was removed"},
		"a field of a map's values is removed":    {`{"additionalProperties":{"properties":{"a":{}}}}`, `{"additionalProperties":{}}`, "*.a: was removed", "*.a: was removed"},
		"a required field becomes optional":       {`{"properties":{"a":{}},"required":["a"]}`, `{"properties":{"a":{}}}`, "a: is required", fine},
		"an optional field becomes required":      {`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"required":["a"]}`, fine, "a: is required"},
		"a type changes":                          {`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":"integer"}}}`, "a: type: integer is not string", "a: type: string is not integer"},
		"a type changes deep inside":              {`{"properties":{"a":{"items":{"properties":{"b":{"type":"string"}}}}}}`, `{"properties":{"a":{"items":{"properties":{"b":{"type":"boolean"}}}}}}`, "a[].b: type", "a[].b: type"},
		"an integer becomes any number":           {`{"type":"integer"}`, `{"type":"number"}`, "the whole: type: number is not integer", fine},
		"a number becomes an integer":             {`{"type":"number"}`, `{"type":"integer"}`, fine, "the whole: type: number is not integer"},
		"null comes in":                           {`{"type":"string"}`, `{"type":["string","null"]}`, "the whole: type: null", fine},
		"a type is no longer said":                {`{"type":"string"}`, `{}`, "the whole: type: any", fine},
		"a value is added to an enum":             {`{"enum":["a"]}`, `{"enum":["a","b"]}`, "the whole: value b", fine},
		"a value is removed from an enum":         {`{"enum":["a","b"]}`, `{"enum":["a"]}`, fine, "the whole: value b"},
		"an enum comes":                           {`{"type":"string"}`, `{"type":"string","enum":["a"]}`, fine, "the whole: any value"},
		"a const changes":                         {`{"const":"a"}`, `{"const":"b"}`, "the whole: value b", "the whole: value a"},
		"a value is added to an open list":        {`{"type":"string","x-extensible-enum":["a"]}`, `{"type":"string","x-extensible-enum":["a","b"]}`, fine, fine},
		"a maximum goes down":                     {`{"maximum":9}`, `{"maximum":8}`, fine, "the whole: maximum: 9"},
		"a maximum goes up":                       {`{"maximum":8}`, `{"maximum":9}`, "the whole: maximum: 9", fine},
		"a maximum comes":                         {`{"maxLength":8}`, `{"maxLength":8,"maxItems":2}`, fine, "the whole: maxItems: nothing"},
		"a minimum goes down":                     {`{"minLength":9}`, `{"minLength":8}`, "the whole: minLength: 8", fine},
		"a minimum goes up":                       {`{"minimum":8}`, `{"minimum":9}`, fine, "the whole: minimum: 8"},
		"a pattern comes":                         {`{"type":"string"}`, `{"type":"string","pattern":"^a"}`, fine, "the whole: pattern"},
		"a pattern changes":                       {`{"pattern":"^b"}`, `{"pattern":"^a"}`, "the whole: pattern", "the whole: pattern"},
		"a pattern goes":                          {`{"pattern":"^b"}`, `{}`, "the whole: pattern", fine},
		"a format goes":                           {`{"format":"date-time"}`, `{}`, "the whole: format", fine},
		"a CEL rule comes":                        {`{}`, `{"x-kubernetes-validations":[{"rule":"self > 1"}]}`, fine, "the whole: rule"},
		"a CEL rule says it better":               {`{"x-kubernetes-validations":[{"rule":"self > 1","message":"?"}]}`, `{"x-kubernetes-validations":[{"rule":"self > 1","message":"!"}]}`, fine, fine},
		"a CEL rule goes":                         {`{"x-kubernetes-validations":[{"rule":"self > 1"}]}`, `{}`, "the whole: rule", fine},
		"an open object closes":                   {`{"type":"object"}`, `{"type":"object","additionalProperties":false}`, fine, "the whole: other fields"},
		"a closed object opens":                   {`{"additionalProperties":false}`, `{}`, "the whole: other fields", fine},
		"a map's values change their type":        {`{"additionalProperties":{"type":"string"}}`, `{"additionalProperties":{"type":"integer"}}`, "*: type", "*: type"},
		"alternatives change":                     {`{"anyOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"string"},{"type":"integer"}]}`, "the whole: anyOf", "the whole: anyOf"},
		"a list becomes a set":                    {`{"type":"array"}`, `{"type":"array","x-kubernetes-list-type":"set"}`, fine, "the whole: x-kubernetes-list-type"},
		"a default changes":                       {`{"properties":{"a":{"default":1}}}`, `{"properties":{"a":{"default":2}}}`, fine, "a: default: 2 is not 1"},
		"a default comes":                         {`{"properties":{"a":{}}}`, `{"properties":{"a":{"default":2}}}`, fine, fine},
		"only words change":                       {`{"title":"a","description":"b","$id":"c"}`, `{"description":"d"}`, fine, fine},
		"a keyword comes that nobody knows":       {`{}`, `{"surprise":1}`, fine, "the whole: surprise"},
		"nothing is allowed any more":             {`{"properties":{"a":true}}`, `{"properties":{"a":false}}`, fine, "a: nothing is allowed"},
	}
	for sentence, test := range tests {
		var published, next any
		for text, v := range map[string]*any{test.published: &published, test.next: &next} {
			if err := json.Unmarshal([]byte(text), v); err != nil {
				t.Fatalf("%s: %s: %v", sentence, text, err)
			}
		}
		if test.published == test.next {
			next = published
		}
		for d, want := range map[direction]string{written: test.written, taken: test.taken} {
			problems := incompatible(d, published, next)
			switch {
			case want == fine && len(problems) > 0:
				t.Errorf("%s, %s: %v", sentence, d, problems)
			case want != fine && (len(problems) == 0 || !strings.HasPrefix(problems[0], want)):
				t.Errorf("%s, %s: want %q, got %v", sentence, d, want, problems)
			}
		}
	}
}

func (d direction) String() string { return [...]string{"written", "taken"}[d] }
