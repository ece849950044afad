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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
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
	client, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	apply := applyConfig(client, mapper)

	namespace := applycorev1.Namespace(Namespace)
	if _, err := s.client.CoreV1().Namespaces().Apply(ctx, namespace, applyOptions()); err != nil {
		return fmt.Errorf("namespace %s: %w", Namespace, err)
	}
	for _, dir := range []string{"crds", "rbac", "policies"} {
		objects, err := readManifests(filepath.Join(s.cfg.Source, "deployments", dir))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := apply(ctx, object); err != nil {
				return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			if err := established(ctx, client, object.GetName()); err != nil {
				return err
			}
		}
		mapper.Reset()
	}
	if err := s.identities(ctx); err != nil {
		return err
	}
	for _, d := range s.stores {
		if err := s.applyDataStore(ctx, client, d); err != nil {
			return err
		}
	}
	return nil
}

// applyDataStore applies a DataStore, if there is a definition of what that is, and its Secrets.
func (s *Stack) applyDataStore(ctx context.Context, client dynamic.Interface, d *dataStore) error {
	for _, secret := range d.secretObjects() {
		if _, err := s.client.CoreV1().Secrets(Namespace).Apply(ctx, secret, applyOptions()); err != nil {
			return fmt.Errorf("secret %s: %w", *secret.Name, err)
		}
	}
	_, err := client.Resource(crds).Get(ctx, dataStores.GroupResource().String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.log.Warn("no DataStore applied: its definition isn't installed", "datastore", d.name)
		return nil
	}
	if err != nil {
		return err
	}
	return wait(ctx, 50*time.Millisecond, "DataStore "+d.name, func(ctx context.Context) error {
		_, err := client.Resource(dataStores).
			Apply(ctx, d.name, &unstructured.Unstructured{Object: d.object()}, applyOptions())
		if err != nil && !apierrors.IsNotFound(err) {
			return stopWaiting{fmt.Errorf("DataStore %s: %w", d.name, err)}
		}
		return err // established, yet not served for another moment
	})
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
