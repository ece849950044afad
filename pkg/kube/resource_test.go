package kube_test

import (
	"fmt"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Paths as the API server has them.
func ExampleResource_Path() {
	fmt.Println(kube.Deployments.Path("default", "demo"))
	fmt.Println(kube.TenantControlPlanes.Path("", ""))
	// Output:
	// /apis/apps/v1/namespaces/default/deployments/demo
	// /apis/kamaji.clastix.io/v1alpha1/tenantcontrolplanes
}
