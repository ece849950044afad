package intake

// What only an API server would say of a tenant's settings, and not before its pods start: expressions that don't compile. They are
// validated by Kubernetes' own code, as of the latest version that a tenant can have; what an older one doesn't know yet, it says itself.
// Pure.

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// unusable is what the API server wouldn't take of its settings, nil for nothing. What the CRD has rules for is left to them.
func unusable(settings *v1alpha1.APIServerSpec) refusal {
	if settings == nil {
		return nil
	}
	const at = "spec.kubernetes.apiServer."
	var found refusal
	if a := settings.Authentication; a != nil && len(a.JWT) > 0 {
		compiler := authenticationcel.NewDefaultCompiler()
		for i, one := range a.JWT {
			_, errs := validation.CompileAndValidateJWTAuthenticator(compiler, issuerOf(one), nil)
			found = append(found, invalid(fmt.Sprintf("%sauthentication.jwt[%d].", at, i), errs)...)
		}
	}
	if a := settings.Authorization; a != nil {
		for i, one := range a.Authorizers {
			if one.Webhook == nil || len(one.Webhook.MatchConditions) == 0 {
				continue
			}
			var conditions []apiserver.WebhookMatchCondition
			for _, c := range one.Webhook.MatchConditions {
				conditions = append(conditions, apiserver.WebhookMatchCondition{Expression: c.Expression})
			}
			_, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewDefaultCompiler(), conditions)
			found = append(found, invalid(fmt.Sprintf("%sauthorization.authorizers[%d].webhook.", at, i), errs)...)
		}
	}
	return found
}

// patched is what the API server wouldn't take of the settings that a patch leads to; nil when it is about something else.
func patched(there *object, patch map[string]any) refusal {
	if there == nil || there.tenant == nil {
		return nil
	}
	spec, _ := patch["spec"].(map[string]any)
	kubernetes, _ := spec["kubernetes"].(map[string]any)
	if _, about := kubernetes["apiServer"]; !about {
		return nil
	}
	var after v1alpha1.TenantControlPlane
	before, _ := parse(there.raw)
	data, _ := json.Marshal(merge(any(before), any(patch))) // decoded JSON can be encoded
	if json.Unmarshal(data, &after) == nil {                // else the API server says what is wrong
		return unusable(after.Spec.Kubernetes.APIServer)
	}
	return nil
}

// issuerOf is an issuer as Kubernetes has it. The fields have the same names.
func issuerOf(jwt v1alpha1.JWTAuthenticator) apiserver.JWTAuthenticator {
	var read apiserverv1.JWTAuthenticator
	var out apiserver.JWTAuthenticator
	data, err := json.Marshal(jwt)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	if err == nil {
		err = apiserverv1.Convert_v1_JWTAuthenticator_To_apiserver_JWTAuthenticator(&read, &out, nil)
	}
	if err != nil {
		panic("an issuer is plain data: " + err.Error())
	}
	return out
}

// invalid are the errors about expressions, with what is said of the place in an expression in one line.
func invalid(at string, errs field.ErrorList) refusal {
	var found refusal
	for _, e := range errs {
		value, isText := e.BadValue.(string)
		about := strings.HasSuffix(e.Field, ".expression") || strings.HasSuffix(e.Field, ".valueExpression")
		if e.Type != field.ErrorTypeInvalid || !isText || !about {
			continue
		}
		var lines []string
		for line := range strings.Lines(e.Detail) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "|") { // which points into the expression
				lines = append(lines, line)
			}
		}
		found = append(found, event.FieldError{
			Field: at + e.Field, Rule: event.RuleInvalid, Value: events.Clip(value), Message: state.ClipMessage(strings.Join(lines, " ")),
		})
	}
	return found
}
