package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestValuesThatCanNotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, chart, namespace, set, want string }{
		{"another namespace", "stoker", "default", "", "--namespace stoker-system"},
		{"a setting that isn't one", "stoker", "stoker-system", "replcas=3", "replcas"},
		{"two NATS servers", "stoker", "stoker-system", "nats.replicas=2", "/nats/replicas"},
		{"no NATS", "stoker", "stoker-system", "nats.enabled=false", "nats.external.url"},
		{"HTTP without a certificate", "stoker", "stoker-system", "services.intake.http.enabled=true", "services.intake.http"},
		{"a remote for the tenants of one namespace", "stoker", "stoker-system", "remote.kubeconfigSecret=a,namespace=b", "remote can't be used with namespace"},
		{"a right on remote Secrets that there isn't", "stoker", "stoker-system", "remote.secretRights[0]=delete", "/remote/secretRights/0"},
		{"a namespace of Argo CD that can't be", "stoker", "stoker-system", "argocd.namespace=Argo", "/argocd/namespace"},
		{"a portal without a name", "stoker", "stoker-system", "portals[0].namespaces[0]=acme", "name"},
		{"etcd in another namespace", "stoker-etcd", "default", "", "--namespace stoker-system"},
		{"etcd of two members", "stoker-etcd", "stoker-system", "replicas=2", "/replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, err := tryHelm(t, "template", c.chart, chart(c.chart), "--namespace", c.namespace, "--set", c.set)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q; %d bytes of output", err, c.want, len(out))
			}
		})
	}
}

