package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

var update = flag.Bool("update", false, "write the golden files anew")

var clock = time.Date(2026, 11, 5, 12, 0, 3, 250_000_000, time.UTC)

// demo is a tenant accepted three and a quarter seconds before clock.
func demo() *state.Tenant {
	tcp := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	tcp.Spec.Kubernetes.Version = "v1.36.3"
	tcp.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeLoadBalancer
	tcp.Spec.Addons.CoreDNS = &v1alpha1.AddonSpec{}
	v1alpha1.Default(tcp)
	return &state.Tenant{Namespace: "default", Name: "demo", AcceptedAt: clock.Add(-3250 * time.Millisecond), Spec: tcp.Spec}
}

// complete is what the services keep when everything is done for generation 1.
func complete() States {
	done := func(step string) *state.State { return &state.State{UID: "u1", Generation: 1, Step: step} }
	at := clock.Add(-2 * time.Second)
	in := States{UID: "u1", Generation: 1}
	in.Certs = Stage[state.Certs]{State: done(event.Issued), Data: state.Certs{
		Secrets: map[string]state.Secret{}, RenewAt: clock.AddDate(0, 8, 0).Truncate(time.Hour),
	}}
	for component, secret := range map[string]string{
		name.ComponentCA: name.CA("demo"), name.ComponentFrontProxyCA: name.FrontProxyCA("demo"),
		name.ComponentServiceAccountKeys:                name.ServiceAccountKeys("demo"),
		name.ComponentAPIServerCertificate:              name.APIServerCertificate("demo"),
		name.ComponentAPIServerKubeletClientCertificate: name.APIServerKubeletClientCertificate("demo"),
		name.ComponentFrontProxyClientCertificate:       name.FrontProxyClientCertificate("demo"),
		name.ComponentAdminKubeconfig:                   name.AdminKubeconfig("demo"),
		name.ComponentControllerManagerKubeconfig:       name.ControllerManagerKubeconfig("demo"),
		name.ComponentSchedulerKubeconfig:               name.SchedulerKubeconfig("demo"),
	} {
		in.Certs.Data.Secrets[component] = state.Secret{Name: secret, Checksum: name.Checksum(map[string][]byte{"": []byte(secret)}), LastUpdate: at}
	}
	in.Datastore = Stage[state.Datastore]{State: done(event.Provisioned), Data: state.Datastore{
		DataStore: "default", Driver: "etcd", Schema: "u1", User: "u1",
		Config:      state.Secret{Name: name.DatastoreConfig("demo"), Checksum: "c1", LastUpdate: at},
		Certificate: state.Secret{Name: name.DatastoreCertificate("demo"), Checksum: "c2", LastUpdate: at},
	}}
	in.Workload = Stage[state.Workload]{State: done(event.Available), Data: state.Workload{
		Endpoint: "127.50.0.2:6443", Address: "127.50.0.2", Port: 6443, ClusterIP: "10.0.0.9", ConfigHash: "h1", Version: "v1.36.3",
		Phase: "Ready", Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2, ObservedGeneration: 1, LastUpdate: at,
		Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability.",
		}},
		Service:       corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "127.50.0.2", IPMode: ptr(corev1.LoadBalancerIPModeVIP)}}}},
		KubeadmConfig: state.ConfigMap{Checksum: "k1", ResourceVersion: "7", LastUpdate: at},
	}}
	in.Addons = Stage[state.Addons]{State: done(event.Applied), Data: state.Addons{
		Hash: "a1", Objects: 27, CoreDNS: true, LastUpdate: at.Add(time.Second),
		Way: state.WayService, Endpoint: state.Reach{Endpoint: "127.50.0.2:6443", Reason: reason.Reached},
	}}
	return in
}

// after is the input of the next computation, with what the first one kept.
func after(t *state.Tenant, in States) States {
	_, in.Previous = Compute(t, in, clock)
	return in
}

