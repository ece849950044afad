package intake

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestANoByRolesIsToldFromThatOfPoliciesAndWebhooks(t *testing.T) {
	status := func(reason metav1.StatusReason, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Details: details}}
	}
	why := []metav1.StatusCause{{Message: "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"}}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"for want of a right, or a quota": {status(metav1.StatusReasonForbidden, &metav1.StatusDetails{Kind: "tenantcontrolplanes"}), true},
		"by a policy":                     {status(metav1.StatusReasonForbidden, &metav1.StatusDetails{Kind: "tenantcontrolplanes", Causes: why}), false},
		"by a webhook":                    {status(metav1.StatusReasonForbidden, &metav1.StatusDetails{}), false},
		"without details":                 {status(metav1.StatusReasonForbidden, nil), false},
		"for another reason":              {status(metav1.StatusReasonNotFound, &metav1.StatusDetails{Kind: "tenantcontrolplanes"}), false},
		"by nobody":                       {errors.New("refused"), false},
		"no no":                           {nil, false},
	} {
		if got := byRoles(c.err); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
