package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// validators compiles every schema; short names are the keys.
func validators(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	files, err := schemas(root)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	all := map[string]*jsonschema.Schema{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(files[path]))
		if err != nil {
			t.Fatal(err)
		}
		id := doc.(map[string]any)["$id"].(string)
		if err := c.AddResource(id, doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		s, err := c.Compile(id)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = s
	}
	return all
}

// decoded is a value as a validator wants it.
func decoded(t *testing.T, data []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// payloads are values of every Go type by the name of their schema.
func payloads() map[string]any {
	all := map[string]any{}
	for _, e := range event.Catalogue() {
		if _, whole := wholeObjects[e.Type]; !whole {
			all[e.Short()] = e.Payload
		}
	}
	for _, q := range event.Questions() {
		all[requestOf(q)], all[replyOf(q)] = q.Request, q.Reply
	}
	return all
}

func TestPayloadsSatisfyTheirSchemas(t *testing.T) {
	schemas := validators(t)
	for short, payload := range payloads() {
		t.Run(short+" with every field", func(t *testing.T) {
			full := reflect.New(reflect.TypeOf(payload)).Elem()
			fill(full)
			data, err := json.Marshal(full.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err := schemas[short].Validate(decoded(t, data)); err != nil {
				t.Errorf("%s: %v", data, err)
			}
			var fields map[string]any
			if err := json.Unmarshal(data, &fields); err != nil {
				t.Fatal(err)
			}
			for field := range schemas[short].Properties {
				if _, ok := fields[field]; !ok {
					t.Errorf("the schema knows %s, which the Go type doesn't write: %s", field, data)
				}
			}
			for _, field := range schemas[short].Required {
				missing := maps.Clone(fields)
				delete(missing, field)
				if schemas[short].Validate(missing) == nil {
					t.Errorf("valid without %s", field)
				}
			}
			fields["surprise"] = 1.0
			if open := schemas[short].Validate(fields) == nil; open != (directionOf(short) == written || strings.HasPrefix(short, "stoker.")) {
				t.Errorf("a field that nobody knows is fine: %t", open)
			}
		})
		t.Run(short+" with just what it must have", func(t *testing.T) {
			least := reflect.New(reflect.TypeOf(payload)).Elem()
			// Lists and maps that are required are made by whoever writes them.
			made(least)
			data, err := json.Marshal(least.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if err := schemas[short].Validate(decoded(t, data)); err != nil {
				t.Errorf("%s: %v", data, err)
			}
		})
	}
}

// fill sets every field to something that isn't its zero value.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Date(2026, 11, 20, 12, 0, 0, 500, time.UTC)
		return
	case *metav1.Time:
		*x = metav1.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		return
	case *json.RawMessage:
		*x = json.RawMessage(`{"kubernetes":{"version":null}}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(2.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("can't fill " + v.Type().String())
	}
}

// made makes the lists, maps and raw parts that a payload always has.
func made(v reflect.Value) {
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag.Get("json")
		switch {
		case v.Type().Field(i).Anonymous:
			made(f)
		case strings.Contains(tag, "omit"):
		case f.Type() == reflect.TypeFor[json.RawMessage]():
			f.SetBytes([]byte("{}"))
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		case f.Kind() == reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case f.Kind() == reflect.Struct:
			made(f)
		}
	}
}

func TestWholeObjects(t *testing.T) {
	schemas := validators(t)
	read := func(t *testing.T, file string) map[string]any {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
		return decoded(t, data).(map[string]any)
	}
	for file, short := range map[string]string{
		"examples/tenant.yaml":                              "tenantcontrolplane.apply.v1",
		"examples/tenant.json":                              "tenantcontrolplane.apply.v1",
		"examples/datastore.yaml":                           "datastore.apply.v1",
		"pkg/api/v1alpha1/testdata/tenantcontrolplane.yaml": "tenantcontrolplane.apply.v1",
		"pkg/api/v1alpha1/testdata/datastore.yaml":          "datastore.apply.v1",
	} {
		t.Run(file+" is valid", func(t *testing.T) {
			if err := schemas[short].Validate(read(t, file)); err != nil {
				t.Error(err)
			}
		})
	}
	for sentence, spoil := range map[string]func(o map[string]any){
		"a field that nobody knows": func(o map[string]any) { o["spec"].(map[string]any)["surprise"] = true },
		"a wrong type":              func(o map[string]any) { o["spec"].(map[string]any)["networkProfile"].(map[string]any)["port"] = "6443" },
		"no spec":                   func(o map[string]any) { delete(o, "spec") },
		"no namespace":              func(o map[string]any) { delete(o["metadata"].(map[string]any), "namespace") },
		"another kind":              func(o map[string]any) { o["kind"] = "DataStore" },
		"finalizers by a command":   func(o map[string]any) { o["metadata"].(map[string]any)["finalizers"] = []any{"x"} },
		"a label that is no string": func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": 1.0} },
		"a value that is not listed": func(o map[string]any) {
			o["spec"].(map[string]any)["controlPlane"].(map[string]any)["service"].(map[string]any)["serviceType"] = "None"
		},
	} {
		t.Run(sentence+" is not valid", func(t *testing.T) {
			o := read(t, "examples/tenant.yaml")
			spoil(o)
			if schemas["tenantcontrolplane.apply.v1"].Validate(o) == nil {
				t.Error("it is")
			}
		})
	}
}
