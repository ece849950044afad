package addons

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// kubeletOf is what nodes get, by field.
func kubeletOf(t *testing.T, in Input) (map[string]any, error) {
	t.Helper()
	objs, err := Render(in)
	if err != nil {
		return nil, err
	}
	for _, o := range objs {
		if o.GetName() != "kubelet-config" || o.GetKind() != "ConfigMap" {
			continue
		}
		cm := &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cm); err != nil {
			t.Fatal(err)
		}
		doc := map[string]any{}
		if err := yaml.Unmarshal([]byte(cm.Data["kubelet"]), &doc); err != nil {
			t.Fatal(err)
		}
		return doc, nil
	}
	t.Fatal("there is no kubelet-config")
	return nil, nil
}

func patches(t *testing.T, text string) (p []JSONPatch) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKubeletPatches(t *testing.T) {
	for name, c := range map[string]struct {
		patches string
		// says is what nodes get beside, or instead of, what they get without patches; null for what they don't get.
		says string
	}{
		"what the newest kubelet has by default, and an older one refuses, can be removed": {
			`[{op: remove, path: /imagePullCredentialsVerificationPolicy}, {op: remove, path: /crashLoopBackOff/maxContainerRestartPeriod}]`, `{}`,
		},
		"what nodes are told is no more told when it is removed": {`[{op: remove, path: /healthzPort}]`, `{healthzPort: null}`},
		"a default can be replaced":                              {`[{op: replace, path: /maxPods, value: 42}]`, `{maxPods: 42}`},
		"a default that a patch names is told":                   {`[{op: replace, path: /failCgroupV1, value: true}]`, `{failCgroupV1: true}`},
		"a place in a structure of which nothing is told": {
			`[{op: add, path: /crashLoopBackOff/maxContainerRestartPeriod, value: 1m0s}]`, `{crashLoopBackOff: {maxContainerRestartPeriod: 1m0s}}`,
		},
		"a list of defaults is told whole": {
			`[{op: add, path: /enforceNodeAllocatable/-, value: system-reserved}]`, `{enforceNodeAllocatable: [pods, system-reserved]}`,
		},
		"of a list, one can be removed": {
			`[{op: add, path: /enforceNodeAllocatable/0, value: none}, {op: remove, path: /enforceNodeAllocatable/1}]`, `{enforceNodeAllocatable: [none]}`,
		},
		"a test is of the whole document, and tells nobody": {
			`[{op: test, path: /syncFrequency, value: 1m0s}, {op: test, path: /enforceNodeAllocatable, value: [pods]}]`, `{}`,
		},
		"copies take defaults along":            {`[{op: copy, from: /maxPods, path: /podsPerCore}]`, `{podsPerCore: 110}`},
		"what is moved is not where it was":     {`[{op: move, from: /healthzPort, path: /readOnlyPort}]`, `{healthzPort: null, readOnlyPort: 10248}`},
		"a default is moved":                    {`[{op: move, from: /port, path: /readOnlyPort}]`, `{readOnlyPort: 10250}`},
		"a field that is nowhere can be added":  {`[{op: add, path: /evictionHard, value: {imagefs.available: 15%}}]`, `{evictionHard: {imagefs.available: 15%}}`},
		"one patch builds on another":           {`[{op: add, path: /featureGates, value: {}}, {op: add, path: /featureGates/A, value: true}]`, `{featureGates: {A: true}}`},
		"a key with a slash":                    {`[{op: add, path: /featureGates, value: {a/b: true}}, {op: replace, path: /featureGates/a~1b, value: false}]`, `{featureGates: {a/b: false}}`},
		"resolvConf, which nodes find, is none": {`[{op: add, path: /resolvConf, value: /etc/r.conf}]`, `{resolvConf: /etc/r.conf}`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1.30.0", "v1.34.0", "v1.35.4", "v1.36.3"} {
				in := input()
				in.Version = version
				want, err := kubeletOf(t, in)
				if err != nil {
					t.Fatal(err)
				}
				says := map[string]any{}
				if err := yaml.Unmarshal([]byte(c.says), &says); err != nil {
					t.Fatal(err)
				}
				maps.Copy(want, says)
				maps.DeleteFunc(want, func(_ string, v any) bool { return v == nil })
				in.KubeletPatches = patches(t, c.patches)
				got, err := kubeletOf(t, in)
				if err != nil {
					t.Fatal(err)
				}
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(want)
				if string(a) != string(b) {
					t.Errorf("%s: nodes get\n%s, want\n%s", version, a, b)
				}
			}
		})
	}
}

