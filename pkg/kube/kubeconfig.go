package kube

import (
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig says whose access to which cluster a kubeconfig gives.
type Kubeconfig struct {
	// Server is the URL of the API server.
	Server string
	// CA is the PEM of the certificate authority that signed the server's certificate.
	CA []byte
	// Cluster and User name the entries; the context is <user>@<cluster>.
	Cluster, User string
	// Certificate and Key are the PEM of the client's certificate and key; or Token.
	Certificate, Key []byte
	Token            string
}

// Marshal encodes the kubeconfig as YAML, with everything inside it.
func (k Kubeconfig) Marshal() ([]byte, error) {
	context := k.User + "@" + k.Cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{k.Cluster: {Server: k.Server, CertificateAuthorityData: k.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{k.User: {ClientCertificateData: k.Certificate, ClientKeyData: k.Key, Token: k.Token}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: k.Cluster, AuthInfo: k.User}},
		CurrentContext: context,
	})
}
