package source

import (
	"encoding/json"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

var tenant = Tenant{
	Name: "demo", Namespace: "team-a", Labels: map[string]string{"tier": "gold", "example.com/zone": "b"}, Version: "v1.35.1",
	Endpoint: "10.0.0.1:6443", Host: "10.0.0.1", Port: 6443, PodCIDR: "10.244.0.0/16", DNSServiceIPs: []string{"10.96.0.10"},
}

func valuesSpec(values, template string, from ...tenantaddon.ValuesFrom) *tenantaddon.TenantAddonSpec {
	spec := &tenantaddon.TenantAddonSpec{ValuesTemplate: template, ValuesFrom: from, Manifests: &tenantaddon.Manifests{Inline: crd}}
	if values != "" {
		spec.Values = &runtime.RawExtension{Raw: []byte(values)}
	}
	return spec
}

func wantJSON(t *testing.T, got any, want string) {
	t.Helper()
	var wanted any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(got, wanted) {
		data, _ := json.Marshal(got)
		t.Errorf("got %s, want %s", data, want)
	}
}

func TestValues(t *testing.T) {
	from := []tenantaddon.ValuesFrom{
		{Kind: "ConfigMap", Name: "a", Key: "values.yaml"}, {Kind: "Secret", Name: "b", Key: "k", Optional: true},
		{Kind: "Secret", Name: "c", Key: "k"},
	}
	in := Inputs{ValuesFrom: [][]byte{[]byte("a: {x: 2, w: 2}\nlist: [2]"), nil, []byte("a: {w: 3}\ngone: null")}}
	spec := valuesSpec(`{"a": {"x": 1, "w": 1, "z": 1}, "list": [1, 1], "gone": 1, "own": 1}`,
		"a: {z: {{ .Tenant.Name }}}\nport: {{ .Tenant.Port }}\nown: {{ .Tenant.Labels.tier | quote }}\n", from...)
	values, err := Values(spec, in, tenant)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, any(values), `{"a": {"x": 2, "w": 3, "z": "demo"}, "list": [2], "gone": null, "own": "gold", "port": 6443}`)
	values["own"] = "changed"
	values["a"].(map[string]any)["x"] = "changed"
	again, err := Values(spec, in, tenant)
	if err != nil {
		t.Fatal(err)
	}
	if again["own"] == "changed" || again["a"].(map[string]any)["x"] == "changed" {
		t.Error("two callers share what they may change")
	}
	none, err := Values(valuesSpec("", ""), Inputs{}, tenant)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, any(none), `{}`)
}

func TestValuesTemplate(t *testing.T) {
	for template, want := range map[string]string{
		`# {{ .Tenant.Name }}`:                                                                     `{}`,
		`a: {{ index .Tenant.Labels "example.com/zone" }}`:                                         `{"a": "b"}`,
		`a: {{ index .Tenant.Labels "not" | quote }}`:                                              `{"a": ""}`,
		`a: {{ .Tenant.Labels.not | default "x" }}`:                                                `{"a": "x"}`,
		`a: {{ .Tenant.DNSServiceIPs | toYaml | nindent 2 }}`:                                      `{"a": ["10.96.0.10"]}`,
		`a: {{ (fromYaml "b: 1").b }}`:                                                             `{"a": 1}`,
		`a: [{{ range $i := until 3 }}{{ $i }},{{ end }}]`:                                         `{"a": [0, 1, 2]}`,
		`a: [{{ range 3 }}{{ . }},{{ else }}{{ end }}]`:                                            `{"a": [0, 1, 2]}`,
		`{{ define "x" }}a: {{ . }}{{ end }}{{ template "x" 1 }}`:                                  `{"a": 1}`,
		`a: {{ printf "%s-%d" .Tenant.Name .Tenant.Port }}`:                                        `{"a": "demo-6443"}`,
		`a: {{ if semverCompare ">=1.30" .Tenant.Version }}1{{end}}`:                               `{"a": 1}`,
		`{{ range $k, $v := .Tenant.Labels }}{{ if eq $k "not" }}{{ fail "x" }}{{ end }}{{ end }}`: `{}`,
		`{{ with dict "a" 1 }}{{ toYaml . }}{{ end }}`:                                             `{"a": 1}`,
	} {
		values, err := Values(valuesSpec("", template), Inputs{}, tenant)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		wantJSON(t, any(values), want)
	}
}

