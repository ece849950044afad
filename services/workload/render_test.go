package workload

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

var update = flag.Bool("update", false, "write golden files")

const uid = "6f1c1c55-6a0c-4b1e-9d8e-0f3f2b7f8a11"

// load makes the input of a tenant whose spec is testdata/<name>.yaml.
func load(t *testing.T, name string) Input {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tcp := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: types.UID(uid)}}
	if err := yaml.UnmarshalStrict(data, &tcp.Spec); err != nil {
		t.Fatal(err)
	}
	v1alpha1.Default(tcp)
	return inputOf(tcp)
}

func inputOf(tcp *v1alpha1.TenantControlPlane) Input {
	in := Input{
		Subject: Subject{UID: uid, Tenant: &state.Tenant{Namespace: tcp.Namespace, Name: tcp.Name, Spec: tcp.Spec}},
		Certs:   state.Certs{Secrets: map[string]state.Secret{name.ComponentAdminKubeconfig: {Checksum: "sum-admin"}}},
		Datastore: state.Datastore{
			DataStore: "default", Driver: "etcd", Endpoints: []string{"etcd-0.etcd:2379", "etcd-1.etcd:2379"},
			Schema: "default_demo", User: "default_demo",
			Config: state.Secret{Checksum: "sum-config"}, Certificate: state.Secret{Checksum: "sum-etcd"},
		},
	}
	for component := range checksums {
		in.Certs.Secrets[component] = state.Secret{Checksum: "sum-" + component}
	}
	if tcp.Spec.Addons.Konnectivity != nil {
		in.Certs.Secrets[name.ComponentKonnectivityKubeconfig] = state.Secret{Checksum: "sum-konnectivity"}
	}
	for _, secret := range tcp.Spec.Kubernetes.APIServer.Secrets() {
		if in.Certs.Referenced == nil {
			in.Certs.Referenced = map[string]state.Secret{}
		}
		in.Certs.Referenced[secret] = state.Secret{Checksum: "sum-" + secret}
	}
	in.Advertise = advertise(&in.Tenant.Spec, "203.0.113.7", "10.0.0.7")
	return in
}

// on moves a tenant to a database behind kine; keys are those of the Secret it connects with.
func on(in Input, driver v1alpha1.Driver, keys ...string) Input {
	in.Datastore.Driver, in.Datastore.Endpoints, in.Datastore.Certificate.Keys = string(driver), []string{"db-0:1", "db-1:1"}, keys
	return in
}

