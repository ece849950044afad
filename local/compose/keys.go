// Package compose is what docker-compose.yaml runs beside NATS, Kubernetes' own programs, databases and Stoker's services: it makes keys
// and configuration, gives the management cluster its first objects, and runs the process node.
package compose

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Who containers run as, so that each can read what is made for it.
const (
	uidStoker   = 65532 // as in Stoker's images
	uidDatabase = 999   // as in the official images of PostgreSQL and MariaDB
)

// Names of containers in their network, which certificates are for.
const (
	hostAPI     = "kube-apiserver"
	hostEtcd    = "etcd"
	hostManaged = "etcd-management"
	NodeName    = "node"
)

// databases are DataStores beside that on etcd, with the port of each.
var databases = map[string]struct{ port, driver, user string }{
	"postgres": {"5432", "PostgreSQL", "postgres"},
	"mariadb":  {"3306", "MySQL", "root"},
}

// Keys says which keys to make, and where.
type Keys struct {
	// Dir keeps everything, authorities' keys as well; no container but the one that makes them has it.
	Dir string
	// Volumes has a directory for each container or group of containers, with what it needs and no more.
	Volumes string
	// NodeAddress is the IP address of the process node.
	NodeAddress string
	// APIPort is the port of 127.0.0.1 that the engine's machine has the management cluster at.
	APIPort string
	// Portal orders tenants of the namespace default.
	Portal string
	// NATSServers are the names of NATS servers that are a cluster; fewer than two are none.
	NATSServers []string
	// Own gives a path to a user. Tests, which may not, leave it out.
	Own func(path string, uid int) error
}

// Make makes what is missing, renews certificates that end within 90 days, and leaves all else as it is.
func (k Keys) Make() error {
	m := maker{Keys: k, files: map[string]map[string][]byte{}}
	for _, step := range []func() error{m.kubernetes, m.etcd, m.nats, m.databases} {
		if err := step(); err != nil {
			return err
		}
	}
	return m.write()
}

type maker struct {
	Keys
	files map[string]map[string][]byte // by volume and name
	ca    *pki.Authority               // of the management cluster
}

func (m *maker) put(volume, name string, content []byte) {
	if m.files[volume] == nil {
		m.files[volume] = map[string][]byte{}
	}
	m.files[volume][name] = content
}

// pair puts a certificate and its key into a volume.
func (m *maker) pair(volume string, from *pki.Authority, leaf pki.Leaf) error {
	pair, err := from.Issue(leaf)
	if err != nil {
		return err
	}
	m.put(volume, leaf.File+".crt", pair.Cert)
	m.put(volume, leaf.File+".key", pair.Key)
	return nil
}

// kubeconfig puts one with a client certificate into a volume.
func (m *maker) kubeconfig(volume, name, server string, leaf pki.Leaf) error {
	pair, err := m.ca.Issue(leaf)
	if err != nil {
		return err
	}
	const cluster = "stoker"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: m.ca.Cert}
	config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	m.put(volume, name, data)
	return nil
}