// tunnelled gives a tenant konnectivity, with agents.
func tunnelled(t *state.Tenant, in *States, agents state.Agents) {
	t.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{Server: v1alpha1.KonnectivityServerSpec{Port: 8132}}
	in.Workload.Data.Konnectivity, in.Workload.Data.KonnectivityEndpoint, in.Workload.Data.EgressChecksum = true, "127.50.0.2:8132", "e1"
	in.Addons.Data.Konnectivity, in.Addons.Data.Agents = "DaemonSet", agents
	for component, secret := range map[string]string{
		name.ComponentKonnectivityCertificate: name.KonnectivityCertificate("demo"), name.ComponentKonnectivityKubeconfig: name.KonnectivityKubeconfig("demo"),
	} {
		in.Certs.Data.Secrets[component] = state.Secret{Name: secret, Checksum: "k-" + component, LastUpdate: clock}
	}
}

func TestTheTunnel(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		agents       state.Agents
		change       func(*state.Tenant, *States)
		reason, says string
	}{
		"is connected when one agent is":         {agents: state.Agents{Wanted: 3, Connected: 1}, reason: "AgentsConnected", says: "1 of 3 agents"},
		"waits for nodes":                        {reason: "NoAgents", says: "no node runs an agent yet"},
		"is not when none is, and says to where": {agents: state.Agents{Wanted: 3}, reason: "AgentsNotConnected", says: "127.50.0.2:8132"},
		"is being set up before pods have it": {
			change: func(_ *state.Tenant, in *States) { in.Workload.Data.Konnectivity = false }, reason: "Pending", says: "is being set up",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			tenant, in := demo(), complete()
			tunnelled(tenant, &in, test.agents)
			if test.change != nil {
				test.change(tenant, &in)
			}
			shown, next := Compute(tenant, in, clock)
			c := meta.FindStatusCondition(next.Conditions, ConditionTunnel)
			if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.says) || !next.Ready {
				t.Fatalf("%+v", c)
			}
			if k := shown.Addons.Konnectivity; k == nil || k.Enabled == (test.change != nil) || k.Agent.Mode != "DaemonSet" ||
				k.Kubeconfig.SecretName != "demo-konnectivity-kubeconfig" || k.Service.Port != 8132 || k.ConfigMap.Checksum != "e1" {
				t.Errorf("%+v", k)
			}
		})
	}
	shown, next := Compute(demo(), complete(), clock)
	if k := shown.Addons.Konnectivity; k == nil || k.Enabled || k.Service != nil || meta.FindStatusCondition(next.Conditions, ConditionTunnel) != nil {
		t.Error("a tenant without konnectivity has a tunnel")
	}
}

func TestWhetherTheEndpointIsReached(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		change               func(*States)
		status, reason, says string
		ready                string // in the message of Ready
	}{
		"is said once it was looked at": {
			change: func(*States) {}, status: "True", reason: "Reached", says: "127.50.0.2:6443 answers", ready: "answers at 127.50.0.2:6443",
		},
		"isn't known before": {
			change: func(in *States) { in.Addons.Data.Endpoint = state.Reach{} },
			status: "Unknown", reason: "Pending", says: "was not looked at yet", ready: "answers at",
		},
		"isn't known of one that is new": {
			change: func(in *States) {
				in.Addons.Data.Endpoint = state.Reach{Endpoint: "127.50.0.1:6443", Reason: reason.EndpointRefused, Cause: "…", Since: clock}
			},
			status: "Unknown", reason: "Pending", says: "127.50.0.2:6443 was not looked at yet", ready: "answers at",
		},
		"when it isn't, why, and what to look at": {
			change: func(in *States) {
				in.Addons.Data.Endpoint = state.Reach{Endpoint: "127.50.0.2:6443", Reason: reason.EndpointRefused, Cause: "the connection is refused", Since: clock}
			},
			status: "False", reason: "EndpointRefused", ready: "answers, but not at 127.50.0.2:6443",
			says: "127.50.0.2:6443, as seen from Stoker: the connection is refused. Does the address lead to the tenant's Service",
		},
		"when it isn't, also what names the tenant": {
			change: func(in *States) {
				in.Addons.Data.Endpoint = state.Reach{Endpoint: "127.50.0.2:6443", Reason: reason.EndpointCertificate, Cause: "…", Since: clock}
			},
			status: "False", reason: "EndpointCertificate", ready: "but not at", says: "stoker why demo -n default",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := complete()
			test.change(&in)
			_, next := Compute(demo(), in, clock)
			c := meta.FindStatusCondition(next.Conditions, ConditionEndpoint)
			if c == nil || string(c.Status) != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.says) {
				t.Errorf("%+v", c)
			}
			if !next.Ready || !strings.Contains(next.Message, test.ready) {
				t.Errorf("ready %t: %s", next.Ready, next.Message)
			}
		})
	}
}

