package intake

// The API server's no to intake itself. It is not the sender's fault, and may pass: an API server that has just started knows no roles
// yet and forbids everything, and a role that lacks can be put right. So it is no refusal of the command.

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// permitted makes a write, and once more when it was forbidden for no cause although intake may make it: the API server knew no roles,
// or a quota says no. *[intent.Unavailable] while intake may not make it.
func (s *svc) permitted(ctx context.Context, c command, write func(context.Context) error) error {
	err := write(ctx)
	if !byRoles(err) {
		return err
	}
	if no := s.mayNot(ctx, c, err); no != nil {
		return no
	}
	return write(ctx)
}

// byRoles reports whether the API server forbade a request by itself and without a cause, as for want of a right: policies give a
// cause, and webhooks don't say of what kind the object is. Quotas look the same.
func byRoles(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind != "" && len(details.Causes) == 0
}

// mayNot is nil when intake's roles let it change objects of the command's kind, in its namespace. *[intent.Unavailable] when they don't,
// with what the API server forbade.
func (s *svc) mayNot(ctx context.Context, c command, forbidden error) error {
	for _, verb := range []string{"get", "create", "patch", "delete"} {
		review := &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: kube.SelfSubjectAccessReviews.TypeMeta(),
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: bare(c.key.Namespace), Verb: verb, Group: c.kind.GroupVersion.Group, Resource: c.kind.Plural, Name: c.key.Name,
			}},
		}
		err := s.kube.Create(ctx, kube.SelfSubjectAccessReviews, review)
		if err != nil && !apierrors.IsForbidden(err) { // it may be forbidden even to ask
			return err
		}
		if !review.Status.Allowed {
			// The text alone: the error itself would be taken for a refusal of the command.
			text := forbidden.Error()
			return &intent.Unavailable{Err: fmt.Errorf("the API server forbids intake itself to change %s: %s", c.kind.Plural, text)}
		}
	}
	return nil
}
