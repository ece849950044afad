package mirror

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Connect makes a client of a remote API from the content of a kubeconfig. Certificates, keys and tokens must be in it: of whoever can
// write it, no command is run and no file read. It doesn't connect yet.
func Connect(kubeconfig []byte, o kube.Options) (*kube.Client, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("remote kubeconfig: %w", err)
	}
	for n, u := range config.AuthInfos {
		switch {
		case u.Exec != nil:
			return nil, fmt.Errorf("remote kubeconfig: user %q has exec, which runs a command; give it a token or a certificate", n)
		case u.AuthProvider != nil:
			return nil, fmt.Errorf("remote kubeconfig: user %q has auth-provider; give it a token or a certificate", n)
		case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
			return nil, fmt.Errorf("remote kubeconfig: user %q names a file; put token, client-certificate-data and client-key-data inside", n)
		}
	}
	for n, c := range config.Clusters {
		if c.CertificateAuthority != "" {
			return nil, fmt.Errorf("remote kubeconfig: cluster %q names a file; put certificate-authority-data inside", n)
		}
	}
	if len(config.Clusters) == 0 {
		return nil, errors.New("remote kubeconfig: no cluster in it")
	}
	return kube.FromKubeconfig(kubeconfig, o)
}
