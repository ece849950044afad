package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// generatedSecret reads the kubeconfig of a generator; it fails when there is none.
func generatedSecret(t testing.TB, tenant events.Key, generator string) (corev1.Secret, error) {
	t.Helper()
	var s corev1.Secret
	err := e.Admin.Get(t.Context(), kube.Secrets, tenant.Namespace, name.GeneratedKubeconfig(tenant.Name, generator), &s)
	return s, err
}

// whoami asks the tenant's API who the bearer of a generator's kubeconfig is.
func whoami(t testing.TB, tenant events.Key, generator string) (user authenticationv1.UserInfo, err error) {
	t.Helper()
	s, err := generatedSecret(t, tenant, generator)
	if err != nil {
		return user, err
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, s.Data[name.KeyGeneratedKubeconfig], 0o600); err != nil {
		return user, err
	}
	out, err := e.TryKubectl(t.Context(), file, nil, "auth", "whoami", "-o", "json")
	if err != nil {
		return user, fmt.Errorf("%w: %s", err, out)
	}
	var review authenticationv1.SelfSubjectReview
	err = json.Unmarshal([]byte(out), &review)
	return review.Status.UserInfo, err
}

// becomes waits until a generator's kubeconfig is a user's.
func becomes(t testing.TB, tenant events.Key, generator, user string, groups ...string) {
	t.Helper()
	env.Eventually(t, generator+" of "+tenant.String()+" to be "+user, func() error {
		is, err := whoami(t, tenant, generator)
		if err != nil {
			return err
		}
		groups := append([]string{"system:authenticated"}, groups...)
		slices.Sort(groups)
		if slices.Sort(is.Groups); is.Username != user || !slices.Equal(is.Groups, groups) {
			return fmt.Errorf("is %s, groups %v", is.Username, is.Groups)
		}
		return nil
	})
}

