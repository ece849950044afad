package local

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/internal/etcdauth"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// openEtcd makes a DataStore of an etcd whose users are the common names of their certificates.
func (s *Stack) openEtcd(d *dataStore, component string, at netip.Addr, server pki.Pair) error {
	client, err := d.ca.Issue(pki.Leaf{File: "root", Name: etcdauth.Root})
	if err != nil {
		return err
	}
	endpoint := net.JoinHostPort(at.String(), "2379")
	if d.component, err = s.etcdComponent(component, at, d.ca.Pair, server); err != nil {
		return err
	}
	d.ready = func(ctx context.Context) error { return d.secure(ctx, endpoint, client) }
	d.objects = EtcdObjects(d.name, component, endpoint, d.ca.Pair, client)
	return nil
}

// secure has etcd check who its clients are: the common name of a client's certificate is its user. Without, each
// tenant could read every other's keys.
func (d *dataStore) secure(ctx context.Context, endpoint string, admin pki.Pair) error {
	cert, err := admin.TLS()
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: d.ca.Pool()},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	return wait(ctx, 100*time.Millisecond, "datastore "+d.name, func(ctx context.Context) error {
		if err := d.component.giveUp(); err != nil {
			return stopWaiting{err}
		}
		return etcdauth.Enable(ctx, client)
	})
}
