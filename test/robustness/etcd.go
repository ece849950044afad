package robustness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// RemainsInDataStores notes users, roles and keys of the DataStores' etcds that are no living tenant's.
func RemainsInDataStores(ctx context.Context, s *Site, h *History) error {
	var tenants v1alpha1.TenantControlPlaneList
	if err := s.Admin.List(ctx, kube.TenantControlPlanes, namespace, "", &tenants); err != nil {
		return err
	}
	alive := []string{"root"}
	for _, o := range tenants.Items {
		alive = append(alive, o.Status.Storage.Setup.Schema, o.Status.Storage.Setup.User)
	}
	for _, of := range []string{dataStore, otherStore} {
		if err := s.remainsIn(ctx, of, alive, h); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) remainsIn(ctx context.Context, dataStore string, alive []string, h *History) error {
	c, err := s.rootEtcd(ctx, dataStore)
	if err != nil {
		return err
	}
	defer c.Close()
	users, errUsers := c.UserList(ctx)
	roles, errRoles := c.RoleList(ctx)
	keys, errKeys := c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	if err := errors.Join(errUsers, errRoles, errKeys); err != nil {
		return fmt.Errorf("etcd of DataStore %s: %w", dataStore, err)
	}
	left := map[string]string{}
	for _, n := range users.Users {
		left[n] = "user"
	}
	for _, n := range roles.Roles {
		left[n] = "role"
	}
	for _, kv := range keys.Kvs {
		// /<schema>/… is a tenant's; stoker.dev/owner/<what>/<schema or user> says whose it is.
		key := string(kv.Key)
		if key == "compact_rev_key" { // nobody's
			continue
		}
		schema, _, _ := strings.Cut(strings.TrimPrefix(key, "/"), "/")
		if strings.HasPrefix(key, "stoker.dev/owner/") {
			schema = path.Base(key)
		}
		left[schema] = "key " + key
	}
	for n, what := range left {
		if !slices.Contains(alive, n) {
			h.Add(Record{Kind: Left, What: what, Object: n})
		}
	}
	return nil
}

// rootEtcd connects to a DataStore's etcd as its administrator.
func (s *Site) rootEtcd(ctx context.Context, dataStore string) (*clientv3.Client, error) {
	var ds v1alpha1.DataStore
	var ca, client corev1.Secret
	if err := errors.Join(
		s.Admin.Get(ctx, kube.DataStores, "", dataStore, &ds),
		s.Admin.Get(ctx, kube.Secrets, name.Namespace, "etcd-"+dataStore+"-certs", &ca),
		s.Admin.Get(ctx, kube.Secrets, name.Namespace, "etcd-"+dataStore+"-client", &client),
	); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Data["ca.crt"])
	pair, err := tls.X509KeyPair(client.Data["tls.crt"], client.Data["tls.key"])
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for _, e := range ds.Spec.Endpoints {
		endpoints = append(endpoints, "https://"+e)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
}
