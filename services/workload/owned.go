// Objects are applied and deleted in one way: only if they are the tenant's, or not there yet. See pkg/kube, owned.go.

package workload

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

func (t *turn) owner() kube.Owner { return kube.Owner{Name: t.Key.Name, UID: t.UID} }

// handlers are Kamaji's for the objects, by which it is measured how long that takes.
var handlers = map[kind]string{
	kindService: name.ComponentService, kindIngress: name.ComponentIngress, kindRoute: metric.HandlerRoute,
	kindDeployment: name.ComponentDeployment, kindEgress: name.ComponentKonnectivityEgressSelector,
	kindActivator:         name.ComponentService,
	kindKubeadm:           name.ComponentKubeadmConfig,
	kindKonnectivityRoute: metric.HandlerRoute,
}

// apply makes an object so and decodes the result into it. Errors are those of [kube.Client.ApplyOwned].
func (t *turn) apply(ctx context.Context, r kube.Resource, k kind, o metav1.Object) error {
	seen := t.s.observed.get(t.Key, k, "")
	if seen.gone {
		seen.uid = ""
	}
	began := time.Now()
	err := t.s.kube.ApplyOwned(ctx, r, o, t.owner(), seen.uid)
	t.s.handlers.Since(handlers[k], began)
	if err != nil {
		return err
	}
	t.s.observed.setUID(t.Key, k, o.GetUID())
	if len(t.Events) == 0 && seen.known != "" && (seen.gone || o.GetResourceVersion() != seen.version) {
		t.Drifted(r.Kind + "/" + o.GetName())
	}
	return nil
}

// delete removes the tenant's object of a name and reports whether there was one.
func (t *turn) delete(ctx context.Context, r kube.Resource, object string, o metav1.DeleteOptions) (found bool, err error) {
	return t.s.kube.DeleteOwned(ctx, r, t.Key.Namespace, object, t.owner(), o)
}