func TestKubeletPatchesThatFail(t *testing.T) {
	const field = "spec.kubernetes.kubelet.configurationJSONPatches"
	for name, c := range map[string]struct{ patches, says string }{
		"a removal of what isn't there": {
			`[{op: remove, path: /maxPods}, {op: remove, path: /maxPods}]`, field + `[1]: remove "/maxPods": `,
		},
		"a replacement of what isn't there": {`[{op: replace, path: /nothing, value: 1}]`, field + `[0]: replace "/nothing": `},
		"a place in what isn't there":       {`[{op: add, path: /nothing/at, value: 1}]`, field + `[0]: add "/nothing/at": `},
		"a place beyond a list's end":       {`[{op: add, path: /clusterDNS/7, value: 10.0.0.1}]`, field + `[0]: add "/clusterDNS/7": `},
		"a test that fails":                 {`[{op: test, path: /maxPods, value: 42}]`, field + `[0]: test "/maxPods": `},
		"a copy of what isn't there":        {`[{op: copy, from: /nothing, path: /maxPods}]`, field + `[0]: copy "/nothing" to "/maxPods": `},
		"an operation that is none":         {`[{op: merge, path: /maxPods}]`, field + `[0]: merge "/maxPods": `},
		"a field that no kubelet has":       {`[{op: add, path: /maxPod, value: 1}]`, field + `: what they make is no KubeletConfiguration: `},
		"a value of another type":           {`[{op: add, path: /maxPods, value: many}]`, field + `: what they make is no KubeletConfiguration: `},
		"a document that is none":           {`[{op: replace, path: "", value: [1]}]`, field},
		"another kind":                      {`[{op: replace, path: /kind, value: Pod}]`, field + `: what they make is no KubeletConfiguration: `},
	} {
		t.Run(name, func(t *testing.T) {
			in := input()
			in.KubeletPatches = patches(t, c.patches)
			_, err := Render(in)
			var bad *PatchError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Error(), c.says) {
				t.Fatalf("got %v, want %s…", err, c.says)
			}
			// Before there is a control plane, only the spec is known.
			early := Input{Name: "demo", Version: in.Version, ServiceCIDRs: in.ServiceCIDRs, KubeletPatches: in.KubeletPatches}
			if sooner := checkKubelet(early); sooner == nil || sooner.Error() != bad.Error() {
				t.Errorf("before there is a control plane: %v", sooner)
			}
		})
	}
	early := Input{Name: "demo", Version: "v1.36.3", KubeletPatches: patches(t, `[{op: remove, path: /imagePullCredentialsVerificationPolicy}]`)}
	if err := checkKubelet(early); err != nil {
		t.Error(err)
	}
}

func TestKubeadmConfigIsReadByTheMinorVersionBefore(t *testing.T) {
	for version, want := range map[string]string{"v1.30.14": "v1beta3", "v1.31.0": "v1beta3", "v1.32.0": "v1beta4", "v1.36.3": "v1beta4"} {
		in := input()
		in.Version = version
		objs, err := Render(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objs {
			if o.GetName() != "kubeadm-config" || o.GetKind() != "ConfigMap" {
				continue
			}
			text, _, _ := unstructured.NestedString(o.Object, "data", "ClusterConfiguration")
			if !strings.Contains(text, "apiVersion: kubeadm.k8s.io/"+want+"\n") {
				t.Errorf("%s: want %s in\n%s", version, want, text)
			}
		}
	}
}

func TestKubeletDefaults(t *testing.T) {
	defaults := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(kubeletYAML, defaults); err != nil {
		t.Fatalf("kubelet.yaml is of another version than k8s.io/kubelet (go generate): %v", err)
	}
	in := input()
	in.KubeletPatches = patches(t, `[{op: replace, path: /cgroupDriver, value: cgroupfs}, {op: test, path: /clusterDNS, value: [10.96.0.10]},
		{op: test, path: /authentication/x509/clientCAFile, value: /etc/kubernetes/pki/ca.crt}, {op: test, path: /rotateCertificates, value: true},
		{op: test, path: /authentication/webhook/cacheTTL, value: 2m0s}, {op: test, path: /staticPodPath, value: /etc/kubernetes/manifests}]`)
	if _, err := Render(in); err != nil {
		t.Errorf("what kubeadm says isn't in the document that is patched: %v", err)
	}
}

func TestATenantWithAPatchThatFails(t *testing.T) {
	tn, key := sharedTenant(t), events.Tenant("default", "demo")
	operator, _ := tn.serve(t, key, nil)
	own := func() *state.State {
		st, err := operator.State(t.Context(), key, name.ServiceAddons)
		if err != nil {
			return &state.State{}
		}
		return st
	}
	versions := func() map[string]string {
		found := map[string]string{}
		list := &corev1.ConfigMapList{}
		if err := tn.rest.Get().AbsPath("/api/v1/configmaps").Do(t.Context()).Into(list); err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			if cm.Labels[LabelProject] == Project {
				found[cm.Name] = cm.ResourceVersion
			}
		}
		return found
	}
	poll.True(t, "everything is applied", func() bool { return own().Step == event.Applied })
	before := versions()

	generation := int64(1)
	patched := func(p ...v1alpha1.JSONPatch) {
		t.Helper()
		generation++
		tn.respec(t, key, generation, func(spec *v1alpha1.TenantControlPlaneSpec) {
			spec.Kubernetes.Kubelet.ConfigurationJSONPatches = p
		}, nil)
	}
	patched(v1alpha1.JSONPatch{Op: "remove", Path: "/imagePullCredentialsVerificationPolicy"}, v1alpha1.JSONPatch{Op: "remove", Path: "/nothing"})
	poll.True(t, "it is told which patch fails", func() bool {
		f := own().Failure
		return f != nil && f.Permanent && f.Reason == reason.InvalidKubeletPatch && strings.Contains(f.Message, `configurationJSONPatches[1]: remove "/nothing"`)
	})
	if after := versions(); !maps.Equal(before, after) {
		t.Errorf("objects inside were changed: %v, before %v", after, before)
	}
	patched(v1alpha1.JSONPatch{Op: "remove", Path: "/imagePullCredentialsVerificationPolicy"},
		v1alpha1.JSONPatch{Op: "replace", Path: "/maxPods", Value: &runtime.RawExtension{Raw: []byte("42")}})
	poll.True(t, "it is applied once the patch is right", func() bool { return own().Failure == nil && own().Generation == generation })
	if after := versions(); after["kubelet-config"] == before["kubelet-config"] {
		t.Error("kubelet-config is what it was")
	}
}
