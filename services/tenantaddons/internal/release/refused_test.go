package release

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// wantError checks an error's reason, and what its message has.
func wantError(t testing.TB, err error, reason string, says ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason != reason {
		t.Errorf("the error is %v, want reason %s", err, reason)
		return
	}
	for _, text := range says {
		if !strings.Contains(e.Message, text) {
			t.Errorf("%q doesn't have %q", e.Message, text)
		}
	}
	t.Log(e.Reason+":", e.Message)
}

// create makes an object as somebody with kubectl.
func (s *apiServer) create(t testing.TB, r schema.GroupVersionResource, namespace, manifest string) {
	t.Helper()
	for _, u := range objects(t, manifest) {
		if _, err := s.admin.Resource(r).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsSomebodyElses(t *testing.T) {
	t.Parallel()
	c := open(t, kube.Options{})
	t.Run("a release of another TenantAddon's", func(t *testing.T) {
		t.Parallel()
		id := newID()
		if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
		other := id
		other.Addon = types.NamespacedName{Namespace: "shop", Name: "web"}
		_, err := c.Install(t.Context(), everything(t, other, true))
		wantError(t, err, tenantaddon.ReasonTaken, "Helm release "+id.Name+" in namespace "+id.Namespace, "TenantAddon platform/"+id.Addon.Name)
		_, err = c.Read(t.Context(), other)
		wantError(t, err, tenantaddon.ReasonTaken)
		if err := c.Uninstall(t.Context(), other, Removal{}); err != nil {
			t.Error(err)
		}
		if err := c.Forget(t.Context(), other); err != nil {
			t.Error(err)
		}
		wantEverything(t, id, false)
	})
	t.Run("a release that somebody has made with Helm", func(t *testing.T) {
		t.Parallel()
		id := newID()
		if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
		server.patch(t, secrets, id.Namespace, secretName(id.Name, 1), `{"metadata":{"labels":{"stoker.dev/tenant-addon":null,"stoker.dev/tenant-addon-namespace":null}}}`)
		_, err := c.Install(t.Context(), everything(t, id, true))
		wantError(t, err, tenantaddon.ReasonTaken, "made by somebody in the tenant")
		wantEverything(t, id, false)
	})
	t.Run("an object, and what is made when it is gone", func(t *testing.T) {
		t.Parallel()
		id := newID()
		server.create(t, namespaces, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+id.Namespace+"}")
		server.create(t, configMaps, id.Namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+id.Name+"}")
		_, err := c.Install(t.Context(), everything(t, id, false))
		wantError(t, err, tenantaddon.ReasonTaken, "ConfigMap \""+id.Name+"\" in namespace \""+id.Namespace+"\" is there and isn't this Helm release's")
		server.wantHistory(t, id)
		server.delete(t, configMaps, id.Namespace, id.Name)
		if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
		server.create(t, configMaps, id.Namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}")
		_, err = c.Install(t.Context(), everything(t, id, true))
		wantError(t, err, tenantaddon.ReasonTaken, `ConfigMap "more" in`)
		wantEverything(t, id, false)
	})
	t.Run("a CRD that would go with the release", func(t *testing.T) {
		t.Parallel()
		id := newID()
		server.create(t, crds, "", definition(group(id)))
		_, err := c.Install(t.Context(), everything(t, id, false))
		wantError(t, err, tenantaddon.ReasonTaken, "CustomResourceDefinition widgets."+group(id))
		if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
			t.Error(err)
		}
		if !server.has(t, crds, "", "widgets."+group(id)) {
			t.Error("it is gone")
		}
	})
}

func TestCRDsOfACharts(t *testing.T) {
	t.Parallel()
	c, id := open(t, kube.Options{}), newID()
	at := "widgets." + group(id)
	files := map[string]string{
		"crds/widgets.yaml":     definition(group(id)),
		"templates/widget.yaml": "apiVersion: " + group(id) + "/v1\nkind: Widget\nmetadata: {name: one}",
		"templates/served.yaml": `{{ if .Capabilities.APIVersions.Has "` + group(id) + `/v1/Widget" }}` + "\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: served}\n{{ end }}",
	}
	r := Release{ID: id, Chart: newChart(files)}
	if in, err := c.Install(t.Context(), r); err != nil || len(in.Objects()) != 3 {
		t.Fatal(in, err)
	}
	files["crds/widgets.yaml"] = strings.ReplaceAll(definition(group(id)), "singular: widget,", "singular: widget, shortNames: [w],")
	r.Chart = newChart(files)
	in, err := c.Install(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if names, _, _ := unstructured.NestedStringSlice(server.get(t, crds, "", at).Object, "spec", "names", "shortNames"); len(names) != 1 {
		t.Error("the CRD wasn't upgraded")
	}
	watching(t, c, in).settle(t)
	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Fatal(err)
	}
	if labels := server.get(t, crds, "", at).GetLabels(); len(labels) != 0 {
		t.Errorf("the CRD that stays has labels %v", labels)
	}
	other := newID()
	r.ID = other
	if _, err := c.Install(t.Context(), r); err != nil {
		t.Fatalf("with the CRD that has stayed: %v", err)
	}
	third := newID()
	r.ID = third
	if in, err := c.Install(t.Context(), r); err != nil || len(in.Objects()) != 2 {
		t.Fatalf("with another's CRD: %v, %v", in, err)
	}
	read, err := c.Read(t.Context(), third)
	if err != nil || len(read.Objects()) != 2 {
		t.Fatalf("read %v, %v", read, err)
	}
	watching(t, c, read).settle(t)
	if labels := server.get(t, crds, "", at).GetLabels(); labels[name.LabelTenantAddon] != other.Addon.Name {
		t.Errorf("the CRD has labels %v", labels)
	}
}

// What is applied to a CRD that is being deleted goes with it.
func TestCRDThatIsBeingDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	id := newID()
	at := "widgets." + group(id)
	waits := make(chan struct{})
	told := sync.OnceFunc(func() { close(waits) })
	c := open(t, kube.Options{Requests: func(verb string, _ int, _ time.Duration) {
		if verb == "watch" {
			told()
		}
	}})
	server.create(t, crds, "", strings.Replace(definition(group(id)), "metadata: {name: ", "metadata: {finalizers: [example.com/kept], name: ", 1))
	server.delete(t, crds, "", at)
	installed := make(chan error, 1)
	go func() {
		_, err := c.Install(t.Context(), everything(t, id, false))
		installed <- err
	}()
	select {
	case <-waits:
	case err := <-installed:
		t.Fatalf("it didn't wait: %v", err)
	}
	server.patch(t, crds, "", at, `{"metadata":{"finalizers":null}}`)
	if err := <-installed; err != nil {
		t.Fatal(err)
	}
	wantEverything(t, id, false)
}

