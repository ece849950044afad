package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// foreign are objects of each kind as somebody else makes them, without their metadata.
var foreign = map[string]struct {
	r    kube.Resource
	spec string
}{
	"Service": {kube.Services, `{"ports":[{"name":"web","port":80}],"selector":{"app":"shop"}}`},
	"Deployment": {kube.Deployments, `{"selector":{"matchLabels":{"app":"shop"}},"template":{"metadata":{"labels":{"app":"shop"}},` +
		`"spec":{"containers":[{"name":"shop","image":"shop:1"}]}}}`},
	"Ingress":  {kube.Ingresses, `{"defaultBackend":{"service":{"name":"shop","port":{"number":80}}}}`},
	"TLSRoute": {kube.TLSRoutes, `{"hostnames":["shop.example.com"],"rules":[{"backendRefs":[{"name":"shop","port":80}]}]}`},
}

// takes makes somebody else's object and returns how it looks.
func (c *cluster) takes(kind, object string, owners ...metav1.OwnerReference) json.RawMessage {
	c.t.Helper()
	f := foreign[kind]
	o := &struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              json.RawMessage `json:"spec"`
	}{f.r.TypeMeta(), metav1.ObjectMeta{Namespace: "default", Name: object, OwnerReferences: owners}, json.RawMessage(f.spec)}
	c.must(c.admin.Create(c.t.Context(), f.r, o))
	return c.looks(kind, object)
}

func (c *cluster) looks(kind, object string) (o json.RawMessage) {
	c.t.Helper()
	c.must(c.admin.Get(c.t.Context(), foreign[kind].r, "default", object, &o))
	return o
}

func (c *cluster) unchanged(kind, object string, before json.RawMessage) {
	c.t.Helper()
	if after := c.looks(kind, object); string(after) != string(before) {
		c.t.Errorf("%s %s is another:\n%s\nwas\n%s", kind, object, after, before)
	}
}

func (c *cluster) goes(kind, object string) {
	c.t.Helper()
	_, err := c.admin.Delete(c.t.Context(), foreign[kind].r, "default", object, metav1.DeleteOptions{})
	c.must(err)
}

// taken waits until the tenant says that an object's name is taken.
func (x *tenant) taken(kind, says string) {
	x.t.Helper()
	s, _ := x.becomes("told that its "+kind+"'s name is taken", func(s *state.State, _ *state.Workload) bool {
		return s.Failure != nil && s.Failure.Reason == reason.NameTaken
	})
	if s.Failure.Permanent || !strings.Contains(s.Failure.Message, kind+" default/"+x.key.Name) || !strings.Contains(s.Failure.Message, says) ||
		s.Wait.On != kind || s.Wait.Reason != reason.NameTaken {
		x.t.Errorf("%+v", s)
	}
}

// deletes has the tenant deleted, and its pods ended.
func (x *tenant) deletes() {
	x.t.Helper()
	x.Tenant.Deleting = true
	x.put(name.ServiceIntake, events.KeySpec, state.State{Step: event.Deleting, Data: event.Marshal(x.Tenant)})
	x.tell(name.ServiceAddons, event.Removed, event.Removals{About: x.about(), Removed: map[string]int{}})
}

func (c *cluster) tlsRoutes() {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	c.must(err)
	c.crd(filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "standard", "gateway.networking.k8s.io_tlsroutes.yaml"), kube.TLSRoutes)
}

