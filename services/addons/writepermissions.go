package addons

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// messageLimited begins what users of the tenant read when a write is denied.
const messageLimited = "the provider of this cluster blocks these writes: "

// keptObjects are those outside of kube-system that this service writes, also such as go with an add-on. Writing them is blocked for
// nobody: this service may come as the tenant's own administrator, and puts back what others change.
var keptObjects = []Ref{
	{"ConfigMap", metav1.NamespacePublic, "cluster-info"},
	{"ClusterRole", "", "kubeadm:get-nodes"},
	{"ClusterRole", "", "system:coredns"},
	{"ClusterRoleBinding", "", "kubeadm:apiserver-kubelet-client"},
	{"ClusterRoleBinding", "", "kubeadm:cluster-admins"},
	{"ClusterRoleBinding", "", "kubeadm:get-nodes"},
	{"ClusterRoleBinding", "", "kubeadm:kubelet-bootstrap"},
	{"ClusterRoleBinding", "", "kubeadm:node-autoapprove-bootstrap"},
	{"ClusterRoleBinding", "", "kubeadm:node-autoapprove-certificate-rotation"},
	{"ClusterRoleBinding", "", "kubeadm:node-proxier"},
	{"ClusterRoleBinding", "", "system:coredns"},
	{"ClusterRoleBinding", "", name.KonnectivityUser},
	{"Role", metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo"},
	{"RoleBinding", metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo"},
}

// controlPlaneUsers and controlPlaneGroups are the API server, controller manager and scheduler, the controllers, and nodes.
var (
	controlPlaneUsers  = []string{"system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"}
	controlPlaneGroups = []string{"system:nodes", "system:serviceaccounts:" + metav1.NamespaceSystem}
)

// controlPlaneResources and controlPlaneObjects are what those write for the cluster itself, as group/resource and group/resource/name.
// What they write for what runs in the cluster (a ReplicaSet's pods, a CronJob's jobs, volumes, events) is not among it: that would be a
// way round the limits.
var (
	controlPlaneResources = []string{
		// where Services lead
		"/endpoints", "discovery.k8s.io/endpointslices",
		// nodes, which register again whenever their kubelet starts, and their certificates
		"/nodes", "storage.k8s.io/csinodes", "certificates.k8s.io/certificatesigningrequests", "certificates.k8s.io/clustertrustbundles",
		// what an API server makes when it starts, other things in another version
		"rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/clusterrolebindings",
		"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/rolebindings",
		"scheduling.k8s.io/priorityclasses", "apiregistration.k8s.io/apiservices", "internal.apiserver.k8s.io/storageversions",
		"flowcontrol.apiserver.k8s.io/flowschemas", "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
		"networking.k8s.io/ipaddresses", "networking.k8s.io/servicecidrs",
	}
	controlPlaneObjects = []string{
		"/services/kubernetes",
		// what each namespace has; of another content with another certificate authority
		"/serviceaccounts/default", "/configmaps/kube-root-ca.crt",
	}
)

// writePermissions renders the policy that blocks kinds of writes inside the tenant, and its binding. As with Kamaji's webhook: not in
// kube-system; in kube-node-lease, whatever is blocked elsewhere, creation and deletion; no subresources, such as status, scale, binding,
// eviction or token. Reviews of tokens and accesses pass any policy.
func (k *kubeadm) writePermissions() ([]*unstructured.Unstructured, error) {
	blocked := blockedOperations(k.in.WritePermissions)
	matched := []admissionv1.OperationType{admissionv1.Create, admissionv1.Delete}
	if k.in.WritePermissions.BlockUpdate {
		matched = append(matched, admissionv1.Update)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta: kube.ValidatingAdmissionPolicies.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: name.WritePermissions},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				MatchPolicy: new(admissionv1.Equivalent),
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem}},
				}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: matched,
					Rule: admissionv1.Rule{
						APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}, Scope: new(admissionv1.AllScopes),
					},
				}}},
				// No webhook is asked about webhooks, so Kamaji's isn't either: a broken one can be taken away.
				ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.OperationAll},
					Rule: admissionv1.Rule{
						APIGroups: []string{admissionv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"*"},
						Scope: new(admissionv1.AllScopes),
					},
				}}},
			},
			Variables: variables(),
			Validations: []admissionv1.Validation{
				{
					Expression: "variables.where == 'kube-node-lease' || !(request.operation in " + list(blocked) + ") || variables.passes",
					Message:    messageLimited + k.in.WritePermissions.Blocked() + " (writePermissions of the TenantControlPlane)",
					Reason:     new(metav1.StatusReasonForbidden),
				},
				{
					Expression: "variables.where != 'kube-node-lease' || request.operation == 'UPDATE' || variables.passes",
					Message: messageLimited + "creation and deletion in kube-node-lease, as long as any writes are " +
						"(writePermissions of the TenantControlPlane)",
					Reason: new(metav1.StatusReasonForbidden),
				},
			},
		},
	}
	return unstructuredOf(policy, bindingOf(policy))
}