// kubernetes makes the keys of the management cluster, and the kubeconfigs of all who ask it.
func (m *maker) kubernetes() error {
	dir := filepath.Join(m.Dir, "kubernetes")
	var err error
	if m.ca, err = pki.OpenAuthority(dir, "stoker"); err != nil {
		return err
	}
	etcd, err := pki.OpenAuthority(filepath.Join(m.Dir, hostManaged), hostManaged)
	if err != nil {
		return err
	}
	const volume, api = "kubernetes", "https://" + hostAPI + ":6443"
	m.put(hostManaged, "ca.crt", etcd.Cert)
	m.put(volume, "etcd-ca.crt", etcd.Cert)
	for _, v := range []string{volume, NodeName} {
		m.put(v, "ca.crt", m.ca.Cert)
	}
	apiHosts := []string{
		hostAPI, "localhost", "127.0.0.1", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	for _, p := range []struct {
		volume string
		from   *pki.Authority
		leaf   pki.Leaf
	}{
		{hostManaged, etcd, pki.Leaf{File: "server", Name: hostManaged, Hosts: []string{hostManaged, "localhost"}}},
		{volume, etcd, pki.Leaf{File: "etcd-client", Name: hostAPI}},
		{volume, m.ca, pki.Leaf{File: "apiserver", Name: hostAPI, Hosts: apiHosts}},
		{volume, m.ca, pki.Leaf{File: "kubelet-client", Name: local.KubeletClient}},
		{volume, m.ca, pki.Leaf{File: "kube-controller-manager", Name: "kube-controller-manager", Hosts: []string{"kube-controller-manager", "localhost"}}},
		{volume, m.ca, pki.Leaf{File: "kube-scheduler", Name: "kube-scheduler", Hosts: []string{"kube-scheduler", "localhost"}}},
		{NodeName, m.ca, pki.Leaf{File: "kubelet", Name: "kubelet", Hosts: []string{m.NodeAddress, NodeName}}},
	} {
		if err := m.pair(p.volume, p.from, p.leaf); err != nil {
			return err
		}
	}
	private, public, err := pki.SigningKey(dir)
	if err != nil {
		return err
	}
	for name, file := range map[string]string{"sa.key": private, "sa.pub": public} {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		m.put(volume, name, data)
	}
	return m.kubeconfigs(volume, api)
}

// kubeconfigs makes those of all who ask the API server. Services are their service accounts, so that the roles and policies of an
// installation on a cluster hold here.
func (m *maker) kubeconfigs(kubernetes, api string) error {
	admin := pki.Leaf{File: "admin", Name: "stoker-admin", Organization: []string{"system:masters"}}
	all := []struct {
		volume, name, server string
		leaf                 pki.Leaf
	}{
		{"admin", "kubeconfig", api, admin},
		{"operator", "kubeconfig", api, admin},
		{"operator", "host.kubeconfig", "https://127.0.0.1:" + m.APIPort, admin},
		// In system:masters, for its own user's rights need a service account for each controller.
		{kubernetes, "kube-controller-manager.kubeconfig", api, pki.Leaf{
			File: "controller-manager-client", Name: "system:kube-controller-manager", Organization: []string{"system:masters"},
		}},
		{kubernetes, "kube-scheduler.kubeconfig", api, pki.Leaf{File: "scheduler-client", Name: "system:kube-scheduler"}},
		{NodeName, "kubeconfig", api, pki.Leaf{File: "node", Name: "system:node:" + NodeName, Organization: []string{"system:nodes"}}},
	}
	for _, service := range local.Services {
		account := "stoker-" + service
		all = append(all, struct {
			volume, name, server string
			leaf                 pki.Leaf
		}{service, "kubeconfig", api, pki.Leaf{
			File: account, Name: "system:serviceaccount:" + local.Namespace + ":" + account,
			Organization: []string{"system:serviceaccounts", "system:serviceaccounts:" + local.Namespace},
		}})
	}
	for _, c := range all {
		if err := m.kubeconfig(c.volume, c.name, c.server, c.leaf); err != nil {
			return err
		}
	}
	return nil
}

// etcd makes the keys of the DataStore default.
func (m *maker) etcd() error {
	ca, err := pki.OpenAuthority(filepath.Join(m.Dir, hostEtcd), "stoker-etcd")
	if err != nil {
		return err
	}
	m.put(hostEtcd, "ca.crt", ca.Cert)
	m.put("admin", "etcd-ca.crt", ca.Cert)
	m.put("admin", "etcd-ca.key", ca.Key)
	return errors.Join(
		m.pair(hostEtcd, ca, pki.Leaf{File: "server", Name: hostEtcd, Hosts: []string{hostEtcd, "localhost"}}),
		m.pair("admin", ca, pki.Leaf{File: "root", Name: "root"}),
	)
}

// natsConf is the servers' configuration; the name of each is in its environment.
const natsConf = `server_name: $SERVER_NAME
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
jetstream {
  store_dir: /data
  # What was acknowledged is on disk.
  sync_interval: always
}
tls {
  cert_file: /etc/nats/server.crt
  key_file: /etc/nats/server.key
}
include authorization.conf
include cluster.conf
`

// nats makes the nkeys and accounts of the NATS users, and the servers' certificate.
func (m *maker) nats() error {
	dir := filepath.Join(m.Dir, "nats")
	public, err := natsusers.EnsureKeys(dir)
	if err != nil {
		return err
	}
	portals := natsusers.Portals{Dir: dir}
	if err := portals.Set([]events.Portal{{Name: m.Portal, Namespaces: []string{"default"}}}); err != nil {
		return err
	}
	accounts, err := os.ReadFile(filepath.Join(dir, events.PortalsFile))
	if err != nil {
		return err
	}
	ca, err := pki.OpenAuthority(dir, "stoker-nats")
	if err != nil {
		return err
	}
	const volume = "nats"
	m.put(volume, "nats.conf", []byte(natsConf))
	m.put(volume, "authorization.conf", []byte(events.Authorization(public, nil)))
	m.put(volume, events.PortalsFile, accounts)
	m.put(volume, "cluster.conf", m.cluster())
	m.put(volume, "ca.crt", ca.Cert)
	hosts := []string{"nats", "nats-2", "nats-3", "localhost", "127.0.0.1"}
	if err := m.pair(volume, ca, pki.Leaf{File: "server", Name: volume, Hosts: hosts}); err != nil {
		return err
	}
	seeds := map[string]map[string]string{"operator": {
		"operator.nk": events.UserOperator, "system.nk": events.UserSystem, "portal.nk": m.Portal,
	}}
	for _, service := range local.Services {
		seeds[service] = map[string]string{"seed.nk": service}
	}
	for v, files := range seeds {
		m.put(v, "nats-ca.crt", ca.Cert)
		for name, user := range files {
			seed, err := os.ReadFile(natsusers.SeedFile(dir, user))
			if err != nil {
				return err
			}
			m.put(v, name, seed)
		}
	}
	return nil
}

// cluster is the part of the servers' configuration that makes several of them one.
func (m *maker) cluster() []byte {
	if len(m.NATSServers) < 2 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("cluster {\n  name: stoker\n  listen: 0.0.0.0:6222\n  ping_interval: 2s\n  ping_max: 2\n  routes: [\n")
	for _, server := range m.NATSServers {
		fmt.Fprintf(&b, "    %q\n", "nats-route://"+server+":6222")
	}
	b.WriteString("  ]\n  tls {\n    cert_file: /etc/nats/server.crt\n    key_file: /etc/nats/server.key\n    ca_file: /etc/nats/ca.crt\n  }\n}\n")
	return b.Bytes()
}

// hba has PostgreSQL take passwords over TLS alone, and those of its own container.
const hba = "local all all scram-sha-256\nhostssl all all all scram-sha-256\n"

// databases makes the certificates and passwords of databases.
func (m *maker) databases() error {
	for name := range databases {
		dir := filepath.Join(m.Dir, name)
		ca, err := pki.OpenAuthority(dir, "stoker-"+name)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "password")
		password, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			password = []byte(rand.Text())
			err = os.WriteFile(file, password, 0o600)
		}
		if err != nil {
			return err
		}
		m.put(name, "ca.crt", ca.Cert)
		m.put(name, "password", password)
		m.put("admin", name+"-ca.crt", ca.Cert)
		m.put("admin", name+"-password", password)
		if err := m.pair(name, ca, pki.Leaf{File: "server", Name: name, Hosts: []string{name, "localhost"}}); err != nil {
			return err
		}
	}
	m.put("postgres", "pg_hba.conf", []byte(hba))
	return nil
}

