package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestAdopt takes over tenants of a Kamaji that really ran them: one with all add-ons, one on each database that needs kine, one that isn't
// finished, and one that is being deleted. The steps need what those before did.
func TestAdopt(t *testing.T) {
	env.Long(t, "builds Kamaji and runs six of its tenants; TestMadeByKamaji and TestAdopted show the detection by the objects of one")
	x := &adopting{before: map[string]tenantLook{}}
	x.stores(t)
	controller := e.Kamaji(t)
	ready := []string{"made", onMySQL, onNATS, onPostgres}
	for _, n := range ready {
		x.create(t, n)
	}
	for _, n := range ready {
		x.awaitKamaji(t, n)
		kubeconfig := e.Kubeconfig(t, x.key(n))
		env.Eventually(t, "Kamaji to let the administrator in", func() error {
			_, err := e.TryKubectl(t.Context(), kubeconfig, nil, "create", "configmap", "kept", "--from-literal=a=b")
			return err
		})
	}
	x.awaitInside(t)
	for _, n := range []string{"goes", "half"} {
		x.create(t, n)
	}
	for _, n := range []string{"goes", "half"} {
		x.awaitBegun(t, n)
	}
	t.Run("adopt refuses while Kamaji is at work", func(t *testing.T) {
		if code, out := stoker(t, "adopt", "made"); code != 4 || !strings.Contains(out, "kamaji-system/kamaji.clastix.io is held") {
			t.Errorf("%d: %s", code, out)
		}
	})
	controller.Kill()
	x.leave(t)
	e.Services(t)
	t.Run("Stoker beside it changes nothing, and says why", func(t *testing.T) {
		for n, before := range x.before {
			leftAlone(t, x.key(n), before, len(x.before))
		}
	})
	t.Run("adopted, it is Ready with the same pods, Secrets and endpoint", func(t *testing.T) {
		env.Eventually(t, "Kamaji's lease to end", func() error {
			if code, out := stoker(t, "adopt", "--plan", "made"); code != 0 || !strings.Contains(out, "stay") {
				return fmt.Errorf("%d: %s", code, out)
			}
			return nil
		})
		if code, out := stoker(t, "adopt", "made"); code != 0 || !strings.Contains(out, "default/made adopted: Ready") {
			t.Fatalf("%d: %s", code, out)
		}
		x.same(t, "made")
	})
	t.Run("what Kamaji made inside it is Stoker's, each made anew once at most", x.inside)
	t.Run("the plan says what becomes of each", x.plan)
	t.Run("a wave with one that fails is the last, until that is put right", x.waves)
	t.Run("on PostgreSQL it has the same pods, Secrets and data", func(t *testing.T) { x.same(t, onPostgres) })
	t.Run("where kine had the administrator's certificate, other pods have the same Secrets and data", func(t *testing.T) {
		if now := look(t, x.key(onMySQL)); reflect.DeepEqual(now.pods, x.before[onMySQL].pods) {
			t.Error("the pods are the same")
		}
		x.same(t, onMySQL)
	})
	t.Run("a paused tenant is taken over when it is resumed", x.resumed)
	t.Run("one that was half made has the keys that it had", x.finished)
	t.Run("so they are after all services were started again, and after the daily look", x.restarted)
	t.Run("the way back: Kamaji finds them Ready, with the same pods", x.back)
	t.Run("other pods are Stoker's, with nothing of Kamaji's", func(t *testing.T) {
		for _, n := range ready {
			x.replaced(t, n)
		}
	})
	t.Run("without konnectivity, its port and what Kamaji made of it are gone", x.untunnelled)
	t.Run("deleted, nothing is left", func(t *testing.T) {
		for n := range x.before {
			if n != "goes" {
				e.Delete(t, x.key(n))
			}
		}
		for n := range x.before {
			e.Gone(t, x.key(n))
		}
	})
}