func TestValuesRefused(t *testing.T) {
	from := tenantaddon.ValuesFrom{Kind: "Secret", Name: "s", Key: "k"}
	for name, test := range map[string]struct {
		spec   *tenantaddon.TenantAddonSpec
		data   []byte
		reason string
		says   []string
	}{
		"values of a list": {
			valuesSpec("[1]", ""), nil,
			tenantaddon.ReasonInvalid, []string{"spec.values", "must be an object"},
		},
		"a Secret that isn't there": {
			valuesSpec("", "", from), nil,
			tenantaddon.ReasonValuesUnavailable, []string{"spec.valuesFrom[0]", `Secret "s"`, `key "k"`},
		},
		"a Secret with a text": {
			valuesSpec("", "", from), []byte(password),
			tenantaddon.ReasonInvalidValues, []string{"spec.valuesFrom[0]", "must be an object"},
		},
		"a Secret with bad YAML": {
			valuesSpec("", "", from), []byte("a: 1\nb: *" + password),
			tenantaddon.ReasonInvalidValues, []string{"spec.valuesFrom[0]", "isn't valid YAML"},
		},
		"a Secret with no YAML": {
			valuesSpec("", "", from), []byte("a: 1\n " + password + ": {"),
			tenantaddon.ReasonInvalidValues, []string{"spec.valuesFrom[0]", "line"},
		},
		"a template that isn't one": {
			valuesSpec("", "a: 1\nb: {{ nope }}"), nil,
			tenantaddon.ReasonInvalid, []string{"spec.valuesTemplate: line 2", `"nope"`},
		},
		"an unfinished template": {
			valuesSpec("", "a: 1\n{{ if"), nil,
			tenantaddon.ReasonInvalid, []string{"spec.valuesTemplate: line 2"},
		},
		"two documents": {
			valuesSpec("", "", from), []byte("a: 1\n---\nb: 1"),
			tenantaddon.ReasonInvalidValues, []string{"one document"},
		},
		"env": {
			valuesSpec("", `{{ env "PATH" }}`), nil,
			tenantaddon.ReasonInvalid, []string{`"env" not defined`},
		},
		"now": {
			valuesSpec("", `{{ now }}`), nil,
			tenantaddon.ReasonInvalid, []string{`"now" not defined`},
		},
		"a key that is made": {
			valuesSpec("", `{{ genPrivateKey "rsa" }}`), nil,
			tenantaddon.ReasonInvalid, []string{"not defined"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{ValuesFrom: [][]byte{test.data}}
			_, err := Values(test.spec, in, tenant)
			mustFail(t, err, test.reason, test.says...)
			_, err = resolve(t, test.spec, in, "")
			mustFail(t, err, test.reason, test.says...)
		})
	}
	for name, test := range map[string]struct{ template, says string }{
		"a field that isn't there": {"a: 1\nb: {{ .Tenant.Nam }}", "line 2"},
		"a failure":                {`{{ fail "no zone" }}`, "no zone"},
		"a list":                   {"- a", "must be an object"},
		"no YAML":                  {"a: b: c", "isn't valid YAML"},
		"endless templates":        {`{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, "it takes more than 20000 steps"},
		"branching templates": {
			`{{ define "x" }}{{ if lt . 60 }}{{ template "x" (add1 .) }}{{ template "x" (add1 .) }}{{ end }}{{ end }}{{ template "x" 0 }}`, "steps",
		},
		"an endless loop":             {`{{ range 9223372036854775807 }}{{ end }}`, "more than 20000 steps"},
		"loops in loops":              {`{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}`, "steps"},
		"a large list":                {`{{ until 100000000 }}`, "at most 10000"},
		"a large untilStep":           {`{{ untilStep 0 100000000 1 }}`, "at most 10000"},
		"a large seq":                 {`{{ seq 1 100000000 }}`, "10000"},
		"a large repeat":              {`{{ repeat 100000000 "x" }}`, "at most 10000"},
		"large repeats":               {`{{ repeat 10000 (repeat 10000 "xxxxxxxx") }}`, "too large"},
		"a large indent":              {`{{ indent 100000000 "x" }}`, "at most 10000"},
		"a string that doubles":       {`{{ $s := "xxxx" }}{{ range until 100 }}{{ $s = printf "%s%s" $s $s }}{{ end }}`, "too large"},
		"a string that doubles, 2":    {`{{ $s := "xxxx" }}{{ range until 100 }}{{ $s = print $s $s }}{{ end }}`, "too large"},
		"a list that doubles":         {`{{ $s := list 1 }}{{ range until 100 }}{{ $s = list $s $s }}{{ end }}{{ toJson $s }}`, "too large"},
		"a replacement that grows":    {`{{ $s := repeat 10000 "xxxxxxxxxx" }}{{ replace "" $s $s }}`, "too large"},
		"a join that grows":           {`{{ $s := repeat 10000 "xxxxxxxxxx" }}{{ join $s (until 10000) }}`, "too large"},
		"an object that holds itself": {`{{ $d := dict }}{{ $d := set $d "a" $d }}{{ toJson $d }}`, "too large"},
		"much output":                 {`{{ $s := repeat 10000 "xxxxxxxxxx" }}{{ range 100 }}{{ $s }}{{ end }}`, "more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Values(valuesSpec("", test.template), Inputs{}, tenant)
			mustFail(t, err, tenantaddon.ReasonInvalidValues, "spec.valuesTemplate", "team-a/demo", test.says)
			if strings.Contains(err.Error(), "template: spec") {
				t.Errorf("error %q isn't for people", err)
			}
		})
	}
}

func TestRevision(t *testing.T) {
	spec := func() *tenantaddon.TenantAddonSpec {
		s := valuesSpec(`{"a": 1, "b": 2}`, "x: y", tenantaddon.ValuesFrom{Kind: "Secret", Name: "s", Key: "k"})
		s.Chart = &tenantaddon.Chart{Repository: "https://example.com", Name: "demo", Version: "1.0.0"}
		return s
	}
	in := Inputs{ValuesFrom: [][]byte{[]byte("secret: 1")}}
	first := Revision(spec(), "sha256:a", in)
	if len(first) != revisionLength {
		t.Errorf("revision %q", first)
	}
	same := map[string]func(*tenantaddon.TenantAddonSpec){
		"the order of values": func(s *tenantaddon.TenantAddonSpec) { s.Values.Raw = []byte(`{"b":2,"a":1}`) },
		"the selector": func(s *tenantaddon.TenantAddonSpec) {
			s.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"rollout":             func(s *tenantaddon.TenantAddonSpec) { s.Rollout.Waves = []tenantaddon.Wave{{Name: "x"}} },
		"paused":              func(s *tenantaddon.TenantAddonSpec) { s.Paused = true },
		"after":               func(s *tenantaddon.TenantAddonSpec) { s.After = []string{"x"} },
		"onRemoval":           func(s *tenantaddon.TenantAddonSpec) { s.OnRemoval = tenantaddon.RemovalKeep },
		"timeout":             func(s *tenantaddon.TenantAddonSpec) { s.Timeout = &metav1.Duration{Duration: 1} },
		"credentials":         func(s *tenantaddon.TenantAddonSpec) { s.Chart.Credentials = "x" },
		"the digest, written": func(s *tenantaddon.TenantAddonSpec) { s.Chart.Digest = "sha256:a" },
	}
	for name, change := range same {
		s := spec()
		change(s)
		if got := Revision(s, "sha256:a", in); got != first {
			t.Errorf("%s changes the revision", name)
		}
	}
	other := map[string]func(*tenantaddon.TenantAddonSpec){
		"values":          func(s *tenantaddon.TenantAddonSpec) { s.Values.Raw = []byte(`{"a": 2, "b": 2}`) },
		"no values":       func(s *tenantaddon.TenantAddonSpec) { s.Values = nil },
		"valuesTemplate":  func(s *tenantaddon.TenantAddonSpec) { s.ValuesTemplate = "x: z" },
		"releaseName":     func(s *tenantaddon.TenantAddonSpec) { s.ReleaseName = "x" },
		"targetNamespace": func(s *tenantaddon.TenantAddonSpec) { s.TargetNamespace = "x" },
		"version":         func(s *tenantaddon.TenantAddonSpec) { s.Chart.Version = "1.0.1" },
		"repository":      func(s *tenantaddon.TenantAddonSpec) { s.Chart.Repository = "https://example.org" },
		"template":        func(s *tenantaddon.TenantAddonSpec) { s.Manifests.Template = true },
	}
	for name, change := range other {
		s := spec()
		change(s)
		if got := Revision(s, "sha256:a", in); got == first {
			t.Errorf("%s doesn't change the revision", name)
		}
	}
	if Revision(spec(), "sha256:b", in) == first || Revision(spec(), "sha256:a", Inputs{ValuesFrom: [][]byte{[]byte("secret: 2")}}) == first {
		t.Error("content doesn't change the revision")
	}
}
