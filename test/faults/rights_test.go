package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestIdentitiesHoldOnlyTheirRights tries what each service may not do, as one that is taken over would, and for each that another
// may do just that: what nobody can do says nothing about rights.
func TestIdentitiesHoldOnlyTheirRights(t *testing.T) {
	e.Services(t)
	key := events.Tenant("default", "rights")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	tenant := e.Ready(t, key)
	t.Run("Kubernetes", func(t *testing.T) { kubernetesRights(t, key, tenant) })
	t.Run("NATS", func(t *testing.T) { natsRights(t, key) })
	e.Delete(t, key)
	e.Gone(t, key)
}

func kubernetesRights(t *testing.T, key events.Key, tenant *v1alpha1.TenantControlPlane) {
	as := func(service string) *kube.Client {
		c, err := kube.Connect(e.Local.Kubeconfig(service), kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	secret := func(n string) *corev1.Secret {
		owner := metav1.NewControllerRef(tenant, v1alpha1.GroupVersion.WithKind(kube.TenantControlPlanes.Kind))
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: n, Labels: name.Labels(key.Name, name.ComponentCA, key.Partition()), OwnerReferences: []metav1.OwnerReference{*owner},
		}}
	}
	create := func(n string) func(*kube.Client) error {
		return func(c *kube.Client) error {
			err := c.Create(t.Context(), kube.Secrets, secret(n))
			if err == nil {
				_, err = e.Admin.Delete(t.Context(), kube.Secrets, key.Namespace, n, metav1.DeleteOptions{})
			}
			return err
		}
	}
	erase := func(r kube.Resource, namespace, n string) func(*kube.Client) error {
		return func(c *kube.Client) error {
			_, err := c.Delete(t.Context(), r, namespace, n, metav1.DeleteOptions{})
			return err
		}
	}
	release := func(c *kube.Client) error {
		o := &tenantaddon.AddonRelease{
			TypeMeta:   metav1.TypeMeta{APIVersion: kube.AddonReleases.GroupVersion.String(), Kind: kube.AddonReleases.Kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + ".none." + key.Namespace},
			Spec: tenantaddon.AddonReleaseSpec{
				Addon: tenantaddon.AddonRef{Namespace: key.Namespace, Name: "none"}, Tenant: key.Name, ReleaseName: "none", TargetNamespace: "kube-system",
				OnRemoval: tenantaddon.RemovalDelete, Paused: true,
			},
		}
		err := c.Create(t.Context(), kube.AddonReleases, o)
		if err == nil {
			_, err = e.Admin.Delete(t.Context(), kube.AddonReleases, o.Namespace, o.Name, metav1.DeleteOptions{})
		}
		return err
	}
	cluster := func(n string, labels map[string]string) func(*kube.Client) error {
		return func(c *kube.Client) error {
			s := secret(n)
			s.OwnerReferences = nil
			maps.Copy(s.Labels, labels)
			err := c.Create(t.Context(), kube.Secrets, s)
			if err == nil {
				err = c.MergePatch(t.Context(), kube.Secrets, key.Namespace, n, map[string]any{"data": map[string]any{"server": []byte("x")}}, nil)
			}
			if err == nil {
				_, err = c.Delete(t.Context(), kube.Secrets, key.Namespace, n, metav1.DeleteOptions{})
			}
			return err
		}
	}
	ofArgoCD := map[string]string{
		name.LabelComponent: name.ComponentArgoCDCluster, name.LabelArgoCDSecretType: name.ArgoCDSecretCluster,
		name.LabelTenant: key.Name, name.LabelTenantNamespace: key.Namespace,
	}
	const policy = "stoker-secret-names"
	for what, c := range map[string]struct {
		do       func(*kube.Client) error
		may      string // a service, or admin
		mayNot   []string
		because  string // the policy that forbids it; empty when the role does, to whom it doesn't give the right
		resource string
	}{
		"delete a Deployment": {
			do: erase(kube.Deployments, key.Namespace, name.Deployment(key.Name)), may: "workload",
			mayNot: []string{"intake", "certs", "datastore", "addons", "status", "capi", "tenantaddons"}, resource: "deployments",
		},
		"make a Secret": {
			do: create("rights-x"), may: "certs", mayNot: []string{"intake", "workload", "addons", "status", "tenantaddons"}, resource: "secrets",
		},
		"make a Secret that is not Cluster API's": {do: create("rights-y"), may: "certs", mayNot: []string{"capi"}, because: "stoker-cluster-api-secrets", resource: "secrets"},
		"make a cluster of Argo CD": {
			do: cluster(name.ArgoCDCluster(key.Namespace, key.Name), ofArgoCD), may: "certs", mayNot: []string{"datastore"}, because: policy, resource: "secrets",
		},
		"make a cluster of Argo CD that is no tenant's": {do: cluster("prod", ofArgoCD), may: "admin", mayNot: []string{"certs"}, because: policy, resource: "secrets"},
		"make a Secret with a cluster's name": {
			do: cluster(name.ArgoCDCluster(key.Namespace, key.Name), nil), may: "admin", mayNot: []string{"certs"}, because: policy, resource: "secrets",
		},
		"make a CA":                           {do: create("rights-x-ca"), may: "certs", mayNot: []string{"datastore"}, because: policy, resource: "secrets"},
		"make a DataStore's credentials":      {do: create(name.DatastoreConfig(key.Name + "-x")), may: "datastore", mayNot: []string{"certs"}, because: policy, resource: "secrets"},
		"delete a Secret that is no tenant's": {do: foreignSecret(t, "rights-foreign"), may: "admin", mayNot: []string{"certs", "datastore"}, because: policy, resource: "secrets"},
		"change a tenant": {
			do: func(c *kube.Client) error {
				return c.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name,
					map[string]any{"metadata": map[string]any{"labels": map[string]string{"x": fmt.Sprint(time.Now().UnixNano())}}}, nil)
			},
			may: "intake", mayNot: []string{"certs", "datastore", "workload", "addons", "status", "tenantaddons"}, resource: "tenantcontrolplanes",
		},
		"write a tenant's status": {
			do: func(c *kube.Client) error {
				return c.ApplyStatus(t.Context(), kube.TenantControlPlanes, &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, map[string]any{})
			},
			may: "status", mayNot: []string{"intake", "certs", "datastore", "workload", "addons", "capi", "tenantaddons"}, resource: "tenantcontrolplanes",
		},
		"make an AddonRelease": {
			do: release, may: "tenantaddons", mayNot: []string{"intake", "certs", "datastore", "workload", "addons", "status", "capi"}, resource: "addonreleases",
		},
		"make an AddonRelease, with every right": {
			do: release, may: "tenantaddons", mayNot: []string{"admin"}, because: "stoker-addon-releases", resource: "addonreleases",
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, service := range c.mayNot {
				if err := refusedFor(c.do(as(service)), service, c.because, c.resource); err != nil {
					t.Errorf("%s: %v", service, err)
				}
			}
			if err := c.do(as(c.may)); err != nil {
				t.Errorf("%s may not: %v", c.may, err)
			}
		})
	}
}