func TestCompute(t *testing.T) {
	t.Parallel()
	type want struct {
		phase, shown, reason string
		ready                bool
		observed             int64
		// true conditions besides Ready
		truths string
		// a word of the Ready condition's message
		says string
	}
	const all = "CertificatesReady DatastoreReady WorkloadAvailable AddonsReady EndpointReachable"
	limit := func(tenant *state.Tenant, in *States) {
		tenant.Spec.WritePermissions.BlockCreation, in.Addons.Data.WritePermissions.BlockCreation = true, true
	}
	// undo has generation 2 ask for a version that was undone; everything else of it is done.
	undo := func(tenant *state.Tenant, in *States) {
		in.Generation, tenant.Spec.Kubernetes.Version = 2, "1.37.0"
		for _, s := range []*state.State{in.Certs.State, in.Datastore.State, in.Workload.State, in.Addons.State} {
			s.Generation = 2
		}
		in.Workload.Data.Phase = "Upgrading"
		in.Workload.Data.Upgrade = &state.Upgrade{From: in.Workload.Data.Version, To: "1.37.0", Generation: 2, UndoneAt: time.Unix(1, 0)}
		in.Workload.State.Failure = &state.Failure{Reason: reason.UpgradeUndone, Message: "pods of 1.37.0 did not become ready", Permanent: true}
	}
	tests := map[string]struct {
		change func(*state.Tenant, *States)
		// ready: generation 1 was Ready before the change
		ready bool
		want  want
	}{
		"a tenant that no service has come to is Provisioning": {
			change: func(_ *state.Tenant, in *States) { *in = States{UID: "u1", Generation: 1} },
			want:   want{"Provisioning", "Provisioning", "CertificatesWaiting", false, 0, "Reconciling", "certs has not begun"},
		},
		"a tenant is Ready when all four have done their part of this generation": {
			change: func(*state.Tenant, *States) {},
			want:   want{"Ready", "Ready", "Ready", true, 1, all, "v1.36.3 answers at 127.50.0.2:6443"},
		},
		"a tunnel without agents holds up nothing": {
			change: func(t *state.Tenant, in *States) { tunnelled(t, in, state.Agents{}) },
			want:   want{"Ready", "Ready", "Ready", true, 1, all, ""},
		},
		"one whose agents are connected is told": {
			change: func(t *state.Tenant, in *States) { tunnelled(t, in, state.Agents{Wanted: 3, Connected: 2}) },
			want:   want{"Ready", "Ready", "Ready", true, 1, all + " TunnelConnected", ""},
		},
		"pods that are available are not enough the first time: add-ons must be there": {
			change: func(_ *state.Tenant, in *States) { in.Addons = Stage[state.Addons]{} },
			want: want{"Provisioning", "Provisioning", "AddonsWaiting", false, 0,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable", "addons has not begun"},
		},
		"who waits and for what is said, and who is at work comes before who waits": {
			change: func(_ *state.Tenant, in *States) {
				in.Certs.State = &state.State{Generation: 1, Wait: state.Wait{Text: "the endpoint"}}
				in.Datastore.State = &state.State{Generation: 1}
				in.Workload, in.Addons = Stage[state.Workload]{}, Stage[state.Addons]{}
			},
			want: want{"Provisioning", "Provisioning", "DatastoreInProgress", false, 0, "Reconciling", "datastore is at work"},
		},
		"where all wait for each other, it is said what the one waits for that they wait for": {
			change: func(_ *state.Tenant, in *States) {
				in.Certs.State = &state.State{Generation: 1, Wait: state.Wait{On: name.ServiceWorkload, Text: "the endpoint"}}
				in.Workload = Stage[state.Workload]{State: &state.State{Generation: 1, Wait: state.Wait{On: kube.Services.Kind, Text: "an address"}}}
				in.Addons.State = &state.State{Generation: 1, Wait: state.Wait{On: name.ServiceWorkload, Text: "ready pods"}}
			},
			want: want{"Provisioning", "Provisioning", "WorkloadWaiting", false, 0, "Reconciling DatastoreReady", "workload waits for an address"},
		},
		"a failure that is retried is told as Reconciling": {
			change: func(_ *state.Tenant, in *States) {
				in.Datastore.State = &state.State{Generation: 1, Failure: &state.Failure{Reason: "Unavailable", Message: "etcd is away"}}
			},
			want: want{"Provisioning", "Provisioning", "Unavailable", false, 0,
				"Reconciling CertificatesReady WorkloadAvailable AddonsReady EndpointReachable", "datastore: etcd is away"},
		},
		"a failure no retry can help stalls the tenant": {
			change: func(_ *state.Tenant, in *States) {
				in.Datastore.State = &state.State{Generation: 1, Failure: &state.Failure{Reason: "QuotaExceeded", Message: "etcd is full", Permanent: true}}
			},
			want: want{"Failed", "Provisioning", "QuotaExceeded", false, 0,
				"Stalled CertificatesReady WorkloadAvailable AddonsReady EndpointReachable", "datastore: etcd is full"},
		},
		"a failure of an earlier generation is history": {
			change: func(_ *state.Tenant, in *States) {
				in.Generation = 2
				in.Datastore.State = &state.State{Generation: 1, Failure: &state.Failure{Reason: "QuotaExceeded", Permanent: true}}
			},
			want: want{"Provisioning", "Provisioning", "CertificatesPending", false, 0,
				"Reconciling WorkloadAvailable EndpointReachable", "certs is at generation 1"},
		},
		"a failing retry doesn't take Ready from a tenant that has it, but is told": {
			ready: true,
			change: func(_ *state.Tenant, in *States) {
				in.Certs.State.Failure = &state.Failure{Reason: "Unavailable", Message: "kubernetes is away"}
			},
			want: want{"Ready", "Ready", "Ready", true, 1, "Reconciling " + all, "answers"},
		},
		"a new generation is not Ready until it is done, while pods still answer": {
			ready:  true,
			change: func(_ *state.Tenant, in *States) { in.Generation = 2 },
			want: want{"Reconciling", "Unknown", "CertificatesPending", false, 1,
				"Reconciling WorkloadAvailable EndpointReachable", "certs is at generation 1"},
		},
		"another version makes it Upgrading": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				in.Generation = 2
				tenant.Spec.Kubernetes.Version = "1.37.0"
			},
			want: want{"Upgrading", "Upgrading", "CertificatesPending", false, 1,
				"Reconciling WorkloadAvailable EndpointReachable", "generation 1"},
		},
		"a version without v is the same version": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				in.Generation = 2
				tenant.Spec.Kubernetes.Version = "1.36.3"
			},
			want: want{"Reconciling", "Unknown", "CertificatesPending", false, 1,
				"Reconciling WorkloadAvailable EndpointReachable", "generation 1"},
		},
		"with the pods of a new generation ready and add-ons pending, Kamaji's status is Ready and the tenant is not": {
			ready: true,
			change: func(_ *state.Tenant, in *States) {
				in.Generation = 2
				for _, s := range []*state.State{in.Certs.State, in.Datastore.State, in.Workload.State} {
					s.Generation = 2
				}
			},
			want: want{"Reconciling", "Ready", "AddonsPending", false, 1,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable EndpointReachable", "addons is at generation 1"},
		},
		"an upgrade that is being undone has failed, and the tenant is on its way back": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				undo(tenant, in)
				in.Workload.State.Step, in.Workload.State.Wait.Text = event.Exposed, "Deployment default/demo: its pods to be ready (1 of 2)"
			},
			want: want{"Failed", "Upgrading", "UpgradeUndone", false, 1,
				"Stalled CertificatesReady DatastoreReady WorkloadAvailable AddonsReady EndpointReachable", "pods of 1.37.0"},
		},
		"one that was undone runs where it was": {
			ready:  true,
			change: undo,
			want: want{"Failed", "Ready", "UpgradeUndone", false, 1,
				"Stalled CertificatesReady DatastoreReady WorkloadAvailable AddonsReady EndpointReachable", "pods of 1.37.0"},
		},
		"and is at it again in the next generation": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				undo(tenant, in)
				in.Generation, in.Workload.State.Failure = 3, nil
				in.Workload.State.Step = event.Exposed
			},
			want: want{"Upgrading", "Upgrading", "CertificatesPending", false, 1, "Reconciling WorkloadAvailable EndpointReachable", "generation 2"},
		},
		"without a ready pod it is NotReady": {
			ready: true,
			change: func(_ *state.Tenant, in *States) {
				in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Degraded, 0
				in.Workload.State.Wait.Text = "Deployment default/demo: its pods to be ready (0 of 2)"
			},
			want: want{"NotReady", "NotReady", "WorkloadNoReadyPods", false, 1,
				"Reconciling CertificatesReady DatastoreReady AddonsReady", "workload has no ready pod"},
		},
		"no replicas asked for is Sleeping, which is neither Ready nor in progress once the pods are gone": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Spec.ControlPlane.Deployment.Replicas = new(int32)
				in.Generation = 2
				for _, s := range []*state.State{in.Certs.State, in.Datastore.State, in.Workload.State} {
					s.Generation = 2
				}
				in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Slept, 0
			},
			want: want{"Sleeping", "Sleeping", "Sleeping", false, 2, "CertificatesReady DatastoreReady", "no pods are asked for"},
		},
		"one that sleeps by its schedule says since when, by what and until when": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Spec.ControlPlane.Deployment.Replicas = new(int32)
				at := time.Date(2026, 11, 25, 19, 0, 0, 0, time.UTC)
				tenant.Sleep = state.Sleep{Asleep: true, Since: at, By: `stoker.dev/sleep-at "0 20 * * 1-5" (Europe/Berlin)`, Until: at.Add(11 * time.Hour)}
				in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Slept, 0
			},
			want: want{"Sleeping", "Sleeping", "Sleeping", false, 1, "CertificatesReady DatastoreReady AddonsReady",
				`: asleep since 2026-11-25T19:00:00Z by stoker.dev/sleep-at "0 20 * * 1-5" (Europe/Berlin), until 2026-11-26T06:00:00Z`},
		},
		"limited writes are not said before they are limited": {
			ready:  true,
			change: func(tenant *state.Tenant, _ *States) { tenant.Spec.WritePermissions.BlockCreation = true },
			want:   want{"Ready", "Ready", "Ready", true, 1, all, "answers"},
		},
		"limited writes are said, and the tenant is Ready": {
			ready:  true,
			change: limit,
			want:   want{"WriteLimited", "WriteLimited", "Ready", true, 1, all + " WriteLimited", "answers"},
		},
		"also while they are lifted, until they are": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				tenant.Spec.WritePermissions = v1alpha1.Permissions{}
			},
			want: want{"WriteLimited", "WriteLimited", "Ready", true, 1, all + " WriteLimited", "answers"},
		},
		"a tenant that is new is Provisioning before it is WriteLimited": {
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				in.Workload.State.Generation = 0
			},
			want: want{"Provisioning", "Provisioning", "WorkloadPending", false, 0,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable AddonsReady EndpointReachable WriteLimited",
				"workload is at generation 0"},
		},
		"limited writes are said instead of an upgrade, whose tenant isn't Ready": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				in.Generation, tenant.Spec.Kubernetes.Version = 2, "1.37.0"
			},
			want: want{"Reconciling", "WriteLimited", "CertificatesPending", false, 1,
				"Reconciling WorkloadAvailable EndpointReachable WriteLimited", "generation 1"},
		},
		"and instead of a rollout, and of a new certificate authority": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				in.Workload.State.Step, in.Workload.Data.Phase = event.Exposed, "CertificateAuthorityRotating"
			},
			want: want{"WriteLimited", "WriteLimited", "Ready", true, 1, "Reconciling " + all + " WriteLimited", "answers"},
		},
		"but not of a migration": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				in.Workload.State.Step = event.Exposed
				in.Datastore.Data.Move = &state.Move{DataStore: "other", Phase: state.MoveCopying}
			},
			want: want{"Migrating", "Migrating", "Ready", true, 1, "Reconciling " + all + " WriteLimited", "answers"},
		},
		"nor of no ready pod": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Degraded, 0
			},
			want: want{"NotReady", "NotReady", "WorkloadNoReadyPods", false, 1,
				"Reconciling CertificatesReady DatastoreReady AddonsReady WriteLimited", "workload has no ready pod"},
		},
		"nor of sleep": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				limit(tenant, in)
				tenant.Spec.ControlPlane.Deployment.Replicas = new(int32)
				in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Slept, 0
			},
			want: want{"Sleeping", "Sleeping", "Sleeping", false, 1,
				"CertificatesReady DatastoreReady AddonsReady WriteLimited", "no pods are asked for"},
		},
		"a new certificate authority under way is said, and the tenant answers meanwhile": {
			ready: true,
			change: func(_ *state.Tenant, in *States) {
				in.Workload.State.Step, in.Workload.Data.Phase = event.Exposed, "CertificateAuthorityRotating"
			},
			want: want{"CertificateAuthorityRotating", "CertificateAuthorityRotating", "Ready", true, 1, "Reconciling " + all, "answers"},
		},
		"one pod of two lost leaves it Ready, and is being put right": {
			ready: true,
			change: func(_ *state.Tenant, in *States) {
				in.Workload.State.Step, in.Workload.State.Wait.Text = event.Exposed, "Deployment default/demo: its pods to be ready (1 of 2)"
				in.Workload.Data.Phase, in.Workload.Data.ReadyReplicas = "Unknown", 1
			},
			want: want{"Ready", "Unknown", "Ready", true, 1, "Reconciling " + all, "answers"},
		},
		"the first pod of two is not enough the first time": {
			change: func(_ *state.Tenant, in *States) {
				in.Workload.State.Step, in.Workload.State.Wait.Text = event.Exposed, "Deployment default/demo: its pods to be ready (1 of 2)"
				in.Workload.Data.Phase, in.Workload.Data.ReadyReplicas = "Provisioning", 1
			},
			want: want{"Provisioning", "Provisioning", "WorkloadWaiting", false, 0, "Reconciling " + all, "workload waits for Deployment default/demo"},
		},
		"a deletion says whose turn it is": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Deleting = true
				in.Addons.State.Step = event.Removed
			},
			want: want{"Deleting", "NotReady", "Deleting", false, 1,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable EndpointReachable", "workload removes what it made"},
		},
		"a deletion says what it waits for": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Deleting = true
				in.Addons.State.Step, in.Workload.State.Step = event.Removed, "removing"
				in.Workload.State.Wait = state.Wait{On: "Deployment", Reason: reason.PodsEnding, Text: "Deployment default/demo: its pods to end"}
			},
			want: want{"Deleting", "NotReady", "Deleting", false, 1,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable EndpointReachable", "workload waits for Deployment default/demo: its pods to end"},
		},
		"a service that waits for its turn isn't told of": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Deleting = true
				in.Addons.State.Step = event.Removed
				in.Workload.State.Wait = state.Wait{On: "addons", Reason: reason.EarlierRemoval, Text: "addons to remove what it made"}
			},
			want: want{"Deleting", "NotReady", "Deleting", false, 1,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable EndpointReachable", "workload removes what it made"},
		},
		"a deletion of a tenant that never was Ready isn't provisioning": {
			change: func(tenant *state.Tenant, _ *States) { tenant.Deleting = true },
			want: want{"Deleting", "NotReady", "Deleting", false, 0,
				"Reconciling CertificatesReady DatastoreReady WorkloadAvailable AddonsReady EndpointReachable", "addons removes what it made"},
		},
		"a deletion that cannot go on is stalled": {
			ready: true,
			change: func(tenant *state.Tenant, in *States) {
				tenant.Deleting = true
				in.Addons.State.Step = event.Removed
				in.Workload.State.Failure = &state.Failure{Reason: "Forbidden", Message: "deployments may not be deleted", Permanent: true}
			},
			want: want{"Deleting", "NotReady", "Forbidden", false, 1,
				"Stalled CertificatesReady DatastoreReady", "workload: deployments may not be deleted"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			tenant, in := demo(), complete()
			if test.ready {
				in = after(tenant, in)
			}
			if sentence == "a deletion that cannot go on is stalled" {
				in.Workload.Data.ReadyReplicas = 0
			}
			test.change(tenant, &in)
			status, next := Compute(tenant, in, clock.Add(time.Minute))

			ready := meta.FindStatusCondition(status.Conditions, ConditionReady)
			var truths []string
			for _, c := range status.Conditions {
				if c.Status == metav1.ConditionTrue && c.Type != ConditionReady {
					truths = append(truths, c.Type)
				}
				if c.ObservedGeneration != in.Generation || c.Reason == "" || c.LastTransitionTime.IsZero() {
					t.Errorf("condition %s is incomplete: %+v", c.Type, c)
				}
			}
			got := want{
				next.Phase, string(*status.Kubernetes.Version.Status), next.Reason, next.Ready, status.ObservedGeneration,
				strings.Join(truths, " "), test.want.says,
			}
			if got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if ready.Reason != next.Reason || ready.Message != next.Message || !strings.Contains(next.Message, test.want.says) {
				t.Errorf("Ready says %q: %q, want %q in it", ready.Reason, ready.Message, test.want.says)
			}
		})
	}
}

