package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// cluster is a real API server without controllers, a NATS server, and the test in the place of all other services and of
// the Deployments' controller.
type cluster struct {
	t *testing.T
	// admin may do everything, own what deployments/rbac says.
	admin, own *kube.Client
	config     *rest.Config // admin's
	lists      lists        // that own asked for
	nats       *natsserver.Server
	bus        map[string]*events.Bus
}

// shared is the API server of tests that don't run in parallel and add no kinds to it.
var shared apiserver.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// sharedCluster returns a cluster on the API server that tests share, without an earlier test's tenants.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	server := shared.Server(t, apiserver.Options{})
	c := newCluster(t, server)
	server.Purge(t, "", kube.TenantControlPlanes, kube.Pods)
	server.Purge(t, name.LabelProject+"="+name.Project,
		kube.Deployments, kube.Services, kube.Ingresses, kube.ConfigMaps)
	return c
}

// startCluster returns a cluster on an API server of its own.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	return newCluster(t, apiserver.Run(t, apiserver.Options{}))
}

func newCluster(t *testing.T, server *apiserver.Server) *cluster {
	t.Helper()
	c := &cluster{t: t, bus: map[string]*events.Bus{}}
	c.connect(server)
	var err error
	c.nats, err = natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", nil)
	c.must(err)
	t.Cleanup(c.nats.Stop)
	for _, user := range []string{name.ServiceIntake, name.ServiceCerts, name.ServiceDatastore, name.ServiceAddons, name.ServiceWorkload, events.UserOperator} {
		c.bus[user], err = events.Connect(events.Config{
			URL: c.nats.URL(), User: user, SeedFile: c.nats.SeedFile(user), Replica: "test", RequestTimeout: 30 * time.Second,
		})
		c.must(err)
		t.Cleanup(c.bus[user].Close)
	}
	c.must(c.bus[name.ServiceIntake].Provision(t.Context()))
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// connect makes clients of an API server, gives this service its rights, and makes the API server serve TenantControlPlanes.
func (c *cluster) connect(server *apiserver.Server) {
	t := c.t
	client := func(kubeconfig []byte, manager string) *kube.Client {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		c.must(err)
		if manager == name.FieldManagerWorkload {
			cfg.Wrap(c.lists.of)
		} else {
			c.config = rest.CopyConfig(cfg)
		}
		k, err := kube.New(cfg, kube.Options{FieldManager: manager, Timeout: apiserver.Patience})
		c.must(err)
		t.Cleanup(k.Close)
		return k
	}
	own, err := server.User("own")
	c.must(err)
	c.admin, c.own = client(server.Kubeconfig, "test"), client(own, name.FieldManagerWorkload)
	rights, err := os.ReadFile("../../deployments/rbac/workload.yaml")
	c.must(err)
	for _, document := range bytes.Split(rights, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if c.must(yaml.Unmarshal(document, &role)); role.Kind == "ClusterRole" {
			c.must(c.admin.Apply(t.Context(), kube.ClusterRoles, &role))
		}
	}
	c.must(c.admin.Apply(t.Context(), kube.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "own"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "own"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stoker-workload"},
	}))
	c.crd(filepath.Join("..", "..", "deployments", "crds", "kamaji.clastix.io_tenantcontrolplanes.yaml"), kube.TenantControlPlanes)
}

// lists are the lists that a client asked for: resource, and labels of the objects.
type lists struct {
	mu  sync.Mutex
	all []string
}

func (l *lists) of(next http.RoundTripper) http.RoundTripper {
	return noting{l, next}
}

type noting struct {
	lists *lists
	next  http.RoundTripper
}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		n.lists.mu.Lock()
		n.lists.all = append(n.lists.all, filepath.Base(r.URL.Path)+" "+r.URL.Query().Get("labelSelector"))
		n.lists.mu.Unlock()
	}
	return n.next.RoundTrip(r)
}

// WrappedRoundTripper is how client-go closes what is idle.
func (n noting) WrappedRoundTripper() http.RoundTripper { return n.next }

// take returns the lists since it was called last, sorted.
func (l *lists) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	slices.Sort(all)
	return all
}

// crd makes a CRD and waits until the kind is served. A busy API server takes longer for that than the services give it for a request.
func (c *cluster) crd(file string, r kube.Resource) {
	c.t.Helper()
	data, err := os.ReadFile(file)
	c.must(err)
	object := &unstructured.Unstructured{}
	c.must(yaml.Unmarshal(data, &object.Object))
	client, err := dynamic.NewForConfig(c.config)
	c.must(err)
	_, err = client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(c.t.Context(), object, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) { // of a shared API server
		c.must(err)
	}
	poll.Nil(c.t, r.Plural+" are served", func() error {
		return c.admin.List(c.t.Context(), r, "", "", &metav1.PartialObjectMetadataList{})
	})
}

// service runs the service until the test ends or stop is called.
func (c *cluster) service(rollouts int) (s *svc, stop func()) {
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(c.t.Output(), nil))
	}
	s = newService(c.own, log, rollouts)
	s.retryDenied = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.loop(c.bus[name.ServiceWorkload]).Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(stop)
	return s, stop
}

// tenant is one for whom the test does what the other services do.
type tenant struct {
	*cluster
	key events.Key
	Input
	generation int64
	ids        int
}

