package tenantaddons

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/test/random"
)

// TestFaults has the service killed, started twice, and started anew.
func TestFaults(t *testing.T) {
	e.Services(t)
	tenants(t, map[string]map[string]string{"one": {"of": "faults", "each": "step"}, "two": {"of": "faults"}})
	of := "selector: {matchLabels: {of: faults}}\n"
	in := map[string]*kube.Client{"one": inside(t, "one"), "two": inside(t, "two")}
	put(t, "lives", of+words("lives", "w0"))
	ready(t, "lives")

	t.Run("killed at any time, it goes on", func(t *testing.T) {
		p := e.Service(t, name.ServiceTenantAddons, "a")
		source := random.Seeded(t)
		for i := 1; i <= 12; i++ {
			put(t, "lives", of+words("lives", fmt.Sprintf("w%d", i)))
			after := time.Duration(source.Int64N(int64(600 * time.Millisecond)))
			t.Logf("w%d: killed after %s", i, after)
			at := time.NewTimer(after)
			select {
			case <-t.Context().Done():
			case <-at.C:
			}
			p.Kill()
			p.Restart(t)
		}
		ready(t, "lives")
		for tenant, k := range in {
			says(t, k, "lives", "w12")
			deployed := 0
			for _, status := range revisions(t, k, "lives") {
				if status == "deployed" {
					deployed++
				} else if strings.HasPrefix(status, "pending") {
					t.Errorf("%s: a revision is %s", tenant, status)
				}
			}
			if deployed != 1 {
				t.Errorf("%s: %d revisions are deployed", tenant, deployed)
			}
		}
	})
	t.Run("killed at each step", func(t *testing.T) {
		killedAtEachStep(t, "one", in["one"], "selector: {matchLabels: {each: step}}\n")
	})
	t.Run("one that is started anew changes nothing, and sees what happened meanwhile", func(t *testing.T) {
		p := e.Service(t, name.ServiceTenantAddons, "a")
		p.Remove(t)
		before := [2]string{versions(t, in["one"]), versions(t, in["two"])}
		_, tap := e.Tapped(t, name.ServiceTenantAddons, "a")
		for tenant := range in {
			reads(t, tap, name.AdminKubeconfig(tenant))
		}
		quiet(t, tap)
		for _, m := range tap.Messages(0) {
			if m.Write && (strings.Contains(m.What, "tenantaddons") || strings.Contains(m.What, "addonreleases")) && !strings.HasPrefix(m.What, "PUB ") {
				t.Errorf("it writes %s: %s", m.What, m.Data)
			}
		}
		if after := [2]string{versions(t, in["one"]), versions(t, in["two"])}; after != before {
			t.Errorf("inside tenants it was %v and is %v", before, after)
		}
	})
	t.Run("what was changed while nobody looked is put back", func(t *testing.T) {
		e.Service(t, name.ServiceTenantAddons, "a").Remove(t)
		must(t, in["one"].MergePatch(t.Context(), kube.ConfigMaps, "kube-system", "lives", map[string]any{"data": map[string]any{"word": "drift"}}, nil))
		e.Service(t, name.ServiceTenantAddons, "a")
		says(t, in["one"], "lives", "w12")
	})
	t.Run("two replicas share the work, and one takes over from the other", func(t *testing.T) {
		a, b := e.Service(t, name.ServiceTenantAddons, "a"), e.Service(t, name.ServiceTenantAddons, "b")
		defer b.Remove(t)
		env.Eventually(t, "both to hold partitions", func() error {
			if len(a.Held(t)) == 0 || len(b.Held(t)) == 0 {
				return errors.New("one holds all")
			}
			return nil
		})
		for i, p := range []*env.Process{a, b} {
			put(t, "lives", of+words("lives", fmt.Sprintf("both%d", i)))
			ready(t, "lives")
			p.Kill()
			put(t, "lives", of+words("lives", fmt.Sprintf("one%d", i)))
			ready(t, "lives")
			for _, k := range in {
				says(t, k, "lives", fmt.Sprintf("one%d", i))
			}
			p.Restart(t)
		}
	})
	t.Run("a new authority interrupts nothing", func(t *testing.T) {
		var before, former corev1.Secret
		e.Get(t, kube.Secrets, namespace, "one-ca", &before)
		e.Get(t, kube.Secrets, namespace, name.AdminKubeconfig("one"), &former)
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "annotate", "secret", "one-ca", name.AnnotationRotate+"=")
		env.Eventually(t, "another authority, and a kubeconfig of it", func() error {
			var now, kubeconfig corev1.Secret
			e.Get(t, kube.Secrets, namespace, "one-ca", &now)
			e.Get(t, kube.Secrets, namespace, name.AdminKubeconfig("one"), &kubeconfig)
			if string(now.Data["ca.crt"]) == string(before.Data["ca.crt"]) || string(kubeconfig.Data[name.KeyAdminConf]) == string(former.Data[name.KeyAdminConf]) {
				return errors.New("one of them is the same")
			}
			return nil
		})
		e.Ready(t, events.Tenant(namespace, "one"))
		k := inside(t, "one")
		env.Eventually(t, "the tenant to be reached by its new kubeconfig", func() error {
			return k.MergePatch(t.Context(), kube.ConfigMaps, "kube-system", "lives", map[string]any{"data": map[string]any{"word": "drift"}}, nil)
		})
		says(t, k, "lives", "one1")
		put(t, "lives", of+words("lives", "rotated"))
		ready(t, "lives")
		says(t, k, "lives", "rotated")
	})
	t.Run("a Secret with values that goes is said, and takes nothing away", func(t *testing.T) {
		secret := &corev1.Secret{
			TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "values"}, Data: map[string][]byte{"values.yaml": []byte("word: hidden")},
		}
		must(t, e.Admin.Apply(t.Context(), kube.Secrets, secret))
		const templated = "manifests: {template: true, inline: '{apiVersion: v1, kind: ConfigMap, metadata: {name: lives}, data: {word: \"{{ .Values.word }}\"}}'}\n" +
			"valuesFrom: [{kind: Secret, name: values}]\n"
		put(t, "lives", of+templated)
		ready(t, "lives")
		says(t, inside(t, "one"), "lives", "hidden")
		_, err := e.Admin.Delete(t.Context(), kube.Secrets, namespace, "values", metav1.DeleteOptions{})
		must(t, err)
		await(t, "lives", tenantaddon.ConditionValid, tenantaddon.ReasonValuesUnavailable)
		says(t, inside(t, "one"), "lives", "hidden")
		data, err := json.Marshal(addon(t, "lives"))
		must(t, err)
		if strings.Contains(string(data), "hidden") {
			t.Errorf("the status has what is in the Secret: %s", data)
		}
		gone(t, "lives") // nothing of the source is needed for that
	})
}

