package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// catchAll is what a tenant's administrator may do to their own cluster: a webhook for everything that nobody answers, and an API that
// isn't there.
const catchAll = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.nobody.example.com}
spec:
  group: nobody.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: nobody}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: catch-all}
webhooks:
  - name: catch-all.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Fail
    clientConfig: {url: "https://127.0.0.1:1/nobody"}
    rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"], scope: "*"}]
`

func TestATenantThatBreaksItsOwnCluster(t *testing.T) {
	env.Long(t, "services/addons shows which webhook of a tenant keeps objects from being applied; this test breaks a whole tenant")
	e.Services(t)
	broken, other := events.Tenant("default", "broken"), events.Tenant("default", "whole")
	e.Apply(t, env.Tenant("broken", "v1.36.3"))
	e.Ready(t, broken)
	kubeconfig := e.Kubeconfig(t, broken)
	binding := func() error {
		out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "clusterrolebinding", "kubeadm:cluster-admins", "-o", "name")
		if err == nil && !strings.Contains(out, "kubeadm:cluster-admins") {
			err = errors.New(out)
		}
		return err
	}
	if out, err := e.TryKubectl(t.Context(), kubeconfig, strings.NewReader(catchAll), "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	env.Eventually(t, "the webhook to refuse", func() error {
		if _, err := e.TryKubectl(t.Context(), kubeconfig, nil, "create", "namespace", "refused", "--dry-run=server"); err == nil {
			return errNotYet
		}
		return nil
	})
	// Whoever deletes it can't make it again: the administrator of the tenant is one by this binding.
	e.Kubectl(t, kubeconfig, "delete", "clusterrolebinding", "kubeadm:cluster-admins")

	says := func() string {
		s := e.State(t.Context(), broken, name.ServiceAddons)
		if s == nil || s.Failure == nil || s.Failure.Reason != reason.TenantWebhook || s.Failure.Permanent {
			return ""
		}
		return s.Failure.Message
	}
	env.Eventually(t, "addons to name the webhook and the object", func() error {
		if said := says(); !strings.Contains(said, `"catch-all.example.com"`) || !strings.Contains(said, "kubeadm:cluster-admins") {
			return errors.New(said)
		}
		return nil
	})
	env.Eventually(t, "the status to say it", func() error {
		for _, c := range read(t, broken).Status.Conditions {
			if c.Reason == reason.TenantWebhook && strings.Contains(c.Message, "catch-all.example.com") {
				return nil
			}
		}
		return errNotYet
	})
	e.Apply(t, env.Tenant("whole", "v1.36.3"))
	e.Ready(t, other)
	if says() == "" {
		t.Error("the webhook isn't named any more, although it is there")
	}

	// By the one kubeconfig that no rule of the tenant can lock out.
	var secret corev1.Secret
	e.Get(t, kube.Secrets, broken.Namespace, name.AdminKubeconfig(broken.Name), &secret)
	super := filepath.Join(t.TempDir(), "super.kubeconfig")
	must(t, os.WriteFile(super, secret.Data[name.KeySuperAdminConf], 0o600))
	e.Kubectl(t, super, "delete", "validatingwebhookconfiguration", "catch-all")
	env.Eventually(t, "the binding to be there again", binding)
	env.Eventually(t, "nothing to be wrong", func() error {
		if s := e.State(t.Context(), broken, name.ServiceAddons); s == nil || s.Failure != nil || s.Step != event.Applied {
			return errNotYet
		}
		return nil
	})
	for _, key := range []events.Key{broken, other} {
		e.Delete(t, key)
	}
	for _, key := range []events.Key{broken, other} {
		e.Gone(t, key)
		nothingLeft(t, key)
	}
}