func TestObjectsOfOthers(t *testing.T) {
	c := startCluster(t)
	c.tlsRoutes()
	c.service(10)
	in := c.subtest
	// routed asks for an object of every kind.
	routed := func(n string) *tenant {
		x := c.tenant("default", n)
		x.Tenant.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: n + ".example.com"}
		x.Tenant.Spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: gatewayv1.Hostname(n + ".example.org")}
		return x
	}
	shop := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Shop", Name: "corner", UID: "f00d", Controller: new(true)}
	for kind := range foreign {
		n := "was-" + strings.ToLower(kind)
		in("a "+kind+" that somebody else made before is left as it is, told, and the tenant goes on once it is gone", func(t *testing.T) {
			before := c.takes(kind, n, shop)
			x := routed(n)
			x.accept()
			x.taken(kind, "Shop corner")
			c.unchanged(kind, n, before)
			c.goes(kind, n)
			x.waits("its pods to be ready")
			x.rolledOut()
			x.is(event.Available)
			if dead := x.dead(); dead != 0 {
				t.Errorf("%d dead letters", dead)
			}
		})
		in("a deletion leaves a "+kind+" that was there before", func(*testing.T) {
			before := c.takes(kind, "un"+n)
			x := routed("un" + n)
			x.accept()
			x.taken(kind, "nothing")
			x.deletes()
			x.is(event.Removed)
			c.unchanged(kind, "un"+n, before)
		})
		in("a "+kind+" that somebody else made in the place of the tenant's is left as it is, by repair and by deletion", func(*testing.T) {
			x := routed("re" + n)
			x.available()
			c.goes(kind, "re"+n)
			var before json.RawMessage
			poll.Nil(c.t, "another writer is quicker than the repair", func() error {
				f := foreign[kind]
				o := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, f.r.GroupVersion, kind, "re"+n, f.spec)
				err := c.admin.Get(c.t.Context(), f.r, "default", "re"+n, &before)
				if apierrors.IsNotFound(err) {
					return errors.Join(errors.New("made just now"), c.admin.ApplyRaw(c.t.Context(), f.r, "default", "re"+n, []byte(o), nil))
				}
				if strings.Contains(string(before), "shop") && !strings.Contains(string(before), name.LabelProject) {
					return err
				}
				_, err = c.admin.Delete(c.t.Context(), f.r, "default", "re"+n, metav1.DeleteOptions{})
				return errors.Join(errors.New("Stoker was quicker"), err)
			})
			x.taken(kind, "nothing")
			x.deletes()
			if kind != "Deployment" {
				x.becomes("ending pods", func(s *state.State, _ *state.Workload) bool { return s.Step == stepRemoving })
				c.must(c.admin.MergePatch(c.t.Context(), kube.Deployments, "default", "re"+n, map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil))
			}
			x.is(event.Removed)
			c.unchanged(kind, "re"+n, before)
		})
	}

	in("an object whose owner is put right is taken up, as one is that Kamaji made", func(t *testing.T) {
		c.takes("Service", "moved")
		x := c.tenant("default", "moved")
		x.accept()
		x.taken("Service", "nothing")
		owner := map[string]any{"metadata": map[string]any{"ownerReferences": x.meta("", "", v1alpha1.AdditionalMetadata{}).OwnerReferences}}
		c.must(c.admin.MergePatch(t.Context(), kube.Services, "default", "moved", owner, nil))
		x.waits("its pods to be ready")
		var after corev1.Service
		c.must(c.admin.Get(t.Context(), kube.Services, "default", "moved", &after))
		if after.Labels[name.LabelName] != "moved" || len(after.OwnerReferences) != 1 {
			t.Errorf("%+v", after.ObjectMeta)
		}
	})
	in("an object that lost its owner and has the tenant's labels gets it back", func(t *testing.T) {
		x := c.tenant("default", "orphan")
		x.available()
		none := map[string]any{"metadata": map[string]any{"ownerReferences": nil}}
		for _, r := range []kube.Resource{kube.Services, kube.Deployments} {
			c.must(c.admin.MergePatch(t.Context(), r, "default", "orphan", none, nil))
			poll.Nil(t, r.Kind+" has its owner", func() error {
				var o metav1.PartialObjectMetadata
				c.must(c.admin.Get(t.Context(), r, "default", "orphan", &o))
				if owner := metav1.GetControllerOf(&o); owner == nil || owner.UID != types.UID(x.UID) {
					return fmt.Errorf("%+v", o.OwnerReferences)
				}
				return nil
			})
		}
	})
}