func TestWhatIsBlockedIsSaid(t *testing.T) {
	t.Parallel()
	for blocked, says := range map[v1alpha1.Permissions]string{
		{BlockUpdate: true}:                                           "update of objects",
		{BlockCreation: true, BlockDeletion: true}:                    "creation and deletion of objects",
		{BlockCreation: true, BlockUpdate: true, BlockDeletion: true}: "creation, update and deletion of objects",
	} {
		in := complete()
		in.Addons.Data.WritePermissions = blocked
		_, next := Compute(demo(), in, clock)
		c := meta.FindStatusCondition(next.Conditions, ConditionWriteLimited)
		if c == nil || c.Reason != reason.WritesBlocked || !strings.HasPrefix(c.Message, says) {
			t.Errorf("%+v: %+v", blocked, c)
		}
	}
	if _, next := Compute(demo(), complete(), clock); meta.FindStatusCondition(next.Conditions, ConditionWriteLimited) != nil {
		t.Error("a tenant without limits has the condition")
	}
}

func TestReadyStatusAsTheAPIShowsIt(t *testing.T) {
	t.Parallel()
	status, _ := Compute(demo(), complete(), clock)
	data, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/ready.json", append(data, '\n'))
}

func TestDetailsOfTheStatus(t *testing.T) {
	t.Parallel()
	tenant, in := demo(), complete()
	tenant.Spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com"}
	in.Workload.Data.Ingress.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "203.0.113.9"}}
	tunnelled(tenant, &in, state.Agents{})
	shown, _ := Compute(tenant, in, clock)
	of := shown.Kubernetes
	if i := of.Ingress; i == nil || i.Name != "demo" || len(i.LoadBalancer.Ingress) != 1 || i.LoadBalancer.Ingress[0].IP != "203.0.113.9" {
		t.Errorf("the Ingress is shown as %+v", i)
	}
	if k := shown.Addons.Konnectivity.Service; len(k.LoadBalancer.Ingress) != 1 || k.Port != 8132 || of.Service.Port != 6443 {
		t.Errorf("the Service is shown as %+v, for konnectivity as %+v", of.Service, k)
	}
	if a := shown.Addons; !a.CoreDNS.Enabled || a.KubeProxy == nil || a.KubeProxy.Enabled || !a.KubeProxy.LastUpdate.IsZero() {
		t.Errorf("addons are shown as %+v and %+v", a.CoreDNS, a.KubeProxy)
	}

	// As it was kept before it had the Service's status.
	in.Workload.Data.Service = corev1.ServiceStatus{}
	tenant.Spec.ControlPlane.Ingress = nil
	shown, _ = Compute(tenant, in, clock)
	if s := shown.Kubernetes.Service; len(s.LoadBalancer.Ingress) != 1 || s.LoadBalancer.Ingress[0].IP != "127.50.0.2" {
		t.Errorf("the Service is shown as %+v", s)
	}
}

