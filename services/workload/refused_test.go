package workload

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

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