func TestForgotten(t *testing.T) {
	t.Parallel()
	c, id := open(t, kube.Options{}), newID()
	if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	if err := c.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*unstructured.Unstructured{
		server.get(t, deployments, id.Namespace, id.Name), server.get(t, widgets(id), id.Namespace, "one"), server.get(t, crds, "", "widgets."+group(id)),
	} {
		if _, has := u.GetLabels()[name.LabelTenantAddon]; has {
			t.Errorf("%s has labels %v", refOf(u), u.GetLabels())
		}
	}
	server.wantHistory(t, id, "1 deployed")
	id.Addon = types.NamespacedName{Namespace: "shop", Name: id.Addon.Name + "-b"}
	if _, err := c.Install(t.Context(), everything(t, id, true)); err != nil {
		t.Fatalf("taken over: %v", err)
	}
	wantEverything(t, id, true)
	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, id)
}

// A namespace that is among the objects is the release's own.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	c, id := open(t, kube.Options{}), newID()
	r := Release{ID: id, Chart: newChart(map[string]string{
		"templates/all.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + id.Namespace + ", labels: {a: b}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}",
	})}
	for range 2 {
		if _, err := c.Install(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if labels := server.get(t, namespaces, "", id.Namespace).GetLabels(); labels["a"] != "b" || labels[labelManagedBy] != "Helm" {
		t.Errorf("labels are %v", labels)
	}
	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Fatal(err)
	}
	if at := server.get(t, namespaces, "", id.Namespace).GetDeletionTimestamp(); at == nil {
		t.Error("the namespace stays")
	}
}

