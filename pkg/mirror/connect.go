package mirror

import (
	"fmt"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Connect makes a client of a remote API from the content of a kubeconfig, which must hold all that it needs ([kube.ForCluster]): of whoever can
// write it, no command is run and no file read, and what is sent goes to the server alone, without a proxy. It doesn't connect yet.
func Connect(kubeconfig []byte, o kube.Options) (*kube.Client, error) {
	c, err := kube.ForCluster(kubeconfig, o)
	if err != nil {
		return nil, fmt.Errorf("remote %w", err)
	}
	return c, nil
}
