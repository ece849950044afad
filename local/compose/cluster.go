package compose

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/etcdauth"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Admin is the administrator of the management cluster and of the databases.
type Admin struct {
	// Dir is the volume "admin" of [Keys.Volumes].
	Dir string
}

// Manifests applies the manifests in the directories crds, rbac and policies below dir to the management cluster.
func (a Admin) Manifests(ctx context.Context, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(a.Dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server has its own fair queues
	return local.ApplyManifests(ctx, config, filepath.Join(dir, "crds"), filepath.Join(dir, "rbac"), filepath.Join(dir, "policies"))
}

// DataStores are the names of those that [Admin.DataStore] knows.
func DataStores() []string { return slices.Sorted(maps.Keys(databases)) }

// DefaultDataStore is the one on etcd.
const DefaultDataStore = "default"

// DataStore registers a database, with which tenants can then be: [DefaultDataStore], or one of [DataStores]. It waits for the database if
// it has to be prepared.
func (a Admin) DataStore(ctx context.Context, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(a.Dir, "kubeconfig"))
	if err != nil {
		return err
	}
	if name == DefaultDataStore {
		objects, err := a.etcd(ctx)
		if err != nil {
			return err
		}
		return objects.Apply(ctx, config)
	}
	d, ok := databases[name]
	if !ok {
		return fmt.Errorf("there is no DataStore %q; there are %s, %s", name, DefaultDataStore, strings.Join(DataStores(), ", "))
	}
	ca, err := a.read(name + "-ca.crt")
	if err != nil {
		return err
	}
	password, err := a.read(name + "-password")
	if err != nil {
		return err
	}
	return local.PasswordObjects(d.driver, name, name, net.JoinHostPort(name, d.port), ca, d.user, string(password)).Apply(ctx, config)
}

func (a Admin) read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(a.Dir, name)) }

// etcd has etcd tell its clients apart, and describes it.
func (a Admin) etcd(ctx context.Context) (objects local.DataStoreObjects, err error) {
	var ca, root pki.Pair
	for name, to := range map[string]*[]byte{"etcd-ca.crt": &ca.Cert, "etcd-ca.key": &ca.Key, "root.crt": &root.Cert, "root.key": &root.Key} {
		if *to, err = a.read(name); err != nil {
			return objects, err
		}
	}
	certificate, err := root.TLS()
	if err != nil {
		return objects, err
	}
	pool, err := ca.Pool()
	if err != nil {
		return objects, err
	}
	endpoint := net.JoinHostPort(hostEtcd, "2379")
	client, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: pool},
	})
	if err != nil {
		return objects, err
	}
	defer client.Close()
	if err := etcdauth.Enable(ctx, client); err != nil {
		return objects, fmt.Errorf("etcd at %s: %w", endpoint, err)
	}
	return local.EtcdObjects(DefaultDataStore, "etcd", endpoint, ca, root), nil
}