// Tenants of TestAdopt that need kine, on DataStores of these names. The second has no authority's key, so that tenants get no certificate.
const (
	onMySQL    = "on-mysql"
	onNATS     = "on-nats"
	onPostgres = "on-postgres"
)

// adopting is what TestAdopt knows of its tenants.
type adopting struct {
	before map[string]tenantLook // as Kamaji left them
	made   map[string]int64      // generations of what Kamaji has in the tenant with all add-ons, by kind and name
}

func (x *adopting) key(n string) events.Key { return events.Tenant("default", n) }

// stores runs the databases.
func (x *adopting) stores(t *testing.T) {
	rsaDataStore(t, "kamaji-etcd")
	must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: onPostgres, Driver: local.DriverPostgres}))
	must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: onMySQL, Driver: local.DriverMySQL}))
	natsOfOne(t, onNATS)
	for _, of := range []struct{ n, driver string }{{onPostgres, local.DriverPostgres}, {onMySQL, local.DriverMySQL}} {
		authority, err := pki.OpenAuthority(filepath.Join(e.Local.Dir(), "pki", of.driver+"-"+of.n), "")
		must(t, err)
		clientCertificate(t, of.n, authority, of.driver == local.DriverPostgres)
	}
}

// clientCertificate gives a DataStore the client certificate without which Kamaji v1.0.0 ends, and, if it is to sign, its authority's key.
func clientCertificate(t *testing.T, n string, authority *pki.Authority, sign bool) {
	t.Helper()
	admin, err := authority.Issue(pki.Leaf{File: "client", Name: "admin"})
	must(t, err)
	secret := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: n + "-client"}}
	secret.Data = map[string][]byte{"tls.crt": admin.Cert, "tls.key": admin.Key, "ca.key": authority.Key}
	must(t, e.Admin.Create(t.Context(), kube.Secrets, secret))
	ref := func(key string) map[string]any {
		return map[string]any{"secretReference": map[string]any{"name": secret.Name, "namespace": secret.Namespace, "keyPath": key}}
	}
	config := map[string]any{"clientCertificate": map[string]any{"certificate": ref("tls.crt"), "privateKey": ref("tls.key")}}
	if sign {
		config["certificateAuthority"] = map[string]any{"privateKey": ref("ca.key")}
	}
	must(t, e.Admin.MergePatch(t.Context(), kube.DataStores, "", n, map[string]any{"spec": map[string]any{"tlsConfig": config}}, nil))
}

// create creates a tenant's object.
func (x *adopting) create(t *testing.T, n string) {
	t.Helper()
	o := env.Tenant(n, "v1.36.3")
	o.TypeMeta = kube.TenantControlPlanes.TypeMeta()
	o.Spec.DataStore = "kamaji-etcd"
	switch n {
	case onMySQL, onNATS, onPostgres:
		o.Spec.DataStore = n
		o.Spec.Addons = v1alpha1.AddonsSpec{}
	case "made":
		o.Spec.Addons.Konnectivity = &v1alpha1.KonnectivitySpec{}
		o.Spec.Addons.Konnectivity.Server.Version, o.Spec.Addons.Konnectivity.Agent.Version = "v0.36.0", "v0.36.0"
	}
	must(t, e.Admin.Create(t.Context(), kube.TenantControlPlanes, o))
}

// awaitKamaji waits until Kamaji says that a tenant is Ready.
func (x *adopting) awaitKamaji(t *testing.T, n string) {
	t.Helper()
	env.Eventually(t, "Kamaji to say that "+n+" is Ready", func() error {
		var is v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, "default", n, &is)
		if s := is.Status.Kubernetes.Version.Status; s == nil || *s != v1alpha1.VersionReady || !slices.Contains(is.Finalizers, name.FinalizerSoot) {
			return fmt.Errorf("%v %+v", is.Finalizers, is.Status.Kubernetes)
		}
		return nil
	})
}

