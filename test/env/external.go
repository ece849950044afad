package env

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// ExternalGates are the feature gates of capi for control planes in other clusters.
const ExternalGates = "ExternalClusterReference=true,ExternalClusterReferenceCrossNamespace=true"

// Elsewhere is another cluster, as far as capi can tell: a namespace of the management cluster, and a user who may nothing outside of it, by
// a way of their own.
type Elsewhere struct {
	Namespace  string
	Kubeconfig []byte
	Link       *Link
}

// Elsewhere makes a namespace, and a user with the rights that are documented.
func (e *Env) Elsewhere(t testing.TB, n string) Elsewhere {
	t.Helper()
	admin := e.Local.Kubeconfig("admin")
	e.Kubectl(t, admin, "create", "namespace", n)
	e.Kubectl(t, admin, "create", "serviceaccount", "placer", "-n", n)
	e.Kubectl(t, admin, "create", "role", "placer", "-n", n, "--verb=get,list,watch,create,patch,delete", "--resource=tenantcontrolplanes.kamaji.clastix.io")
	e.Kubectl(t, admin, "create", "role", "reader", "-n", n, "--verb=get", "--resource=secrets,namespaces")
	for _, role := range []string{"placer", "reader"} {
		e.Kubectl(t, admin, "create", "rolebinding", role, "-n", n, "--role="+role, "--serviceaccount="+n+":placer")
	}
	x := Elsewhere{Namespace: n}
	x.Kubeconfig, x.Link = Through(t, admin, strings.TrimSpace(e.Kubectl(t, admin, "create", "token", "placer", "-n", n)))
	return x
}

// Secret makes a Secret with the kubeconfig.
func (x Elsewhere) Secret(t testing.TB, e *Env, namespace, n string) {
	t.Helper()
	s := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n}, Data: map[string][]byte{"value": x.Kubeconfig},
	}
	if err := e.Admin.Apply(t.Context(), kube.Secrets, s); err != nil {
		t.Fatal(err)
	}
}

// Reference is what a control plane refers to the cluster by, which has its kubeconfig in a Secret of the control plane's namespace.
func (x Elsewhere) Reference(secret string) string {
	return fmt.Sprintf("{kubeconfigSecretName: %s, kubeconfigSecretKey: value, deploymentNamespace: %s}", secret, x.Namespace)
}
