package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition is a CRD of the kind Widget in a group.
func definition(group string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: "widgets.` + group + `"}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`
}

func group(id ID) string { return id.Name + ".example" }

func widgets(id ID) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group(id), Version: "v1", Resource: "widgets"}
}

// everything is a chart with objects of several kinds, a hook, a CRD and an object of its kind; before it is upgraded and after.
func everything(t testing.TB, id ID, upgraded bool) Release {
	files := web()
	files["templates/widget.yaml"] = "apiVersion: " + group(id) + "/v1\nkind: Widget\nmetadata: {name: one}\nspec: {size: 1}"
	files["templates/hook.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, annotations: {helm.sh/hook: 'pre-install,pre-upgrade,pre-delete'}}"
	if upgraded {
		delete(files, "templates/role.yaml")
		files["templates/more.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}"
	}
	return Release{ID: id, Chart: newChart(files), Values: greeting(fmt.Sprint("upgraded ", upgraded)), CRDs: objects(t, definition(group(id)))}
}

// wantEverything checks what there is of everything.
func wantEverything(t testing.TB, id ID, upgraded bool) {
	t.Helper()
	selector := metav1.ListOptions{LabelSelector: name.LabelTenantAddon + "=" + id.Addon.Name}
	var got []string
	for _, r := range []schema.GroupVersionResource{
		configMaps, deployments, roles, roleBindings, {Version: "v1", Resource: "serviceaccounts"}, widgets(id), crds,
	} {
		list, err := server.admin.Resource(r).List(t.Context(), selector)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			got = append(got, list.Items[i].GetKind()+" "+list.Items[i].GetName())
		}
	}
	want := []string{"ConfigMap " + id.Name, "Deployment " + id.Name, "ServiceAccount " + id.Name, "Widget one", "CustomResourceDefinition widgets." + group(id)}
	if upgraded {
		want = append(want, "ConfigMap more")
	} else {
		want = append(want, "Role "+id.Name, "RoleBinding "+id.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	if text := server.get(t, configMaps, id.Namespace, id.Name).Object["data"]; fmt.Sprint(text) != fmt.Sprintf("map[greeting:upgraded %v]", upgraded) {
		t.Errorf("data is %v", text)
	}
	history := server.history(t, id)
	for i, revision := range history {
		_, status, _ := strings.Cut(revision, " ")
		if last := i == len(history)-1; last != (status == "deployed") || !last && status != "superseded" && status != "failed" {
			t.Errorf("history is %q", history)
		}
	}
	if len(history) == 0 || len(history) > maxHistory {
		t.Errorf("history is %q", history)
	}
}

// after is a context that ends with the n-th request to a tenant, and the tenant.
func after(t testing.TB, n int32) (context.Context, *Cluster, *atomic.Int32) {
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	requests := &atomic.Int32{}
	return ctx, open(t, kube.Options{Requests: func(string, int, time.Duration) {
		if requests.Add(1) == n {
			end()
		}
	}}), requests
}

// fenced is a context whose n-th write, and all after it, may not be sent.
func fenced(t testing.TB, n int32) (context.Context, *Cluster, *atomic.Int32) {
	writes := &atomic.Int32{}
	return fence.With(t.Context(), func() bool { return writes.Add(1) < n }), open(t, kube.Options{}), writes
}

// interruptions calls do with each of the contexts until one isn't interrupted.
func interruptions(
	t *testing.T, by func(testing.TB, int32) (context.Context, *Cluster, *atomic.Int32), want error, do func(context.Context, *testing.T, *Cluster, int32) error,
) {
	step := func() int32 { return 1 }
	if testing.Short() {
		step = func() int32 { return 1 + rand.Int32N(4) } // the names of tests say which it were
	}
	for n := step(); n < 100; n += step() {
		var err error
		var requests *atomic.Int32
		ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
			var ctx context.Context
			var c *Cluster
			ctx, c, requests = by(t, n)
			err = do(ctx, t, c, n)
			if err != nil && !errors.Is(err, want) {
				t.Errorf("interrupted: %v", err)
			}
		})
		if !ok {
			return
		}
		if requests.Load() < n {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("it doesn't end")
}

func TestInstallAfterInterruption(t *testing.T) {
	t.Parallel()
	interruptions(t, after, context.Canceled, func(ctx context.Context, t *testing.T, c *Cluster, _ int32) error {
		id := newID()
		_, err := c.Install(ctx, everything(t, id, false))
		if err != nil {
			t.Log(server.history(t, id))
		}
		if _, err := open(t, kube.Options{}).Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatalf("the second time: %v", err)
		}
		wantEverything(t, id, false)
		return err
	})
}

func TestInstallOfOtherInputsAfterInterruption(t *testing.T) {
	t.Parallel()
	interruptions(t, fenced, fence.ErrFenced, func(ctx context.Context, t *testing.T, c *Cluster, _ int32) error {
		id := newID()
		_, err := c.Install(ctx, everything(t, id, false))
		if _, err := open(t, kube.Options{}).Install(t.Context(), everything(t, id, true)); err != nil {
			t.Fatalf("the second time: %v", err)
		}
		wantEverything(t, id, true)
		return err
	})
}

func TestUpgradeAfterInterruption(t *testing.T) {
	t.Parallel()
	interruptions(t, after, context.Canceled, func(ctx context.Context, t *testing.T, c *Cluster, n int32) error {
		id := newID()
		good := open(t, kube.Options{})
		if _, err := good.Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Install(ctx, everything(t, id, true))
		if err != nil {
			t.Log(server.history(t, id))
		}
		back := n%2 == 0 // by then it shall be as it was
		if _, err := good.Install(t.Context(), everything(t, id, !back)); err != nil {
			t.Fatalf("the second time: %v", err)
		}
		wantEverything(t, id, !back)
		return err
	})
}

func TestUninstallAfterInterruption(t *testing.T) {
	t.Parallel()
	interruptions(t, after, context.Canceled, func(ctx context.Context, t *testing.T, c *Cluster, n int32) error {
		id := newID()
		good := open(t, kube.Options{})
		if _, err := good.Install(t.Context(), everything(t, id, false)); err != nil {
			t.Fatal(err)
		}
		err := c.Uninstall(ctx, id, Removal{})
		if n%3 == 0 { // by then it shall be there
			if _, err := good.Install(t.Context(), everything(t, id, false)); err != nil {
				t.Fatalf("installed again: %v", err)
			}
			wantEverything(t, id, false)
			return err
		}
		if err := good.Uninstall(t.Context(), id, Removal{}); err != nil {
			t.Fatalf("the second time: %v", err)
		}
		wantNothing(t, id)
		return err
	})
}

func wantNothing(t testing.TB, id ID) {
	t.Helper()
	selector := metav1.ListOptions{LabelSelector: name.LabelTenantAddon + "=" + id.Addon.Name}
	for _, r := range []schema.GroupVersionResource{configMaps, secrets, deployments, roles, roleBindings} {
		list, err := server.admin.Resource(r).List(t.Context(), selector)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			t.Errorf("there is %s %s", list.Items[i].GetKind(), list.Items[i].GetName())
		}
	}
	poll.True(t, "the CRD is gone", func() bool { return !server.has(t, crds, "", "widgets."+group(id)) })
}

// Whoever is in the tenant may use Helm, too, and be interrupted or delete what it has noted.
func TestInstallAfterOthersUsedHelm(t *testing.T) {
	t.Parallel()
	for sentence, do := range map[string]func(*testing.T, ID, *operation){
		"rolled back": func(t *testing.T, id ID, o *operation) {
			if err := action.NewRollback(o.helm).Run(id.Name); err == nil {
				t.Error("it wasn't interrupted")
			}
			server.wantHistory(t, id, "1 superseded", "2 deployed", "3 pending-rollback")
		},
		"uninstalled, with history": func(t *testing.T, id ID, o *operation) {
			un := action.NewUninstall(o.helm)
			un.KeepHistory, un.DisableHooks = true, true
			_, _ = un.Run(id.Name)
		},
		"deleted the latest revision": func(t *testing.T, id ID, _ *operation) {
			server.delete(t, secrets, id.Namespace, secretName(id.Name, 2))
		},
		"deleted the first revision": func(t *testing.T, id ID, _ *operation) {
			server.delete(t, secrets, id.Namespace, secretName(id.Name, 1))
		},
		"deleted all revisions": func(t *testing.T, id ID, _ *operation) {
			server.delete(t, secrets, id.Namespace, secretName(id.Name, 1))
			server.delete(t, secrets, id.Namespace, secretName(id.Name, 2))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			id, good := newID(), open(t, kube.Options{})
			for _, upgraded := range []bool{false, true} {
				if _, err := good.Install(t.Context(), everything(t, id, upgraded)); err != nil {
					t.Fatal(err)
				}
			}
			ctx := t.Context()
			if sentence == "rolled back" {
				ctx, _, _ = fenced(t, 4)
			}
			o, err := good.begin(ctx, id, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.discover(); err != nil {
				t.Fatal(err)
			}
			do(t, id, o)
			t.Log(server.history(t, id))
			if _, err := good.Install(t.Context(), everything(t, id, true)); err != nil {
				t.Fatal(err)
			}
			wantEverything(t, id, true)
		})
	}
}

// What is in the tenant must not cost this process its memory.
func TestSecretsThatAreTooMuch(t *testing.T) {
	t.Parallel()
	c := open(t, kube.Options{})
	secret := func(id ID, version int, data string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, labels: {owner: helm, name: %s, version: '%d', status: deployed}}\ndata: {release: %q}",
			secretName(id.Name, version), id.Name, version, data)
	}
	t.Run("unpacked", func(t *testing.T) {
		t.Parallel()
		id := newID()
		var bomb bytes.Buffer
		zip := gzip.NewWriter(&bomb)
		if _, err := io.CopyN(zip, zeros{}, largestRevision+1); err != nil {
			t.Fatal(err)
		}
		_ = zip.Close()
		encoded := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(bomb.Bytes())))
		server.create(t, namespaces, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+id.Namespace+"}")
		server.create(t, secrets, id.Namespace, secret(id, 1, encoded))
		_, err := c.Read(t.Context(), id)
		wantError(t, err, tenantaddon.ReasonTaken, secretName(id.Name, 1), "32 MB")
	})
	t.Run("in number", func(t *testing.T) {
		t.Parallel()
		id := newID()
		server.create(t, namespaces, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+id.Namespace+"}")
		for i := range mostRevisions + 1 {
			server.create(t, secrets, id.Namespace, secret(id, i+1, ""))
		}
		_, err := c.Install(t.Context(), everything(t, id, false))
		wantError(t, err, tenantaddon.ReasonTaken, "more than 16 Secrets", "name="+id.Name)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