// endHooks is the Job controller, which ends each Job of a namespace.
func endHooks(t testing.TB, namespace, condition string) {
	jobs := server.admin.Resource(jobs).Namespace(namespace)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ended := map[types.UID]bool{}; ctx.Err() == nil; <-time.After(20 * time.Millisecond) {
			list, err := jobs.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range list.Items {
				job := &list.Items[i]
				if has, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions"); ended[job.GetUID()] || len(has) > 0 {
					continue
				}
				now := time.Now().UTC().Format(time.RFC3339)
				status := map[string]any{"startTime": now, "conditions": []any{
					map[string]any{"type": condition, "status": "True", "reason": "Because", "message": "Job has reached the specified backoff limit", "lastTransitionTime": now},
				}}
				switch condition {
				case "Complete":
					status["completionTime"] = now
					status["succeeded"] = int64(1)
					status["conditions"] = append([]any{map[string]any{"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now}}, status["conditions"].([]any)...)
				default:
					status["conditions"] = append([]any{map[string]any{"type": "FailureTarget", "status": "True", "lastTransitionTime": now}}, status["conditions"].([]any)...)
				}
				job.Object["status"] = status
				if _, err := jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{}); err == nil {
					ended[job.GetUID()] = true
				} else if !apierrors.IsConflict(err) && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() { end(); <-done })
}

// hooked is a chart with a Job as a hook.
func hooked(on string) map[string]string {
	files := web()
	files["templates/job.yaml"] = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: '" + on + "'}}\n" +
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'registry.example/a:1'}]}}}"
	return files
}

