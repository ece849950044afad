package capi

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestGates(t *testing.T) {
	for text, says := range map[string]string{
		"": "", "ExternalClusterReference=true": "", "ExternalClusterReference=true, SkipInfraClusterPatch=false": "",
		"DynamicInfrastructureClusterPatch=true":      "",
		"ExternalClusterReference":                    "must be <gate>=true",
		"ExternalClusterReference=yes":                "must be <gate>=true",
		"Other=true":                                  "with a gate of ExternalClusterReference,",
		"ExternalClusterReferenceCrossNamespace=true": "needs ExternalClusterReference=true, too",
	} {
		if _, err := gatesOf(text); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPlaced(t *testing.T) {
	ref := func(change ...func(*controlplane.ExternalClusterReference)) *controlplane.ExternalClusterReference {
		r := &controlplane.ExternalClusterReference{KubeconfigSecretName: "far", KubeconfigSecretKey: "value", DeploymentNamespace: "there"}
		for _, c := range change {
			c(r)
		}
		return r
	}
	const was = `{"secret":"a/old","key":"k","namespace":"there","name":"kcp-0","namespaceUID":"u"}`
	both := map[string]bool{gateExternal: true, gateCrossNamespace: true}
	for what, c := range map[string]struct {
		ref      *controlplane.ExternalClusterReference
		recorded string
		deleted  bool
		gates    map[string]bool
		want     *record
		says     string
	}{
		"here":      {},
		"elsewhere": {ref: ref(), gates: both, want: &record{"a/far", "value", "there", "kcp-1", ""}},
		"its own namespace": {
			ref: ref(func(r *controlplane.ExternalClusterReference) { r.DeploymentNamespace = "" }), gates: both, want: &record{"a/far", "value", "a", "kcp-1", ""},
		},
		"where it was": {ref: ref(), recorded: was, gates: both, want: &record{"a/far", "value", "there", "kcp-0", "u"}},
		"another namespace": {
			ref: ref(func(r *controlplane.ExternalClusterReference) { r.DeploymentNamespace = "x" }), recorded: was, gates: both, says: "must stay there",
		},
		"taken away":                 {recorded: was, gates: both, says: "was taken away"},
		"deleted":                    {recorded: was, deleted: true, gates: both, want: &record{"a/old", "k", "there", "kcp-0", "u"}},
		"deleted, not allowed":       {recorded: was, deleted: true, says: "--feature-gates=ExternalClusterReference=true"},
		"deleted, by another Secret": {ref: ref(), recorded: was, deleted: true, gates: both, want: &record{"a/far", "value", "there", "kcp-0", "u"}},
		"deleted, and referred elsewhere": {
			ref: ref(func(r *controlplane.ExternalClusterReference) { r.DeploymentNamespace = "x" }), recorded: was, deleted: true, gates: both,
			want: &record{"a/old", "k", "there", "kcp-0", "u"},
		},
		"a record of nothing": {recorded: "{}", ref: ref(), gates: both, says: "must be as capi wrote it"},
		"not allowed":         {ref: ref(), says: "--feature-gates=ExternalClusterReference=true"},
		"another namespace's Secret, not allowed": {
			ref: ref(func(r *controlplane.ExternalClusterReference) { r.KubeconfigSecretNamespace = "b" }), gates: map[string]bool{gateExternal: true},
			says: "ExternalClusterReferenceCrossNamespace=true",
		},
		"another namespace's Secret": {
			ref: ref(func(r *controlplane.ExternalClusterReference) { r.KubeconfigSecretNamespace = "b" }), gates: both,
			want: &record{"b/far", "value", "there", "kcp-1", ""},
		},
	} {
		t.Run(what, func(t *testing.T) {
			o := &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "shop", UID: "1"}}
			o.Spec.Deployment.ExternalClusterReference = c.ref
			if c.recorded != "" {
				o.Annotations = map[string]string{name.AnnotationExternalTenant: c.recorded}
			}
			if c.deleted {
				o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			got, err := (&svc{gates: c.gates}).placed(o)
			var held *heldError
			switch {
			case c.says != "" && (!errors.As(err, &held) || !strings.Contains(held.message, c.says)):
				t.Errorf("%v", err)
			case c.says == "" && (err != nil || (got == nil) != (c.want == nil) || got != nil && *got != *c.want):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestWhoseATenantElsewhereIs(t *testing.T) {
	for of, want := range map[string]bool{"a/shop": true, "a/other": false, "": false} {
		w := &work{o: &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, visit: &visit{}}
		w.turn = &loop.Turn{Key: events.Tenant("a", "shop")}
		tenant := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "kcp-1", Annotations: map[string]string{name.AnnotationControlPlane: of}}}
		if got := w.owns(tenant); got != want {
			t.Errorf("%q: %t", of, got)
		}
	}
	w := &work{o: &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, visit: &visit{}, turn: &loop.Turn{Key: events.Tenant("a", "shop")}}
	for n, want := range map[string]bool{"kcp-1": true, "kcp-2": false} { // of Kamaji's provider, which names nobody
		if got := w.owns(&v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Name: n}}); got != want {
			t.Errorf("%s: %t", n, got)
		}
	}
}

func TestATenantIsNotMadeAgainInAnotherCluster(t *testing.T) {
	for what, c := range map[string]struct {
		was    string
		tenant bool
		says   string
	}{
		"placed for the first time":                          {},
		"not there any more":                                 {was: "is"},
		"another cluster":                                    {was: "other", says: "leads to another cluster"},
		"in a namespace that was made anew, or brought back": {was: "other", tenant: true},
	} {
		w := &work{o: &controlplane.KamajiControlPlane{}, visit: &visit{uid: "is"}, placing: &record{NamespaceUID: types.UID(c.was)}}
		if c.tenant {
			w.tenant = &v1alpha1.TenantControlPlane{}
		}
		err := w.sameCluster()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && w.placing.NamespaceUID != "is" {
			t.Errorf("%s: %v, %+v", what, err, w.placing)
		}
	}
}
