package kube_test

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// A kubeconfig with everything inside it.
func ExampleKubeconfig() {
	data, err := kube.Kubeconfig{
		Server: "https://tenant.example:6443", CA: []byte("PEM"), Cluster: "demo", User: "kubernetes-admin", Certificate: []byte("PEM"), Key: []byte("PEM"),
	}.Marshal()
	if err != nil {
		panic(err)
	}
	cfg, err := clientcmd.Load(data)
	if err != nil {
		panic(err)
	}
	fmt.Println(cfg.CurrentContext, cfg.Clusters["demo"].Server)
	// Output: kubernetes-admin@demo https://tenant.example:6443
}
