package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// ErrNoDataStore means that there is no DataStore object of that name.
var ErrNoDataStore = errors.New("there is no such DataStore")

// ForeignSecretError means that a DataStore refers to a Secret of a namespace that the installation doesn't name. Nothing of the
// Secret was read.
type ForeignSecretError struct {
	field  string // of the DataStore, below spec
	secret types.NamespacedName
	may    []string
}

func (e *ForeignSecretError) Error() string {
	return fmt.Sprintf("spec.%s: secret %s is in a namespace whose Secrets DataStores may not refer to: move it to %s, or add %s to --secret-namespaces of stoker-datastore",
		e.field, e.secret, strings.Join(e.may, " or "), e.secret.Namespace)
}

// reader reads DataStores and the Secrets they refer to.
type reader struct {
	kube *kube.Client
	// namespaces are those whose Secrets DataStores may refer to. What a Secret holds is sent to the endpoints that the same
	// DataStore names, so that its author reads what it names.
	namespaces []string
}

// secretsOf are the Secrets that a DataStore refers to and may, sorted.
func (r *reader) secretsOf(o *v1alpha1.DataStore) []types.NamespacedName {
	return slices.DeleteFunc(secretsOf(o), func(s types.NamespacedName) bool { return !slices.Contains(r.namespaces, s.Namespace) })
}

// read returns a DataStore and its configuration. Errors: ErrNoDataStore, *driver.ConfigError and *ForeignSecretError (the object is
// returned beside them), those of the management API.
func (r *reader) read(ctx context.Context, name string) (*v1alpha1.DataStore, driver.Config, error) {
	ds := &v1alpha1.DataStore{}
	if err := r.kube.Get(ctx, kube.DataStores, "", name, ds); err != nil {
		if apierrors.IsNotFound(err) {
			err = ErrNoDataStore
		}
		return nil, driver.Config{}, err
	}
	secrets := map[string]*corev1.Secret{}
	cfg, err := configOf(ds, r.namespaces, func(namespace, name string) (*corev1.Secret, error) {
		key := namespace + "/" + name
		if secrets[key] == nil {
			secret := &corev1.Secret{}
			if err := r.kube.Get(ctx, kube.Secrets, namespace, name, secret); err != nil {
				return nil, err
			}
			secrets[key] = secret
		}
		return secrets[key], nil
	})
	return ds, cfg, err
}

// configOf resolves what a DataStore says and refers to; get reads a Secret of one of the namespaces.
func configOf(ds *v1alpha1.DataStore, namespaces []string, get func(namespace, name string) (*corev1.Secret, error)) (driver.Config, error) {
	cfg := driver.Config{Name: ds.Name, Endpoints: ds.Spec.Endpoints}
	type want struct {
		part, field string
		ref         *v1alpha1.ContentRef
		to          *[]byte
	}
	var wants []want
	if b := ds.Spec.BasicAuth; b != nil {
		wants = append(wants,
			want{driver.PartBasicAuth, "basicAuth.username", &b.Username, &cfg.Username},
			want{driver.PartBasicAuth, "basicAuth.password", &b.Password, &cfg.Password})
	}
	if tls := ds.Spec.TLSConfig; tls != nil {
		ca := &tls.CertificateAuthority
		wants = append(wants, want{driver.PartTLS, "tlsConfig.certificateAuthority.certificate", &ca.Certificate, &cfg.CA})
		if ca.PrivateKey != nil {
			wants = append(wants, want{driver.PartTLS, "tlsConfig.certificateAuthority.privateKey", ca.PrivateKey, &cfg.CAKey})
		}
		if c := tls.ClientCertificate; c != nil {
			wants = append(wants,
				want{driver.PartTLS, "tlsConfig.clientCertificate.certificate", &c.Certificate, &cfg.ClientCert},
				want{driver.PartTLS, "tlsConfig.clientCertificate.privateKey", &c.PrivateKey, &cfg.ClientKey})
		}
	}
	for _, w := range wants {
		if at := w.ref.SecretReference; len(w.ref.Content) == 0 && at != nil && !slices.Contains(namespaces, at.Namespace) {
			return cfg, &ForeignSecretError{w.field, types.NamespacedName{Namespace: at.Namespace, Name: at.Name}, namespaces}
		}
	}
	for _, w := range wants {
		content, err := contentOf(w.ref, get)
		var away *intent.Unavailable
		if errors.As(err, &away) || errors.Is(err, context.Canceled) {
			return cfg, err
		}
		if err != nil {
			return cfg, &driver.ConfigError{Part: w.part, Field: w.field, Err: err}
		}
		*w.to = content
	}
	return cfg, nil
}

// contentOf resolves one reference; content in place wins.
func contentOf(ref *v1alpha1.ContentRef, get func(namespace, name string) (*corev1.Secret, error)) ([]byte, error) {
	if len(ref.Content) > 0 {
		return ref.Content, nil
	}
	at := ref.SecretReference
	if at == nil {
		return nil, errors.New("has neither content nor secretReference")
	}
	secret, err := get(at.Namespace, at.Name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("secret %s/%s is missing", at.Namespace, at.Name)
	}
	if err != nil {
		return nil, err
	}
	content := secret.Data[at.KeyPath]
	if len(content) == 0 {
		return nil, fmt.Errorf("secret %s/%s has no key %q, or an empty one", at.Namespace, at.Name, at.KeyPath)
	}
	return content, nil
}