// write brings the volumes up to date. Only the user whose container has a volume can read it.
func (m *maker) write() error {
	for _, volume := range slices.Sorted(maps.Keys(m.files)) {
		dir, uid := filepath.Join(m.Volumes, volume), uidStoker
		if _, is := databases[volume]; is {
			uid = uidDatabase
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		for name, content := range m.files[volume] {
			if err := m.file(filepath.Join(dir, name), content, uid); err != nil {
				return err
			}
		}
		if err := errors.Join(os.Chmod(dir, 0o500), m.own(dir, uid)); err != nil { //nolint:gosec // a directory
			return err
		}
	}
	return nil
}

// file writes a file in one step, unless it has the content.
func (m *maker) file(path string, content []byte, uid int) error {
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, content) {
		return nil
	}
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil { //nolint:gosec // a directory
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, content, 0o400); err != nil {
		return err
	}
	if err := m.own(next, uid); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func (m *maker) own(path string, uid int) error {
	if m.Own == nil {
		return nil
	}
	return m.Own(path, uid)
}

// OwnData gives the directories that containers keep their data in to who the containers run as: a volume is root's when it is new.
func OwnData(data string, own func(path string, uid int) error) error {
	entries, err := os.ReadDir(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := own(filepath.Join(data, e.Name()), uidStoker); err != nil {
			return err
		}
	}
	return nil
}