// tenant makes the object, and the states of a tenant that certs and datastore are done with.
func (c *cluster) tenant(namespace, n string) *tenant {
	c.t.Helper()
	object := &v1alpha1.TenantControlPlane{TypeMeta: kube.TenantControlPlanes.TypeMeta(), ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: n, Labels: map[string]string{name.LabelPartition: fmt.Sprint(name.Partition(namespace, n))},
	}}
	object.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeClusterIP
	object.Spec.ControlPlane.Deployment.Replicas = new(int32(1))
	object.Spec.Kubernetes.Version = "v1.35.4"
	c.must(c.admin.Create(c.t.Context(), kube.TenantControlPlanes, object))
	v1alpha1.Default(object)
	x := &tenant{cluster: c, key: events.Tenant(namespace, n), Input: inputOf(object)}
	x.UID = string(object.UID)
	c.must(c.bus[name.ServiceIntake].CreateBucket(c.t.Context(), x.key))
	c.t.Cleanup(func() { _ = c.bus[name.ServiceIntake].Forget(context.Background(), x.key) }) // and with it its rollout
	return x
}

func (x *tenant) put(user, of string, s state.State) {
	x.t.Helper()
	s.UID, s.Generation = x.UID, x.generation // without a time, which facts would have to be no later than
	msg := nats.NewMsg("$KV." + x.key.Bucket() + "." + of)
	msg.Data = event.Marshal(s)
	_, err := x.bus[user].JetStream().PublishMsg(x.t.Context(), msg)
	x.must(err)
}

func (x *tenant) tell(user, what string, data any) {
	x.t.Helper()
	x.ids++
	x.must(x.bus[user].Tell(x.t.Context(), x.key, x.generation, fmt.Sprint(x.UID, user, what, x.ids), what, data))
}

func (x *tenant) about() event.About {
	return event.About{Namespace: x.key.Namespace, Name: x.key.Name, UID: x.UID, Generation: x.generation}
}

// accept makes the spec as it is now the next generation, for which certs and datastore have done their share.
func (x *tenant) accept() {
	x.t.Helper()
	x.generation++
	x.put(name.ServiceCerts, name.ServiceCerts, state.State{Step: event.Issued, Inputs: fmt.Sprint("x-", x.generation), Data: event.Marshal(x.Certs)})
	x.put(name.ServiceDatastore, name.ServiceDatastore, state.State{Step: event.Provisioned, Data: event.Marshal(x.Datastore)})
	x.again(event.IntakeAccepted{})
}

// again tells of the same generation once more.
func (x *tenant) again(accepted event.IntakeAccepted) {
	x.t.Helper()
	accepted.About = x.about()
	x.put(name.ServiceIntake, events.KeySpec, state.State{Step: event.Accepted, Data: event.Marshal(x.Tenant)})
	x.tell(name.ServiceIntake, event.Accepted, accepted)
}

func (x *tenant) deployment() *appsv1.Deployment {
	x.t.Helper()
	d := &appsv1.Deployment{}
	if err := x.admin.Get(x.t.Context(), kube.Deployments, x.key.Namespace, x.key.Name, d); err != nil && !apierrors.IsNotFound(err) {
		x.t.Fatal(err)
	}
	return d
}

// rolledOut says in the Deployment's status what its controller would say in the end.
func (x *tenant) rolledOut() {
	x.t.Helper()
	d := x.deployment()
	n := desired(d)
	x.must(x.admin.ApplyStatus(x.t.Context(), kube.Deployments, &metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}, appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}))
}

// becomes waits for a state of workload.
func (x *tenant) becomes(what string, is func(s *state.State, w *state.Workload) bool) (*state.State, *state.Workload) {
	x.t.Helper()
	var s *state.State
	var w state.Workload
	poll.Nil(x.t, x.key.Name+": "+what, func() (err error) {
		if s, err = x.bus[events.UserOperator].State(x.t.Context(), x.key, name.ServiceWorkload); err != nil {
			return err
		}
		w = state.Workload{}
		if len(s.Data) > 0 {
			x.must(json.Unmarshal(s.Data, &w))
		}
		if s.Generation != x.generation || !is(s, &w) {
			return fmt.Errorf("generation %d of %d, step %q, waiting %q, failure %+v, %s", s.Generation, x.generation, s.Step, s.Wait.Text, s.Failure, s.Data)
		}
		return nil
	})
	return s, &w
}

func (x *tenant) waits(what string) {
	x.t.Helper()
	x.becomes("waits for "+what, func(s *state.State, _ *state.Workload) bool { return strings.Contains(s.Wait.Text, what) })
}

func (x *tenant) is(step string) (*state.State, *state.Workload) {
	x.t.Helper()
	return x.becomes(step, func(s *state.State, _ *state.Workload) bool { return s.Step == step && s.Failure == nil })
}

// available brings the tenant as far as that.
func (x *tenant) available() {
	x.t.Helper()
	x.accept()
	x.waits("its pods to be ready")
	x.rolledOut()
	x.is(event.Available)
}

