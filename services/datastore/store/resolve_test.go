package store

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestConfigOf(t *testing.T) {
	ref := func(secret, key string) v1alpha1.ContentRef {
		return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{
			SecretReference: corev1.SecretReference{Namespace: "ns", Name: secret}, KeyPath: key,
		}}
	}
	key := ref("ca", "tls.key")
	ds := &v1alpha1.DataStore{Spec: v1alpha1.DataStoreSpec{
		Driver: v1alpha1.DriverEtcd, Endpoints: []string{"etcd:2379"},
		BasicAuth: &v1alpha1.BasicAuth{Username: v1alpha1.ContentRef{Content: []byte("admin")}, Password: ref("auth", "password")},
		TLSConfig: &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: ref("ca", "tls.crt"), PrivateKey: &key},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: ref("client", "tls.crt"), PrivateKey: ref("client", "tls.key")},
		},
	}}
	both := v1alpha1.ContentRef{Content: []byte("in place"), SecretReference: ds.Spec.BasicAuth.Password.SecretReference}
	secrets := func() map[string]map[string][]byte {
		return map[string]map[string][]byte{
			"ns/ca": secretData("tls.crt", "CA", "tls.key", "CAKEY"), "ns/client": secretData("tls.crt", "C", "tls.key", "CKEY"),
			"ns/auth": secretData("password", "secret"),
		}
	}
	for sentence, test := range map[string]struct {
		change func(ds *v1alpha1.DataStore, secrets map[string]map[string][]byte)
		Readiness
	}{
		"all references are there": {nil, Readiness{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}},
		"a content in place wins": {func(ds *v1alpha1.DataStore, s map[string]map[string][]byte) {
			ds.Spec.BasicAuth.Password = both
			delete(s, "ns/auth")
		}, Readiness{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}},
		"a missing Secret of a certificate is named": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s, "ns/ca") },
			Readiness{false, v1alpha1.DataStoreReasonTLSConfigFailed, "spec.tlsConfig.certificateAuthority.certificate: secret ns/ca is missing"},
		},
		"a missing key is named": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s["ns/client"], "tls.key") },
			Readiness{false, v1alpha1.DataStoreReasonTLSConfigFailed, `spec.tlsConfig.clientCertificate.privateKey: secret ns/client has no key "tls.key", or an empty one`},
		},
		"a missing password is basic authentication's": {
			func(_ *v1alpha1.DataStore, s map[string]map[string][]byte) { delete(s, "ns/auth") },
			Readiness{false, v1alpha1.DataStoreReasonBasicAuthFailed, "spec.basicAuth.password: secret ns/auth is missing"},
		},
		"a Secret of a namespace that the installation doesn't name is refused": {
			func(ds *v1alpha1.DataStore, s map[string]map[string][]byte) {
				ds.Spec.BasicAuth.Password.SecretReference.Namespace = "another"
				s["another/auth"] = secretData("password", "somebody's")
			},
			Readiness{false, reason.ForeignSecret, "spec.basicAuth.password: secret another/auth is in a namespace whose Secrets DataStores may not refer to: " +
				"move it to ns, or add another to --secret-namespaces of stoker-datastore"},
		},
		"neither content nor reference is named": {
			func(ds *v1alpha1.DataStore, _ map[string]map[string][]byte) {
				ds.Spec.BasicAuth.Username = v1alpha1.ContentRef{}
			},
			Readiness{false, v1alpha1.DataStoreReasonBasicAuthFailed, "spec.basicAuth.username: has neither content nor secretReference"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			ds, s := ds.DeepCopy(), secrets()
			if test.change != nil {
				test.change(ds, s)
			}
			cfg, err := configOf(ds, []string{"ns"}, func(namespace, n string) (*corev1.Secret, error) {
				data, ok := s[namespace+"/"+n]
				if !ok {
					return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, n)
				}
				return &corev1.Secret{Data: data}, nil
			})
			if got := ReadinessOf(err, nil); got != test.Readiness {
				t.Errorf("got %+v\nwant %+v", got, test.Readiness)
			}
			if err == nil && (string(cfg.CA) != "CA" || string(cfg.CAKey) != "CAKEY" || string(cfg.ClientKey) != "CKEY" || string(cfg.Username) != "admin") {
				t.Error("not what the Secrets hold")
			}
			if out := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); out != "DataStore  DataStore  DataStore " {
				t.Errorf("prints %q", out)
			}
		})
	}
	t.Run("a management API that is away is not the DataStore's fault", func(t *testing.T) {
		_, err := configOf(ds, []string{"ns"}, func(string, string) (*corev1.Secret, error) {
			return nil, &intent.Unavailable{Dependency: "kubernetes", Err: errors.New("refused")}
		})
		var bad *driver.ConfigError
		if err == nil || errors.As(err, &bad) {
			t.Error(err)
		}
	})
}

// secretData is the data of a Secret, by keys and values.
func secretData(kv ...string) map[string][]byte {
	data := map[string][]byte{}
	for i := 0; i < len(kv); i += 2 {
		data[kv[i]] = []byte(kv[i+1])
	}
	return data
}