// awaitBegun waits until Kamaji has begun with a tenant.
func (x *adopting) awaitBegun(t *testing.T, n string) {
	t.Helper()
	env.Eventually(t, "Kamaji to begin with "+n, func() error {
		var is v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, "default", n, &is)
		if !slices.Contains(is.Finalizers, name.FinalizerTenant) {
			return errNotYet
		}
		return nil
	})
}

// madeInside is what Kamaji makes in a tenant with all of them.
var madeInside = []string{
	"-n", "kube-system", "get", "deploy/coredns", "ds/kube-proxy", "ds/konnectivity-agent", "cm/coredns", "cm/kubeadm-config",
	"clusterrolebinding/system:coredns",
}

// awaitInside waits until Kamaji has made what it makes inside tenants.
func (x *adopting) awaitInside(t *testing.T) {
	t.Helper()
	kubeconfig := e.Kubeconfig(t, x.key("made"))
	env.Eventually(t, "Kamaji's add-ons", func() error {
		out, err := e.TryKubectl(t.Context(), kubeconfig, nil, append(madeInside, "-o", "name")...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// leave leaves the tenants as Kamaji does that ends at this moment: one is paused, one is being deleted, one asks for what can't be, and
// one has the webhooks that Kamaji has in a tenant while writes are limited, and while it is migrated.
func (x *adopting) leave(t *testing.T) {
	t.Helper()
	annotate(t, x.key(onNATS), name.AnnotationPaused, "")
	_, err := e.Admin.Delete(t.Context(), kube.TenantControlPlanes, "default", "goes", metav1.DeleteOptions{})
	must(t, err)
	// Before, Kamaji v1.0.0 would have lost the patch: it doesn't know the field.
	x.patchKubelet(t, []map[string]string{{"op": "remove", "path": "/nothing/of/this/name"}})
	kubeconfig := e.Kubeconfig(t, x.key("made"))
	for _, of := range []string{"write-permissions", "freeze"} {
		out, err := e.TryKubectl(t.Context(), kubeconfig, strings.NewReader(kamajisWebhook(of)), "create", "-f", "-")
		if err != nil {
			t.Fatal(out, err)
		}
	}
	x.made = map[string]int64{}
	for _, o := range x.insideOf(t) {
		x.made[o.GetKind()+" "+o.GetName()] = o.GetGeneration()
	}
	for _, n := range []string{"made", onMySQL, onNATS, onPostgres, "goes", "half"} {
		x.before[n] = look(t, x.key(n))
	}
}

// insideOf is what Kamaji has in the tenant with all add-ons.
func (x *adopting) insideOf(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	out := e.Kubectl(t, e.Kubeconfig(t, x.key("made")), append(madeInside, "-o", "json", "--show-managed-fields")...)
	var list unstructured.UnstructuredList
	must(t, list.UnmarshalJSON([]byte(out)))
	return list.Items
}

// patchKubelet sets what the half-made tenant changes in the kubelet's configuration.
func (x *adopting) patchKubelet(t *testing.T, patches any) {
	t.Helper()
	patch := map[string]any{"spec": map[string]any{"kubernetes": map[string]any{"kubelet": map[string]any{"configurationJSONPatches": patches}}}}
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, "default", "half", patch, nil))
}

// kamajisWebhook is what Kamaji has inside a tenant whose writes are limited, or that it migrates.
func kamajisWebhook(of string) string {
	path := map[string]string{"freeze": "migrate", "write-permissions": "write-permission"}[of]
	kind := map[string]string{"freeze": "migrate", "write-permissions": "write-permissions"}[of]
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"kamaji-%s"},"webhooks":[
{"name":"catchall.%s.kamaji.clastix.io","clientConfig":{"url":"https://kamaji-webhook-service.kamaji-system.svc:443/%s"},
"rules":[{"operations":["CREATE","UPDATE","DELETE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}],
"failurePolicy":"Fail","matchPolicy":"Equivalent","sideEffects":"NoneOnDryRun","admissionReviewVersions":["v1"],"timeoutSeconds":1,
"namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-node-lease"]}]}}]}`, of, kind, path)
}

// same shows that a tenant is what it was before it was adopted, and that it answers with its data.
func (x *adopting) same(t *testing.T, n string) {
	t.Helper()
	before, after := x.before[n], look(t, x.key(n))
	unmoved(t, before, after)
	is, was := after.tenant.Status, before.tenant.Status
	if is.ControlPlaneEndpoint != was.ControlPlaneEndpoint ||
		is.Storage.Setup.Schema != was.Storage.Setup.Schema || is.Storage.Setup.User != was.Storage.Setup.User ||
		is.Certificates.CA.Checksum != was.Certificates.CA.Checksum || slices.Contains(after.tenant.Finalizers, name.FinalizerSoot) {
		t.Errorf("%+v", after.tenant)
	}
	kept(t, e.Kubeconfig(t, x.key(n)))
}

// inside shows that nothing in the tenant is under Kamaji's field manager, and that its workloads were changed once at most.
func (x *adopting) inside(t *testing.T) {
	for _, o := range x.insideOf(t) {
		is := o.GetKind() + " " + o.GetName()
		if was := x.made[is]; kube.Formerly(&o) || o.GetGeneration() > was+1 || len(o.GetOwnerReferences()) > 0 {
			t.Errorf("%s, generation %d, was %d: owned by %v, managed by %v", is, o.GetGeneration(), was, o.GetOwnerReferences(), o.GetManagedFields())
		}
	}
	kubeconfig := e.Kubeconfig(t, x.key("made"))
	if out := e.Kubectl(t, kubeconfig, "get", "validatingwebhookconfigurations", "-o", "name"); strings.Contains(out, "kamaji") {
		t.Errorf("left: %s", out)
	}
	e.Kubectl(t, kubeconfig, "create", "configmap", "written")
}

// plan shows what adopt says of each before it begins.
func (x *adopting) plan(t *testing.T) {
	code, out := stoker(t, "adopt", "--plan", "-A", "-o", "wide")
	if code != 0 {
		t.Fatalf("%d: %s", code, out)
	}
	for n, want := range map[string]string{
		"goes": "end", "half": "default", onMySQL: "restart", onNATS: "stay, once resumed", onPostgres: "stay",
	} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, " "+n+" ") && strings.Contains(line, want)
		}) {
			t.Errorf("%s isn't planned to %s: %s", n, want, out)
		}
	}
}

// waves adopts the others: of the first two one fails.
func (x *adopting) waves(t *testing.T) {
	code, out := stoker(t, "adopt", "-A", "--wave", "2")
	for _, want := range []string{
		"5 tenants to adopt, 2 at a time", "default/goes adopted: Deleted", "default/half", "/nothing/of/this/name", "stopped: 3 tenants are left",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doesn't say %q: %s", want, out)
		}
	}
	if code != 1 {
		t.Errorf("code %d", code)
	}
	e.Gone(t, x.key("goes"))
	for _, n := range []string{onMySQL, onNATS, onPostgres} {
		if now := look(t, x.key(n)); now.tenant.ResourceVersion != x.before[n].tenant.ResourceVersion {
			t.Errorf("%s was begun with", n)
		}
	}
	x.patchKubelet(t, nil)
	code, out = stoker(t, "adopt", "-A", "--wave", "2")
	for _, want := range []string{onMySQL + " adopted: Ready", onPostgres + " adopted: Ready", onNATS + " is paused", "tenants adopted"} {
		if !strings.Contains(out, want) {
			t.Errorf("doesn't say %q: %s", want, out)
		}
	}
	if code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
}

// resumed shows that nothing is done for a paused tenant until it is resumed.
func (x *adopting) resumed(t *testing.T) {
	unmoved(t, x.before[onNATS], look(t, x.key(onNATS)))
	annotate(t, x.key(onNATS), name.AnnotationPaused, nil)
	e.Ready(t, x.key(onNATS))
	x.same(t, onNATS)
}

// finished shows that what there was of a half-made tenant is still there.
func (x *adopting) finished(t *testing.T) {
	e.Ready(t, x.key("half"))
	after := look(t, x.key("half"))
	for n, data := range x.before["half"].data {
		if n != name.DatastoreConfig("half") && !reflect.DeepEqual(data, after.data[n]) {
			t.Errorf("Secret %s is another", n)
		}
	}
	e.Kubectl(t, e.Kubeconfig(t, x.key("half")), "get", "namespaces")
}

// restarted starts all services again and has all tenants looked at.
func (x *adopting) restarted(t *testing.T) {
	for _, p := range e.Services(t) {
		must(t, p.Stop())
		p.Restart(t)
	}
	for _, n := range []string{"made", onMySQL, onNATS, onPostgres} {
		env.Eventually(t, "a look at "+n, func() error {
			if code, out := stoker(t, "resync", n); code != 0 {
				return fmt.Errorf("%d: %s", code, out)
			}
			return nil
		})
		e.Ready(t, x.key(n))
		x.same(t, n)
	}
}

// back has Kamaji work on the tenants again, and then Stoker once more.
func (x *adopting) back(t *testing.T) {
	all := []string{"made", onMySQL, onNATS, onPostgres}
	e.NoServices(t)
	for _, n := range all {
		patch := map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{name.AnnotationAdopt: nil, name.AnnotationDataStore: nil},
		}}
		must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, "default", n, patch, nil))
	}
	controller := e.Kamaji(t)
	for _, n := range all {
		x.awaitKamaji(t, n)
	}
	controller.Kill()
	for _, n := range all {
		now := look(t, x.key(n))
		unmoved(t, x.before[n], now)
		if !v1alpha1.MadeByKamaji(&now.tenant) {
			t.Errorf("%s would not be left alone: %+v", n, now.tenant.ObjectMeta)
		}
		kept(t, e.Kubeconfig(t, x.key(n)))
	}
	e.Services(t)
	env.Eventually(t, "Kamaji's lease to end, and all to be adopted again", func() error {
		if code, out := stoker(t, "adopt", "-A", "--wave", "100%"); code != 0 {
			return fmt.Errorf("%d: %s", code, out)
		}
		return nil
	})
	for _, n := range all {
		e.Ready(t, x.key(n))
		x.same(t, n)
	}
}

// untunnelled switches konnectivity off.
func (x *adopting) untunnelled(t *testing.T) {
	patch := map[string]any{"spec": map[string]any{"addons": map[string]any{"konnectivity": nil}}}
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, "default", "made", patch, nil))
	tunnel := &tunnelled{whole: t, key: x.key("made"), kubeconfig: e.Kubeconfig(t, x.key("made"))}
	env.Eventually(t, "nothing of konnectivity", func() error { return tunnel.nothing(t) })
	e.Ready(t, x.key("made"))
}

// leftAlone shows that nothing is done for a tenant that isn't adopted, one of so many.
func leftAlone(t *testing.T, key events.Key, before tenantLook, held int) {
	t.Helper()
	env.Eventually(t, "intake to have seen it", func() error {
		text, err := e.Service(t, name.ServiceIntake, "a").Metrics(t.Context())
		if err == nil && !strings.Contains(text, fmt.Sprintf(`stoker_intake_held_tenants{service="intake"} %d`, held)) {
			err = errNotYet
		}
		return err
	})
	if code, out := stoker(t, "why", key.Name); code != 1 || !strings.Contains(out, "stoker adopt "+key.Name+" -n default") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := stoker(t, "sleep", key.Name); code != 1 || !strings.Contains(out, name.AnnotationAdopt) {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := stoker(t, "get"); code != 0 || !strings.Contains(out, "NotAdopted") {
		t.Errorf("%d: %s", code, out)
	}
	now := look(t, key)
	unmoved(t, before, now)
	if now.tenant.ResourceVersion != before.tenant.ResourceVersion || !maps.Equal(now.versions, before.versions) {
		t.Errorf("%v became %v", before.versions, now.versions)
	}
}

// unmoved shows that a tenant has the pods, unless those must be others, the template and the Secrets that it had.
func unmoved(t *testing.T, before, after tenantLook) {
	t.Helper()
	if before.tenant.Name != onMySQL {
		for _, diff := range []string{cmp.Diff(before.pods, after.pods), cmp.Diff(before.template, after.template)} {
			if diff != "" {
				t.Errorf("%s: %s", before.tenant.Name, diff)
			}
		}
	}
	for n, data := range before.data {
		if before.keeps(n) && !reflect.DeepEqual(data, after.data[n]) {
			t.Errorf("Secret %s is another", n)
		}
	}
}

// keeps reports whether a Secret's content stays: konnectivity's, which names system:masters, is replaced, and so is what kine had of the
// DataStore's administrator. NATS' DataStore has more to say.
func (l tenantLook) keeps(secret string) bool {
	n, driver := l.tenant.Name, l.tenant.Status.Storage.Driver
	return secret != name.KonnectivityCertificate(n) && secret != name.KonnectivityKubeconfig(n) &&
		(driver == string(v1alpha1.DriverEtcd) || secret != name.DatastoreCertificate(n)) &&
		(driver != string(v1alpha1.DriverNATS) || secret != name.DatastoreConfig(n))
}

// replaced asks for something that takes other pods, and shows that they are Stoker's.
func (x *adopting) replaced(t *testing.T, n string) {
	t.Helper()
	key, before := x.key(n), x.before[n]
	patch := map[string]any{"spec": map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{
		"podAdditionalMetadata": map[string]any{"annotations": map[string]string{"example.com/asked": "for"}},
	}}}}
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil))
	var d appsv1.Deployment
	env.Eventually(t, "pods with what is asked for", func() error {
		get(t, kube.Deployments, key.Namespace, key.Name, &d)
		if d.Spec.Template.Annotations["example.com/asked"] != "for" || d.Status.UpdatedReplicas != 1 || d.Status.Replicas != 1 ||
			d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != 1 {
			return errNotYet
		}
		return nil
	})
	pod := d.Spec.Template.Spec
	for _, v := range pod.Volumes {
		if v.Name == "etc-ssl-certs" || v.Name == "kine-config" || v.Name == "konnectivity-server-kubeconfig" && v.Secret != nil {
			t.Errorf("%s: Kamaji's volume %s is left", n, v.Name)
		}
	}
	if len(pod.Containers) != 3 || slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == "chmod" }) {
		t.Errorf("%s has %d containers, and the init containers %v", n, len(pod.Containers), pod.InitContainers)
	}
	if kube.Formerly(&d) || d.Spec.Template.Annotations[name.AnnotationConfigHash] == "" {
		t.Errorf("%+v", d.ObjectMeta)
	}
	e.Ready(t, key)
	after := look(t, key)
	for n, data := range before.data {
		if before.keeps(n) && !reflect.DeepEqual(data, after.data[n]) {
			t.Errorf("Secret %s is another", n)
		}
	}
	kept(t, e.Kubeconfig(t, key))
}

// tenantLook is what must not change when a tenant is adopted.
type tenantLook struct {
	tenant   v1alpha1.TenantControlPlane
	pods     map[string]string            // UID and restarts by name
	data     map[string]map[string][]byte // of Secrets
	template corev1.PodTemplateSpec
	versions map[string]string
}

func look(t *testing.T, key events.Key) tenantLook {
	t.Helper()
	l := tenantLook{pods: map[string]string{}, data: map[string]map[string][]byte{}, versions: map[string]string{}}
	var pods corev1.PodList
	var secrets corev1.SecretList
	var d appsv1.Deployment
	get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &l.tenant)
	if err := e.Admin.Get(t.Context(), kube.Deployments, key.Namespace, key.Name, &d); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	selector := labels.FormatLabels(name.Selector(key.Name))
	e.List(t, kube.Pods, key.Namespace, selector, &pods)
	e.List(t, kube.Secrets, key.Namespace, selector, &secrets)
	for _, p := range pods.Items {
		l.pods[p.Name] = fmt.Sprint(p.UID, " ", p.Status.ContainerStatuses[0].RestartCount)
	}
	for _, s := range secrets.Items {
		l.data[s.Name], l.versions[s.Name] = s.Data, s.ResourceVersion
	}
	// Its status goes on changing: pods of a half-made tenant become ready.
	l.template, l.versions[d.Name] = d.Spec.Template, fmt.Sprint(d.UID, d.Generation, d.Labels)
	return l
}

// rsaDataStore runs an etcd whose authority has the kind of key that Kamaji can sign with.
func rsaDataStore(t *testing.T, n string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	certificate, err := pki.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: n}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, key, nil)
	must(t, err)
	dir := filepath.Join(e.Local.Dir(), "pki", local.DriverEtcd+"-"+n)
	must(t, os.MkdirAll(dir, 0o700))
	private := pem.EncodeToMemory(&pem.Block{Type: pki.TypeRSAKey, Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for file, content := range map[string][]byte{"ca.crt": certificate, "ca.key": private} {
		must(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: n, Driver: local.DriverEtcd}))
}

// natsOfOne runs a NATS with one user, as Kamaji knows it: for one tenant, who connects as that user.
func natsOfOne(t *testing.T, n string) {
	t.Helper()
	store, err := images.Open(env.Root())
	must(t, err)
	bin, err := store.Build(t.Context(), images.NATS, nil)
	must(t, err)
	dir, port := t.TempDir(), strconv.Itoa(port.Free(t))
	authority, err := pki.OpenAuthority(dir, "ca")
	must(t, err)
	const host = "127.0.0.2" // 127.0.0.1 is, in a pod, that pod
	server, err := authority.Issue(pki.Leaf{File: "server", Name: "nats", Hosts: []string{host}})
	must(t, err)
	endpoint, config := net.JoinHostPort(host, port), filepath.Join(dir, "server.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `listen: %q