// What charts render with every setting is what an API server takes, without a field that it doesn't know and with pods that the Pod
// Security level restricted lets in.
func TestWhatIsRendered(t *testing.T) {
	t.Parallel()
	// Kubernetes' controllers, which don't run here, would have made it.
	kubectl(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: stoker-system}\n", "apply", "-f", "-")
	kubectl(t, "", "label", "--overwrite", "namespace", "stoker-system", "pod-security.kubernetes.io/warn=restricted")
	for _, c := range []struct {
		name, chart string
		args        []string
	}{
		{"stoker", "stoker", nil},
		{"stoker with all settings", "stoker", []string{
			"--set", "portals[0].name=shop,portals[0].namespaces[0]=acme,portals[0].kinds[0]=datastores,nats.hosts[0]=nats.example.com",
			"--set", "services.intake.http.enabled=true,services.intake.http.tlsSecret=tls,services.intake.http.tokensSecret=tokens",
			"--set", "services.certs.replicas=3,services.certs.args[0]=--log-level=debug,services.certs.env[0].name=A,services.certs.env[0].value=b",
			"--set", "services.datastore.volumes[0].name=backups,services.datastore.volumes[0].persistentVolumeClaim.claimName=backups",
			"--set", "services.datastore.volumeMounts[0].name=backups,services.datastore.volumeMounts[0].mountPath=/backups",
			"--set", "imagePullSecrets[0].name=pull,nodeSelector.a=b,tolerations[0].key=a,priorityClassName=system-cluster-critical",
			"--set", "podAnnotations.a=b,podLabels.a=b,nats.service.annotations.a=b,nats.service.type=LoadBalancer,nats.persistence.storageClass=fast",
			"--set", "nats.metrics=true,nats.leafSecret=hub,monitoring.dashboards=true,monitoring.tenantMetrics=true",
			"--set-json", `networkPolicies={"metricsFrom":[{"namespaceSelector":{}}],"natsFrom":[{"podSelector":{}}]}`,
			"--set-json", `affinity={"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}`,
			"--set-json", `topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"a":"b"}}}]`,
		}},
		{"stoker with one NATS server without a volume", "stoker", []string{"--set", "nats.replicas=1,nats.persistence.enabled=false"}},
		{"stoker with a NATS of its user's", "stoker", []string{"--set", "nats.enabled=false,nats.external.url=tls://nats:4222,nats.external.caConfigMap=ca"}},
		{"stoker with Cluster API", "stoker", []string{"--set", "clusterAPI.enabled=true,namespace=default"}},
		{"stoker with a remote source", "stoker", []string{
			"--set", "remote.kubeconfigSecret=remote,remote.namespaces=true,remote.kinds[0]=TenantControlPlane.v1alpha1.kamaji.clastix.io,remote.grace=5m",
			"--set-json", `remote.secrets=["{name}-admin-kubeconfig"]`, "--set-json", `remote.secretRights=["create","watch"]`,
		}},
		{"stoker with Argo CD", "stoker", []string{"--set", "argocd.namespace=kube-public,argocd.project=tenants,argocd.labels[0]=tier,argocd.labels[1]=example.com/region"}},
		{"stoker for one namespace", "stoker", []string{"--set", "namespace=default,watchFilter=a,logLevel=debug,podSecurity="}},
		{"etcd", "stoker-etcd", nil},
		{"etcd with all settings", "stoker-etcd", []string{
			"--set", "backup.enabled=true,backup.storageClass=slow,persistence.storageClass=fast,args[0]=--log-level=debug,datastore.annotations.a=b",
			"--set", "imagePullSecrets[0].name=pull,nodeSelector.a=b,tolerations[0].key=a,priorityClassName=a,podAnnotations.a=b,podLabels.a=b",
			"--set-json", `networkPolicies={"clientsFrom":[{"podSelector":{}}]}`,
			"--set-json", `affinity={"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}`,
		}},
		{"etcd of one member without a volume", "stoker-etcd", []string{"--set", "replicas=1,persistence.enabled=false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, c.chart, c.args...)
			for n := range objects {
				if strings.HasPrefix(n, "PersistentVolumeClaim/") {
					t.Errorf("%s: Helm waits until it is bound, which may be when something first uses it", n)
				}
			}
			maps.DeleteFunc(objects, func(n string, _ map[string]any) bool { return strings.HasPrefix(n, "CustomResourceDefinition/") }) // below
			out := kubectl(t, text(t, slices.Collect(maps.Values(objects))...),
				"apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
			for line := range strings.Lines(out) {
				if strings.Contains(line, "Warning") {
					t.Error(line)
				}
			}
		})
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"stoker", "stoker-etcd"} {
		helm(t, "lint", "--strict", "--namespace", "stoker-system", chart(n))
	}
}

// Only where the chart is told of an Argo CD does certs know of it and have rights in its namespace.
func TestArgoCD(t *testing.T) {
	t.Parallel()
	for _, object := range render(t, "stoker") {
		if metadata, ok := object["metadata"].(map[string]any); ok && metadata["namespace"] == "argocd" {
			t.Errorf("without a setting there is %v", metadata["name"])
		}
	}
	objects := render(t, "stoker", "--set", "argocd.namespace=gitops,argocd.labels[0]=tier,argocd.labels[1]=region,namespace=default")
	for _, n := range []string{"Role/stoker-certs-clusters", "RoleBinding/stoker-certs-clusters"} {
		if got := text(t, objects[n]); !strings.Contains(got, "namespace: gitops\n") {
			t.Errorf("%s: %s", n, got)
		}
	}
	for n, has := range map[string]bool{"certs": true, "workload": false} {
		got := text(t, objects["StatefulSet/stoker-"+n])
		if strings.Contains(got, "name: STOKER_ARGOCD_NAMESPACE\n          value: gitops\n") != has || strings.Contains(got, "value: tier,region\n") != has {
			t.Errorf("%s: %s", n, got)
		}
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]string{"v9": "example/stoker-certs:v9", "sha256:abc": "example/stoker-certs@sha256:abc", "": "example/stoker-certs:v0.1.0"} {
		set := render(t, "stoker", "--set", "image.registry=example,image.tag="+tag)["StatefulSet/stoker-certs"]
		if got := text(t, set); !strings.Contains(got, "image: "+want+"\n") {
			t.Errorf("tag %q: no image %s in\n%s", tag, want, got)
		}
	}
}

// Each service has the name of its pod as replica, its own account, and no other's seed.
func TestEachServiceHasWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	objects := render(t, "stoker", "--set", "clusterAPI.enabled=true,tenantAddons.enabled=true")
	for _, service := range name.Services() {
		got := text(t, objects["StatefulSet/stoker-"+service])
		for _, want := range []string{"serviceAccountName: stoker-" + service, "secretName: stoker-nats-" + service, "fieldPath: metadata.name"} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("%s has no %q", service, want)
			}
		}
		if n := strings.Count(got, "secretName:"); n != 1 {
			t.Errorf("%s has %d Secrets", service, n)
		}
		if objects["PodDisruptionBudget/stoker-"+service] == nil || objects["ServiceAccount/stoker-"+service] == nil {
			t.Errorf("%s has no disruption budget or no account", service)
		}
	}
}