func TestGolden(t *testing.T) {
	tenants := map[string]Input{}
	for _, tenant := range []string{"minimal", "everything", "v1.35.4", "dualstack", "gateway", "settings"} {
		tenants[tenant] = load(t, tenant)
	}
	for _, driver := range []v1alpha1.Driver{v1alpha1.DriverPostgreSQL, v1alpha1.DriverMySQL, v1alpha1.DriverNATS} {
		file := "kine-" + strings.ToLower(string(driver))
		var keys []string
		if driver == v1alpha1.DriverNATS {
			keys = []string{name.KeyDatastoreContext}
		}
		tenants[file] = on(load(t, "minimal"), driver, keys...)
		tenants[file+"-tls"] = on(load(t, "minimal"), driver, append([]string{name.KeyDatastoreCACert}, keys...)...)
	}
	tenants["kine-everything"] = on(load(t, "everything"), v1alpha1.DriverPostgreSQL, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
	tenants["konnectivity"] = load(t, "minimal")
	tenants["konnectivity"].Tenant.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{Server: v1alpha1.KonnectivityServerSpec{
		Port: 8132, Image: v1alpha1.DefaultKonnectivityServer, ExtraArgs: []string{"--v=4", "--uds-name=/elsewhere"},
	}}
	tenants["konnectivity-gateway"] = load(t, "gateway")
	tenants["konnectivity-gateway"].Tenant.Spec.Addons.Konnectivity = tenants["konnectivity"].Tenant.Spec.Addons.Konnectivity
	tenants["moving-etcd-postgresql"] = moving(load(t, "minimal"), v1alpha1.DriverPostgreSQL, name.KeyDatastoreCACert)
	tenants["moving-mysql-nats"] = moving(on(load(t, "minimal"), v1alpha1.DriverMySQL), v1alpha1.DriverNATS, name.KeyDatastoreContext)
	tenants["moving-postgresql-etcd"] = moving(on(load(t, "everything"), v1alpha1.DriverPostgreSQL, name.KeyDatastoreCACert), v1alpha1.DriverEtcd,
		name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
	tenants["quota"] = withQuota(load(t, "minimal"))
	tenants["quota-postgresql"] = withQuota(on(load(t, "minimal"), v1alpha1.DriverPostgreSQL, name.KeyDatastoreCACert))
	tenants["quota-moving"] = withQuota(moving(load(t, "minimal"), v1alpha1.DriverEtcd, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey))
	overrides := moving(load(t, "minimal"), v1alpha1.DriverEtcd, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
	overrides.Datastore.Overrides = []state.Override{
		{DataStore: "events", Resources: []string{"/events", "coordination.k8s.io/leases"}, Endpoints: []string{"events-1.example.com:2379", "events-2.example.com:2379"}},
	}
	tenants["moving-overrides"] = withQuota(overrides)
	resources := moving(load(t, "minimal"), v1alpha1.DriverEtcd, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
	resources.Datastore.Overrides, resources.Datastore.Move.Resources, resources.Datastore.Move.From = overrides.Datastore.Overrides, []string{"/secrets"}, resources.Datastore.DataStore
	tenants["moving-resources"] = resources
	for tenant, in := range tenants {
		t.Run(tenant, func(t *testing.T) {
			var out []byte
			for _, o := range []any{
				Service(in.Subject), Ingress(in.Subject), Route(in.Subject), KonnectivityRoute(in.Subject), Egress(in.Subject),
				KubeadmConfig(in, "api.example.com:6443", "api.example.com"), Deployment(in),
			} {
				if reflect.ValueOf(o).IsNil() {
					continue
				}
				data, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				out = append(append(out, "---\n"...), data...)
			}
			path := filepath.Join("testdata", tenant+".golden.yaml")
			if *update {
				if err := os.WriteFile(path, out, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != string(out) {
				t.Errorf("objects are not those of %s; run with -update and look at the difference", path)
			}
		})
	}
}

func TestDeployment(t *testing.T) {
	containers := func(in Input) map[string]corev1.Container {
		out := map[string]corev1.Container{}
		for _, c := range Deployment(in).Spec.Template.Spec.Containers {
			out[c.Name] = c
		}
		return out
	}
	config := func(in Input) string { return Deployment(in).Spec.Template.Annotations[name.AnnotationConfigHash] }

	t.Run("rendering twice gives the same, and changes no input", func(t *testing.T) {
		in := load(t, "everything")
		before := in.Tenant.Spec.DeepCopy()
		if a, b := hash(Deployment(in)), hash(Deployment(in)); a != b {
			t.Errorf("hashes %s and %s", a, b)
		}
		if !reflect.DeepEqual(before, &in.Tenant.Spec) {
			t.Error("the spec was changed")
		}
	})
	t.Run("a new certificate changes the config hash, more replicas don't", func(t *testing.T) {
		in := load(t, "minimal")
		before := config(in)
		in.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32(5))
		if config(in) != before {
			t.Error("the number of replicas is part of the hash")
		}
		in.Certs.Secrets[name.ComponentSchedulerKubeconfig] = state.Secret{Checksum: "other"}
		if config(in) == before {
			t.Error("the scheduler's kubeconfig is not part of the hash")
		}
	})
	t.Run("the admin kubeconfig, which no pod mounts, doesn't", func(t *testing.T) {
		in := load(t, "minimal")
		before := config(in)
		in.Certs.Secrets[name.ComponentAdminKubeconfig] = state.Secret{Checksum: "other"}
		if config(in) != before {
			t.Error("it is part of the hash")
		}
	})
	t.Run("the user's containers come before the control plane's", func(t *testing.T) {
		var names []string
		for _, c := range Deployment(load(t, "everything")).Spec.Template.Spec.Containers {
			names = append(names, c.Name)
		}
		if want := []string{"audit", "kube-apiserver", "kube-scheduler", "kube-controller-manager"}; !slices.Equal(names, want) {
			t.Errorf("containers %v, want %v", names, want)
		}
	})
	t.Run("a component's probe timing wins over the one for all, field by field", func(t *testing.T) {
		c := containers(load(t, "everything"))
		api, scheduler := c["kube-apiserver"].ReadinessProbe, c["kube-scheduler"].ReadinessProbe
		if api.PeriodSeconds != 4 || api.FailureThreshold != 7 || scheduler.PeriodSeconds != 5 || scheduler.FailureThreshold != 7 {
			t.Errorf("api server %+v, scheduler %+v", api, scheduler)
		}
	})
	t.Run("a label of the user can't take a pod out of its Deployment", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Deployment.PodAdditionalMetadata.Labels = map[string]string{name.LabelName: "other", "team": "a"}
		labels := Deployment(in).Spec.Template.Labels
		if labels[name.LabelName] != "demo" || labels["team"] != "a" {
			t.Errorf("labels %v", labels)
		}
	})
	t.Run("with --authorization-config there is no --authorization-mode", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{APIServer: []string{"--authorization-config=/x"}}
		if args := containers(in)["kube-apiserver"].Args; sets(args, "authorization-mode") || !sets(args, "authorization-config") {
			t.Errorf("args %v", args)
		}
	})
	t.Run("no flag of the user's says where data is kept", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{APIServer: []string{
			"--v=2", "--etcd-servers-overrides=/events#https://other:2379", "--etcd_servers_overrides", "/pods#https://other:2379", "--etcd-prefix=/other", "--etcd-servers=https://other:2379",
		}}
		if args := containers(in)["kube-apiserver"].Args; strings.Contains(strings.Join(args, " "), "other") || !slices.Contains(args, "--v=2") {
			t.Errorf("args %v", args)
		}
	})
	t.Run("no container is given the key of the front proxy's CA, and the CA's own only where it signs", func(t *testing.T) {
		for _, v := range Deployment(load(t, "minimal")).Spec.Template.Spec.Volumes {
			data, err := yaml.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), name.KeyFrontProxyCAKey) {
				t.Errorf("volume %s has %s", v.Name, name.KeyFrontProxyCAKey)
			}
			if strings.Contains(string(data), name.KeyCAKey) && v.Name != name.VolumePKI {
				t.Errorf("volume %s has %s", v.Name, name.KeyCAKey)
			}
			if v.Secret != nil && len(v.Secret.Items) == 0 {
				t.Errorf("volume %s has a whole Secret", v.Name)
			}
		}
	})
	t.Run("every mount has its volume", func(t *testing.T) {
		for _, in := range []Input{load(t, "everything"), on(load(t, "everything"), v1alpha1.DriverMySQL), on(load(t, "everything"), v1alpha1.DriverMySQL, name.KeyDatastoreCACert)} {
			pod := Deployment(in).Spec.Template.Spec
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				for _, m := range c.VolumeMounts {
					if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
						t.Errorf("container %s mounts %s, which is no volume", c.Name, m.Name)
					}
				}
			}
		}
	})
}

