// Whose a Secret is, and what it is for: by its owner and its name, which are harder to edit than labels. Pure.

package pki

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// TenantOf returns the tenant a Secret belongs to: its owner's name, without an owner what its label says.
func TenantOf(o metav1.Object) string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kube.TenantControlPlanes.Kind {
		return owner.Name
	}
	return o.GetLabels()[name.LabelName]
}

// ComponentIn returns the component whose Secret has the name, empty when none of the tenant's own has.
func ComponentIn(tenant, secret string) string {
	if tenant == "" {
		return ""
	}
	for component, n := range All(tenant) {
		if n == secret {
			return component
		}
	}
	return ""
}

// GeneratorOf returns the generator for which a Secret was made as the tenant's, empty when it wasn't. The owner and the name say
// it; without an owner the labels have to.
func GeneratorOf(tenant string, secret metav1.Object) string {
	n := GeneratorIn(tenant, secret.GetName())
	if owner := metav1.GetControllerOf(secret); owner != nil {
		if owner.Kind != kube.TenantControlPlanes.Kind || owner.Name != tenant {
			return ""
		}
		return n
	}
	if l := secret.GetLabels(); n == "" || l[name.LabelManagedBy] != n || l[name.LabelManagedFor] != tenant {
		return ""
	}
	return n
}

// GeneratorIn returns the generator in the name of a Secret of the tenant, empty when there is none.
func GeneratorIn(tenant, secret string) string {
	n, ok := strings.CutPrefix(secret, name.GeneratedKubeconfig(tenant, ""))
	if !ok || tenant == "" || ReservedEnd(n) != "" {
		return ""
	}
	return n
}

// ReservedEnd returns the end of a Secret's name that would be a tenant's own if a generator of this name gave it, empty when none
// is. The name of a tenant may itself end in the generator's: what follows the last hyphens counts, too.
func ReservedEnd(generator string) string {
	for _, end := range ownEnds {
		if generator == end || strings.HasSuffix(generator, "-"+end) {
			return end
		}
	}
	return ""
}

// ownEnds follow the tenant's name and a hyphen in the names of its own Secrets, sorted.
var ownEnds = func() []string {
	all := []string{name.DatastoreConfig(""), name.DatastoreCertificate(""), name.KonnectivityCertificate(""), name.KonnectivityKubeconfig("")}
	for _, secret := range All("") {
		all = append(all, secret)
	}
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "-")
	}
	slices.Sort(all)
	return all
}()

// Own reports whether a Secret bears one of the names that this service gives a tenant's, and is the tenant's.
func Own(tenant kube.Owner, secret metav1.Object) bool {
	return tenant.Of(secret) == kube.Own && (ComponentIn(tenant.Name, secret.GetName()) != "" || GeneratorOf(tenant.Name, secret) != "")
}

// brought reports whether somebody made a Secret for the tenant to take its keys from: it is nobody's, and holds the pair of keys that it
// is to hold, and nothing else.
func brought(w *Want, secret *corev1.Secret) bool {
	if _, labelled := secret.Labels[name.LabelName]; labelled || len(secret.OwnerReferences) > 0 || len(w.Keys) == 0 {
		return false
	}
	pair := w.Keys[0]
	return len(secret.Data) == 2 && len(secret.Data[pair[0]]) > 0 && len(secret.Data[pair[1]]) > 0
}

// checkOwner refuses a Secret that bears the name but is something else's, so that a user's own is never overwritten. One of an
// earlier object of that name comes from a backup, and its keys with it.
func checkOwner(in Input, w *Want, secret *corev1.Secret) error {
	owner := kube.Owner{Name: in.Name, UID: in.UID}
	switch {
	case w.Generator != "" && GeneratorOf(in.Name, secret) != w.Generator:
		return &intent.Permanent{
			Reason: reason.NameTaken,
			Message: fmt.Sprintf("Secret %s/%s belongs to something else; delete it or give the generator another name",
				in.Namespace, secret.Name),
		}
	case w.Generator == "" && owner.Of(secret) == kube.Foreign && !brought(w, secret):
		return owner.Taken(kube.Secrets.Kind, secret)
	}
	return nil
}
