package workload

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestFieldOf(t *testing.T) {
	in := load(t, "minimal")
	spec := &in.Tenant.Spec
	d := &spec.ControlPlane.Deployment
	d.AdditionalContainers = []corev1.Container{{Name: "audit"}, {Name: "kine", Image: "a"}}
	d.AdditionalInitContainers = []corev1.Container{{Name: "prepare"}}
	in.Datastore.Driver = string(v1alpha1.DriverPostgreSQL)
	d.AdditionalVolumes = []corev1.Volume{{Name: "policy"}, {Name: "log"}}
	spec.ControlPlane.Service.AdditionalPorts = []v1alpha1.AdditionalPort{{Name: "audit", Port: 8443}}
	spec.ControlPlane.Ingress = &v1alpha1.IngressSpec{Hostname: "demo.example.com"}
	spec.ControlPlane.Gateway = &v1alpha1.GatewaySpec{Hostname: "demo.example.com"}
	deployment, service := Deployment(in), Service(in.Subject)
	volumes := deployment.Spec.Template.Spec.Volumes
	volume := fmt.Sprintf("spec.template.spec.volumes[%d].emptyDir", slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "log" }))
	for _, test := range []struct {
		object     metav1.Object
		path, want string
	}{
		{deployment, "spec.template.spec.containers[0].image", "spec.controlPlane.deployment.additionalContainers[0].image"},
		{deployment, "spec.template.spec.containers[1].resources.requests[cpu]", "spec.controlPlane.deployment.resources.apiServer.requests[cpu]"},
		{deployment, "spec.template.spec.containers[3].livenessProbe.successThreshold", "spec.controlPlane.deployment.probes.controllerManager.liveness.successThreshold"},
		{deployment, "spec.template.spec.containers[2].image", "spec.controlPlane.deployment.registrySettings"},
		{deployment, "spec.template.spec.containers[1].command", ""},
		{deployment, "spec.template.spec.containers[9].image", ""},
		{deployment, "spec.template.spec.containers", ""},
		{deployment, "spec.template.spec.initContainers[0].name", "spec.controlPlane.deployment.additionalInitContainers[0].name"},
		{deployment, "spec.template.spec.initContainers[1].image", "spec.controlPlane.deployment.additionalContainers[1].image"},
		{deployment, "spec.template.spec.initContainers[1].resources.limits[cpu]", "spec.controlPlane.deployment.resources.kine.limits[cpu]"},
		{deployment, "spec.template.spec.initContainers[2].name", ""},
		{deployment, volume, "spec.controlPlane.deployment.additionalVolumes[1].emptyDir"},
		{deployment, "spec.template.spec.volumes[0].name", ""},
		{deployment, "spec.template.spec.tolerations[0].effect", "spec.controlPlane.deployment.tolerations[0].effect"},
		{deployment, "spec.template.spec.tolerationsOfOthers", ""},
		{deployment, "spec.template.labels", "spec.controlPlane.deployment.podAdditionalMetadata.labels"},
		{deployment, "spec.selector", ""},
		{service, "spec.ports[0].nodePort", "spec.networkProfile.port"},
		{service, "spec.ports[1].port", "spec.controlPlane.service.additionalPorts[0].port"},
		{service, "spec.loadBalancerSourceRanges[0]", "spec.networkProfile.loadBalancerSourceRanges[0]"},
		{service, "spec.clusterIPs[0]", ""},
		{Ingress(in.Subject), "spec.rules[0].host", "spec.controlPlane.ingress.hostname"},
		{Route(in.Subject), "spec.parentRefs", "spec.controlPlane.gateway.parentRefs"},
	} {
		if got := fieldOf(spec, test.object, test.path); got != test.want {
			t.Errorf("%s comes from %q, want %q", test.path, got, test.want)
		}
	}
}

func TestRefused(t *testing.T) {
	in := load(t, "minimal")
	object := Service(in.Subject)
	resource := schema.GroupResource{Resource: "services"}
	invalid := func(messages ...string) error {
		s := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "raw", Details: &metav1.StatusDetails{Kind: "Service"}}
		for _, m := range messages {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Field: "spec.ports[0].nodePort", Message: m})
		}
		return &apierrors.StatusError{ErrStatus: s}
	}
	gone := errors.New("connection refused")
	for sentence, test := range map[string]struct {
		err error
		// permanent and denied are reasons, waits means an outage; none of them: as it is.
		permanent, denied string
		waits             bool
		says              string
	}{
		"what isn't valid is the spec's fault, for good": {err: invalid("must be positive"), permanent: "ServiceRefused", says: "spec.networkProfile.port: must be positive"},
		"without causes the server's own words say it":   {err: invalid(), permanent: "ServiceRefused", says: "raw"},
		"nor is one that doesn't fit its kind": {
			err: apierrors.NewInternalError(errors.New(`failed to create typed patch object: duplicate entries for key [name="x"]`)), permanent: "ServiceRefused", says: "duplicate",
		},
		"an unknown field is no better":           {err: apierrors.NewBadRequest("unknown field"), permanent: "ServiceRefused", says: "unknown field"},
		"a port that another has may become free": {err: invalid("Invalid value: 30000: provided port is already allocated"), denied: "ServiceConflict", says: "spec.networkProfile.port"},
		"but not if that isn't all":               {err: invalid("provided port is already allocated", "must be positive"), permanent: "ServiceRefused", says: "must be positive"},
		"a quota may be raised":                   {err: apierrors.NewForbidden(resource, "demo", errors.New("exceeded quota")), denied: "ServiceForbidden", says: "exceeded quota"},
		"a kind may come to be served":            {err: apierrors.NewNotFound(resource, "demo"), denied: "ServiceNotServed", says: "not found"},
		"a webhook may answer again":              {err: apierrors.NewInternalError(errors.New("failed calling webhook")), waits: true, says: "failed calling webhook"},
		"an outage stays one":                     {err: gone, says: "connection refused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := refused(test.err, &in.Tenant.Spec, object, "Service")
			var permanent *intent.Permanent
			var no *denied
			var away *intent.Unavailable
			switch {
			case test.permanent != "" && (!errors.As(err, &permanent) || permanent.Reason != test.permanent),
				test.denied != "" && (!errors.As(err, &no) || no.reason != test.denied),
				test.waits && !errors.As(err, &away),
				test.permanent == "" && test.denied == "" && !test.waits && !errors.Is(err, gone):
				t.Errorf("got %#v", err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("says %q", err)
			}
		})
	}
}
