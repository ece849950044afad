package datastore

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// errNoDataStore means that there is no DataStore object of that name.
var errNoDataStore = errors.New("there is no such DataStore")

// reader reads DataStores and the Secrets they refer to.
type reader struct{ kube *kube.Client }

// read returns a DataStore and its configuration. Errors: errNoDataStore, *driver.ConfigError (the object is returned
// beside it), those of the management API.
func (r *reader) read(ctx context.Context, name string) (*v1alpha1.DataStore, driver.Config, error) {
	ds := &v1alpha1.DataStore{}
	if err := r.kube.Get(ctx, kube.DataStores, "", name, ds); err != nil {
		if apierrors.IsNotFound(err) {
			err = errNoDataStore
		}
		return nil, driver.Config{}, err
	}
	secrets := map[string]*corev1.Secret{}
	cfg, err := configOf(ds, func(namespace, name string) (*corev1.Secret, error) {
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

// configOf resolves what a DataStore says and refers to; get reads a Secret.
func configOf(ds *v1alpha1.DataStore, get func(namespace, name string) (*corev1.Secret, error)) (driver.Config, error) {
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
