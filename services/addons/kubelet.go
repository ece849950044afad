package addons

// The configuration of the tenant's kubelets: what kubeadm says, and what spec.kubernetes.kubelet.configurationJSONPatches say.
//
// A patch is written against the document that Kamaji's users know: each field is there, with the kubelet's default. Nodes get less:
// what kubeadm would write, and what patches name. For a default that is written down is a wish, and a kubelet of another minor
// version may refuse it, as v1.34 does imagePullCredentialsVerificationPolicy, behind a feature gate that it has off.

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kubeletYAML is what the newest kubelet makes of an empty configuration, but for what each node finds out. Its fields are the same for
// all versions of tenants: who has patches for one has them for the next.
//
//go:generate sh -c "cd ../../local/images/kubernetes && GOWORK=off go run -trimpath ./kubeletdefaults >../../../services/addons/kubelet.yaml"
//go:embed kubelet.yaml
var kubeletYAML []byte

// fieldKubeletPatches is where patches are in the TenantControlPlane.
const fieldKubeletPatches = "spec.kubernetes.kubelet.configurationJSONPatches"

// PatchError says which patch of the kubelet's configuration is wrong, and why. No retry helps.
type PatchError struct {
	Index int // in the spec; -1 when each can be applied, but not what they make together
	Patch JSONPatch
	Err   error
}

func (e *PatchError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("%s: what they make is no KubeletConfiguration: %v", fieldKubeletPatches, e.Err)
	}
	from := ""
	if e.Patch.From != "" {
		from = fmt.Sprintf("%q to ", e.Patch.From)
	}
	return fmt.Sprintf("%s[%d]: %s %s%q: %v", fieldKubeletPatches, e.Index, e.Patch.Op, from, e.Patch.Path, e.Err)
}

func (e *PatchError) Unwrap() error { return e.Err }

// patchKubelet applies patches, in order, to what kubeadm says. An error is a *PatchError unless kubeadm itself is at fault.
func patchKubelet(kubelet *kubeletconfig.KubeletConfiguration, patches []JSONPatch) (*kubeletconfig.KubeletConfiguration, error) {
	said, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kubelet)
	if err != nil {
		return nil, fmt.Errorf("KubeletConfiguration of kubeadm: %w", err)
	}
	full := map[string]any{}
	if err := yaml.Unmarshal(kubeletYAML, &full); err != nil {
		return nil, fmt.Errorf("defaults of the kubelet: %w", err)
	}
	overlay(full, said)
	var doc, result any = full, said
	for i, patch := range patches { // one by one, so that the error names the one at fault
		if doc, err = patch.apply(doc); err != nil {
			return nil, &PatchError{i, patch, err}
		}
		result = patch.say(result, doc)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, &PatchError{Index: -1, Err: err}
	}
	patched := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(text, patched); err != nil {
		return nil, &PatchError{Index: -1, Err: err}
	}
	if gvk := patched.GroupVersionKind(); !gvk.Empty() && gvk != kubeletconfig.SchemeGroupVersion.WithKind("KubeletConfiguration") {
		return nil, &PatchError{Index: -1, Err: fmt.Errorf("it is %s", gvk)}
	}
	return patched, nil
}

// overlay puts what is said over the defaults. A kubelet takes its default for a zero, too.
func overlay(full, said map[string]any) {
	for field, value := range said {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := full[field].(map[string]any)
			if !ok {
				inner = map[string]any{}
				full[field] = inner
			}
			overlay(inner, v)
		case string:
			if _, has := full[field]; !has || v != "" && v != "0s" {
				full[field] = v
			}
		case int64:
			if _, has := full[field]; !has || v != 0 {
				full[field] = v
			}
		default:
			full[field] = v
		}
	}
}

// apply returns the document after the operation. What the library lets pass is refused before: a place that an operation needs must
// be there (RFC 6902, section 4).
func (p JSONPatch) apply(doc any) (after any, err error) {
	for op, needed := range map[string]string{"remove": p.Path, "replace": p.Path, "test": p.Path, "move": p.From, "copy": p.From} {
		if p.Op == op && !found(doc, pointer(needed)) {
			return nil, fmt.Errorf("there is no %s in the document", needed)
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	op, err := json.Marshal([]JSONPatch{p})
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(op)
	if err != nil {
		return nil, err
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, err
	}
	return after, json.Unmarshal(text, &after)
}

// found reports whether there is something at a place, be it null.
func found(doc any, path []string) bool {
	for _, key := range path {
		switch d := doc.(type) {
		case map[string]any:
			value, has := d[key]
			if !has {
				return false
			}
			doc = value
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(d) {
				return false
			}
			doc = d[i]
		default:
			return false
		}
	}
	return true
}

// say makes the document for nodes say what the patch names, given what the full one says after it.
func (p JSONPatch) say(said, after any) any {
	switch p.Op {
	case "remove":
		return carry(said, after, pointer(p.Path), true)
	case "move":
		said = carry(said, after, pointer(p.From), true)
	case "test":
		return said
	}
	return carry(said, after, pointer(p.Path), false)
}

// carry makes the place in said what it is in after, or removes it there. A list on the way is carried whole: what its places are
// depends on all of it.
func carry(said, after any, path []string, remove bool) any {
	to, is := said.(map[string]any)
	from, ok := after.(map[string]any)
	if len(path) == 0 || !ok {
		return runtime.DeepCopyJSONValue(after)
	}
	field, rest := path[0], path[1:]
	value, has := from[field]
	if !is {
		to = map[string]any{}
	}
	_, list := value.([]any)
	switch {
	case !has, remove && len(rest) == 0:
		delete(to, field)
	case remove && !list && to[field] == nil: // it isn't said anyway
	default:
		to[field] = carry(to[field], value, rest, remove)
	}
	return to
}

// pointer splits a JSON pointer (RFC 6901).
func pointer(p string) []string {
	if p == "" {
		return nil
	}
	parts := strings.Split(p[1:], "/")
	for i := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
	}
	return parts
}

// checkKubelet tells what is wrong with the tenant's patches before there is a control plane to apply anything to. What else its
// objects are made from isn't known by then, and has no part in it.
func checkKubelet(in Input) error {
	if len(in.KubeletPatches) == 0 {
		return nil
	}
	in.Endpoint, in.AdvertiseAddress, in.Port = "192.0.2.1", "192.0.2.1", 0
	var bad *PatchError
	if _, err := newKubeadm(in); errors.As(err, &bad) {
		return err
	}
	return nil
}
