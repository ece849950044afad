package main

// JSON Schemas: of payloads, from their Go types and the comments there; of whole objects, from the CRDs.
//
// They are of draft 7, which every validator knows, and which the schemas of an AsyncAPI document are a superset of.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Where schemas lie in the repository.
const (
	schemaDir = "pkg/api/event/schemas"
	draft     = "http://json-schema.org/draft-07/schema#"
	module    = "github.com/stoker-k8s/stoker/"
)

func schemaFile(short string) string { return path.Join(schemaDir, short+".json") }

// Schemas of a question's request and reply.
func requestOf(q event.Question) string { return q.Subject + ".request" }
func replyOf(q event.Question) string   { return q.Subject + ".reply" }

// schemas returns the schema of every payload by its path in the repository.
func schemas(root string) (map[string][]byte, error) {
	comments, err := goComments(root)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	add := func(short string, schema any) error {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetIndent("", " ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(schema); err != nil {
			return fmt.Errorf("schema of %s: %w", short, err)
		}
		files[schemaFile(short)] = buf.Bytes()
		return nil
	}
	for _, e := range event.Catalogue() {
		if crd, ok := wholeObjects[e.Type]; ok {
			s, err := ofCRD(filepath.Join(root, crd))
			if err != nil {
				return nil, err
			}
			s["$schema"], s["$id"], s["title"], s["description"] = draft, event.SchemaURI(e.Type), e.Type, e.Doc
			if err := add(e.Short(), s); err != nil {
				return nil, err
			}
			continue
		}
		s := ofType(e.Payload, !e.Command, comments)
		s.ID, s.Title, s.Description = jsonschema.ID(event.SchemaURI(e.Type)), e.Type, e.Doc
		if err := add(e.Short(), s); err != nil {
			return nil, err
		}
	}
	for _, q := range event.Questions() {
		request, reply := ofType(q.Request, true, comments), ofType(q.Reply, true, comments)
		request.ID, request.Title, request.Description = jsonschema.ID(event.SchemaBase+requestOf(q)+".json"), q.Subject, "asks for: "+q.Doc
		reply.ID, reply.Title, reply.Description = jsonschema.ID(event.SchemaBase+replyOf(q)+".json"), q.Subject, q.Doc
		if err := add(requestOf(q), request); err != nil {
			return nil, err
		}
		if err := add(replyOf(q), reply); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// goComments are the comments of payloads' fields, as the reflector looks them up.
func goComments(root string) (map[string]string, error) {
	all := map[string]string{}
	for _, dir := range []string{"pkg/api/event", "pkg/api/state"} {
		r := &jsonschema.Reflector{}
		if err := r.AddGoComments("", filepath.Join(root, dir)); err != nil {
			return nil, err
		}
		for key, comment := range r.CommentMap {
			all[module+dir+strings.TrimPrefix(key, path.Join(filepath.ToSlash(root), dir))] = strings.Join(strings.Fields(comment), " ")
		}
	}
	return all, nil
}

// ofType is the schema of a payload. One that is open may grow fields that older readers ignore.
func ofType(payload any, open bool, comments map[string]string) *jsonschema.Schema {
	r := &jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, AllowAdditionalProperties: open, CommentMap: comments,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[json.RawMessage](): // a part of an object that is checked with the object
				return &jsonschema.Schema{Type: "object"}
			case reflect.TypeFor[metav1.Time]():
				return &jsonschema.Schema{Type: "string", Format: "date-time"}
			}
			return nil
		},
	}
	s := r.Reflect(payload)
	s.Version = draft
	if phase, ok := s.Properties.Get("phase"); ok {
		phase.Extras = map[string]any{extensible: event.Phases()}
	}
	return s
}

// extensible lists values that there are today. Others may come, so that a reader has to expect some it doesn't know.
const extensible = "x-extensible-enum"

// wholeObjects are the commands whose payload is an object of the API: the CRD has its schema.
var wholeObjects = map[string]string{
	event.TenantApply: "deployments/crds/kamaji.clastix.io_tenantcontrolplanes.yaml",
	event.CommandType(event.KubeconfigGenerators, event.Apply): "deployments/crds/kamaji.clastix.io_kubeconfiggenerators.yaml",
	event.DataStoreApply: "deployments/crds/kamaji.clastix.io_datastores.yaml",
}

// ofCRD is what intake takes of an object: the schema in its CRD without descriptions (those are in the CRD and in kubectl
// explain), with the members that every object has, and closed, as intake refuses fields it doesn't know.
func ofCRD(file string) (map[string]any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Scope string `json:"scope"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	undescribed(s)
	text := map[string]any{"type": "string"}
	texts := map[string]any{"type": "object", "additionalProperties": text}
	metadata := map[string]any{"name": text, "namespace": text, "labels": texts, "annotations": texts}
	required := []string{"name"}
	if crd.Spec.Scope == "Namespaced" {
		required = append(required, "namespace")
	}
	for _, ignored := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink"} {
		metadata[ignored] = map[string]any{"description": "ignored"}
	}
	properties := s["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": v1alpha1.GroupVersion.String()}
	properties["kind"] = map[string]any{"const": crd.Spec.Names.Kind}
	properties["metadata"] = map[string]any{"type": "object", "properties": metadata, "required": required}
	properties["status"] = map[string]any{"type": "object", "description": "ignored"}
	s["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	closed(s)
	return s, nil
}

func undescribed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for _, x := range v {
			undescribed(x)
		}
	case []any:
		for _, x := range v {
			undescribed(x)
		}
	}
}

// closed says of every object whose fields are listed that there are no others.
func closed(schema map[string]any) {
	if properties, ok := schema["properties"].(map[string]any); ok {
		if schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] == nil {
			schema["additionalProperties"] = false
		}
		for _, p := range properties {
			closed(p.(map[string]any))
		}
	}
	for _, inner := range []string{"items", "additionalProperties"} {
		if s, ok := schema[inner].(map[string]any); ok {
			closed(s)
		}
	}
}