// goes waits until there is no kubeconfig of a generator.
func goes(t testing.TB, tenant events.Key, generator string) {
	t.Helper()
	env.Eventually(t, "no kubeconfig of "+generator, func() error {
		_, err := generatedSecret(t, tenant, generator)
		if err == nil {
			return errNotYet
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// counts waits until a generator's status has these numbers, of its current generation.
func counts(t testing.TB, generator string, resources, available int) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("status of %s to have %d of %d", generator, available, resources), func() error {
		var o v1alpha1.KubeconfigGenerator
		if err := e.Admin.Get(t.Context(), kube.KubeconfigGenerators, "", generator, &o); err != nil {
			return err
		}
		if s := o.Status; s.Resources != resources || s.AvailableResources != available || s.ObservedGeneration != o.Generation {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestKubeconfigGenerators(t *testing.T) {
	env.Long(t, "services/certs runs the service with generators on a real API server (TestTheServiceWithGenerators)")
	e.Services(t)
	one, two := events.Tenant("default", "gen-one"), events.Tenant("default", "gen-two")
	tenant := func(key events.Key, labels map[string]string) {
		t.Helper()
		o := env.Tenant(key.Name, "v1.36.3")
		o.Labels = labels
		e.Apply(t, o)
	}
	admin := e.Local.Kubeconfig("admin")
	example := filepath.Join(env.Root(), "examples", "kubeconfiggenerator.yaml")
	portal := events.Generator("portal")
	command := func(verb string, data any) {
		t.Helper()
		e.Command(t, portal, event.CommandType(event.KubeconfigGenerators, verb), data)
	}
	e.Kubectl(t, admin, "apply", "-f", example)
	tenant(one, map[string]string{"tier": "demo", "team": "red"})
	tenant(two, map[string]string{"team": "blue"})
	e.Ready(t, one)
	e.Ready(t, two)

	t.Run("by kubectl: the kubeconfig of the example opens the tenant's API for its user and groups", func(t *testing.T) {
		becomes(t, one, "viewer", "viewer", "viewers", "default")
		goes(t, two, "viewer")
		counts(t, "viewer", 1, 1)
		s, err := generatedSecret(t, one, "viewer")
		if err != nil || s.Labels[name.LabelManagedBy] != "viewer" || s.Labels[name.LabelManagedFor] != one.Name ||
			s.Labels[name.LabelCertificateLifecycle] != name.LifecycleKubeconfig || len(s.OwnerReferences) != 1 {
			t.Errorf("%v %v %v", err, s.Labels, s.OwnerReferences)
		}
		out := e.Kubectl(t, admin, "get", "kc", "viewer", "-o", "wide")
		if !strings.Contains(out, "TENANTS") || !strings.Contains(out, "AVAILABLE") {
			t.Error(out)
		}
	})
	t.Run("certs itself may not write a Secret under another generator's name", func(t *testing.T) {
		secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"gen-one-other","namespace":"default","ownerReferences":[
			{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane","name":"gen-one","uid":"a","controller":true}],"labels":{
			"kamaji.clastix.io/project":"kamaji","kamaji.clastix.io/managed-by":"viewer","kamaji.clastix.io/managed-for":"gen-one"}}}`
		out, err := e.TryKubectl(t.Context(), e.Local.Kubeconfig(name.ServiceCerts), strings.NewReader(secret), "create", "-f", "-")
		if err == nil || !strings.Contains(out, "Secret gen-one-other of a KubeconfigGenerator must be named") {
			t.Errorf("%v %s", err, out)
		}
	})
	t.Run("by event: users of the tenants' labels, who may do all", func(t *testing.T) {
		command(event.Apply, map[string]any{
			"apiVersion": "kamaji.clastix.io/v1alpha1", "kind": "KubeconfigGenerator", "metadata": map[string]any{"name": "portal"},
			"spec": map[string]any{
				"user":   map[string]any{"fromDefinition": "metadata.labels.team"},
				"groups": []any{map[string]any{"stringValue": "system:masters"}}, "controlPlaneEndpointFrom": "admin.conf",
			},
		})
		becomes(t, one, "portal", "red", "system:masters")
		becomes(t, two, "portal", "blue", "system:masters")
		counts(t, "portal", 2, 2)
	})
	t.Run("another user makes new ones", func(t *testing.T) {
		command(event.Patch, map[string]any{"spec": map[string]any{"user": map[string]any{"fromDefinition": "metadata.name"}}})
		becomes(t, one, "portal", one.Name, "system:masters")
		becomes(t, two, "portal", two.Name, "system:masters")
		counts(t, "portal", 2, 2)
	})
	t.Run("what is edited or deleted is put right at once, not at the next look", func(t *testing.T) {
		for what, args := range map[string][]string{
			"edited":  {"patch", "secret", "gen-one-portal", "--type=merge", "-p", `{"data":{"value":"eA=="}}`},
			"deleted": {"delete", "secret", "gen-one-portal"},
		} {
			e.Kubectl(t, admin, args...)
			begin := time.Now()
			env.Eventually(t, what+" Secret to be right", func() error {
				s, err := generatedSecret(t, one, "portal")
				if err == nil && len(s.Data[name.KeyGeneratedKubeconfig]) < 10 {
					err = errNotYet
				}
				return err
			})
			t.Logf("%s: right after %s", what, time.Since(begin).Round(time.Millisecond))
			becomes(t, one, "portal", one.Name, "system:masters")
		}
	})
	t.Run("a tenant that is no longer selected loses its kubeconfig, one that is now gets it", func(t *testing.T) {
		tenant(one, map[string]string{"team": "red"})
		goes(t, one, "viewer")
		counts(t, "viewer", 0, 0)
		e.Kubectl(t, admin, "label", "tcp", two.Name, "tier=demo")
		becomes(t, two, "viewer", "viewer", "viewers", "default")
		counts(t, "viewer", 1, 1)
	})
	t.Run("a paused generator leaves its kubeconfigs alone until it is resumed", func(t *testing.T) {
		command(event.Pause, map[string]any{})
		env.Eventually(t, "the condition Paused", func() error {
			out := e.Kubectl(t, admin, "get", "kc", "portal", "-o", "jsonpath={.status.conditions[*].type}")
			if !strings.Contains(out, "Paused") {
				return errors.New(out)
			}
			return nil
		})
		command(event.Patch, map[string]any{"spec": map[string]any{"user": map[string]any{"fromDefinition": nil, "stringValue": "portal"}}})
		counts(t, "portal", 2, 0)
		if is, err := whoami(t, two, "portal"); err != nil || is.Username != two.Name {
			t.Errorf("%s %v", is.Username, err)
		}
		command(event.Resume, map[string]any{})
		becomes(t, two, "portal", "portal", "system:masters")
		counts(t, "portal", 2, 2)
	})
	t.Run("a new certificate authority makes new ones", func(t *testing.T) {
		e.Kubectl(t, admin, "annotate", "secret", name.CA(one.Name), name.AnnotationRotate+"=")
		env.Eventually(t, "the rotation", func() error {
			out := e.Kubectl(t, admin, "get", "secret", name.CA(one.Name), "-o", "jsonpath={.metadata.annotations}")
			if strings.Contains(out, name.AnnotationRotate+`":""`) {
				return errNotYet
			}
			return nil
		})
		becomes(t, one, "portal", "portal", "system:masters")
		counts(t, "portal", 2, 2)
		e.Ready(t, one)
	})
	t.Run("a generator's kubeconfigs go with it", func(t *testing.T) {
		command(event.Delete, map[string]any{})
		goes(t, one, "portal")
		goes(t, two, "portal")
		if out, err := e.TryKubectl(t.Context(), admin, nil, "get", "kc", "portal"); err == nil {
			t.Error(out)
		}
	})
	t.Run("a tenant's go with it, and are counted", func(t *testing.T) {
		for _, key := range []events.Key{one, two} {
			e.Delete(t, key)
		}
		secrets := map[events.Key]int{}
		for _, key := range []events.Key{one, two} {
			secrets[key] = e.Gone(t, key).Removed["certs/Secret"]
			nothingLeft(t, key)
		}
		if secrets[two] != secrets[one]+1 {
			t.Errorf("%v: the second one has a kubeconfig of viewer more", secrets)
		}
		counts(t, "viewer", 0, 0)
		e.Kubectl(t, admin, "delete", "-f", example)
	})
}