// Unless they are asked for there is no capi and no tenantaddons, and nobody has their rights. Their NATS users are there, so that the servers'
// configuration is the same.
func TestOptionalServices(t *testing.T) {
	t.Parallel()
	kinds := []string{"StatefulSet", "Service", "PodDisruptionBudget", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
	for service, value := range map[string]string{name.ServiceCAPI: "clusterAPI", name.ServiceTenantAddons: "tenantAddons"} {
		for _, there := range []bool{false, true} {
			for _, namespace := range []string{"", "acme"} {
				set := fmt.Sprintf("%s.enabled=%t,namespace=%s", value, there, namespace)
				t.Run(set, func(t *testing.T) {
					t.Parallel()
					objects := render(t, "stoker", "--set", set)
					for _, kind := range kinds {
						if is := objects[kind+"/stoker-"+service] != nil; is != there {
							t.Errorf("%s of %s: %t", kind, service, is)
						}
						if kind != "ClusterRole" && objects[kind+"/stoker-certs"] == nil {
							t.Errorf("no %s of certs", kind)
						}
					}
					if role := objects["Role/stoker-"+service]; namespace != "" && (role != nil) != there {
						t.Errorf("role of %s: %t", service, role != nil)
					}
					if !strings.Contains(text(t, objects["Role/stoker-bootstrap"]), "stoker-nats-"+service) {
						t.Errorf("the bootstrap may not make the user of %s", service)
					}
					policy, asked := text(t, objects["NetworkPolicy/stoker-services"]), text(t, objects["Pod/stoker-test"])
					if strings.Contains(policy, "stoker-"+service) != there || strings.Contains(asked, "- "+service+"\n") != there {
						t.Errorf("named in\n%s%s", policy, asked)
					}
				})
			}
		}
	}
}

// Its policies hold whether the service runs or not, and it knows what it is told.
func TestTenantAddons(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"stoker-tenant-addons", "stoker-addon-releases"} {
		for _, kind := range []string{"ValidatingAdmissionPolicy/", "ValidatingAdmissionPolicyBinding/"} {
			if render(t, "stoker")[kind+policy] == nil {
				t.Errorf("no %s%s", kind, policy)
			}
		}
	}
	set := text(t, render(t, "stoker", "--set", "tenantAddons.enabled=true,tenantAddons.abandonAfter=1h")["StatefulSet/stoker-tenantaddons"])
	for _, want := range []string{"name: STOKER_FLEET_NAMESPACE\n          value: stoker-system\n", "name: STOKER_ABANDON_AFTER\n          value: 1h\n", "memory: 1Gi\n"} {
		if !strings.Contains(set, want) {
			t.Errorf("no %q in\n%s", want, set)
		}
	}
	if _, err := tryHelm(t, "template", "stoker", chart("stoker"), "--namespace", "stoker-system", "--set", "tenantAddons.abandonAfter=soon"); err == nil {
		t.Error("abandonAfter=soon is taken")
	}
}

// A volume that values give a service is mounted where they say, and in no other service.
func TestVolumes(t *testing.T) {
	t.Parallel()
	objects := render(t, "stoker", "--set", "clusterAPI.enabled=true,tenantAddons.enabled=true",
		"--set-json", `services.datastore.volumes=[{"name":"backups","persistentVolumeClaim":{"claimName":"kept"}}]`,
		"--set-json", `services.datastore.volumeMounts=[{"name":"backups","mountPath":"/backups"}]`)
	for _, service := range name.Services() {
		var set appsv1.StatefulSet
		if err := yaml.UnmarshalStrict([]byte(text(t, objects["StatefulSet/stoker-"+service])), &set); err != nil {
			t.Fatal(err)
		}
		pod := set.Spec.Template.Spec
		claimed := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == "backups" && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "kept"
		})
		mounted := slices.Contains(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "backups", MountPath: "/backups"})
		if want := service == name.ServiceDatastore; claimed != want || mounted != want {
			t.Errorf("%s has the volume: %t, and it is mounted: %t", service, claimed, mounted)
		}
		if s := pod.SecurityContext; s.FSGroup == nil || *s.FSGroup != *s.RunAsGroup {
			t.Error("pods can't write to a volume that belongs to root")
		}
	}
}

