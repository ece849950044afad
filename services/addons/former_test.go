package addons

import (
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// TestTakeOver has in a tenant what Kamaji has there by updates, and, in some versions, by server-side apply.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	tn := startTenant(t)
	objs, err := Render(tn.in)
	if err != nil {
		t.Fatal(err)
	}
	coredns := slices.DeleteFunc(objs, func(o *unstructured.Unstructured) bool {
		return RefOf(o) != Ref{"Deployment", "kube-system", "coredns"}
	})
	by := func(manager, contentType, body string) {
		path := kube.Deployments.Path("kube-system", "coredns")
		err := tn.rest.Patch(types.PatchType(contentType)).AbsPath(path).Param("fieldManager", manager).Body([]byte(body)).Do(t.Context()).Error()
		if err != nil {
			t.Fatal(err)
		}
	}
	applied := coredns[0].DeepCopy()
	applied.SetLabels(map[string]string{"applied": "x"})
	body, err := applied.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	by("kamaji", apply, string(body))
	by("kamaji", merge, `{"metadata":{"labels":{"updated":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`)
	by("somebody", merge, `{"metadata":{"labels":{"others":"x"}}}`)
	// Nobody answers for them.
	tn.webhook(t, "kamaji-write-permissions", "catchall.write-permissions.kamaji.clastix.io", "deployments")
	tn.webhook(t, "kamaji-freeze", "own.example.com", "statefulsets") // by its name alone Kamaji's

	read := func() (o metav1.PartialObjectMetadata) {
		if err := tn.kube.Get(t.Context(), kube.Deployments, "kube-system", "coredns", &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for range 2 {
		// The API server forgets a webhook a moment after its configuration is deleted.
		poll.Nil(t, "CoreDNS to be taken over", func() error { return tn.takeOver(t.Context(), coredns) })
		if o := read(); kube.Formerly(&o) || o.Generation != 1 || o.Labels["applied"] != "x" || o.Labels["updated"] != "x" {
			t.Errorf("%+v", o)
		}
	}
	for n, there := range map[string]bool{"kamaji-write-permissions": false, "kamaji-freeze": true} {
		err := tn.kube.Get(t.Context(), kube.ValidatingWebhookConfigurations, "", n, &metav1.PartialObjectMetadata{})
		if there != (err == nil) || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", n, err)
		}
	}
	if _, err := tn.Apply(t.Context(), coredns); err != nil {
		t.Fatal(err)
	}
	if o := read(); o.Labels["applied"] != "" || o.Labels["updated"] != "" || len(o.OwnerReferences) > 0 || o.Labels["others"] != "x" {
		t.Errorf("%v, %v", o.Labels, o.OwnerReferences)
	}
}

// apply is the content type of a server-side apply.
const apply = "application/apply-patch+yaml"

// webhook registers a webhook that nobody answers for, of a resource.
func (tn *tenant) webhook(t testing.TB, of, n, resource string) {
	t.Helper()
	tn.raw(t, http.MethodPost, kube.ValidatingWebhookConfigurations.Path("", ""), "application/json",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"`+of+`"},"webhooks":[
{"name":"`+n+`","clientConfig":{"url":"https://kamaji-webhook-service.kamaji-system.svc:443/x"},"rules":[{"operations":["*"],"apiGroups":["apps"],
"apiVersions":["*"],"resources":["`+resource+`"],"scope":"*"}],"failurePolicy":"Fail","sideEffects":"NoneOnDryRun","admissionReviewVersions":["v1"]}]}`)
}
