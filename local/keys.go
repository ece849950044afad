package local

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// KubeletClient is whom the API server is when it asks the node for logs.
const KubeletClient = "kube-apiserver-kubelet-client"

// keys are the management cluster's own.
type keys struct {
	ca, etcdCA                                  *pki.Authority
	apiServer, kubelet                          pki.Pair // serving
	admin, controllerManager, scheduler, node   pki.Pair // clients of the API server
	apiServerKubeletClient                      pki.Pair // client of the node
	etcdServer, etcdClient                      pki.Pair
	serviceAccountPrivate, serviceAccountPublic string
}

func openKeys(dir string, block address.Block) (keys, error) {
	var k keys
	var err error
	if k.ca, err = pki.OpenAuthority(filepath.Join(dir, "kubernetes"), "stoker-local"); err != nil {
		return k, err
	}
	if k.etcdCA, err = pki.OpenAuthority(filepath.Join(dir, "etcd-management"), "stoker-local-etcd-management"); err != nil {
		return k, err
	}
	self := block.Management().String()
	apiHosts := []string{
		self, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	for _, want := range []struct {
		pair *pki.Pair
		from *pki.Authority
		leaf pki.Leaf
	}{
		{&k.apiServer, k.ca, pki.Leaf{File: "apiserver", Name: "kube-apiserver", Hosts: apiHosts}},
		{&k.kubelet, k.ca, pki.Leaf{File: "kubelet", Name: "system:node:" + NodeName, Organization: []string{"system:nodes"}, Hosts: []string{self, NodeName}}},
		{&k.admin, k.ca, pki.Leaf{File: "admin", Name: "stoker-admin", Organization: []string{"system:masters"}}},
		// Not its own user: that one's rights are those of a controller manager whose controllers have accounts
		// of their own, which costs seconds of start-up and shows nothing here.
		{&k.controllerManager, k.ca, pki.Leaf{File: "controller-manager", Name: "system:kube-controller-manager", Organization: []string{"system:masters"}}},
		{&k.scheduler, k.ca, pki.Leaf{File: "scheduler", Name: "system:kube-scheduler"}},
		{&k.node, k.ca, pki.Leaf{File: "node", Name: "system:node:" + NodeName, Organization: []string{"system:nodes"}}},
		{&k.apiServerKubeletClient, k.ca, pki.Leaf{File: "apiserver-kubelet-client", Name: KubeletClient}},
		{&k.etcdServer, k.etcdCA, pki.Leaf{File: "server", Name: "etcd-management", Hosts: []string{self}}},
		{&k.etcdClient, k.etcdCA, pki.Leaf{File: "client", Name: "kube-apiserver"}},
	} {
		if *want.pair, err = want.from.Issue(want.leaf); err != nil {
			return k, err
		}
	}
	k.serviceAccountPrivate, k.serviceAccountPublic, err = pki.SigningKey(filepath.Join(dir, "kubernetes"))
	return k, err
}

// KubeletTLS is the node's: it admits the management API server, [KubeletClient] of the authorities, and nobody else.
func KubeletTLS(kubelet pki.Pair, authorities *x509.CertPool) (*tls.Config, error) {
	cert, err := kubelet.TLS()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		// Of resumed sessions, too.
		VerifyConnection: func(c tls.ConnectionState) error {
			for _, chain := range c.VerifiedChains {
				if chain[0].Subject.CommonName == KubeletClient {
					return nil
				}
			}
			return errors.New("only the API server may ask")
		},
	}, nil
}

// clientConfig is how a client with a certificate reaches the management cluster.
func (s *Stack) clientConfig(pair pki.Pair) *rest.Config {
	return &rest.Config{
		Host: s.API(), UserAgent: "stoker-local",
		TLSClientConfig: rest.TLSClientConfig{CAData: s.keys.ca.Cert, CertData: pair.Cert, KeyData: pair.Key},
		ContentConfig:   rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
		// The API server has its own fair queues.
		QPS: -1,
	}
}

// writeClientConfigs writes the kubeconfigs that need no API server to be made.
func (s *Stack) writeClientConfigs() error {
	s.admin = s.clientConfig(s.keys.admin)
	s.admin.ContentConfig = rest.ContentConfig{}
	for path, pair := range map[string]pki.Pair{
		s.Kubeconfig("admin"):                       s.keys.admin,
		s.internalConfig("kube-controller-manager"): s.keys.controllerManager,
		s.internalConfig("kube-scheduler"):          s.keys.scheduler,
	} {
		user := &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
		if err := s.writeKubeconfig(path, user); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) internalConfig(component string) string {
	return filepath.Join(s.cfg.Dir, "pki", "kubernetes", component+".kubeconfig")
}

func (s *Stack) writeKubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	const name = "stoker-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.API(), CertificateAuthorityData: s.keys.ca.Cert}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(path, data)
}