// foreignSecret deletes a Secret that is there, and nobody's.
func foreignSecret(t *testing.T, n string) func(*kube.Client) error {
	t.Helper()
	if err := e.Admin.Create(t.Context(), kube.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: n}}); err != nil {
		t.Fatal(err)
	}
	return func(c *kube.Client) error {
		_, err := c.Delete(t.Context(), kube.Secrets, name.Namespace, n, metav1.DeleteOptions{})
		return err
	}
}

// refusedFor reports why an error is not the API server's refusal of a service: by the policy that is named, else for want of a
// right on the resource.
func refusedFor(err error, service, policy, resource string) error {
	if err == nil {
		return errors.New("it is allowed")
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("not refused: %w", err)
	}
	s := status.Status()
	by := "ValidatingAdmissionPolicy '" + policy + "'"
	if policy == "" {
		by = `User "system:serviceaccount:` + name.Namespace + ":stoker-" + service + `" cannot `
	}
	if s.Details == nil || s.Details.Kind != resource || !strings.Contains(s.Message, by) {
		return fmt.Errorf("refused for another reason than %s: %s, %+v: %s", by, s.Reason, s.Details, s.Message)
	}
	if policy == "" && (s.Reason != metav1.StatusReasonForbidden || s.Code != http.StatusForbidden) {
		return fmt.Errorf("refused with %s", s.Reason)
	}
	return nil
}

func natsRights(t *testing.T, key events.Key) {
	// Told again under its own id, a fact is dropped as a repeat by the server: what may publish it is answered so.
	facts := history(t, events.StreamFacts, key.FactSubject("workload", event.Exposed))
	if len(facts) == 0 {
		t.Fatal("nothing told to tell again")
	}
	told := facts[len(facts)-1]
	for user, may := range map[string]bool{"workload": true, "status": false, events.UserPortal: false, "certs": false, "intake": false} {
		natsRight(t, user, "tells what workload tells", may, told.Subject, func(ctx context.Context, b *events.Bus) error {
			_, err := b.JetStream().PublishMsg(ctx, &nats.Msg{Subject: told.Subject, Header: told.Header, Data: told.Data})
			return err
		})
	}
	for user, may := range map[string]bool{"status": true, events.UserPortal: false, "certs": false, "workload": false} {
		natsRight(t, user, "reads the state of status", may, "$KV."+key.Bucket()+".status", func(ctx context.Context, b *events.Bus) error {
			_, err := b.State(ctx, key, "status")
			return err
		})
	}
}

// natsRight has a user do what needs a right on a subject. What is refused gets no answer: the refusal comes by itself, and late from a busy
// server, as does the answer to who may; then it is tried again.
func natsRight(t *testing.T, user, what string, may bool, subject string, do func(context.Context, *events.Bus) error) {
	t.Helper()
	b, err := e.Bus(user)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	env.Eventually(t, fmt.Sprintf("%s %s: %t", user, what, may), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := do(ctx, b)
		switch refused := violates(b, err, subject); {
		case may && refused == nil, !may && err == nil:
			t.Errorf("%s %s: %v", user, what, err)
			return nil
		case may:
			return err
		default:
			return refused
		}
	})
}

// violates reports why an error is not the server's refusal of a subject.
func violates(b *events.Bus, err error, subject string) error {
	last := b.Conn().LastError()
	switch {
	case err == nil:
		return errors.New("it is allowed")
	case !errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(strings.ToLower(last.Error()), strings.ToLower(subject)):
		return fmt.Errorf("failed for another reason than a right on %s: %w, %w", subject, err, last)
	}
	return nil
}