// TestInstallations has the service work for a namespace alone, and for objects with a label alone.
func TestInstallations(t *testing.T) {
	e.NoServices(t)
	put(t, "others", "selector: {}\n"+words("others", "x"))
	for variable, value := range map[string]string{"STOKER_NAMESPACE": "elsewhere", "STOKER_WATCH_FILTER": "blue"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			_, tap := e.Tapped(t, name.ServiceTenantAddons, "a")
			reads(t, tap, "/tenantaddons")
			quiet(t, tap)
			for _, m := range tap.Messages(0) {
				if m.Write && env.About("others")(m) {
					t.Errorf("%s", m.What)
				}
			}
		})
	}
	t.Run("without either it is worked on", func(t *testing.T) {
		_, _ = e.Tapped(t, name.ServiceTenantAddons, "a")
		await(t, "others", tenantaddon.ConditionValid, tenantaddon.ReasonSucceeded)
		gone(t, "others")
	})
}

// versions are those of what is in kube-system of a tenant for the TenantAddon lives.
func versions(t testing.TB, in *kube.Client) string {
	t.Helper()
	var s string
	for _, r := range []kube.Resource{kube.ConfigMaps, kube.Secrets} {
		var all metav1.PartialObjectMetadataList
		must(t, in.List(t.Context(), r, "kube-system", name.LabelTenantAddon+"=lives", &all))
		if len(all.Items) == 0 {
			t.Errorf("no %s with the label", r.Plural)
		}
		for i := range all.Items {
			s += all.Items[i].Name + " " + all.Items[i].ResourceVersion + " "
		}
	}
	return s
}

// reads waits until a service has asked the API server for something.
func reads(t testing.TB, tap *env.Tap, what string) {
	t.Helper()
	env.Eventually(t, "the service to read "+what, func() error {
		if !slices.ContainsFunc(tap.Messages(0), func(m env.Message) bool { return !m.Write && strings.Contains(m.What, what) }) {
			return errors.New("it has not")
		}
		return nil
	})
}

// quiet waits until a service has written nothing for a while.
func quiet(t testing.TB, tap *env.Tap) {
	t.Helper()
	env.Eventually(t, "quiet", func() error {
		before := len(tap.Messages(0))
		wait := time.NewTimer(3 * time.Second)
		defer wait.Stop()
		select {
		case <-t.Context().Done():
		case <-wait.C:
		}
		for _, m := range tap.Messages(0)[before:] {
			if m.Write && !strings.HasPrefix(m.What, "PUB ") && !strings.Contains(m.What, "/leases/") {
				return errors.New(m.What)
			}
		}
		return nil
	})
}