func TestService(t *testing.T) {
	t.Run("a NodePort is the API's port", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeNodePort
		in.Tenant.Spec.NetworkProfile.Port = 30443
		if p := Service(in.Subject).Spec.Ports[0]; p.Port != 30443 || p.NodePort != 30443 || p.TargetPort.IntVal != 30443 {
			t.Errorf("port %+v", p)
		}
	})
	t.Run("a user's labels can't hide the Service from its watch", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Service.AdditionalMetadata.Labels = map[string]string{name.LabelPartition: "99", "a": "b"}
		if labels := Service(in.Subject).Labels; labels[name.LabelPartition] == "99" || labels["a"] != "b" {
			t.Errorf("labels %v", labels)
		}
	})
	t.Run("its status is shown without the ports of load balancers, and stays as it was read", func(t *testing.T) {
		live := corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
			{IP: "203.0.113.7", Ports: []corev1.PortStatus{{Port: 6443}}}, {Hostname: "lb.example.com"},
		}}}
		got := shownService(live).LoadBalancer.Ingress
		if len(got) != 2 || got[0].IP != "203.0.113.7" || got[0].Ports != nil || got[1].Hostname != "lb.example.com" ||
			len(live.LoadBalancer.Ingress[0].Ports) != 1 {
			t.Errorf("%+v of %+v", got, live)
		}
	})
	t.Run("the address is an external IP only if the spec says so", func(t *testing.T) {
		in := load(t, "minimal")
		in.Tenant.Spec.ControlPlane.Service.ServiceType = v1alpha1.ServiceTypeClusterIP
		in.Tenant.Spec.NetworkProfile.Address = "203.0.113.7"
		if ips := Service(in.Subject).Spec.ExternalIPs; len(ips) != 0 {
			t.Errorf("external IPs %v", ips)
		}
		in.Tenant.Spec.NetworkProfile.AllowAddressAsExternalIP = true
		if ips := Service(in.Subject).Spec.ExternalIPs; !slices.Equal(ips, []string{"203.0.113.7"}) {
			t.Errorf("external IPs %v", ips)
		}
	})
}
