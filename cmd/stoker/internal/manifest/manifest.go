// Package manifest reads the objects that a person gives to the command line: files, directories or standard input, YAML
// or JSON, several in one file.
package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Object is one object of a manifest.
type Object struct {
	Key  events.Key
	Kind string
	// Data is the object as JSON, as it was written but for the namespace.
	Data json.RawMessage
	// Source says where it was found, for messages.
	Source string
}

// Command is the type of the command for the object with a verb (event.Apply).
func (o Object) Command(verb string) string { return event.CommandType(o.Key.Kind, verb) }

// String is kind/name, as kubectl says it.
func (o Object) String() string { return strings.ToLower(o.Kind) + "/" + o.Key.Name }

// Read reads what paths name: files, directories (their .yaml, .yml and .json files, sorted, not deeper), "-" for in.
// Objects of a namespaced kind without a namespace get the given one.
func Read(paths []string, in io.Reader, namespace string) ([]Object, error) {
	var all []Object
	for _, path := range paths {
		files := []string{path}
		if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
			return nil, fmt.Errorf("%s: URLs are not read; download it first, or pipe it in with -f -", path)
		}
		if path != "-" {
			info, err := os.Stat(path)
			if err != nil {
				return nil, err
			}
			if info.IsDir() {
				if files, err = manifests(path); err != nil {
					return nil, err
				}
			}
		}
		for _, file := range files {
			objects, err := readFile(file, in, namespace)
			if err != nil {
				return nil, err
			}
			all = append(all, objects...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no object found", strings.Join(paths, ", "))
	}
	return all, nil
}

func manifests(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

func readFile(file string, in io.Reader, namespace string) ([]Object, error) {
	source := file
	if file == "-" {
		source = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var all []Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		where := fmt.Sprintf("%s, document %d", source, n)
		data, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if bytes.Equal(data, []byte("null")) {
			continue // nothing but comments
		}
		objects, err := parse(data, where, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
}

// parse reads an object, or a List of them.
func parse(data []byte, source, namespace string) ([]Object, error) {
	var o struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("%s is no object: %w", source, err)
	}
	if strings.HasSuffix(o.Kind, "List") && o.Items != nil {
		var all []Object
		for i, item := range o.Items {
			objects, err := parse(item, fmt.Sprintf("%s, item %d", source, i+1), namespace)
			if err != nil {
				return nil, err
			}
			all = append(all, objects...)
		}
		return all, nil
	}
	if o.Kind == "" || o.APIVersion == "" {
		return nil, fmt.Errorf("%s: apiVersion and kind are missing", source)
	}
	group := kube.TenantControlPlanes.GroupVersion.String()
	if o.APIVersion != group {
		return nil, fmt.Errorf("%s: %s %s is not Stoker's; apply it with kubectl (Stoker's kinds are of %s)", source, o.APIVersion, o.Kind, group)
	}
	object := Object{Kind: o.Kind, Data: data, Source: source}
	switch o.Kind {
	case kube.TenantControlPlanes.Kind:
		if o.Metadata.Namespace != "" {
			namespace = o.Metadata.Namespace
		}
		object.Key = events.Tenant(namespace, o.Metadata.Name)
	case kube.DataStores.Kind:
		object.Key, namespace = events.DataStore(o.Metadata.Name), ""
	case kube.KubeconfigGenerators.Kind:
		object.Key, namespace = events.Generator(o.Metadata.Name), ""
	default:
		return nil, fmt.Errorf("%s: kind %s can't be applied by event, apply it with kubectl", source, o.Kind)
	}
	if !object.Key.Valid() {
		return nil, fmt.Errorf("%s: metadata.name %q in namespace %q can't be the name of a %s", source, o.Metadata.Name, namespace, o.Kind)
	}
	if namespace != o.Metadata.Namespace {
		var err error
		if object.Data, err = setNamespace(data, namespace); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	}
	return []Object{object}, nil
}

// setNamespace writes the namespace into an object without touching the rest; empty removes it.
func setNamespace(data []byte, namespace string) (json.RawMessage, error) {
	var o, meta map[string]json.RawMessage
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(o["metadata"], &meta); err != nil {
		return nil, err
	}
	delete(meta, "namespace")
	if namespace != "" {
		quoted, err := json.Marshal(namespace)
		if err != nil {
			return nil, err
		}
		meta["namespace"] = quoted
	}
	var err error
	if o["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// Named is the object that KIND/NAME names, or NAME alone for a tenant.
func Named(arg, namespace string) (Object, error) {
	kind, objectName, found := strings.Cut(arg, "/")
	if !found {
		kind, objectName = kube.TenantControlPlanes.Kind, arg
	}
	o := Object{Source: arg}
	switch strings.ToLower(kind) {
	case "tenantcontrolplane", "tenantcontrolplanes", "tcp", "tenant":
		o.Kind, o.Key = kube.TenantControlPlanes.Kind, events.Tenant(namespace, objectName)
	case "datastore", "datastores", "ds":
		o.Kind, o.Key = kube.DataStores.Kind, events.DataStore(objectName)
	case "kubeconfiggenerator", "kubeconfiggenerators", "kc":
		o.Kind, o.Key = kube.KubeconfigGenerators.Kind, events.Generator(objectName)
	default:
		return o, fmt.Errorf("%q: the kind must be tcp (TenantControlPlane), datastore or kc (KubeconfigGenerator)", arg)
	}
	if !o.Key.Valid() {
		return o, fmt.Errorf("%q: %q in namespace %q can't be the name of a %s", arg, objectName, namespace, o.Kind)
	}
	return o, nil
}
