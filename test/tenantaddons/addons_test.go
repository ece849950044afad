package tenantaddons

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestTenantAddons takes TenantAddons through what becomes of them in three tenants.
func TestTenantAddons(t *testing.T) {
	e.Services(t)
	tenants(t, map[string]map[string]string{"alpha": {"stage": "canary", "tier": "gold"}, "beta": {"tier": "gold"}, "gamma": {"tier": "none"}})
	alpha, beta, gamma := inside(t, "alpha"), inside(t, "beta"), inside(t, "gamma")
	const gold = "selector: {matchLabels: {tier: gold}}\n"

	t.Run("manifests are in the tenants that are selected", func(t *testing.T) {
		put(t, "words", gold+words("words", "first"))
		o := ready(t, "words")
		if c := o.Status.Tenants; c != (tenantaddon.TenantCounts{Selected: 2, Current: 2, Ready: 2}) || o.Status.Wave != "" {
			t.Errorf("%+v", o.Status)
		}
		for _, in := range []*kube.Client{alpha, beta} {
			if is := word(t, in, "kube-system", "words"); is != "first" {
				t.Errorf("it says %q", is)
			}
		}
		if word(t, gamma, "kube-system", "words") != "" {
			t.Error("a tenant has it that isn't selected")
		}
		text, err := e.Service(t, name.ServiceTenantAddons, "a").Metrics(t.Context())
		must(t, err)
		for _, want := range []string{
			`stoker_tenantaddons_tenants{addon="words",namespace="default",service="tenantaddons",state="ready"} 2`,
			`stoker_tenantaddons_rollout_stopped{addon="words",namespace="default",service="tenantaddons"} 0`,
			`stoker_tenantaddons_valid{addon="words",namespace="default",service="tenantaddons"} 1`,
			`stoker_tenantaddons_installations_total{result="installed",service="tenantaddons"} 2`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics lack %s", want)
			}
		}
		env.Eventually(t, "the fact", func() error {
			if f := facts(t, "alpha"); !slices.Contains(f, "tenantaddons.installed") {
				return fmt.Errorf("%v", f)
			}
			return nil
		})
	})
	t.Run("what is changed or deleted in a tenant is put back, and told", func(t *testing.T) {
		must(t, alpha.MergePatch(t.Context(), kube.ConfigMaps, "kube-system", "words", map[string]any{"data": map[string]any{"word": "drift"}}, nil))
		_, err := beta.Delete(t.Context(), kube.ConfigMaps, "kube-system", "words", metav1.DeleteOptions{})
		must(t, err)
		says(t, alpha, "words", "first")
		says(t, beta, "words", "first")
		for _, tenant := range []string{"alpha", "beta"} {
			e.Fact(t, events.Tenant(namespace, tenant), name.ServiceTenantAddons, "repaired")
		}
	})
	t.Run("it follows a tenant's labels", func(t *testing.T) {
		label(t, "gamma", "gold")
		says(t, gamma, "words", "first")
		label(t, "gamma", "none")
		says(t, gamma, "words", "")
		e.Fact(t, events.Tenant(namespace, "gamma"), name.ServiceTenantAddons, "uninstalled")
		env.Eventually(t, "the end of the AddonRelease", func() error {
			_, err := release(t, "gamma", "words")
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there, %w", err)
		})
	})
	t.Run("a wave that fails keeps the others from it, and the way out is another spec", func(t *testing.T) {
		const wave = "rollout: {waves: [{name: canary, selector: {matchLabels: {stage: canary}}}]}\n"
		put(t, "words", gold+wave+"manifests: {inline: '{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {word: [broken]}}'}")
		o := await(t, "words", tenantaddon.ConditionRolledOut, tenantaddon.ReasonStopped)
		if o.Status.Tenants.Failed != 1 || len(o.Status.Failing) != 1 || o.Status.Failing[0].Name != "alpha" || o.Status.Wave != "canary" && o.Status.Wave != "rest" {
			t.Errorf("%+v", o.Status)
		}
		if is := word(t, beta, "kube-system", "words"); is != "first" {
			t.Errorf("beta says %q", is)
		}
		put(t, "words", gold+wave+words("words", "second"))
		ready(t, "words")
		says(t, alpha, "words", "second")
		says(t, beta, "words", "second")
	})
	t.Run("a wave soaks before the others have it", func(t *testing.T) {
		wave := func(soak string) string {
			return gold + "rollout: {waves: [{name: canary, selector: {matchLabels: {stage: canary}}, soak: " + soak + "}]}\n"
		}
		put(t, "words", wave("1h")+words("words", "soaked"))
		await(t, "words", tenantaddon.ConditionRolledOut, tenantaddon.ReasonSoaking)
		says(t, alpha, "words", "soaked")
		if is := word(t, beta, "kube-system", "words"); is != "second" {
			t.Errorf("beta says %q", is)
		}
		put(t, "words", wave("1s")+words("words", "soaked"))
		ready(t, "words")
		says(t, beta, "words", "soaked")
	})
	t.Run("a paused one is left alone", func(t *testing.T) {
		put(t, "words", gold+"paused: true\n"+words("words", "third"))
		await(t, "words", tenantaddon.ConditionRolledOut, tenantaddon.ReasonPaused)
		if is := word(t, alpha, "kube-system", "words"); is != "soaked" {
			t.Errorf("it says %q", is)
		}
		put(t, "words", gold+words("words", "third"))
		ready(t, "words")
		says(t, alpha, "words", "third")
	})
	t.Run("one comes after another, in both directions", func(t *testing.T) {
		put(t, "later", gold+"after: [sooner]\n"+words("later", "x"))
		stands(t, "alpha", "later", tenantaddon.ReasonSucceeded) // nothing is waited for that isn't there
		gone(t, "later")
		put(t, "sooner", gold+"timeout: 1h\nmanifests: {inline: '"+deployment("sooner", 1)+"'}") // nobody runs its pods
		stands(t, "alpha", "sooner", tenantaddon.ReasonProgressing)
		put(t, "later", gold+"after: [sooner]\n"+words("later", "x"))
		stands(t, "alpha", "later", tenantaddon.ReasonWaitingForAddon)
		put(t, "sooner", gold+"timeout: 1h\nmanifests: {inline: '"+deployment("sooner", 0)+"'}")
		ready(t, "later")
		gone(t, "later")
		gone(t, "sooner")
	})
	t.Run("what isn't ready in time has failed", func(t *testing.T) {
		put(t, "slow", gold+"timeout: 2s\nmanifests: {inline: '"+deployment("slow", 1)+"'}")
		stands(t, "alpha", "slow", tenantaddon.ReasonTimedOut)
		await(t, "slow", tenantaddon.ConditionRolledOut, tenantaddon.ReasonSucceeded) // both had it at once
		await(t, "slow", tenantaddon.ConditionReady, tenantaddon.ReasonFailing)
		put(t, "slow", gold+"timeout: 2s\nreadyWhen: Applied\nmanifests: {inline: '"+deployment("slow", 1)+"'}")
		ready(t, "slow")
		gone(t, "slow")
	})
	t.Run("kinds and their objects come together", func(t *testing.T) {
		put(t, "kinds", gold+"manifests:\n  inline: |\n"+indent(crd)+indent("---\napiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: one}\nspec: {size: 1}\n"))
		ready(t, "kinds")
		gadgets := kube.Resource{GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"}, Plural: "gadgets", Kind: "Gadget", Namespaced: true}
		must(t, alpha.Get(t.Context(), gadgets, "kube-system", "one", &metav1.PartialObjectMetadata{}))
		gone(t, "kinds")
		err := alpha.Get(t.Context(), kube.CustomResourceDefinitions, "", "gadgets.example.com", &metav1.PartialObjectMetadata{})
		if !apierrors.IsNotFound(err) {
			env.Eventually(t, "the end of the kind", func() error {
				err := alpha.Get(t.Context(), kube.CustomResourceDefinitions, "", "gadgets.example.com", &metav1.PartialObjectMetadata{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("it is there, %w", err)
			})
		}
	})
	t.Run("a chart, with values of the tenant", func(t *testing.T) {
		c := newCharts(t)
		c.publish(t, "1.0.0", nil)
		must(t, e.Admin.Apply(t.Context(), kube.ConfigMaps, &corev1.ConfigMap{
			TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "baseline"}, Data: map[string]string{"values.yaml": "from: file"},
		}))
		spec := func(version string) string {
			return gold + "chart: {repository: '" + c.URL + "', name: baseline, version: " + version + "}\n" +
				"values: {word: none, from: nobody}\nvaluesFrom: [{kind: ConfigMap, name: baseline}]\n" +
				"valuesTemplate: 'word: {{ .Tenant.Name }}-{{ index .Tenant.Labels \"tier\" }}'\n"
		}
		put(t, "baseline", spec("1.0.0"))
		if o := ready(t, "baseline"); o.Status.Version != "1.0.0" {
			t.Errorf("%+v", o.Status)
		}
		says(t, alpha, "baseline", "alpha-gold from file 1.0.0")
		says(t, beta, "baseline", "beta-gold from file 1.0.0")
		c.publish(t, "1.1.0", nil)
		put(t, "baseline", spec("1.1.0"))
		ready(t, "baseline")
		says(t, alpha, "baseline", "alpha-gold from file 1.1.0")
		must(t, e.Admin.MergePatch(t.Context(), kube.ConfigMaps, namespace, "baseline", map[string]any{"data": map[string]any{"values.yaml": "from: elsewhere"}}, nil))
		says(t, beta, "baseline", "beta-gold from elsewhere 1.1.0")
		put(t, "baseline", spec("6.6.6"))
		o := await(t, "baseline", tenantaddon.ConditionValid, tenantaddon.ReasonSourceUnavailable)
		if m := message(o.Status.Conditions, tenantaddon.ConditionValid); !strings.Contains(m, "6.6.6") {
			t.Errorf("%s", m)
		}
		put(t, "baseline", spec("1.0.0"))
		ready(t, "baseline")
		says(t, alpha, "baseline", "alpha-gold from elsewhere 1.0.0")
		gone(t, "baseline")
		says(t, alpha, "baseline", "")
	})
	t.Run("a chart of an OCI registry", func(t *testing.T) {
		put(t, "packed", gold+"chart: {repository: 'oci://"+registry(t, "3.0.0")+"/charts/baseline', version: 3.0.0, credentials: registry}\n")
		if o := ready(t, "packed"); o.Status.Version != "3.0.0" {
			t.Errorf("%+v", o.Status)
		}
		says(t, alpha, "baseline", "default from default 3.0.0")
		gone(t, "packed")
		says(t, alpha, "baseline", "")
	})
	t.Run("one for the tenants of all namespaces with a label", func(t *testing.T) {
		fleet := func(label any) {
			must(t, e.Admin.MergePatch(t.Context(), kube.Namespaces, "", namespace, map[string]any{"metadata": map[string]any{"labels": map[string]any{"fleet": label}}}, nil))
		}
		must(t, env.ApplySpec(t.Context(), e.Admin, kube.TenantAddons, name.SystemNamespace, "everywhere",
			"selector: {}\nnamespaceSelector: {matchLabels: {fleet: theirs}}\n"+words("everywhere", "here")))
		fleet("theirs")
		for _, in := range []*kube.Client{alpha, beta, gamma} {
			says(t, in, "everywhere", "here")
		}
		fleet(nil)
		for _, in := range []*kube.Client{alpha, beta, gamma} {
			says(t, in, "everywhere", "")
		}
		_, err := e.Admin.Delete(t.Context(), kube.TenantAddons, name.SystemNamespace, "everywhere", metav1.DeleteOptions{})
		must(t, err)
	})
	t.Run("a kustomization, of a ConfigMap that changes", func(t *testing.T) {
		files := func(word string) {
			must(t, e.Admin.Apply(t.Context(), kube.ConfigMaps, &corev1.ConfigMap{
				TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "files"}, Data: map[string]string{
					"kustomization.yaml": "resources: [words.yaml]\nnamePrefix: built-\n",
					"words.yaml":         "{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {word: " + word + "}}\n",
				},
			}))
		}
		files("first")
		put(t, "built", gold+"kustomization: {configMap: files}\n")
		ready(t, "built")
		says(t, alpha, "built-words", "first")
		files("second")
		says(t, alpha, "built-words", "second")
		says(t, beta, "built-words", "second")
		ready(t, "built")
		gone(t, "built")
		says(t, alpha, "built-words", "")
	})
	t.Run("a hook that doesn't end is a failure that says so", func(t *testing.T) {
		c := newCharts(t)
		c.publish(t, "2.0.0", map[string]string{"templates/hook.yaml": hook})
		put(t, "hooked", gold+"timeout: 2s\nchart: {repository: '"+c.URL+"', name: baseline, version: 2.0.0}\n")
		r := stands(t, "alpha", "hooked", tenantaddon.ReasonHookFailed)
		if m := message(r.Status.Conditions, tenantaddon.ConditionReady); !strings.Contains(m, "migrate") {
			t.Errorf("%s", m)
		}
		gone(t, "hooked")
	})
	t.Run("a hook may take longer than a turn", func(t *testing.T) {
		env.Long(t, "a hook that fails within a turn is shown above; one that outlasts a turn takes more than half a minute")
		c := newCharts(t)
		c.publish(t, "2.0.0", map[string]string{"templates/hook.yaml": hook})
		put(t, "hooked", "selector: {matchLabels: {stage: canary}}\ntimeout: 3m\nchart: {repository: '"+c.URL+"', name: baseline, version: 2.0.0}\n")
		longer := time.NewTimer(40 * time.Second)
		<-longer.C
		var pods corev1.PodList
		must(t, alpha.List(t.Context(), kube.Pods, "kube-system", "job-name=migrate", &pods))
		if len(pods.Items) != 1 || time.Since(pods.Items[0].CreationTimestamp.Time) < 30*time.Second {
			t.Fatalf("the hook was begun anew: %+v", pods.Items)
		}
		is, err := release(t, "alpha", "hooked")
		must(t, err)
		if is.Status.Failed {
			t.Errorf("%+v", is.Status)
		}
		// As a kubelet says that it has ended well.
		must(t, alpha.MergePatch(t.Context(), kube.Pods, "kube-system", pods.Items[0].Name, map[string]any{"status": map[string]any{"phase": "Succeeded"}}, nil, "status"))
		ready(t, "hooked")
		gone(t, "hooked")
	})
	t.Run("a webhook in the way is named", func(t *testing.T) {
		must(t, alpha.ApplyRaw(t.Context(), kube.ValidatingWebhookConfigurations, "", "guard", []byte(webhook), nil))
		env.Eventually(t, "the API server to call the webhook", func() error {
			probe := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/probe": ""}}}
			err := alpha.MergePatch(kube.DryRun(t.Context()), kube.ConfigMaps, "kube-system", "words", probe, nil)
			if err == nil {
				return errors.New("it accepts a change")
			}
			if !strings.Contains(err.Error(), "guard.example.com") {
				return err
			}
			return nil
		})
		put(t, "words", gold+words("words", "fourth"))
		r := stands(t, "alpha", "words", tenantaddon.ReasonTenantWebhook)
		if m := message(r.Status.Conditions, tenantaddon.ConditionReady); !strings.Contains(m, "guard.example.com") {
			t.Errorf("%s", m)
		}
		_, err := alpha.Delete(t.Context(), kube.ValidatingWebhookConfigurations, "", "guard", metav1.DeleteOptions{})
		must(t, err)
		ready(t, "words")
		says(t, alpha, "words", "fourth")
	})
	t.Run("what is kept stays when the TenantAddon goes", func(t *testing.T) {
		put(t, "kept", gold+"onRemoval: Keep\n"+words("kept", "here"))
		ready(t, "kept")
		gone(t, "kept")
		says(t, alpha, "kept", "here")
	})
	t.Run("what isn't ours is left as it is", func(t *testing.T) {
		must(t, alpha.Apply(t.Context(), kube.ConfigMaps, &corev1.ConfigMap{
			TypeMeta: kube.ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "theirs"}, Data: map[string]string{"word": "theirs"},
		}))
		put(t, "theirs", gold+words("theirs", "ours"))
		stands(t, "alpha", "theirs", tenantaddon.ReasonTaken)
		says(t, alpha, "theirs", "theirs")
		gone(t, "theirs")
		says(t, alpha, "theirs", "theirs")
	})
	t.Run("a new tenant has it once it is ready, and takes it along when it goes", func(t *testing.T) {
		tenants(t, map[string]map[string]string{"delta": {"tier": "gold"}})
		says(t, inside(t, "delta"), "words", "fourth")
		key := events.Tenant(namespace, "delta")
		e.Delete(t, key)
		e.Gone(t, key)
		env.Eventually(t, "the end of the AddonRelease", func() error {
			_, err := release(t, "delta", "words")
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there, %w", err)
		})
		ready(t, "words")
	})
	t.Run("a tenant that can't be reached doesn't hold the TenantAddon for ever", func(t *testing.T) {
		p := e.Service(t, name.ServiceTenantAddons, "a")
		p.Remove(t)
		t.Setenv("STOKER_ABANDON_AFTER", "3s")
		e.Service(t, name.ServiceTenantAddons, "a")
		o := env.Tenant("beta", "v1.36.3")
		o.Labels = map[string]string{"tier": "gold"}
		none := int32(0)
		o.Spec.ControlPlane.Deployment.Replicas = &none
		e.Apply(t, o)
		e.Fact(t, events.Tenant(namespace, "beta"), name.ServiceWorkload, "slept")
		gone(t, "words")
		says(t, alpha, "words", "")
		e.Fact(t, events.Tenant(namespace, "beta"), name.ServiceTenantAddons, "abandoned")
	})
}

// label gives a tenant another tier.
func label(t testing.TB, tenant, tier string) {
	t.Helper()
	must(t, e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, namespace, tenant, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"tier": tier}},
	}, nil))
}

func message(all []metav1.Condition, of string) string {
	for _, c := range all {
		if c.Type == of {
			return c.Message
		}
	}
	return ""
}

// deployment of pods that nobody runs.
func deployment(n string, replicas int) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: %d, selector: {matchLabels: {app: %s}}, "+
		"template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: main, image: example.com/none}]}}}}", n, replicas, n, n)
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n    ") + "\n"
}

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const hook = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/none}]}}}
`

const webhook = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: guard}, webhooks: [{
name: guard.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, timeoutSeconds: 2,
clientConfig: {url: "https://127.0.0.1:1/none"}, rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}],
objectSelector: {matchLabels: {stoker.dev/tenant-addon: words}}}]}`