// What monitors is there where its kind is, or where values ask for it.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	const group = "monitoring.coreos.com/v1/"
	kinds := []string{"--api-versions", group + "ServiceMonitor", "--api-versions", group + "PodMonitor", "--api-versions", group + "PrometheusRule"}
	all := []string{"ServiceMonitor/stoker", "PodMonitor/stoker-nats", "PrometheusRule/stoker", "ConfigMap/stoker-dashboard-fleet"}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"without the kinds", []string{"--set", "nats.metrics=true"}, nil},
		{"with the kinds", kinds, []string{"ServiceMonitor/stoker", "PrometheusRule/stoker"}},
		{"without alerts", append([]string{"--set", "monitoring.rules=false"}, kinds...), []string{"ServiceMonitor/stoker"}},
		{"dashboards without the kinds", []string{"--set", "monitoring.dashboards=true"}, []string{"ConfigMap/stoker-dashboard-fleet"}},
		{"all of it", append([]string{"--set", "monitoring.dashboards=true,nats.metrics=true"}, kinds...), all},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, "stoker", c.args...)
			for _, n := range all {
				if is := objects[n] != nil; is != slices.Contains(c.want, n) {
					t.Errorf("%s is rendered: %t", n, is)
				}
			}
		})
	}
	for _, set := range []string{"clusterAPI.enabled=false", "clusterAPI.enabled=true"} {
		t.Run("capi, whoever installs it: "+set, func(t *testing.T) {
			t.Parallel()
			monitor := render(t, "stoker", append([]string{"--set", set}, kinds...)...)["ServiceMonitor/stoker"]
			if got := text(t, monitor); strings.Count(got, "- stoker-capi\n") != 1 {
				t.Errorf("it is\n%s", got)
			}
		})
	}
	t.Run("it is what the files say", func(t *testing.T) {
		t.Parallel()
		objects := render(t, "stoker", append([]string{"--set", "monitoring.dashboards=true,nats.metrics=true"}, kinds...)...)
		rules, err := os.ReadFile(filepath.Join(env.Root(), "deployments", "monitoring", "rules", "stoker.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal(rules, &want); err != nil {
			t.Fatal(err)
		}
		if got := objects["PrometheusRule/stoker"]["spec"]; !reflect.DeepEqual(got, any(want)) {
			t.Errorf("the rules are %v, want %v", got, want)
		}
		files, err := filepath.Glob(filepath.Join(env.Root(), "deployments", "monitoring", "dashboards", "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no dashboards: %v", err)
		}
		for _, file := range files {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := filepath.Base(file)
			data, _ := objects["ConfigMap/"+strings.Replace(strings.TrimSuffix(n, ".json"), "stoker-", "stoker-dashboard-", 1)]["data"].(map[string]any)
			if data[n] != string(want) {
				t.Errorf("%s in its ConfigMap is not the file", n)
			}
		}
		if got := text(t, objects["StatefulSet/stoker-nats"]); !strings.Contains(got, "nats-metrics") {
			t.Error("no container shows the metrics of NATS")
		}
	})
}

// The definitions come with the chart, and stay when it goes, and with them all tenants. Hooks are jobs, which nobody runs here.
func TestInstallUpgradeRollbackUninstall(t *testing.T) {
	run := func(args ...string) {
		t.Helper()
		helm(t, append(args, "--namespace", "stoker-system", "--no-hooks")...)
	}
	replicas := func(want string) {
		t.Helper()
		if got := kubectl(t, "", "-n", "stoker-system", "get", "statefulset", "stoker-certs", "-o", "jsonpath={.spec.replicas}"); got != want {
			t.Errorf("%s replicas, want %s", got, want)
		}
	}
	// The test's installation has accounts, roles and policies already, by kubectl: the chart takes them over.
	run("install", "stoker", chart("stoker"), "--take-ownership", "--force-conflicts")
	replicas("2")
	run("install", "stoker-etcd", chart("stoker-etcd"))
	run("upgrade", "stoker", chart("stoker"), "--set", "replicas=3", "--force-conflicts")
	replicas("3")
	run("rollback", "stoker", "1", "--force-conflicts")
	replicas("2")
	kubectl(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", "left"), "apply", "-f", "-")
	tenant := env.Tenant("left", "v1.36.3")
	tenant.Namespace = "left"
	kubectl(t, text(t, env.JSON(t, tenant)), "create", "-f", "-")
	run("uninstall", "stoker")
	if got := kubectl(t, "", "-n", "stoker-system", "get", "statefulsets,clusterroles,validatingadmissionpolicies", "-l", "helm.sh/chart=stoker-0.1.0", "-o", "name"); got != "" {
		t.Errorf("left behind: %s", got)
	}
	if got := kubectl(t, "", "-n", "left", "get", "tcp", "-o", "name"); !strings.Contains(got, "left") {
		t.Errorf("the tenant is gone: %s", got)
	}
	run("install", "stoker", chart("stoker")) // finds its definitions again
	replicas("2")
	kubectl(t, "", "-n", "stoker-system", "delete", "statefulsets", "--all") // other tests try charts with fields that can't be changed
}

// `kubectl apply -k deployments` is for who has NATS and the services by other means: it leaves no file out.
func TestKustomization(t *testing.T) {
	t.Parallel()
	listed, err := os.ReadFile(filepath.Join(env.Root(), "deployments", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"crds", "rbac", "policies"} {
		all, err := filepath.Glob(filepath.Join(env.Root(), "deployments", dir, "*.yaml"))
		if err != nil || len(all) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range all {
			if entry := "  - " + dir + "/" + filepath.Base(file) + "\n"; !strings.Contains(string(listed), entry) {
				t.Errorf("no %s", entry)
			}
		}
	}
	objects := parse(t, kubectl(t, "", "kustomize", filepath.Join(env.Root(), "deployments")))
	maps.DeleteFunc(objects, func(n string, _ map[string]any) bool { return strings.HasPrefix(n, "CustomResourceDefinition/") })
	kubectl(t, text(t, slices.Collect(maps.Values(objects))...), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
}
