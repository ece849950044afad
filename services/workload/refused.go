// What it means that the API server refuses an object. Pure.

package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// denied is a refusal that can end without a change of the spec: a quota is raised, a port or a name becomes free, a role or a
// webhook is put right. The object is applied again now and then.
type denied struct {
	// kind of the object, reason of pkg/api/reason, message for people.
	kind, reason, message string
}

func (e *denied) Error() string { return e.message }

// wait is what is missing.
func (e *denied) wait() state.Wait {
	if e.reason == reason.NameTaken {
		return state.Wait{On: e.kind, Reason: reason.NameTaken, Text: "the name of its " + e.kind + " to be free"}
	}
	return state.Wait{On: e.kind, Reason: reason.ObjectDenied, Text: e.kind + " to be allowed"}
}

// refusals are the reasons for refusing one kind of object.
type refusals struct {
	// invalid: the object isn't valid, which is the spec's fault. conflict: what it asks for is another's. forbidden: it isn't
	// allowed. notServed: its kind or namespace isn't there.
	invalid, conflict, forbidden, notServed string
}

// refusalsOf are the reasons by kind.
var refusalsOf = map[string]refusals{
	kube.Services.Kind:    {reason.ServiceRefused, reason.ServiceConflict, reason.ServiceForbidden, reason.ServiceNotServed},
	kube.Deployments.Kind: {reason.DeploymentRefused, reason.DeploymentConflict, reason.DeploymentForbidden, reason.DeploymentNotServed},
	kube.Ingresses.Kind:   {reason.IngressRefused, reason.IngressConflict, reason.IngressForbidden, reason.IngressNotServed},
	kube.ConfigMaps.Kind:  {reason.ConfigMapRefused, reason.ConfigMapConflict, reason.ConfigMapForbidden, reason.ConfigMapNotServed},
	kube.TLSRoutes.Kind:   {reason.TLSRouteRefused, reason.TLSRouteConflict, reason.TLSRouteForbidden, reason.TLSRouteNotServed},
	kube.EndpointSlices.Kind: {
		reason.EndpointSliceRefused, reason.EndpointSliceConflict, reason.EndpointSliceForbidden, reason.EndpointSliceNotServed,
	},
}

// refused gives an API server's refusal of an object its intent. One that says that the object isn't valid is the spec's
// fault, and another try changes nothing: [*intent.Permanent]. Others are *denied, and what isn't a refusal stays as it is.
func refused(err error, spec *v1alpha1.TenantControlPlaneSpec, object metav1.Object, kind string) error {
	what := kind + " " + object.GetNamespace() + "/" + object.GetName()
	of := refusalsOf[kind]
	var status apierrors.APIStatus
	var taken *kube.TakenError
	switch {
	case errors.As(err, &taken):
		return &denied{kind, reason.NameTaken, taken.Error()}
	case err == nil || !errors.As(err, &status):
		return err
	case conflicts(status.Status()):
		return &denied{kind, of.conflict, "the management cluster refuses the " + what + ": " + causes(spec, object, status.Status())}
	case apierrors.IsForbidden(err):
		return &denied{kind, of.forbidden, "the management cluster does not allow the " + what + ": " + err.Error()}
	case apierrors.IsNotFound(err): // the kind, or the namespace
		return &denied{kind, of.notServed, "the management cluster does not know what the " + what + " needs: " + err.Error()}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), misfits(err):
		return &intent.Permanent{
			Reason:  of.invalid,
			Message: "the management cluster refuses the " + what + ": " + causes(spec, object, status.Status()),
		}
	case apierrors.IsInternalError(err): // as when a webhook doesn't answer
		return &intent.Unavailable{Err: fmt.Errorf("%s: %w", what, err)}
	}
	return err
}

// misfits reports whether an object doesn't fit its own kind, as when two containers have one name: server-side apply calls
// that an internal error, and only its text tells it from others.
func misfits(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "typed patch object")
}

// conflicts reports whether all that is wrong with an object is a port or an address that another has. The API server has no
// type for that cause, so it is known by its text.
func conflicts(s metav1.Status) bool {
	return s.Details != nil && len(s.Details.Causes) > 0 && !slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return !strings.Contains(c.Message, "already allocated")
	})
}

// causes says what is wrong, by the field of the TenantControlPlane where there is one.
func causes(spec *v1alpha1.TenantControlPlaneSpec, object metav1.Object, s metav1.Status) string {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return line(s.Message)
	}
	var all []string
	for _, c := range s.Details.Causes {
		switch field := fieldOf(spec, object, c.Field); {
		case c.Field == "":
			all = append(all, c.Message)
		case field == "":
			all = append(all, c.Field+": "+c.Message)
		default:
			all = append(all, field+": "+c.Message+" ("+s.Details.Kind+" "+c.Field+")")
		}
	}
	return line(strings.Join(all, "; "))
}
