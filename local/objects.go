package local

// What a management cluster is given before the services start: the repository's manifests, and DataStores.

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"

	"github.com/stoker-k8s/stoker/pkg/pki"
)

// ApplyManifests applies the manifests of directories, in their order, to the cluster that admin may do everything in, and waits until
// what they define is served. [Namespace] is made before. Errors name the object.
func ApplyManifests(ctx context.Context, admin *rest.Config, dirs ...string) error {
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	if _, err := typed.CoreV1().Namespaces().Apply(ctx, applycorev1.Namespace(Namespace), applyOptions()); err != nil {
		return fmt.Errorf("namespace %s: %w", Namespace, err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))
	apply := applyConfig(client, mapper)
	for _, dir := range dirs {
		objects, err := readManifests(dir)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := retry.OnError(retry.DefaultBackoff, busy, func() error { return apply(ctx, object) }); err != nil {
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
	return nil
}

// busy reports whether an API server didn't get to a request, for which it has half a minute.
func busy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// DataStoreObjects are a DataStore and the Secrets that it refers to, in [Namespace].
type DataStoreObjects struct {
	name    string
	secrets map[string]map[string][]byte
	spec    map[string]any
}

// EtcdObjects describe an etcd whose users are the common names of their certificates, which authority signs. Root is the certificate of the
// user of that name. The names of the Secrets begin with prefix.
func EtcdObjects(name, prefix, endpoint string, authority, root pki.Pair) DataStoreObjects {
	certs, admin := prefix+"-certs", prefix+"-client"
	return DataStoreObjects{
		name: name,
		secrets: map[string]map[string][]byte{
			certs: {"ca.crt": authority.Cert, "ca.key": authority.Key},
			admin: {"tls.crt": root.Cert, "tls.key": root.Key},
		},
		spec: map[string]any{
			"driver": "etcd", "endpoints": []any{endpoint},
			"tlsConfig": map[string]any{
				"certificateAuthority": map[string]any{"certificate": ref(certs, "ca.crt"), "privateKey": ref(certs, "ca.key")},
				"clientCertificate":    map[string]any{"certificate": ref(admin, "tls.crt"), "privateKey": ref(admin, "tls.key")},
			},
		},
	}
}

// PasswordObjects describe a database that clients log in to with a password, over TLS, with a certificate of the authority, in PEM.
// Driver is as the DataStore has it. The names of the Secrets begin with prefix.
func PasswordObjects(driver, name, prefix, endpoint string, authority []byte, user, password string) DataStoreObjects {
	certs, admin := prefix+"-certs", prefix+"-admin"
	return DataStoreObjects{
		name: name,
		secrets: map[string]map[string][]byte{
			certs: {"ca.crt": authority},
			admin: {"username": []byte(user), "password": []byte(password)},
		},
		spec: map[string]any{
			"driver": driver, "endpoints": []any{endpoint},
			"tlsConfig": map[string]any{"certificateAuthority": map[string]any{"certificate": ref(certs, "ca.crt")}},
			"basicAuth": map[string]any{"username": ref(admin, "username"), "password": ref(admin, "password")},
		},
	}
}

// ref is how a DataStore says where a value is.
func ref(secret, key string) map[string]any {
	return map[string]any{"secretReference": map[string]any{"name": secret, "namespace": Namespace, "keyPath": key}}
}

// secretObjects are the Secrets as they are applied.
func (d DataStoreObjects) secretObjects() []*applycorev1.SecretApplyConfiguration {
	var all []*applycorev1.SecretApplyConfiguration
	for name, data := range d.secrets {
		kind := corev1.SecretTypeOpaque
		if _, pair := data["tls.key"]; pair {
			kind = corev1.SecretTypeTLS
		}
		all = append(all, applycorev1.Secret(name, Namespace).WithType(kind).WithData(data))
	}
	return all
}

// Apply applies the objects to the cluster that admin may do everything in, and waits until that serves DataStores.
func (d DataStoreObjects) Apply(ctx context.Context, admin *rest.Config) error {
	typed, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	for _, secret := range d.secretObjects() {
		if _, err := typed.CoreV1().Secrets(Namespace).Apply(ctx, secret, applyOptions()); err != nil {
			return fmt.Errorf("secret %s: %w", *secret.Name, err)
		}
	}
	object := map[string]any{
		"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "DataStore",
		"metadata": map[string]any{"name": d.name}, "spec": d.spec,
	}
	return wait(ctx, 50*time.Millisecond, "DataStore "+d.name, func(ctx context.Context) error {
		_, err := client.Resource(dataStores).Apply(ctx, d.name, &unstructured.Unstructured{Object: object}, applyOptions())
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
			return stopWaiting{fmt.Errorf("DataStore %s: %w", d.name, err)}
		}
		return err // established, yet not served for another moment; or the machine is busy
	})
}
