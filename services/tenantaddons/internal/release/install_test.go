package release

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

var (
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	roles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// web is a chart with five objects.
func web() map[string]string {
	return map[string]string{
		"templates/config.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {greeting: "{{ .Values.greeting }}"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ .Release.Name }}"}`,
		"templates/role.yaml": `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "{{ .Release.Name }}"}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "{{ .Release.Name }}"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "{{ .Release.Name }}"}
subjects: [{kind: ServiceAccount, name: "{{ .Release.Name }}"}]`,
		"templates/deployment.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: 1
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec: {containers: [{name: web, image: "registry.example/web:1", env: [{name: A, value: a}]}]}`,
	}
}

func greeting(text string) map[string]any { return map[string]any{"greeting": text} }

func (s *apiServer) get(t testing.TB, r schema.GroupVersionResource, namespace, object string) *unstructured.Unstructured {
	t.Helper()
	u, err := s.admin.Resource(r).Namespace(namespace).Get(t.Context(), object, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *apiServer) has(t testing.TB, r schema.GroupVersionResource, namespace, object string) bool {
	t.Helper()
	_, err := s.admin.Resource(r).Namespace(namespace).Get(t.Context(), object, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// history are the revisions of a release and their states, as helm history shows them.
func (s *apiServer) history(t testing.TB, id ID) []string {
	t.Helper()
	list, err := s.admin.Resource(secrets).Namespace(id.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=" + id.Name})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		l := list.Items[i].GetLabels()
		all = append(all, l["version"]+" "+l["status"])
	}
	slices.Sort(all)
	return all
}

func (s *apiServer) wantHistory(t testing.TB, id ID, want ...string) {
	t.Helper()
	if got := s.history(t, id); !slices.Equal(got, want) {
		t.Errorf("history is %q, want %q", got, want)
	}
}

func TestInstallUpgradeAndUninstall(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	verbs := make(chan string, 1000)
	c := open(t, kube.Options{Requests: func(verb string, _ int, _ time.Duration) { requests.Add(1); verbs <- verb }})
	count := func(what string) {
		byVerb := map[string]int{}
		for len(verbs) > 0 {
			byVerb[<-verbs]++
		}
		t.Logf("%s: %d requests %v", what, requests.Swap(0), byVerb)
	}
	id := newID()
	if in, err := c.Read(t.Context(), id); in != nil || err != nil {
		t.Fatalf("before there is any: %v, %v", in, err)
	}
	count("reading that there is none")
	files := web()
	ch := newChart(files)
	in, err := c.Install(t.Context(), Release{ID: id, Chart: ch, Values: greeting("hello")})
	if err != nil {
		t.Fatal(err)
	}
	count("installing 5 objects")
	if n := len(in.Objects()); n != 5 || in.Revision != 1 {
		t.Errorf("%d objects in revision %d", n, in.Revision)
	}
	config := server.get(t, configMaps, id.Namespace, id.Name)
	labels := config.GetLabels()
	if labels[name.LabelTenantAddon] != id.Addon.Name || labels[name.LabelTenantAddonNamespace] != "platform" || labels[labelManagedBy] != "Helm" {
		t.Errorf("labels are %v", labels)
	}
	for _, m := range config.GetManagedFields() {
		if m.Manager != name.FieldManagerTenantAddons || m.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("a field manager is %s, by %s", m.Manager, m.Operation)
		}
	}
	pod, _, _ := unstructured.NestedStringMap(server.get(t, deployments, id.Namespace, id.Name).Object, "spec", "template", "metadata", "labels")
	if !maps.Equal(pod, map[string]string{"app": id.Name}) {
		t.Errorf("labels of pods are %v", pod)
	}
	if l := server.get(t, namespaces, "", id.Namespace).GetLabels(); l[name.LabelTenantAddon] != "" || l[labelManagedBy] != "" {
		t.Errorf("the namespace has labels %v", l)
	}
	server.wantHistory(t, id, "1 deployed")

	delete(files, "templates/role.yaml")
	if in, err = c.Install(t.Context(), Release{ID: id, Chart: newChart(files), Values: greeting("hi")}); err != nil {
		t.Fatal(err)
	}
	count("upgrading to 3 objects")
	if n := len(in.Objects()); n != 3 || in.Revision != 2 {
		t.Errorf("%d objects in revision %d", n, in.Revision)
	}
	if text, _, _ := unstructured.NestedString(server.get(t, configMaps, id.Namespace, id.Name).Object, "data", "greeting"); text != "hi" {
		t.Errorf("the greeting is %q", text)
	}
	if server.has(t, roles, id.Namespace, id.Name) || server.has(t, roleBindings, id.Namespace, id.Name) {
		t.Error("what is no longer in the chart is there")
	}
	server.wantHistory(t, id, "1 superseded", "2 deployed")
	read, err := c.Read(t.Context(), id)
	count("reading")
	if err != nil || read.Revision != 2 || !slices.Equal(read.Objects(), in.Objects()) || read.fields() != in.fields() {
		t.Errorf("read %v, %v", read, err)
	}
	if strings.Contains(" "+in.fields()+" ", " 0 ") {
		t.Errorf("fields are %s", in.fields())
	}
	for range 3 {
		if _, err = c.Install(t.Context(), Release{ID: id, Chart: newChart(files)}); err != nil {
			t.Fatal(err)
		}
	}
	server.wantHistory(t, id, "3 superseded", "4 superseded", "5 deployed")
	count("three upgrades")

	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Fatal(err)
	}
	count("uninstalling")
	if server.has(t, configMaps, id.Namespace, id.Name) || server.has(t, deployments, id.Namespace, id.Name) {
		t.Error("what was uninstalled is there")
	}
	server.wantHistory(t, id)
	if !server.has(t, namespaces, "", id.Namespace) {
		t.Error("the namespace is gone")
	}
	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Errorf("what isn't there: %v", err)
	}
	count("uninstalling nothing")
	if len(ch.Metadata.Dependencies) != 0 || len(ch.Values) != 0 {
		t.Error("the chart was changed")
	}
}
