package workload

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
)

func TestKine(t *testing.T) {
	minimal := func(t *testing.T) (Input, *v1alpha1.DeploymentSpec) {
		in := on(load(t, "minimal"), v1alpha1.DriverPostgreSQL)
		return in, &in.Tenant.Spec.ControlPlane.Deployment
	}
	kine := func(in Input) corev1.Container {
		all := Deployment(in).Spec.Template.Spec.InitContainers
		return all[len(all)-1]
	}
	config := func(in Input) string { return Deployment(in).Spec.Template.Annotations[name.AnnotationConfigHash] }

	t.Run("on etcd there is none, whatever image is set", func(t *testing.T) {
		in := load(t, "minimal")
		before := config(in)
		in.KineImage = "other"
		if pod := Deployment(in).Spec.Template.Spec; len(pod.InitContainers) != 0 || config(in) != before {
			t.Errorf("init containers %v, config hash was %s and is %s", pod.InitContainers, before, config(in))
		}
	})
	t.Run("on every other database there is one that is told where it is", func(t *testing.T) {
		for _, driver := range ruletest.Drivers() {
			if driver != v1alpha1.DriverEtcd && kineDrivers[string(driver)].endpoint == "" {
				t.Errorf("%s has no row in kineDrivers", driver)
			}
		}
	})
	t.Run("on one that nobody knows there is none: told nothing, it would store the data in the pod", func(t *testing.T) {
		if pod := Deployment(on(load(t, "minimal"), "SQLite")).Spec.Template.Spec; len(pod.InitContainers) != 0 {
			t.Errorf("init containers %v", pod.InitContainers)
		}
	})
	t.Run("another image rolls out", func(t *testing.T) {
		in, _ := minimal(t)
		before := config(in)
		in.KineImage = "registry.example.com/kine:v1"
		if config(in) == before || kine(in).Image != in.KineImage {
			t.Errorf("image %s", kine(in).Image)
		}
	})
	t.Run("an additional container named kine says the image, and doesn't run, on etcd neither", func(t *testing.T) {
		in, spec := minimal(t)
		in.KineImage = "of-the-service"
		spec.AdditionalContainers = []corev1.Container{{Name: "audit", Image: "a"}, {Name: name.ContainerKine, Image: "of-the-tenant"}}
		onEtcd := in
		onEtcd.Datastore = load(t, "minimal").Datastore
		for _, in := range []Input{in, onEtcd} {
			for _, c := range Deployment(in).Spec.Template.Spec.Containers {
				if c.Name == name.ContainerKine {
					t.Error("it runs")
				}
			}
		}
		if image := kine(in).Image; image != "of-the-tenant" {
			t.Errorf("image %s", image)
		}
	})
	t.Run("the API server starts after it, and the user's init containers run before", func(t *testing.T) {
		in, spec := minimal(t)
		spec.AdditionalInitContainers = []corev1.Container{{Name: "prepare"}}
		all := Deployment(in).Spec.Template.Spec.InitContainers
		c := all[len(all)-1]
		if len(all) != 2 || all[0].Name != "prepare" || c.Name != name.ContainerKine || c.StartupProbe == nil ||
			c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("init containers %+v", all)
		}
		if len(spec.AdditionalInitContainers) != 1 {
			t.Error("the spec was changed")
		}
	})
	t.Run("it is given the files that the Secret has, and no others", func(t *testing.T) {
		for _, keys := range [][]string{nil, {"ca.crt"}, {"ca.crt", "server.crt", "server.key"}} {
			in, _ := minimal(t)
			in.Datastore.Certificate = state.Secret{Keys: keys}
			args := kine(in).Args
			for key, flag := range map[string]string{"ca.crt": "ca-file", "server.crt": "cert-file", "server.key": "key-file"} {
				if sets(args, flag) != slices.Contains(keys, key) {
					t.Errorf("with %v, args are %v", keys, args)
				}
			}
		}
	})
	t.Run("the user's flags win, but for where it connects and listens", func(t *testing.T) {
		in, spec := minimal(t)
		in.Datastore.Certificate.Keys = []string{"ca.crt"}
		spec.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{Kine: []string{
			"--ca-file=/mine", "-endpoint=sqlite://x", "--endpoint", "sqlite://y", "--listen-address=:2379", "-debug", "--slow-sql-threshold=2s",
		}}
		args := kine(in).Args
		want := []string{"--ca-file=/mine", "--debug", "--slow-sql-threshold=2s"}
		if !slices.Equal(args[len(args)-3:], want) || len(args) != 7 || strings.Contains(strings.Join(args, " "), "sqlite") {
			t.Errorf("args %v", args)
		}
	})
	t.Run("its arguments, which are in the process list, don't have the password", func(t *testing.T) {
		for _, driver := range []v1alpha1.Driver{v1alpha1.DriverPostgreSQL, v1alpha1.DriverMySQL, v1alpha1.DriverNATS} {
			c := kine(on(load(t, "minimal"), driver))
			if all := strings.Join(slices.Concat(c.Command, c.Args), " "); strings.Contains(all, "$(DB_PASSWORD)") {
				t.Errorf("%s: %s", driver, all)
			}
		}
	})
	t.Run("it is told where the database is once, or, where it wouldn't understand, ends", func(t *testing.T) {
		for _, driver := range []v1alpha1.Driver{v1alpha1.DriverPostgreSQL, v1alpha1.DriverMySQL, v1alpha1.DriverNATS} {
			in := on(load(t, "minimal"), driver)
			in.Tenant.Spec.ControlPlane.Deployment.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{Kine: []string{
				"--endpoint=sqlite://x", "--datastore-connection-max-idle-time=1m",
			}}
			c := kine(in)
			inEnv := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "KINE_ENDPOINT" && v.Value != "" })
			if inEnv == sets(c.Args, "endpoint") || inEnv && !sets(c.Args, "datastore-connection-max-idle-time") {
				t.Errorf("%s: environment %v, arguments %v", driver, c.Env, c.Args)
			}
		}
	})
	t.Run("its connections to an SQL server are limited, as the tenant says or else by default", func(t *testing.T) {
		for driver, limited := range map[v1alpha1.Driver]bool{v1alpha1.DriverPostgreSQL: true, v1alpha1.DriverMySQL: true, v1alpha1.DriverNATS: false} {
			in := on(load(t, "minimal"), driver)
			if args := kine(in).Args; sets(args, "datastore-max-idle-connections") != limited || sets(args, "datastore-max-open-connections") != limited {
				t.Errorf("%s: args %v", driver, args)
			}
		}
		in, spec := minimal(t)
		spec.ExtraArgs = &v1alpha1.ControlPlaneExtraArgs{Kine: []string{"--datastore-max-open-connections=0"}}
		args := strings.Join(kine(in).Args, " ")
		if strings.Count(args, "max-open-connections=") != 1 || !strings.Contains(args, "max-open-connections=0") || !strings.Contains(args, "max-idle-connections=") {
			t.Errorf("args %v", args)
		}
	})
	t.Run("the API server leaves compaction on, for the database is its own", func(t *testing.T) {
		in, _ := minimal(t)
		for _, c := range Deployment(in).Spec.Template.Spec.Containers {
			for _, flag := range []string{"etcd-compaction-interval", "etcd-prefix", "etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
				if sets(c.Args, flag) {
					t.Errorf("%s has --%s", c.Name, flag)
				}
			}
		}
	})
}

func TestMetricsPort(t *testing.T) {
	for sentence, test := range map[string]struct {
		args []string
		want int32
	}{
		"kine's own unless it is said":         {nil, 8080},
		"as it is said":                        {[]string{"--metrics-bind-address=:9090"}, 9090},
		"in two arguments":                     {[]string{"--metrics-bind-address", "127.0.0.1:9090"}, 9090},
		"the last one counts":                  {[]string{"--metrics-bind-address=:1", "--metrics-bind-address=[::]:2"}, 2},
		"none when it is off":                  {[]string{"--metrics-bind-address=0"}, 0},
		"none when it isn't one":               {[]string{"--metrics-bind-address=:http"}, 0},
		"none when the flag comes without one": {[]string{"--metrics-bind-address="}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := metricsPort(test.args); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
