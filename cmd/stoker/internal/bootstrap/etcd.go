package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoker-k8s/stoker/internal/etcdauth"
)

// EtcdClient is how an etcd is reached as its user root.
type EtcdClient struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
}

// connect opens a client, which must be closed. It doesn't wait for etcd.
func (c EtcdClient) connect() (*clientv3.Client, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", c.CAFile)
	}
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: pool},
	})
}

// EnableEtcdAuthentication waits until etcd answers, and has it tell its clients apart by their certificates. say gets why it waits.
// The error is that of ctx, or of the files.
func EnableEtcdAuthentication(ctx context.Context, c EtcdClient, say func(string)) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	for tick := time.NewTicker(time.Second); ; {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := etcdauth.Enable(once, client)
		cancel()
		if err == nil {
			tick.Stop()
			say("authentication is on")
			return nil
		}
		say("etcd is not ready yet: " + err.Error())
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("authentication was not turned on: %w", err)
		}
	}
}

// snapshots are named for the time they are of, in UTC, so that they sort by it.
const (
	snapshotPrefix = "etcd-"
	snapshotSuffix = ".db"
)

// SnapshotEtcd writes a snapshot of all of etcd's data into a directory, and removes the oldest but keep of those there. The file is
// whole or not there. It returns the file. `etcdutl snapshot restore` reads it.
func SnapshotEtcd(ctx context.Context, c EtcdClient, dir string, keep int, now time.Time) (file string, err error) {
	if len(c.Endpoints) == 0 || keep < 1 {
		return "", fmt.Errorf("a snapshot of %d endpoints, of which %d are kept: both must be at least 1", len(c.Endpoints), keep)
	}
	c.Endpoints = c.Endpoints[:1] // a snapshot is one member's
	client, err := c.connect()
	if err != nil {
		return "", err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("snapshot of %s: %w", c.Endpoints[0], err)
	}
	defer snapshot.Close()
	file = filepath.Join(dir, snapshotPrefix+now.UTC().Format("20060102T150405Z")+snapshotSuffix)
	if err := store(snapshot, file); err != nil {
		return "", fmt.Errorf("snapshot of %s: %w", c.Endpoints[0], err)
	}
	return file, removeOldest(dir, keep)
}

// store writes a file as a whole.
func store(from io.Reader, file string) (err error) {
	next := file + ".part"
	to, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(next)
		}
	}()
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// removeOldest removes snapshots but the newest.
func removeOldest(dir string, keep int) error {
	all, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"+snapshotSuffix))
	if err != nil {
		return err
	}
	slices.Sort(all)
	for _, file := range all[:max(0, len(all)-keep)] {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