// bindingOf has a policy deny, everywhere; it is named like the policy.
func bindingOf(policy *admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: kube.ValidatingAdmissionPolicyBindings.TypeMeta(), ObjectMeta: policy.ObjectMeta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

// variables of the policy. The last says whether a write passes whatever is blocked.
func variables() []admissionv1.Variable {
	var kept []string
	for _, ref := range keptObjects {
		kept = append(kept, resourceOf(ref)+"/"+ref.Namespace+"/"+ref.Name)
	}
	return []admissionv1.Variable{
		{Name: "where", Expression: "has(request.namespace) ? request.namespace : ''"},
		{Name: "name", Expression: "has(request.name) ? request.name : ''"},
		{Name: "resource", Expression: "request.resource.group + '/' + request.resource.resource"},
		// Stoker's
		{Name: "kept", Expression: "(variables.resource + '/' + variables.where + '/' + variables.name) in " + list(kept)},
		{Name: "fromControlPlane", Expression: "request.userInfo.username in " + list(controlPlaneUsers) +
			" || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in " + list(controlPlaneGroups) + ")"},
		{Name: "ofControlPlane", Expression: "variables.fromControlPlane && (variables.resource in " + list(controlPlaneResources) +
			" || (variables.resource + '/' + variables.name) in " + list(controlPlaneObjects) + ")"},
		// A deletion that has begun ends: of an object, of all in a namespace, or of what an owner leaves behind.
		{Name: "ending", Expression: "request.operation == 'DELETE' && (has(oldObject.metadata.deletionTimestamp)" +
			" || namespaceObject != null && has(namespaceObject.metadata.deletionTimestamp)" +
			" || has(oldObject.metadata.ownerReferences)" +
			" && request.userInfo.username == 'system:serviceaccount:kube-system:generic-garbage-collector')"},
		{Name: "released", Expression: "request.operation == 'UPDATE' && has(oldObject.metadata.deletionTimestamp)" +
			" && has(oldObject.metadata.finalizers) && (!has(object.metadata.finalizers)" +
			" || size(object.metadata.finalizers) < size(oldObject.metadata.finalizers))"},
		{Name: "passes", Expression: "variables.kept || variables.ofControlPlane || variables.ending || variables.released"},
	}
}

// blockedOperations are the kinds of requests that are blocked outside of kube-node-lease.
func blockedOperations(p v1alpha1.Permissions) (blocked []string) {
	for _, one := range []struct {
		is bool
		op admissionv1.OperationType
	}{{p.BlockCreation, admissionv1.Create}, {p.BlockUpdate, admissionv1.Update}, {p.BlockDeletion, admissionv1.Delete}} {
		if one.is {
			blocked = append(blocked, string(one.op))
		}
	}
	return blocked
}

// resourceOf is group/resource of an object.
func resourceOf(r Ref) string {
	k := kinds[order(r.Kind)]
	return k.GroupVersion.Group + "/" + k.Plural
}

// list is a list in CEL. No item has a quote in it.
func list(items []string) string { return "['" + strings.Join(items, "', '") + "']" }
