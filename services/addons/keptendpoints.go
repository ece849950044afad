package addons

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// keptEndpoints renders the policy that keeps the Service kubernetes leading somewhere, and its binding.
//
// An API server that ends takes its address out of the Endpoints (pkg/controlplane/reconcilers, RemoveEndpoints). All of a tenant's
// advertise one address, behind which the others still answer, so a rollout would empty the Endpoints: until another one puts the address
// back, which each does every ten seconds, pods of the tenant that connect to the Service find nobody. The API server writes with its own
// user and tries once; refused, it logs that and ends. Others may write there what they like.
func (k *kubeadm) keptEndpoints() ([]*unstructured.Unstructured, error) {
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: kube.ValidatingAdmissionPolicies.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: name.KeptEndpoints},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Ignore),
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy:       new(admissionv1.Equivalent),
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					ResourceNames: []string{"kubernetes"},
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Update},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"endpoints"}, Scope: new(admissionv1.NamespacedScope),
						},
					},
				}},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "of-an-api-server", Expression: "request.userInfo.username == 'system:apiserver'"},
			},
			Validations: []admissionv1.Validation{{
				Expression: "has(object.subsets) && object.subsets.exists(s, has(s.addresses) && size(s.addresses) > 0)",
				Message:    "the Service kubernetes keeps its address: other API servers of this control plane answer there",
				Reason:     new(metav1.StatusReasonForbidden),
			}},
		},
	}
	return unstructuredOf(policy, bindingOf(policy))
}