func TestHooks(t *testing.T) {
	t.Parallel()
	for sentence, on := range map[string]string{"before": "pre-install,pre-upgrade", "after": "post-install,post-upgrade"} {
		t.Run("one that fails "+sentence+", then doesn't", func(t *testing.T) {
			t.Parallel()
			c, id := open(t, kube.Options{}), newID()
			r := Release{ID: id, Chart: newChart(hooked(on)), Timeout: time.Minute}
			t.Run("fails", func(t *testing.T) {
				endHooks(t, id.Namespace, "Failed")
				_, err := c.Install(t.Context(), r)
				wantError(t, err, tenantaddon.ReasonHookFailed, "hook Job "+id.Namespace+"/migrate", "Because", "backoff limit")
			})
			if in, err := c.Read(t.Context(), id); in != nil || err != nil {
				t.Errorf("read %v, %v", in, err)
			}
			endHooks(t, id.Namespace, "Complete")
			in, err := c.Install(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(in.Objects()); n != 5 {
				t.Errorf("%d objects", n)
			}
			server.wantHistory(t, id, "1 failed", "2 deployed")
			if _, err = c.Install(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("one that doesn't end", func(t *testing.T) {
		t.Parallel()
		c, id := open(t, kube.Options{}), newID()
		_, err := c.Install(t.Context(), Release{ID: id, Chart: newChart(hooked("pre-install")), Timeout: time.Second})
		wantError(t, err, tenantaddon.ReasonHookFailed, "hook Job "+id.Namespace+"/migrate", "didn't end within 1s")
	})
	t.Run("one before the removal that fails holds it up, until it goes on without", func(t *testing.T) {
		t.Parallel()
		c, id := open(t, kube.Options{}), newID()
		if _, err := c.Install(t.Context(), Release{ID: id, Chart: newChart(hooked("pre-delete"))}); err != nil {
			t.Fatal(err)
		}
		endHooks(t, id.Namespace, "Failed")
		for range 2 {
			err := c.Uninstall(t.Context(), id, Removal{Timeout: time.Minute})
			wantError(t, err, tenantaddon.ReasonHookFailed, "hook Job "+id.Namespace+"/migrate", "backoff limit")
		}
		if !server.has(t, configMaps, id.Namespace, id.Name) {
			t.Error("its objects are gone")
		}
		if err := c.Uninstall(t.Context(), id, Removal{NoHooks: true}); err != nil {
			t.Error(err)
		}
		server.wantHistory(t, id)
	})
}

func TestRefusedObject(t *testing.T) {
	t.Parallel()
	c, id := open(t, kube.Options{}), newID()
	files := web()
	files["templates/bad.yaml"] = "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {type: Nonsense, ports: [{port: 80}]}"
	_, err := c.Install(t.Context(), Release{ID: id, Chart: newChart(files)})
	wantError(t, err, tenantaddon.ReasonRefused, `Service "bad" is invalid`, "Nonsense")
	server.wantHistory(t, id, "1 failed")
	if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	wantEverything(t, id, false)
	more := everything(t, id, true)
	files["templates/other.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}"
	delete(files, "templates/role.yaml")
	more.Chart = newChart(files)
	_, err = c.Install(t.Context(), more)
	wantError(t, err, tenantaddon.ReasonRefused, `Service "bad" is invalid`)
	if _, err := c.Install(t.Context(), everything(t, id, false)); err != nil {
		t.Fatal(err)
	}
	wantEverything(t, id, false)

	// What a failed upgrade has left goes with the release.
	if _, err = c.Install(t.Context(), more); err == nil {
		t.Error("no error")
	}
	if err := c.Uninstall(t.Context(), id, Removal{}); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, id)

	_, err = c.Install(t.Context(), Release{ID: newID(), Chart: newChart(map[string]string{"templates/x.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {key: 471108}"})})
	wantError(t, err, tenantaddon.ReasonRefused, "secrets", "key")
	if err != nil && strings.Contains(err.Error(), "471108") {
		t.Error("the Secret is said aloud")
	}

	_, err = c.Install(t.Context(), Release{ID: newID(), Chart: newChart(map[string]string{"templates/x.yaml": "apiVersion: nowhere.example/v1\nkind: Thing\nmetadata: {name: x}"})})
	wantError(t, err, tenantaddon.ReasonRefused, "Thing x", "has no kind Thing of nowhere.example/v1")
}

func TestWhatCantBeRendered(t *testing.T) {
	t.Parallel()
	c := open(t, kube.Options{})
	const schema = `{"type":"object","properties":{"size":{"type":"integer"},"key":{"pattern":"^a"}},"required":["size"]}`
	for sentence, test := range map[string]struct {
		files  map[string]string
		values map[string]any
		reason string
		says   []string
		not    string
	}{
		"a template that is broken":     {map[string]string{"templates/a.yaml": "{{ nonsense }}"}, nil, tenantaddon.ReasonRenderFailed, []string{"nonsense", "a.yaml"}, ""},
		"a template that fails":         {map[string]string{"templates/a.yaml": `{{ fail "size must be given" }}`}, nil, tenantaddon.ReasonRenderFailed, []string{"size must be given"}, ""},
		"what is no YAML":               {map[string]string{"templates/a.yaml": "a: b: c"}, nil, tenantaddon.ReasonRenderFailed, []string{"a.yaml"}, ""},
		"an object without a name":      {map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap"}, nil, tenantaddon.ReasonRenderFailed, []string{"ConfigMap"}, ""},
		"values of another type":        {map[string]string{"values.schema.json": schema}, map[string]any{"size": "big"}, tenantaddon.ReasonInvalidValues, []string{"/size must be integer, not string"}, "big"},
		"values that are missing":       {map[string]string{"values.schema.json": schema}, nil, tenantaddon.ReasonInvalidValues, []string{"/ must have size"}, ""},
		"values that aren't said aloud": {map[string]string{"values.schema.json": schema}, map[string]any{"size": 1, "key": "s3cr3t"}, tenantaddon.ReasonInvalidValues, []string{`/key is against "pattern"`}, "s3cr3t"},
		"a schema that refers to a file of this machine": {map[string]string{"values.schema.json": `{"$ref":"file:///etc/hostname"}`}, nil,
			tenantaddon.ReasonRenderFailed, []string{"values.schema.json", "file:///etc/hostname", "isn't read"}, ""},
		"a schema that refers to a URL": {map[string]string{"values.schema.json": `{"$ref":"http://127.0.0.1:1/x"}`}, nil,
			tenantaddon.ReasonRenderFailed, []string{"http://127.0.0.1:1/x", "isn't read"}, ""},
		"a chart whose dependency isn't in it": {map[string]string{"incomplete": ""}, nil, tenantaddon.ReasonRenderFailed, []string{"chart web: ", "missing", "sub"}, ""},
		"a chart for other versions":           {nil, nil, tenantaddon.ReasonRenderFailed, []string{"kubeVersion"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			id := newID()
			ch := newChart(test.files)
			if test.files == nil {
				ch.Metadata.KubeVersion = "<1.20.0"
			}
			if _, incomplete := test.files["incomplete"]; incomplete {
				ch.Metadata.Dependencies = []*chart.Dependency{{Name: "sub"}}
			}
			_, err := c.Install(t.Context(), Release{ID: id, Chart: ch, Values: test.values})
			wantError(t, err, test.reason, test.says...)
			if err != nil && test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("%v has %q", err, test.not)
			}
			if server.has(t, namespaces, "", id.Namespace) {
				t.Error("its namespace was made")
			}
		})
	}
}

// blackHole is an address that takes connections and says nothing.
func blackHole(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestTenantsOwnWebhook(t *testing.T) {
	t.Parallel()
	hooks := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	for sentence, test := range map[string]struct {
		address, timeout, says string
	}{
		"one that nobody listens for": {port.Address(t, "127.0.0.1"), "5", "connection refused"},
		"one that hangs":              {blackHole(t), "30", "doesn't answer in time"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c, id := open(t, kube.Options{}), newID()
			webhook := "policy." + id.Namespace + ".example"
			server.create(t, hooks, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: %s
  clientConfig: {url: "https://%s/"}
  timeoutSeconds: %s
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: ["*"]}]`, webhook, webhook, test.address, test.timeout, id.Namespace))
			_, err := c.Install(t.Context(), everything(t, id, false))
			wantError(t, err, tenantaddon.ReasonTenantWebhook, "deployments "+id.Namespace+"/"+id.Name, `webhook "`+webhook+`"`, test.says)
			server.delete(t, hooks, "", webhook)
			poll.True(t, "the webhook is forgotten", func() bool {
				_, err = c.Install(t.Context(), everything(t, id, false))
				var e *Error
				return err == nil || !errors.As(err, &e) || e.Reason != tenantaddon.ReasonTenantWebhook
			})
			if err != nil {
				t.Fatal(err)
			}
			wantEverything(t, id, false)
		})
	}
}

func TestTenantThatIsAway(t *testing.T) {
	t.Parallel()
	kubeconfig := strings.Replace(string(server.kubeconfig), strings.TrimPrefix(server.config.Host, "https://"), port.Address(t, "127.0.0.1"), 1)
	c, err := Open([]byte(kubeconfig), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id := newID()
	_, err = c.Install(t.Context(), everything(t, id, false))
	_, errRead := c.Read(t.Context(), id)
	_, errRepair := c.Repair(t.Context(), &Installed{ID: id, Revision: 1}, nil)
	for what, err := range map[string]error{
		"install": err, "read": errRead, "repair": errRepair, "uninstall": c.Uninstall(t.Context(), id, Removal{}), "forget": c.Forget(t.Context(), id),
	} {
		var away *intent.Unavailable
		if !errors.As(err, &away) || away.Dependency != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A chart that is used for several tenants at a time, and its values, aren't changed.
func TestChartIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	c := open(t, kube.Options{})
	files := web()
	unique := newID().Name + ".example"
	files["crds/widgets.yaml"] = definition("shared." + unique)
	sub := newChart(map[string]string{"templates/sub.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\ndata: {a: '{{ .Values.a }}'}"})
	sub.Metadata.Name = "sub"
	sub.Values = map[string]any{"a": "1", "exports": map[string]any{"data": map[string]any{"b": "2"}}}
	made := func() *Release {
		ch := newChart(files)
		ch.AddDependency(cloneChart(sub))
		ch.Metadata.Dependencies = append(ch.Metadata.Dependencies, &chart.Dependency{Name: "sub", Condition: "sub.enabled", ImportValues: []any{"data"}})
		return &Release{Chart: ch, Values: map[string]any{"sub": map[string]any{"enabled": false}}, CRDs: objects(t, definition("other."+unique))}
	}
	shared, before := made(), made()
	t.Run("both", func(t *testing.T) {
		for range 4 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				r := *shared
				r.ID = newID()
				r.CRDs = nil
				if in, err := c.Install(t.Context(), r); err != nil || len(in.Objects()) < 5 {
					t.Error(in, err)
				}
			})
		}
	})
	r := *shared
	r.ID = newID()
	if _, err := c.Install(t.Context(), r); err != nil {
		t.Error(err)
	}
	if !equality.Semantic.DeepEqual(shared.Chart.Metadata, before.Chart.Metadata) || !equality.Semantic.DeepEqual(shared.Values, before.Values) ||
		!equality.Semantic.DeepEqual(shared.Chart.Values, before.Chart.Values) || len(shared.Chart.Dependencies()) != 1 ||
		len(shared.Chart.Files) != len(before.Chart.Files) || !equality.Semantic.DeepEqual(shared.CRDs, before.CRDs) {
		t.Error("something was changed")
	}
}