// told counts how often workload told a fact.
func (x *tenant) told(what string) uint64 {
	x.t.Helper()
	st, err := x.bus[events.UserOperator].JetStream().Stream(x.t.Context(), events.StreamFacts)
	x.must(err)
	subject := x.key.FactSubject(name.ServiceWorkload, what)
	info, err := st.Info(x.t.Context(), jetstream.WithSubjectFilter(subject))
	x.must(err)
	return info.State.Subjects[subject]
}

// dead counts the tenant's dead letters.
func (x *tenant) dead() uint64 {
	x.t.Helper()
	st, err := x.bus[events.UserOperator].JetStream().Stream(x.t.Context(), events.StreamDead)
	x.must(err)
	subject := x.key.DeadSubject(name.ServiceWorkload)
	info, err := st.Info(x.t.Context(), jetstream.WithSubjectFilter(subject))
	x.must(err)
	return info.State.Subjects[subject]
}

// subtest runs a test within c's, whose failures are its own.
func (c *cluster) subtest(sentence string, test func(t *testing.T)) {
	t := c.t
	t.Run(sentence, func(sub *testing.T) {
		c.t = sub
		defer func() { c.t = t }()
		test(sub)
	})
}

func TestOnARealAPIServer(t *testing.T) {
	c := startCluster(t)
	in := c.subtest

	in("a Deployment that is refused fails its generation by name of the field, the old one stays, and a corrected generation goes on", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "refused")
		x.available()
		before := x.deployment()
		d := &x.Tenant.Spec.ControlPlane.Deployment
		d.AdditionalContainers = []corev1.Container{{Name: "audit"}}
		x.accept()
		failed := func(s *state.State, _ *state.Workload) bool { return s.Failure != nil }
		const field = "spec.controlPlane.deployment.additionalContainers[0].image: Required value"
		s, _ := x.becomes("failed", failed)
		if f := s.Failure; !f.Permanent || f.Reason != reason.DeploymentRefused || !strings.Contains(f.Message, field) {
			t.Errorf("%+v", f)
		}
		if after := x.deployment(); after.Generation != before.Generation {
			t.Error("the Deployment was changed")
		}
		d.AdditionalContainers[0].Image = "audit:1"
		x.accept()
		x.waits("its pods to be ready")
		x.rolledOut()
		x.is(event.Available)
		if n := x.dead(); n != 1 {
			t.Errorf("%d dead letters of one refusal", n)
		}
		d.AdditionalContainers = append(d.AdditionalContainers, d.AdditionalContainers[0]) // no two may have one name
		x.accept()
		if s, _ := x.becomes("failed", failed); !s.Failure.Permanent || s.Failure.Reason != reason.DeploymentRefused {
			t.Errorf("%+v", s.Failure)
		}
	})

	in("a quota that is used up is told, asked again, and no failure once it is raised", func(t *testing.T) {
		c.service(3)
		c.must(c.admin.Create(t.Context(), kube.Namespaces, &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "tight"}}))
		quotas := kube.Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Plural: "resourcequotas", Kind: "ResourceQuota", Namespaced: true}
		limit := func(services, deployments string) {
			hard := corev1.ResourceList{"services": resource.MustParse(services), "count/deployments.apps": resource.MustParse(deployments)}
			q := &corev1.ResourceQuota{TypeMeta: quotas.TypeMeta(), Spec: corev1.ResourceQuotaSpec{Hard: hard}}
			q.Namespace, q.Name = "tight", "all"
			c.must(c.admin.Apply(t.Context(), quotas, q))
			// In the place of the controller that counts.
			used := corev1.ResourceList{"services": resource.MustParse("0"), "count/deployments.apps": resource.MustParse("0")}
			c.must(c.admin.ApplyStatus(t.Context(), quotas, &metav1.ObjectMeta{Namespace: "tight", Name: "all"}, corev1.ResourceQuotaStatus{Hard: hard, Used: used}))
		}
		limit("0", "0")
		x := c.tenant("tight", "quota")
		forbidden := func(why string) func(*state.State, *state.Workload) bool {
			return func(s *state.State, _ *state.Workload) bool { return s.Failure != nil && s.Failure.Reason == why }
		}
		poll.Nil(t, "the quota holds", func() error {
			o := &corev1.Service{TypeMeta: kube.Services.TypeMeta(), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
			o.Namespace, o.Name = "tight", "x"
			err := c.admin.Create(t.Context(), kube.Services, o)
			if apierrors.IsForbidden(err) {
				return nil
			}
			_, e := c.admin.Delete(t.Context(), kube.Services, "tight", "x", metav1.DeleteOptions{})
			return errors.Join(errors.New("not yet"), err, e)
		})
		x.accept()
		s, _ := x.becomes("its Service denied", forbidden(reason.ServiceForbidden))
		if f := s.Failure; f.Permanent || !strings.Contains(f.Message, "exceeded quota") || s.Wait.Reason != reason.ObjectDenied {
			t.Errorf("%+v", s)
		}
		limit("5", "0")
		x.becomes("its Deployment denied", forbidden(reason.DeploymentForbidden))
		limit("5", "5")
		x.waits("its pods to be ready")
		x.rolledOut()
		x.is(event.Available)
		if n := x.dead(); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})

	in("a node port that is taken is waited for", func(t *testing.T) {
		c.service(3)
		other := &corev1.Service{TypeMeta: kube.Services.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30443}},
		}}
		c.must(c.admin.Create(t.Context(), kube.Services, other))
		x := c.tenant("default", "taken")
		x.Tenant.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeNodePort
		x.Tenant.Spec.NetworkProfile.Address, x.Tenant.Spec.NetworkProfile.Port = "203.0.113.9", 30443
		x.accept()
		s, _ := x.becomes("told", func(s *state.State, _ *state.Workload) bool { return s.Failure != nil })
		if s.Failure.Permanent || s.Failure.Reason != reason.ServiceConflict || !strings.Contains(s.Failure.Message, "spec.networkProfile.port") {
			t.Errorf("%+v", s.Failure)
		}
		_, err := c.admin.Delete(t.Context(), kube.Services, "default", "other", metav1.DeleteOptions{})
		c.must(err)
		x.waits("its pods to be ready")
	})

	in("node ports of a load balancer that is to have none any more are freed, and given again once it may have them", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "ports")
		x.Tenant.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeLoadBalancer
		x.Tenant.Spec.NetworkProfile.Address = "203.0.113.10"
		x.Tenant.Spec.ControlPlane.Service.AdditionalPorts = []v1alpha1.AdditionalPort{{Name: "more", Port: 7443, TargetPort: intstr.FromInt32(7443)}}
		has := func(allocated bool) {
			t.Helper()
			x.Tenant.Spec.ControlPlane.Service.AllocateLoadBalancerNodePorts = &allocated
			x.accept()
			poll.Nil(t, fmt.Sprintf("node ports: %t", allocated), func() error {
				o := &corev1.Service{}
				if err := c.admin.Get(t.Context(), kube.Services, "default", name.Service("ports"), o); err != nil {
					return err
				}
				for _, p := range o.Spec.Ports {
					if (p.NodePort != 0) != allocated {
						return fmt.Errorf("%+v", o.Spec.Ports)
					}
				}
				return nil
			})
		}
		has(true)
		has(false)
		has(true)
	})

	in("Service and Deployment that went while no replica ran come back when one starts", func(t *testing.T) {
		_, stop := c.service(3)
		x, untouched := c.tenant("default", "swept"), c.tenant("default", "untouched")
		x.available()
		untouched.available()
		stop()
		for _, r := range []kube.Resource{kube.Services, kube.Deployments} {
			_, err := c.admin.Delete(t.Context(), r, "default", "swept", metav1.DeleteOptions{})
			c.must(err)
		}
		before := untouched.deployment().ResourceVersion
		c.service(3)
		poll.Nil(t, "both are there again", func() error {
			return errors.Join(c.admin.Get(t.Context(), kube.Services, "default", "swept", &corev1.Service{}),
				c.admin.Get(t.Context(), kube.Deployments, "default", "swept", &appsv1.Deployment{}))
		})
		x.rolledOut()
		x.is(event.Available)
		if after := untouched.deployment().ResourceVersion; after != before {
			t.Errorf("another tenant's Deployment was written: %s, was %s", after, before)
		}
	})

	in("a Service that no watch has listed yet is not written as if it were missing", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "unlisted")
		x.available()
		_, before := x.is(event.Available)
		stop()
		lt := &loop.Turn{Key: x.key, UID: x.UID, Tenant: x.Tenant}
		unlisted := &turn{Turn: lt, s: newService(c.own, slog.New(slog.DiscardHandler), 3), subject: Subject{UID: x.UID, Tenant: x.Tenant},
			spec: &x.Tenant.Spec, before: *before, data: *before}
		if _, err := unlisted.expose(t.Context()); err != nil {
			t.Fatal(err)
		}
		var after corev1.Service
		c.must(c.admin.Get(t.Context(), kube.Services, "default", "unlisted", &after))
		if after.ResourceVersion != before.ServiceVersion {
			t.Errorf("it was written: version %s, was %s: %+v", after.ResourceVersion, before.ServiceVersion, after.ManagedFields)
		}
	})

	in("a state of the version before is understood: nothing is rolled out, and the wait becomes typed", func(t *testing.T) {
		_, stop := c.service(3)
		defer stop()
		x := c.tenant("default", "former")
		x.Tenant.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "former.example.com"}
		x.accept()
		x.waits("its pods to be ready")
		s, w := x.becomes("waiting", func(s *state.State, _ *state.Workload) bool { return s.Wait.On == "Deployment" })
		stop()
		hashes := w.Hashes
		if hashes.Service == "" || hashes.Ingress == "" || hashes.Deployment == "" || s.Inputs != "" {
			t.Errorf("hashes %+v, inputs %q", hashes, s.Inputs)
		}
		// As the version before wrote it, an hour ago.
		s.Inputs = strings.Join([]string{hashes.Service, hashes.Ingress, hashes.Deployment, hashes.Route}, "/")
		s.Wait = state.Wait{Text: s.Wait.Text}
		w.Hashes, w.LastUpdate = state.ObjectHashes{}, w.LastUpdate.Add(-time.Hour)
		s.Data = event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		before := x.deployment()
		c.service(3)
		x.again(event.IntakeAccepted{})
		_, after := x.becomes("waiting by type", func(s *state.State, _ *state.Workload) bool {
			return s.Wait.On == "Deployment" && s.Wait.Reason == reason.PodsNotReady
		})
		if after.Hashes != hashes || !after.LastUpdate.Equal(w.LastUpdate) {
			t.Errorf("it was applied anew: hashes %+v, updated at %s", after.Hashes, after.LastUpdate)
		}
		if d := x.deployment(); d.ResourceVersion != before.ResourceVersion {
			t.Error("the Deployment was written")
		}
		x.rolledOut()
		x.is(event.Available)
	})

	in("pods may have credentials of before until the rollout is complete", func(t *testing.T) {
		_, stop := c.service(3)
		defer stop()
		x := c.tenant("default", "credentials")
		x.Datastore.Certificate.Checksum = "first"
		x.available()
		has := func(want ...string) func(*state.State, *state.Workload) bool {
			return func(_ *state.State, w *state.Workload) bool { return slices.Equal(w.Credentials, want) }
		}
		x.becomes("with the first", has("first"))
		x.Tenant.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "events"}}
		x.Datastore.Overrides = []state.Override{{DataStore: "events", Resources: []string{"/events"}, Endpoints: []string{"events:2379"}}}
		x.Datastore.Certificate.Checksum = "second"
		x.accept()
		x.becomes("with both", has("first", "second"))
		x.rolledOut()
		x.becomes("with the second", has("second"))
		x.becomes("with the DataStore of its override", func(_ *state.State, w *state.Workload) bool {
			return slices.Equal(w.Overrides, []string{"events"})
		})
	})
	in("a pause gives the rollout slot to who waits, and its end goes on with what was begun", func(t *testing.T) {
		s, _ := c.service(1)
		one, two := c.tenant("default", "one"), c.tenant("default", "two")
		one.accept()
		one.waits("its pods to be ready")
		two.accept()
		two.becomes("waiting for a slot", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.RolloutSlot })
		one.Tenant.Paused = true
		one.again(event.IntakeAccepted{Paused: true})
		two.waits("its pods to be ready")
		two.rolledOut()
		two.is(event.Available)
		poll.Nil(t, "no slot is held", func() error {
			if held, waiting := s.slots.count(); held+waiting > 0 {
				return fmt.Errorf("%d held, %d wait", held, waiting)
			}
			return nil
		})
		one.rolledOut() // which nobody takes notice of
		_, err := c.admin.Delete(t.Context(), kube.Services, "default", "one", metav1.DeleteOptions{})
		c.must(err)
		poll.Nil(t, "the watch has seen it", func() error {
			if seen := s.observed.get(one.key, kindService, ""); !seen.gone {
				return errors.New("not yet")
			}
			return nil
		})
		if n := one.told(event.Available); n != 0 {
			t.Error("it was told during the pause")
		}
		one.Tenant.Paused = false
		one.again(event.IntakeAccepted{Resumed: true})
		one.is(event.Available)
		c.must(c.admin.Get(t.Context(), kube.Services, "default", "one", &corev1.Service{}))
	})

	in("a tenant sleeps, is upgraded without a rollout, and wakes with the new version", func(t *testing.T) {
		s, _ := c.service(1)
		x := c.tenant("default", "sleepy")
		x.available()
		x.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32(0))
		x.accept()
		x.waits("its pods to end")
		if held, _ := s.slots.count(); held > 0 {
			t.Error("who goes to sleep holds a rollout slot")
		}
		x.rolledOut()
		if _, w := x.is(event.Slept); w.Phase != string(v1alpha1.VersionSleeping) || w.Version != "v1.35.4" {
			t.Errorf("%+v", w)
		}
		x.Tenant.Spec.Kubernetes.Version = "v1.36.3"
		x.accept()
		x.waits("its pods to end") // until the Deployment's controller has seen the change
		x.rolledOut()
		if _, w := x.is(event.Slept); w.Version != "v1.36.3" {
			t.Errorf("the version isn't on record: %+v", w)
		}
		if upgraded := x.told(event.Upgraded); upgraded != 0 {
			t.Errorf("upgraded was told %d times while nothing runs", upgraded)
		}
		x.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32(1))
		x.accept()
		x.waits("its pods to be ready")
		x.rolledOut()
		if _, w := x.is(event.Available); w.Version != "v1.36.3" || w.Phase != string(v1alpha1.VersionReady) {
			t.Errorf("%+v", w)
		}
		poll.Nil(t, "that it slept was told twice", func() error { // a fact is published after the state that announces it
			if slept := x.told(event.Slept); slept != 2 {
				return fmt.Errorf("told %d times", slept)
			}
			return nil
		})
		poll.Nil(t, "that it was upgraded was told when its pods ran the version", func() error {
			if upgraded := x.told(event.Upgraded); upgraded != 1 {
				return fmt.Errorf("told %d times", upgraded)
			}
			return nil
		})
	})

	in("a deletion waits for its turn, ends pods first, and counts what went; a state of the version before says what there is", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "leaving")
		x.Tenant.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "leaving.example.com"}
		x.available()
		x.Tenant.Deleting = true
		x.put(name.ServiceIntake, events.KeySpec, state.State{Step: event.Deleting, Data: event.Marshal(x.Tenant)})
		x.tell(name.ServiceIntake, event.Deleting, event.IntakeDeleting{About: x.about()})
		s, w := x.becomes("waiting for its turn", func(s *state.State, _ *state.Workload) bool {
			return s.Wait.On == name.ServiceAddons && s.Wait.Reason == reason.EarlierRemoval
		})
		s.Inputs = strings.Join([]string{w.Hashes.Service, w.Hashes.Ingress, w.Hashes.Deployment, w.Hashes.Route}, "/")
		w.Hashes = state.ObjectHashes{}
		s.Data = event.Marshal(w)
		x.put(name.ServiceWorkload, name.ServiceWorkload, *s)
		before := event.Removals{About: x.about(), Removed: map[string]int{"addons/Deployment": 1}, Left: []string{"a load balancer"}}
		x.tell(name.ServiceAddons, event.Removed, before)
		x.becomes("ending pods", func(s *state.State, _ *state.Workload) bool {
			return s.Step == stepRemoving && s.Wait.On == "Deployment" && s.Wait.Reason == reason.PodsEnding
		})
		noFinalizers := map[string]any{"metadata": map[string]any{"finalizers": nil}}
		c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "leaving", noFinalizers, nil))
		x.is(event.Removed)
		st, err := c.bus[events.UserOperator].JetStream().Stream(t.Context(), events.StreamFacts)
		c.must(err)
		var r event.Removals
		poll.Nil(t, "that it was removed was told", func() error { // a fact is published after the state that announces it
			m, err := st.GetLastMsgForSubject(t.Context(), x.key.FactSubject(name.ServiceWorkload, event.Removed))
			if err != nil {
				return err
			}
			return json.Unmarshal(m.Data, &r)
		})
		want := map[string]int{"addons/Deployment": 1, "workload/Deployment": 1, "workload/Service": 1, "workload/Ingress": 1}
		if !maps.Equal(r.Removed, want) || !slices.Equal(r.Left, before.Left) || r.UID != x.UID {
			t.Errorf("%+v", r)
		}
		if err := c.admin.Get(t.Context(), kube.Ingresses, "default", "leaving", &networkingv1.Ingress{}); !apierrors.IsNotFound(err) {
			t.Errorf("the Ingress outlives the tenant: %v", err)
		}
	})

	in("the ConfigMap of kubeadm's configuration is made, put back, follows the spec and goes with the tenant, and no pod starts for it", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "described")
		x.available()
		read := func() (o *corev1.ConfigMap, err error) {
			o = &corev1.ConfigMap{}
			return o, c.admin.Get(t.Context(), kube.ConfigMaps, "default", name.KubeadmConfig("described"), o)
		}
		made, err := read()
		c.must(err)
		_, w := x.is(event.Available)
		if k := w.KubeadmConfig; k.Checksum != name.ChecksumStrings(made.Data) || k.ResourceVersion != made.ResourceVersion || k.LastUpdate.IsZero() {
			t.Errorf("the state has %+v", k)
		}
		if owner := metav1.GetControllerOf(made); owner == nil || string(owner.UID) != x.UID || made.Labels[name.LabelComponent] != "kubeadmconfig" {
			t.Errorf("%+v", made.ObjectMeta)
		}
		before := x.deployment().Generation
		again := func(what string) {
			t.Helper()
			poll.Nil(t, what, func() error {
				o, err := read()
				if err == nil && !maps.Equal(o.Data, made.Data) {
					err = fmt.Errorf("%v", o.Data)
				}
				return err
			})
		}
		c.must(c.admin.MergePatch(t.Context(), kube.ConfigMaps, "default", made.Name, map[string]any{"data": map[string]any{name.KeyInitConfiguration: "{}"}}, nil))
		again("what was changed is put back")
		_, err = c.admin.Delete(t.Context(), kube.ConfigMaps, "default", made.Name, metav1.DeleteOptions{})
		c.must(err)
		again("what was deleted is there again")

		there, err := read()
		c.must(err)
		stop()
		c.service(3)
		x.again(event.IntakeAccepted{})
		x.Tenant.Spec.NetworkProfile.PodCIDRs = []string{"10.99.0.0/16"} // of which the API server knows nothing, but the controller manager
		x.is(event.Available)
		if o, err := read(); err != nil || o.ResourceVersion != there.ResourceVersion {
			t.Errorf("a replica that starts writes it: %v, version %s, was %s", err, o.ResourceVersion, there.ResourceVersion)
		}
		if after := x.deployment().Generation; after != before {
			t.Errorf("the Deployment is of generation %d, was of %d", after, before)
		}
		x.accept()
		x.waits("its pods to be ready")
		if o, err := read(); err != nil || !strings.Contains(o.Data[name.KeyClusterConfiguration], `"PodSubnet":"10.99.0.0/16"`) {
			t.Errorf("%v, %v", err, o.Data)
		}
		x.rolledOut()
		x.is(event.Available)

		x.Tenant.Deleting = true
		x.put(name.ServiceIntake, events.KeySpec, state.State{Step: event.Deleting, Data: event.Marshal(x.Tenant)})
		x.tell(name.ServiceAddons, event.Removed, event.Removals{About: x.about(), Removed: map[string]int{}})
		x.becomes("removing", func(s *state.State, _ *state.Workload) bool { return s.Step == stepRemoving })
		c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "described", map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil))
		x.is(event.Removed)
		if _, err := read(); !apierrors.IsNotFound(err) {
			t.Errorf("it outlives the tenant: %v", err)
		}
	})

	in("what a load balancer and an ingress controller say of a tenant that is done is told once", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "balanced")
		x.Tenant.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeLoadBalancer
		x.Tenant.Spec.NetworkProfile.Address = "203.0.113.20"
		x.Tenant.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "balanced.example.com"}
		x.available()
		before := x.told(event.Exposed)
		c.must(c.admin.ApplyStatus(t.Context(), kube.Services, &metav1.ObjectMeta{Namespace: "default", Name: "balanced"}, corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{
				IP: "203.0.113.21", Ports: []corev1.PortStatus{{Port: 6443, Protocol: corev1.ProtocolTCP}},
			}}},
		}))
		x.becomes("knows the balancer", func(_ *state.State, w *state.Workload) bool {
			all := w.Service.LoadBalancer.Ingress
			return len(all) == 1 && all[0].IP == "203.0.113.21" && all[0].Ports == nil
		})
		told := func(times uint64) {
			t.Helper()
			poll.Nil(t, "that it is told", func() error { // a fact is published after the state that announces it
				if n := x.told(event.Exposed); n != before+times {
					return fmt.Errorf("told %d times, before %d", n, before)
				}
				return nil
			})
		}
		told(1)
		c.must(c.admin.ApplyStatus(t.Context(), kube.Ingresses, &metav1.ObjectMeta{Namespace: "default", Name: "balanced"}, networkingv1.IngressStatus{
			LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{Hostname: "edge.example.com"}}},
		}))
		s, _ := x.becomes("knows the ingress", func(s *state.State, w *state.Workload) bool {
			return s.Step == event.Available && len(w.Ingress.LoadBalancer.Ingress) == 1
		})
		told(2)
		x.again(event.IntakeAccepted{})
		c.must(c.admin.MergePatch(t.Context(), kube.Services, "default", "balanced", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"seen": "again"}}}, nil))
		poll.Nil(t, "the watch has seen it", func() error {
			var o corev1.Service
			c.must(c.admin.Get(t.Context(), kube.Services, "default", "balanced", &o))
			if _, w := x.is(event.Available); w.Service.LoadBalancer.Ingress == nil || o.Annotations["seen"] == "" {
				return errors.New("not yet")
			}
			return nil
		})
		if after, _ := x.is(event.Available); after.Step != s.Step || x.told(event.Exposed) != before+2 {
			t.Errorf("told %d times, before %d", x.told(event.Exposed), before)
		}
	})

	in("a deletion names what doesn't go, and what keeps it, and goes on at once when that is gone", func(t *testing.T) {
		c.service(3)
		x := c.tenant("default", "kept")
		x.available()
		keep := func(r kube.Resource, finalizers ...string) {
			t.Helper()
			c.must(c.admin.MergePatch(t.Context(), r, "default", "kept", map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, nil))
		}
		keep(kube.Services, "example.com/balancer")
		x.deletes()
		x.becomes("ending pods", func(s *state.State, _ *state.Workload) bool {
			return s.Step == stepRemoving && s.Wait.Reason == reason.PodsEnding
		})
		// In the place of the garbage collector.
		keep(kube.Deployments)
		s, _ := x.becomes("waiting for its Service", func(s *state.State, _ *state.Workload) bool { return s.Wait.Reason == reason.ObjectHeld })
		if s.Wait.On != kube.Services.Kind || s.Failure != nil || !strings.Contains(s.Wait.Text, "Service default/kept") ||
			!strings.Contains(s.Wait.Text, `"example.com/balancer"`) {
			t.Errorf("%+v", s)
		}
		keep(kube.Services)
		s, _ = x.is(event.Removed)
		var r event.Removals
		c.must(json.Unmarshal(s.Facts[len(s.Facts)-1].Data, &r))
		if want := map[string]int{"workload/Deployment": 1, "workload/Service": 1, "workload/ConfigMap": 1}; !maps.Equal(r.Removed, want) {
			t.Errorf("%+v", r)
		}
	})

	in("a TLSRoute leads to a tenant that asks for one", func(t *testing.T) {
		_, stop := c.service(3)
		x := c.tenant("default", "routed")
		section, port := gatewayv1.SectionName("kube-apiserver"), gatewayv1.PortNumber(443)
		parent := gatewayv1.ParentReference{Name: "edge", SectionName: &section, Port: &port}
		x.Tenant.Spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "routed.example.com", ParentRefs: []gatewayv1.ParentReference{parent}}
		x.accept()
		x.becomes("told that there are no TLSRoutes", func(s *state.State, _ *state.Workload) bool {
			return s.Failure != nil && s.Failure.Reason == reason.TLSRouteNotServed && !s.Failure.Permanent
		})
		module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
		c.must(err)
		crds := filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "standard")
		c.crd(filepath.Join(crds, "gateway.networking.k8s.io_gateways.yaml"), kube.Gateways)
		c.crd(filepath.Join(crds, "gateway.networking.k8s.io_tlsroutes.yaml"), kube.TLSRoutes)
		x.waits("its pods to be ready")
		x.rolledOut()
		if _, w := x.is(event.Available); w.Endpoint != "routed.example.com:443" {
			t.Errorf("the endpoint is %s", w.Endpoint)
		}
		live := &gatewayv1.TLSRoute{}
		get := func() error { return c.admin.Get(t.Context(), kube.TLSRoutes, "default", "routed", live) }
		c.must(get())
		want := Route(x.Subject)
		if ref := live.Spec.ParentRefs[0]; len(live.Spec.ParentRefs) != 1 || ref.Name != "edge" || *ref.SectionName != section || *ref.Port != port ||
			!slices.Equal(live.Spec.Hostnames, want.Spec.Hostnames) || *live.Spec.Rules[0].BackendRefs[0].Port != 6443 {
			t.Errorf("%+v", live.Spec)
		}

		gateway := &gatewayv1.Gateway{TypeMeta: kube.Gateways.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"}, Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "test", Listeners: []gatewayv1.Listener{
				{Name: section, Port: port, Protocol: gatewayv1.TLSProtocolType, TLS: &gatewayv1.ListenerTLSConfig{Mode: new(gatewayv1.TLSModePassthrough)}},
				{Name: "web", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
			},
		}}
		c.must(c.admin.Create(t.Context(), kube.Gateways, gateway))
		condition := func(typ string) []metav1.Condition {
			return []metav1.Condition{{Type: typ, Status: metav1.ConditionTrue, Reason: typ, LastTransitionTime: metav1.Now()}}
		}
		c.must(c.admin.ApplyStatus(t.Context(), kube.Gateways, &metav1.ObjectMeta{Namespace: "default", Name: "edge"}, gatewayv1.GatewayStatus{Conditions: condition("Programmed")}))
		c.must(c.admin.ApplyStatus(t.Context(), kube.TLSRoutes, &metav1.ObjectMeta{Namespace: "default", Name: "routed"}, gatewayv1.TLSRouteStatus{RouteStatus: gatewayv1.RouteStatus{
			Parents: []gatewayv1.RouteParentStatus{{ParentRef: parent, ControllerName: "example.com/test", Conditions: condition("Accepted")}},
		}}))
		_, w := x.becomes("reached", func(_ *state.State, w *state.Workload) bool {
			return w.Gateway != nil && len(w.Gateway.AccessPoints) > 0
		})
		if p := w.Gateway.AccessPoints[0]; len(w.Gateway.AccessPoints) != 1 || p.Value != "https://routed.example.com:443" || p.Port != 443 || len(w.Gateway.Parents) != 1 {
			t.Errorf("%+v", w.Gateway)
		}
		deleteRoute := func() {
			_, err = c.admin.Delete(t.Context(), kube.TLSRoutes, "default", "routed", metav1.DeleteOptions{})
			c.must(err)
		}
		deleteRoute()
		poll.Nil(t, "a route that was deleted is there again", get)
		stop()
		deleteRoute()
		c.service(3)
		poll.Nil(t, "a route that was deleted without a watch is there again", get)

		x.Tenant.Spec.ControlPlane.Gateway = nil
		x.Certs.Endpoint = "routed.example.com:443"
		x.accept()
		_, w = x.is(event.Available) // elsewhere
		if err := get(); err != nil || w.Gateway == nil {
			t.Errorf("kubeconfigs lead there still: %v, %+v", err, w.Gateway)
		}
		if want := x.Certs.Secrets[name.ComponentAPIServerCertificate].Checksum; w.Serving != want {
			t.Errorf("pods have the certificate %q, want %q", w.Serving, want)
		}
		x.Certs.Endpoint = w.Endpoint
		x.put(name.ServiceCerts, name.ServiceCerts, state.State{Step: event.Issued, Inputs: fmt.Sprint("x-", x.generation), Data: event.Marshal(x.Certs)})
		x.tell(name.ServiceCerts, event.Rotated, event.CertsIssued{About: x.about()})
		poll.Nil(t, "the route goes once kubeconfigs lead elsewhere", func() error {
			if err := get(); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%w", errors.Join(errors.New("not yet"), err))
			}
			return nil
		})
		if _, w := x.becomes("exposed without it", func(s *state.State, w *state.Workload) bool {
			return w.Gateway == nil && s.Wait.Text != "" || s.Step == event.Available
		}); strings.Contains(w.Endpoint, "example.com") {
			t.Errorf("the endpoint is %s", w.Endpoint)
		}
		x.Tenant.Spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "routed.example.com", ParentRefs: []gatewayv1.ParentReference{parent}}
		x.accept()
		poll.Nil(t, "and comes back with it", get)
		x.Tenant.Deleting = true
		x.put(name.ServiceIntake, events.KeySpec, state.State{Step: event.Deleting, Data: event.Marshal(x.Tenant)})
		x.tell(name.ServiceAddons, event.Removed, event.Removals{About: x.about(), Removed: map[string]int{}})
		x.becomes("removing", func(s *state.State, _ *state.Workload) bool { return s.Step == stepRemoving })
		// In the place of the garbage collector, which takes the Deployment's finalizer off when its pods have ended.
		c.must(c.admin.MergePatch(t.Context(), kube.Deployments, "default", "routed", map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil))
		x.is(event.Removed)
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("the route outlives the tenant: %v", err)
		}
	})
}
