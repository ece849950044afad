// A tenant that Kamaji made keeps its pods when it is adopted: the Deployment gets its labels and its number of replicas, and its template
// stays Kamaji's until something else would have other pods anyway. Then the template is replaced whole, with what of it was Kamaji's.

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// mayBeKamajis reports whether the template of the tenant's Deployment may be Kamaji's: it is known to be, or it isn't known, and either
// somebody had the tenant adopted or there is a Deployment already.
func (t *turn) mayBeKamajis() bool {
	_, adopted := t.Tenant.Annotations[name.AnnotationAdopt]
	return t.before.Adopted || t.before.ConfigHash == "" && (adopted || t.s.observed.sees(t.Key, kindDeployment))
}

// keep leaves the pods that Kamaji made as they are, if they are as good as those that are wanted, and returns the Deployment as if it had
// the wanted template. Otherwise it returns nil, and what is applied next replaces all that Kamaji set.
func (t *turn) keep(ctx context.Context, want *appsv1.Deployment) (*appsv1.Deployment, error) {
	live := &appsv1.Deployment{}
	err := t.s.kube.Get(ctx, kube.Deployments, t.Key.Namespace, want.Name, live)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return nil, err
	}
	if gone || t.owner().Of(live) != kube.Own || !kube.Formerly(live) {
		t.data.Adopted = false
		return nil, nil
	}
	config := want.Spec.Template.Annotations[name.AnnotationConfigHash]
	why := replaces(live, want, t.spec)
	if why == "" && t.before.ConfigHash != "" && t.before.ConfigHash != config {
		why = "something else is asked of them since it was adopted"
	}
	if why != "" {
		t.s.log.Info("pods that Kamaji made are replaced", "tenant", t.Key.String(), "generation", t.Generation, "reason", why)
		if err := t.s.kube.TakeOver(ctx, kube.Deployments, live); err != nil {
			return nil, err
		}
		t.data.Adopted = false
		return nil, nil
	}
	if !contains(live, want) || desired(live) != desired(want) {
		if err := t.applyBeside(ctx, want, live); err != nil {
			return nil, err
		}
		if t.before.ConfigHash == "" {
			t.s.log.Info("pods that Kamaji made stay", "tenant", t.Key.String(), "generation", t.Generation, "replicas", desired(live))
		}
	}
	t.data.Adopted = true
	live.Spec.Template = want.Spec.Template
	return live, nil
}

// applyBeside applies labels, annotations, owner and number of replicas to the very Deployment that was read, and decodes the result into
// it; template and strategy stay as they are.
func (t *turn) applyBeside(ctx context.Context, want, live *appsv1.Deployment) error {
	meta := want.ObjectMeta.DeepCopy()
	meta.UID = live.UID
	body, err := json.Marshal(map[string]any{
		"apiVersion": want.APIVersion, "kind": want.Kind, "metadata": meta, "spec": map[string]any{"replicas": want.Spec.Replicas},
	})
	if err != nil {
		return err
	}
	*live = appsv1.Deployment{}
	return refused(t.s.kube.ApplyRaw(ctx, kube.Deployments, want.Namespace, want.Name, body, live), t.spec, want, kube.Deployments.Kind)
}

// replaces says why pods of a template that Kamaji wrote can't stay, empty when they can: they run what the spec asks for, with the keys,
// certificates and the DataStore that are there now. How they are put together is no reason.
func replaces(live, want *appsv1.Deployment, spec *v1alpha1.TenantControlPlaneSpec) string {
	if desired(want) == 0 && live.Status.Replicas == 0 {
		return "there are none"
	}
	if spec.Kubernetes.APIServer != nil {
		return "they lack the settings of spec.kubernetes.apiServer"
	}
	if _, counts := want.Spec.Template.Annotations[name.AnnotationAuditPolicy]; counts {
		return "they don't count use (" + name.AnnotationSleepWhenIdle + ")"
	}
	is, must := &live.Spec.Template, &want.Spec.Template
	for _, label := range slices.Sorted(maps.Keys(must.Labels)) {
		have, there := is.Labels[label]
		if strings.HasPrefix(label, name.LabelComponentPrefix) && have != must.Labels[label] && (there || !ownChecksum(label)) {
			return fmt.Sprintf("label %s is %q, not %q", label, have, must.Labels[label])
		}
	}
	for _, annotation := range []string{name.AnnotationStorageConfig, name.AnnotationStorageCertificate} {
		if have, there := is.Annotations[annotation]; there && have != must.Annotations[annotation] {
			return fmt.Sprintf("annotation %s is %q, not %q", annotation, have, must.Annotations[annotation])
		}
	}
	for _, of := range containersOf(spec) {
		if why := replacesContainer(container(is, of.name), container(must, of.name), of); why != "" {
			return "container " + of.name + ": " + why
		}
	}
	return ""
}

// kept is what of a container must be as it is asked for.
type kept struct {
	name string
	args []string // the user's
	// anyImage says that the image is not the spec's but a default of whoever made the pod: kine's, of which any will do.
	anyImage bool
	// flags are those that read what a Secret may no longer have.
	flags []string
}

// containersOf are the containers that are looked at; not each tenant has the last two.
func containersOf(spec *v1alpha1.TenantControlPlaneSpec) []kept {
	extra := value(spec.ControlPlane.Deployment.ExtraArgs)
	all := []kept{
		{name: name.ContainerAPIServer, args: extra.APIServer}, {name: name.ContainerControllerManager, args: extra.ControllerManager},
		{name: name.ContainerScheduler, args: extra.Scheduler},
		{name: name.ContainerKine, args: extra.Kine, anyImage: true, flags: []string{"ca-file", "cert-file", "key-file"}},
		{name: name.ContainerKonnectivity},
	}
	if k := spec.Addons.Konnectivity; k != nil {
		all[len(all)-1].args = k.Server.ExtraArgs
	}
	return all
}

// ownChecksum reports whether Kamaji has no such label.
func ownChecksum(label string) bool {
	return label == name.PodChecksumLabel(name.ChecksumKonnectivityKubeconfig) || label == name.PodChecksumLabel(name.ChecksumKonnectivityEgressSelector)
}

// replacesContainer says why a container can't stay; nil for none.
func replacesContainer(is, must *corev1.Container, of kept) string {
	switch {
	case is == nil && must == nil:
		return ""
	case is == nil:
		return "there is none"
	case must == nil:
		return "it isn't asked for"
	case is.Image != must.Image && !of.anyImage:
		return fmt.Sprintf("its image is %q, not %q", is.Image, must.Image)
	case !equality.Semantic.DeepEqual(is.Resources, must.Resources):
		return "it has other resources than the spec asks for"
	}
	for _, arg := range of.args {
		if !slices.Contains(is.Args, arg) {
			return fmt.Sprintf("it lacks the argument %q", arg)
		}
	}
	for _, flag := range of.flags {
		if hasFlag(is.Args, flag) && !hasFlag(must.Args, flag) {
			return fmt.Sprintf("its --%s is a file that the tenant's Secret doesn't have", flag)
		}
	}
	return ""
}

// hasFlag reports whether a flag is among arguments.
func hasFlag(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		n, _ := flagName(arg)
		return n == flag
	})
}

// container of a name, nil for none. Those that end after the others are init containers with Stoker, and containers with Kamaji.
func container(of *corev1.PodTemplateSpec, n string) *corev1.Container {
	for _, list := range [][]corev1.Container{of.Spec.Containers, of.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == n }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}
