package intake

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

func TestProvided(t *testing.T) {
	o := demo()
	own := &object{ObjectMeta: o.ObjectMeta, tenant: o}
	controls := true
	o.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"},
		{APIVersion: "controlplane.cluster.x-k8s.io/v1alpha1", Kind: "KamajiControlPlane", Name: "kcp", Controller: &controls},
	}
	there := &object{ObjectMeta: o.ObjectMeta, tenant: o}
	for patch, want := range map[string]string{
		`{"spec":{"controlPlane":{"deployment":{"replicas":0}}}}`:   "spec.controlPlane.deployment.replicas=0 spec.replicas",
		`{"spec":{"controlPlane":{"deployment":null}}}`:             "spec.controlPlane.deployment= spec.deployment",
		`{"spec":{"kubernetes":{"version":"v1.36.3"}}}`:             "spec.kubernetes.version=v1.36.3 spec.version",
		`{"spec":{"kubernetes":{"apiServer":{"issuers":[]}}}}`:      "spec.kubernetes.apiServer.issuers=[] spec",
		`{"spec":{"dataStore":"b"}}`:                                "spec.dataStore=b spec.dataStoreName",
		`{"spec":{"dataStoreSchema":"b"}}`:                          "spec.dataStoreSchema=b spec.dataStoreSchema",
		`{"spec":null}`:                                             "",
		`{"spec":{"writePermissions":{"blockCreation":true}}}`:      "",
		`{"metadata":{"annotations":{"stoker.dev/wake-at":"0 8"}}}`: "",
	} {
		parsed, _ := parse([]byte(patch))
		found := provided(there, parsed)
		got := ""
		if len(found) > 0 {
			_, field, _ := strings.Cut(found[0].Message, "change ")
			field, _, _ = strings.Cut(field, " there")
			got = fmt.Sprintf("%s=%s %s", found[0].Field, found[0].Value, field)
		}
		if got != want || len(found) > 0 && found[0].Rule != event.RuleForbidden {
			t.Errorf("%s: %q", patch, got)
		}
		if bad := provided(own, parsed); bad != nil {
			t.Errorf("%s of a tenant that no provider makes: %v", patch, bad)
		}
	}
	if providedWhole(there) == nil || providedWhole(own) != nil || providedWhole(nil) != nil {
		t.Error("whole")
	}
}
