package source

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// isManifest says whether a file of an archive holds objects.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// selectManifests chooses the files below the path, in the order of their names. Files of a ConfigMap are all chosen.
func (s *source) selectManifests(files []file) ([]file, error) {
	if s.files != nil {
		if len(files) == 0 {
			return nil, sourceInvalid(s.urlField, "%s has no keys", s.shown)
		}
		return files, nil
	}
	var chosen []file
	for _, f := range files {
		name := f.name
		if s.path != "." {
			var below bool
			if name, below = strings.CutPrefix(name, s.path+"/"); !below {
				continue
			}
		}
		if !isManifest(name) && (!s.template || path.Ext(name) != ".tpl") {
			continue
		}
		if f.link {
			return nil, sourceInvalid(s.urlField, "%s: %q is a link, which isn't followed: put the file itself there", s.shown, f.name)
		}
		chosen = append(chosen, file{name: name, data: f.data})
	}
	if len(chosen) == 0 {
		return nil, sourceInvalid(s.field+".path", "%s has no files *.yaml, *.yml or *.json in %q", s.shown, s.path)
	}
	slices.SortStableFunc(chosen, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return chosen, nil
}

// allObjects parses files. Each object may be there once; objects that name no namespace are taken for ones of namespace.
func allObjects(files []file, namespace string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	seen := map[string]bool{}
	for _, f := range files {
		objects, err := parseObjects(f)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			key := strings.Join([]string{o.GroupVersionKind().Group, o.GetKind(), cmp.Or(o.GetNamespace(), namespace), o.GetName()}, "/")
			if seen[key] {
				return nil, fmt.Errorf("%s is there twice", describe(o))
			}
			seen[key] = true
		}
		all = append(all, objects...)
	}
	if len(all) == 0 {
		return nil, errors.New("holds no objects")
	}
	return all, nil
}

// describe names an object in a message.
func describe(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return fmt.Sprintf("%s %s %q", o.GetAPIVersion(), o.GetKind(), name)
}

// parseObjects parses the documents of a file. Lists are taken apart.
func parseObjects(f file) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.data)))
	for n := 1; ; n++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err == nil {
			var more []*unstructured.Unstructured
			more, err = parseDocument(doc)
			objects = append(objects, more...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where(f, n), err)
		}
	}
}

func where(f file, document int) string {
	if f.name == "" {
		return fmt.Sprintf("document %d", document)
	}
	return fmt.Sprintf("file %q, document %d", f.name, document)
}

func parseDocument(doc []byte) ([]*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil
	}
	var content any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return takeApart(content)
}

// takeApart checks an object, or the items of a List.
func takeApart(content any) ([]*unstructured.Unstructured, error) {
	fields, ok := content.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object with apiVersion, kind and metadata.name")
	}
	o := &unstructured.Unstructured{Object: fields}
	if o.GetKind() == "List" && o.GetAPIVersion() == "v1" {
		items, ok := fields["items"].([]any)
		if !ok && fields["items"] != nil {
			return nil, errors.New("items of the List must be a list")
		}
		var objects []*unstructured.Unstructured
		for i, item := range items {
			more, err := takeApart(item)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", i, err)
			}
			objects = append(objects, more...)
		}
		return objects, nil
	}
	return []*unstructured.Unstructured{o}, checkObject(o)
}

func checkObject(o *unstructured.Unstructured) error {
	if metadata, ok := o.Object["metadata"]; ok {
		if _, ok := metadata.(map[string]any); !ok {
			return errors.New("metadata must be an object")
		}
	}
	switch {
	case o.GetAPIVersion() == "":
		return errors.New("apiVersion is missing")
	case o.GetKind() == "":
		return errors.New("kind is missing")
	case o.GetName() == "" && o.GetGenerateName() != "":
		return fmt.Errorf("%s: metadata.generateName would make another object each time: give metadata.name", o.GetKind())
	case o.GetName() == "":
		return fmt.Errorf("%s: metadata.name is missing", o.GetKind())
	}
	return nil
}

// toYAML makes one YAML stream of all objects but the CRDs, which it returns as they are.
func toYAML(objects []*unstructured.Unstructured) ([]byte, []*unstructured.Unstructured, error) {
	out := bytes.NewBuffer([]byte{})
	var crds []*unstructured.Unstructured
	for _, o := range objects {
		if gvk := o.GroupVersionKind(); gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition" {
			crds = append(crds, o)
			continue
		}
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", describe(o), err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), crds, nil
}
