package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// document is docs/asyncapi.yaml as JSON.
func document(t *testing.T) any {
	t.Helper()
	data, err := asyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		t.Fatal(err)
	}
	return decoded(t, data)
}

func TestTheAsyncAPIDocumentIsValid(t *testing.T) {
	packed, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	official, err := jsonschema.UnmarshalJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	const id = "http://asyncapi.com/definitions/3.0.0/asyncapi.json"
	if err := c.AddResource(id, official); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	doc := document(t).(map[string]any)
	if err := schema.Validate(doc); err != nil {
		t.Errorf("%v", err)
	}
	delete(doc, "info")
	if schema.Validate(doc) == nil {
		t.Error("a document without info is valid, too: the schema isn't applied")
	}
}

func TestEveryReferenceLeadsSomewhere(t *testing.T) {
	doc := document(t)
	seen := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if target, ok := v["$ref"].(string); ok {
				seen++
				if !leads(t, doc, target) {
					t.Errorf("%s: %s leads nowhere", path, target)
				}
			}
			for k, x := range v {
				walk(path+"/"+k, x)
			}
		case []any:
			for _, x := range v {
				walk(path+"[]", x)
			}
		}
	}
	walk("#", doc)
	if seen == 0 {
		t.Error("no reference seen")
	}
}

func leads(t *testing.T, doc any, target string) bool {
	t.Helper()
	pointer, ok := strings.CutPrefix(target, "#/")
	if !ok {
		data, err := os.ReadFile(filepath.Join(root, "docs", target))
		return err == nil && json.Valid(data)
	}
	for step := range strings.SplitSeq(pointer, "/") {
		m, ok := doc.(map[string]any)
		if !ok || m[step] == nil {
			return false
		}
		doc = m[step]
	}
	return true
}

func TestTheDocumentSaysWhatTheCatalogueSays(t *testing.T) {
	doc := document(t).(map[string]any)
	operations := doc["operations"].(map[string]any)
	for _, e := range event.Catalogue() {
		action := "send"
		if e.Command {
			action = "receive"
		}
		o, ok := operations[action+"."+e.Short()].(map[string]any)
		if !ok || o["action"] != action {
			t.Errorf("%s has no operation %s", e.Type, action)
			continue
		}
		// The messages of an operation must be among those of its channel, which the schema can't say.
		channel := o["channel"].(map[string]any)["$ref"].(string)
		for _, m := range o["messages"].([]any) {
			if ref := m.(map[string]any)["$ref"].(string); !strings.HasPrefix(ref, channel+"/messages/") {
				t.Errorf("%s: message %s is not of channel %s", e.Type, ref, channel)
			}
		}
	}
	prose, err := prose()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range event.Catalogue() {
		if !bytes.Contains(prose, []byte(schemaFile(e.Short()))) {
			t.Errorf("%s is not in docs/events.md", e.Type)
		}
	}
}
