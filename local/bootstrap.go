package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fieldManager is who server-side apply says the stack is.
const fieldManager = "stoker-local"

// tokenLife is how long a service may do with the kubeconfig of one start.
const tokenLife = 365 * 24 * time.Hour

var (
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	dataStores = schema.GroupVersionResource{Group: "kamaji.clastix.io", Version: "v1alpha1", Resource: "datastores"}
)

// bootstrap applies the manifests of the repository and what the stack adds: the services' accounts and the DataStores.
func (s *Stack) bootstrap(ctx context.Context) error {
	manifests := filepath.Join(s.cfg.Source, "deployments")
	err := ApplyManifests(ctx, s.admin, filepath.Join(manifests, "crds"), filepath.Join(manifests, "rbac"), filepath.Join(manifests, "policies"))
	if err != nil {
		return err
	}
	if err := s.identities(ctx); err != nil {
		return err
	}
	for _, d := range s.stores {
		if err := d.objects.Apply(ctx, s.admin); err != nil {
			return err
		}
	}
	return nil
}

// identities gives each service its account and a kubeconfig with a fresh token of it.
func (s *Stack) identities(ctx context.Context) error {
	for _, service := range Services {
		name := "stoker-" + service
		accounts := s.client.CoreV1().ServiceAccounts(Namespace)
		if _, err := accounts.Apply(ctx, applycorev1.ServiceAccount(name, Namespace), applyOptions()); err != nil {
			return fmt.Errorf("service account %s: %w", name, err)
		}
		seconds := int64(tokenLife / time.Second)
		token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("token of service account %s: %w", name, err)
		}
		user := &clientcmdapi.AuthInfo{Token: token.Status.Token}
		if err := s.writeKubeconfig(s.Kubeconfig(service), user); err != nil {
			return err
		}
	}
	return nil
}

func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
}

func applyConfig(client dynamic.Interface, mapper meta.ResettableRESTMapper) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, object *unstructured.Unstructured) error {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			mapper.Reset()
			mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
		if err != nil {
			return err
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := object.GetNamespace()
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}
			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}
		_, err = resource.Apply(ctx, object.GetName(), object, applyOptions())
		return err
	}
}

// established waits until the API server serves a definition's kind.
func established(ctx context.Context, client dynamic.Interface, name string) error {
	return wait(ctx, 50*time.Millisecond, "definition "+name, func(ctx context.Context) error {
		object, err := client.Resource(crds).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			if c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		return errors.New("not established yet")
	})
}

// readManifests reads the objects of a directory's YAML files in the order of their names, but namespaces first. A
// directory that isn't there has none.
func readManifests(dir string) ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if object.GetKind() == "" || object.GetName() == "" {
				return nil, fmt.Errorf("%s: an object without kind or name", path)
			}
			objects = append(objects, object)
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

func rank(object *unstructured.Unstructured) int {
	switch object.GetKind() {
	case "Namespace":
		return 0
	case "ServiceAccount", "CustomResourceDefinition":
		return 1
	}
	return 2
}
