package capi

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func tenantAt(phase v1alpha1.KubernetesVersionStatus, runs, asked string, replicas, updated int32) *v1alpha1.TenantControlPlane {
	t := &v1alpha1.TenantControlPlane{}
	t.Spec.Kubernetes.Version = asked
	t.Status.Kubernetes.Version = v1alpha1.KubernetesVersion{Version: runs, Status: &phase}
	d := &v1alpha1.KubernetesDeploymentStatus{Selector: "a=b"}
	d.Replicas, d.UpdatedReplicas, d.ReadyReplicas, d.AvailableReplicas = replicas, updated, replicas, replicas
	t.Status.Kubernetes.Deployment = d
	return t
}

func TestStatusOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		tenant      *v1alpha1.TenantControlPlane
		initialized bool
		want        string
	}{
		"before there is a tenant": {nil, false,
			`{"initialization":{"controlPlaneInitialized":false},"initialized":false,"ready":false,"replicas":0,"readyReplicas":0,"availableReplicas":0,"upToDateReplicas":0,"updatedReplicas":0,"unavailableReplicas":0,"externalManagedControlPlane":true,"observedGeneration":7}`},
		"before its API has answered there is no version": {tenantAt(v1alpha1.VersionProvisioning, "v1.35.4", "v1.35.4", 1, 1), false,
			`{"initialization":{"controlPlaneInitialized":false},"initialized":false,"ready":false,"replicas":1,"readyReplicas":1,"availableReplicas":1,"upToDateReplicas":1,"updatedReplicas":1,"unavailableReplicas":0,"selector":"a=b","externalManagedControlPlane":true,"observedGeneration":7}`},
		"when it works": {tenantAt(v1alpha1.VersionReady, "v1.35.4", "v1.35.4", 2, 2), true,
			`{"initialization":{"controlPlaneInitialized":true},"initialized":true,"ready":true,"replicas":2,"readyReplicas":2,"availableReplicas":2,"upToDateReplicas":2,"updatedReplicas":2,"unavailableReplicas":0,"selector":"a=b","version":"v1.35.4","versions":[{"version":"v1.35.4","replicas":2}],"externalManagedControlPlane":true,"observedGeneration":7}`},
		"during an upgrade both versions run, and it can be used": {tenantAt(v1alpha1.VersionUpgrading, "v1.35.4", "v1.36.3", 3, 1), true,
			`{"initialization":{"controlPlaneInitialized":true},"initialized":true,"ready":true,"replicas":3,"readyReplicas":3,"availableReplicas":3,"upToDateReplicas":1,"updatedReplicas":1,"unavailableReplicas":0,"selector":"a=b","version":"v1.35.4","versions":[{"version":"v1.35.4","replicas":2},{"version":"v1.36.3","replicas":1}],"externalManagedControlPlane":true,"observedGeneration":7}`},
		"asleep it is initialized still": {tenantAt(v1alpha1.VersionSleeping, "v1.36.3", "v1.36.3", 0, 0), true,
			`{"initialization":{"controlPlaneInitialized":true},"initialized":true,"ready":false,"replicas":0,"readyReplicas":0,"availableReplicas":0,"upToDateReplicas":0,"updatedReplicas":0,"unavailableReplicas":0,"selector":"a=b","version":"v1.36.3","versions":[{"version":"v1.36.3"}],"externalManagedControlPlane":true,"observedGeneration":7}`},
	} {
		o := &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		got, err := json.Marshal(statusOf(o, c.tenant, c.initialized, nil))
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n%s, not\n%s", sentence, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	begun := time.Unix(1000, 0)
	o := &controlplane.KamajiControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	w := &work{report: reportOn(o, begun)}
	if done, err := w.step(controlplane.ConditionTenantCreated, nil); !done || err != nil || w.held {
		t.Error(done, err, w.held)
	}
	if done, err := w.step(controlplane.ConditionKubeadmResourcesCreated, waits("no Secret yet")); done || err != nil || !w.held {
		t.Error(done, err, w.held)
	}
	o.Status.Conditions = w.sorted()
	w = &work{report: reportOn(o, begun.Add(time.Hour))}
	_, _ = w.step(controlplane.ConditionTenantCreated, nil)
	away := errors.New("the API server is away")
	if done, err := w.step(controlplane.ConditionKubeadmResourcesCreated, away); done || !errors.Is(err, away) || w.held {
		t.Error(done, err, w.held)
	}
	if held := w.heldFor(); held != time.Hour {
		t.Error(held)
	}
	got := w.sorted()
	if c := got[1]; c.Type != controlplane.ConditionTenantCreated || !c.LastTransitionTime.Time.Equal(begun) || c.Reason != controlplane.ReasonSucceeded {
		t.Errorf("%+v", c)
	}
	if c := got[0]; c.Status != metav1.ConditionFalse || c.Reason != controlplane.ReasonFailed || o.Status.Conditions[0].Reason != controlplane.ReasonWaitingForTenant {
		t.Errorf("%+v, before %+v", c, o.Status.Conditions[0])
	}
}
