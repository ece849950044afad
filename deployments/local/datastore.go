package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/stoker-k8s/stoker/deployments/local/pki"
)

// root is the user that etcd demands to exist before it looks at users at all.
const root = "root"

// A dataStore is the etcd behind one DataStore object.
type dataStore struct {
	name      string
	endpoint  string // host:port
	ca        *pki.Authority
	client    pki.Pair // of user root
	component *Component
}

func (s *Stack) openDataStore(name string) (*dataStore, error) {
	component := "etcd-" + name
	at := s.block.DataStore(s.state.DataStores[name])
	ca, err := pki.OpenAuthority(filepath.Join(s.cfg.Dir, "pki", component), "stoker-local-"+component)
	if err != nil {
		return nil, err
	}
	server, err := ca.Issue(pki.Leaf{File: "server", Name: component, Hosts: []string{at.String()}})
	if err != nil {
		return nil, err
	}
	d := &dataStore{name: name, endpoint: net.JoinHostPort(at.String(), "2379"), ca: ca}
	if d.client, err = ca.Issue(pki.Leaf{File: "root", Name: root}); err != nil {
		return nil, err
	}
	d.component, err = s.etcdComponent(component, at, ca.Pair, server)
	s.stores = append(s.stores, d)
	return d, err
}

// secure has etcd check who its clients are: the common name of a client's certificate is its user. Without, each
// tenant could read every other's keys.
func (d *dataStore) secure(ctx context.Context) error {
	cert, err := d.client.TLS()
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + d.endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: d.ca.Pool()},
	})
	if err != nil {
		return fmt.Errorf("datastore %s: %w", d.name, err)
	}
	defer client.Close()
	return wait(ctx, 100*time.Millisecond, "datastore "+d.name, func(ctx context.Context) error {
		if err := d.component.giveUp(); err != nil {
			return stopWaiting{err}
		}
		status, err := client.AuthStatus(ctx)
		if err != nil || status.Enabled {
			return err
		}
		// A crash may have left any part of this done.
		if _, err := client.RoleAdd(ctx, root); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
			return err
		}
		_, err = client.UserAddWithOptions(ctx, root, "", &clientv3.UserAddOptions{NoPassword: true})
		if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
			return err
		}
		if _, err := client.UserGrantRole(ctx, root, root); err != nil {
			return err
		}
		_, err = client.AuthEnable(ctx)
		return err
	})
}

// The names of the Secrets of a DataStore, in Namespace.
func (d *dataStore) certsSecret() string  { return "etcd-" + d.name + "-certs" }
func (d *dataStore) clientSecret() string { return "etcd-" + d.name + "-client" }

// secrets hold what it takes to give out users of this etcd.
func (d *dataStore) secrets() []*applycorev1.SecretApplyConfiguration {
	return []*applycorev1.SecretApplyConfiguration{
		applycorev1.Secret(d.certsSecret(), Namespace).WithType(corev1.SecretTypeOpaque).
			WithData(map[string][]byte{"ca.crt": d.ca.Cert, "ca.key": d.ca.Key}),
		applycorev1.Secret(d.clientSecret(), Namespace).WithType(corev1.SecretTypeTLS).
			WithData(map[string][]byte{"tls.crt": d.client.Cert, "tls.key": d.client.Key}),
	}
}

// object is the DataStore.
func (d *dataStore) object() map[string]any {
	ref := func(secret, key string) map[string]any {
		return map[string]any{"secretReference": map[string]any{"name": secret, "namespace": Namespace, "keyPath": key}}
	}
	return map[string]any{
		"apiVersion": "kamaji.clastix.io/v1alpha1",
		"kind":       "DataStore",
		"metadata":   map[string]any{"name": d.name},
		"spec": map[string]any{
			"driver":    "etcd",
			"endpoints": []any{d.endpoint},
			"tlsConfig": map[string]any{
				"certificateAuthority": map[string]any{
					"certificate": ref(d.certsSecret(), "ca.crt"), "privateKey": ref(d.certsSecret(), "ca.key"),
				},
				"clientCertificate": map[string]any{
					"certificate": ref(d.clientSecret(), "tls.crt"), "privateKey": ref(d.clientSecret(), "tls.key"),
				},
			},
		},
	}
}
