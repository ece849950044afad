package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestServicesOfOneNamespaceMayNothingElsewhere narrows the services' roles to one namespace: there they may what they may
// without, and in others they read tenants at most.
func TestServicesOfOneNamespaceMayNothingElsewhere(t *testing.T) {
	const namespace = "tenants"
	_, c := admin(t)
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rbac := filepath.Join(env.Root(), "deployments", "rbac")
	apply := func(dir string) {
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "apply", "--server-side", "--force-conflicts", "-f", dir)
	}
	apply(rbac + "-namespace")
	defer apply(rbac)
	// The API server hears of each role and binding by itself.
	env.Eventually(t, "the API server to know the narrow roles", func() error {
		var wrong []error
		for _, service := range name.Services() {
			wrong = append(wrong, narrow(t, c, service, namespace, clusterRole(t, filepath.Join(rbac, service+".yaml"))))
		}
		return errors.Join(wrong...)
	})
}

// narrow says what of a service's role for all namespaces its account may not in one, and what it may in others, too.
func narrow(t *testing.T, c kubernetes.Interface, service, namespace string, role rbacv1.ClusterRole) error {
	t.Helper()
	var wrong []error
	for _, rule := range role.Rules {
		if len(rule.ResourceNames) > 0 {
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				what := fmt.Sprintf("%s: %s %s", service, verb, resource)
				// TenantAddons of one namespace select no others.
				useless := service == name.ServiceTenantAddons && resource == "namespaces"
				if !useless && !may(t, c, service, namespace, rule.APIGroups[0], resource, verb) {
					wrong = append(wrong, fmt.Errorf("%s isn't allowed in the namespace", what))
				}
				harmless := slices.Contains([]string{"datastores", "datastores/status", "kubeconfiggenerators", "kubeconfiggenerators/status", "namespaces", "gateways", "customresourcedefinitions"}, resource) ||
					resource == "tenantcontrolplanes" && slices.Contains([]string{"list", "watch"}, verb)
				if !harmless && may(t, c, service, metav1.NamespaceDefault, rule.APIGroups[0], resource, verb) {
					wrong = append(wrong, fmt.Errorf("%s is allowed in another namespace", what))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// may reports whether a service's account may do something.
func may(t *testing.T, c kubernetes.Interface, service, namespace, group, resource, verb string) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	review, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               userOf(service),
			Groups:             []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Subresource: sub, Verb: verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// clusterRole is the one in a file.
func clusterRole(t *testing.T, file string) rbacv1.ClusterRole {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" {
			return role
		}
	}
	t.Fatalf("no ClusterRole in %s", file)
	return rbacv1.ClusterRole{}
}