func TestRebuilding(t *testing.T) {
	t.Parallel()
	seen := state.Status{Ready: true, ReadyGeneration: 1, ObservedGeneration: 1}
	tests := map[string]struct {
		change func(*States)
		want   bool
	}{
		"a tenant that was Ready stays so while services have not looked again": {
			func(in *States) { in.Workload = Stage[state.Workload]{} }, true,
		},
		"a service that waits for another has not looked yet": {
			func(in *States) {
				in.Addons.State = &state.State{Generation: 1, Wait: state.Wait{Text: "the workload"}}
			}, true,
		},
		"once all have looked, what they say counts": {
			func(in *States) { in.Workload.State.Step, in.Workload.Data.ReadyReplicas = event.Degraded, 0 }, false,
		},
		"a new generation is not taken for the one that was Ready": {
			func(in *States) { in.Generation, in.Addons = 2, Stage[state.Addons]{} }, false,
		},
		"after a pause, too": {
			func(in *States) { in.Previous.Phase, in.Workload = PhasePaused, Stage[state.Workload]{} }, true,
		},
		"a service that waits when a pause ends has looked": {
			func(in *States) {
				in.Previous.Phase, in.Workload.Data.ReadyReplicas = PhasePaused, 0
				in.Addons.State = &state.State{Generation: 1, Wait: state.Wait{Text: "the workload"}}
			}, false,
		},
		"a tenant that never was Ready is not rebuilt but made": {
			func(in *States) { in.Previous, in.Addons = state.Status{}, Stage[state.Addons]{} }, false,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in := complete()
			in.Previous = seen
			test.change(&in)
			_, next := Compute(demo(), in, clock)
			if got := in.rebuilding(next); got != test.want {
				t.Errorf("rebuilding is %t", got)
			}
		})
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func ptr[T any](v T) *T { return &v }

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the diff\n%s", file, got)
	}
}