max_payload: 8MB
tls { cert_file: %q, key_file: %q, ca_file: %q }
jetstream { store_dir: %q }
authorization { users: [{ user: kamaji, password: kamaji }] }
`, endpoint, server.CertFile, server.KeyFile, authority.CertFile, dir), 0o600))
	cmd := exec.Command(filepath.Join(bin, "nats-server"), "-c", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// Kamaji would make the bucket otherwise than a kine as new as the local stack's, which ends then.
	env.Eventually(t, "NATS to keep data", func() error {
		c, err := nats.Connect("nats://"+endpoint, nats.RootCAs(authority.CertFile), nats.UserInfo("kamaji", "kamaji"))
		if err != nil {
			return err
		}
		defer c.Close()
		js, err := jetstream.New(c)
		if err != nil {
			return err
		}
		_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
			Bucket: "default_" + strings.ReplaceAll(n, "-", "_"), Description: "Holds kine key/values", History: 10,
		})
		return err
	})
	admin, err := clientcmd.BuildConfigFromFlags("", e.Local.Kubeconfig("admin"))
	must(t, err)
	must(t, local.PasswordObjects("NATS", n, n, endpoint, authority.Cert, "kamaji", "kamaji").Apply(t.Context(), admin))
	clientCertificate(t, n, authority, false)
}
