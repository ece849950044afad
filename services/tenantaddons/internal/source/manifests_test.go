package source

import (
	"archive/tar"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartcommonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + `
data:
  large: 9007199254740993
  text: |
    a
    ---
    b {{ c }}
`
}

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
`

// rendered is what Helm makes of the chart.
func rendered(t *testing.T, c *Content, values map[string]any) string {
	t.Helper()
	built, err := c.Chart("demo", values)
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Chart.Validate(); err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: "demo", Namespace: "kube-system"}
	all, err := chartcommonutil.ToRenderValues(built.Chart, values, options, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(built.Chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(out)) {
		text.WriteString(out[name] + "\n")
	}
	return text.String()
}

// wantNames checks the names of the objects in order.
func wantNames(t *testing.T, c *Content, names ...string) {
	t.Helper()
	objects, err := parseObjects(file{data: []byte(rendered(t, c, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetName())
	}
	if !slices.Equal(got, names) {
		t.Errorf("objects %q, want %q", got, names)
	}
}

func TestManifests(t *testing.T) {
	t.Run("what is inline is printed as it is, CRDs are taken out, empty documents left out, lists taken apart", func(t *testing.T) {
		inline := "# nothing\n---\n" + configMap("a") + "---\n" + crd + "---\n---\n" +
			`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}]}`
		c := mustResolve(t, manifestsSpec(tenantaddon.Manifests{Inline: inline}), Inputs{})
		wantNames(t, c, "a", "b")
		text := rendered(t, c, nil)
		for _, part := range []string{"9007199254740993", "b {{ c }}"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q isn't in:\n%s", part, text)
			}
		}
		built, err := c.Chart("demo", nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(built.CRDs) != 1 || built.CRDs[0].GetName() != "things.example.com" || !built.RemoveCRDs {
			t.Errorf("CRDs %v, removed %t", built.CRDs, built.RemoveCRDs)
		}
		if want := "0.0.0+" + c.Version; built.Chart.Metadata.Version != want || built.Chart.Name() != "demo" {
			t.Errorf("chart %s %s, want demo %s", built.Chart.Name(), built.Chart.Metadata.Version, want)
		}
		built.CRDs[0].SetName("changed")
		built.Chart.Files[0].Data[0] = '#'
		if again, _ := c.Chart("demo", nil); again.CRDs[0].GetName() == "changed" || again.Chart.Files[0].Data[0] == '#' {
			t.Error("two callers share what they may change")
		}
	})
	t.Run("only CRDs are enough", func(t *testing.T) {
		wantNames(t, mustResolve(t, manifestsSpec(tenantaddon.Manifests{Inline: crd}), Inputs{}))
	})
	t.Run("those of a ConfigMap come in the order of its keys; another order is the same content", func(t *testing.T) {
		in := Inputs{Files: map[string][]byte{"2.yaml": []byte(configMap("two")), "1": []byte(configMap("one"))}}
		spec := manifestsSpec(tenantaddon.Manifests{ConfigMap: "m"})
		c := mustResolve(t, spec, in)
		wantNames(t, c, "one", "two")
		in.Files["2.yaml"] = []byte(configMap("three"))
		changed, err := resolve(t, spec, in, c.Digest)
		if err != nil {
			t.Fatalf("a ConfigMap is pinned: %v", err)
		}
		if changed.Digest == c.Digest {
			t.Error("other content has the same digest")
		}
	})
	t.Run("templates are rendered with values", func(t *testing.T) {
		in := Inputs{Files: map[string][]byte{
			"a.yaml":       []byte(`name: {{ include "n" . }}-{{ .Values.x }}`),
			"_helpers.tpl": []byte(`{{ define "n" }}{{ .Release.Name }}{{ end }}`),
		}}
		c := mustResolve(t, manifestsSpec(tenantaddon.Manifests{ConfigMap: "m", Template: true}), in)
		if text := rendered(t, c, map[string]any{"x": "y"}); !strings.Contains(text, "name: demo-y") {
			t.Errorf("got %q", text)
		}
	})
}

func TestManifestsByURL(t *testing.T) {
	link := tarOf(t, []tar.Header{{Name: "a.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, nil)
	srv := serve(t, login(files{
		"install.yaml": []byte(configMap("one") + "---\n" + configMap("two")),
		"install.json": []byte(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "json"}}`),
		"all.tar.gz": tarball(t, map[string]string{
			"repo-1/b/z.yaml": configMap("z"), "repo-1/b/sub/y.json": `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "y"}}`,
			"repo-1/b/README.md": "# no", "repo-1/c.yaml": configMap("c"),
		}),
		"link.tgz":   link,
		"escape.tgz": tarball(t, map[string]string{"../../etc/x.yaml": configMap("x")}),
		"abs.tgz":    tarball(t, map[string]string{"/etc/x.yaml": configMap("x")}),
		"large.tgz":  tarball(t, map[string]string{"a.yaml": strings.Repeat("#", maxParsed), "b.yaml": configMap("b")}),
		"empty.tgz":  tarball(t, map[string]string{"README.md": "x"}),
		"broken.tgz": {0x1f, 0x8b, 1, 2, 3},
	}))
	in := Inputs{Credentials: srv.full()}
	of := func(file, path string) *tenantaddon.TenantAddonSpec {
		return manifestsSpec(tenantaddon.Manifests{URL: srv.URL + "/" + file, Path: path, Origin: secret()})
	}
	t.Run("a file", func(t *testing.T) {
		wantNames(t, mustResolve(t, of("install.yaml", ""), in), "one", "two")
		wantNames(t, mustResolve(t, of("install.json", ""), in), "json")
	})
	t.Run("an archive's files below the path", func(t *testing.T) {
		wantNames(t, mustResolve(t, of("all.tar.gz", "repo-1/b/"), in), "y", "z")
		wantNames(t, mustResolve(t, of("all.tar.gz", ""), in), "y", "z", "c")
	})
	for name, test := range map[string]struct {
		spec   *tenantaddon.TenantAddonSpec
		reason string
		says   []string
	}{
		"a path of a file": {
			of("install.yaml", "x"),
			tenantaddon.ReasonInvalid, []string{"spec.manifests.path", "leave it out"},
		},
		"a path that isn't there": {
			of("all.tar.gz", "x"),
			tenantaddon.ReasonSourceInvalid, []string{"spec.manifests.path", `"x"`},
		},
		"a path that leads out": {
			of("all.tar.gz", "a/../../x"),
			tenantaddon.ReasonInvalid, []string{"spec.manifests.path", "lead out"},
		},
		"an absolute path": {
			of("all.tar.gz", "/x"),
			tenantaddon.ReasonInvalid, []string{"spec.manifests.path", "relative"},
		},
		"a link": {of("link.tgz", ""), tenantaddon.ReasonSourceInvalid, []string{`"a.yaml" is a link`}},
		"a file outside": {
			of("escape.tgz", ""),
			tenantaddon.ReasonSourceInvalid, []string{"../../etc/x.yaml", "lead out"},
		},
		"an absolute file": {
			of("abs.tgz", ""),
			tenantaddon.ReasonSourceInvalid, []string{"/etc/x.yaml", "relative"},
		},
		"too much YAML":           {of("large.tgz", ""), tenantaddon.ReasonSourceInvalid, []string{"more than 5 MiB of manifests"}},
		"nothing in it":           {of("empty.tgz", ""), tenantaddon.ReasonSourceInvalid, []string{"no files"}},
		"half an archive":         {of("broken.tgz", ""), tenantaddon.ReasonSourceInvalid, []string{"tar.gz"}},
		"a file that isn't there": {of("gone.yaml", ""), tenantaddon.ReasonSourceUnavailable, []string{"404"}},
		"a kustomization not packed": {
			kustomizationSpec(tenantaddon.Kustomization{URL: srv.URL + "/install.yaml", Origin: secret()}),
			tenantaddon.ReasonSourceInvalid, []string{"not a tar.gz"},
		},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, err := resolve(t, test.spec, in, "")
			mustFail(t, err, test.reason, test.says...)
		})
	}
}

func TestManifestsRefused(t *testing.T) {
	object := func(s string) string { return "apiVersion: v1\nkind: ConfigMap\n" + s }
	for name, test := range map[string]struct{ inline, says string }{
		"no kind":             {"apiVersion: v1\nmetadata: {name: a}", "kind is missing"},
		"no apiVersion":       {"kind: X\nmetadata: {name: a}", "apiVersion is missing"},
		"no name":             {object("metadata: {}"), "ConfigMap: metadata.name is missing"},
		"a name of a number":  {object("metadata: {name: 1}"), "metadata.name is missing"},
		"metadata of a text":  {object("metadata: x"), "metadata must be an object"},
		"a generated name":    {object("metadata: {generateName: a-}"), "generateName would make another"},
		"a text":              {"hello", "must be an object"},
		"a list":              {"- a", "must be an object"},
		"not YAML":            {"a: b: c", "document 1"},
		"the second document": {configMap("a") + "---\nkind: X", `file "manifests.yaml", document 2: apiVersion`},
		"an item of a list":   {"apiVersion: v1\nkind: List\nitems: [{kind: X}]", "items[0]: apiVersion"},
		"items of a text":     {"apiVersion: v1\nkind: List\nitems: x", "must be a list"},
		"nothing":             {"# nothing\n---\n", "holds no objects"},
		"an empty list":       {"apiVersion: v1\nkind: List\nitems: []", "holds no objects"},
		"the same twice":      {configMap("a") + "---\n" + configMap("a"), `v1 ConfigMap "a" is there twice`},
		"the same in another version": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n" +
				"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a, namespace: kube-system}",
			`Deployment "kube-system/a" is there twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolve(t, manifestsSpec(tenantaddon.Manifests{Inline: test.inline}), Inputs{}, "")
			mustFail(t, err, tenantaddon.ReasonSourceInvalid, "spec.manifests.inline", test.says)
		})
	}
	t.Run("a ConfigMap that isn't there", func(t *testing.T) {
		_, err := resolve(t, manifestsSpec(tenantaddon.Manifests{ConfigMap: "m"}), Inputs{}, "")
		mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "spec.manifests.configMap", `"m" isn't there`)
	})
	t.Run("an empty ConfigMap", func(t *testing.T) {
		_, err := resolve(t, manifestsSpec(tenantaddon.Manifests{ConfigMap: "m"}), Inputs{Files: map[string][]byte{}}, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "spec.manifests.configMap", "no keys")
	})
	t.Run("another digest than that of the spec", func(t *testing.T) {
		spec := manifestsSpec(tenantaddon.Manifests{Inline: crd})
		spec.Manifests.Digest = "sha256:" + strings.Repeat("0", 64)
		_, err := resolve(t, spec, Inputs{}, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "spec.manifests.digest")
	})
	t.Run("too many files", func(t *testing.T) {
		content := map[string]string{}
		for i := range maxFiles + 1 {
			content[fmt.Sprintf("%d.yaml", i)] = ""
		}
		if _, err := untar(tarball(t, content), newBudget(maxUnpacked)); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("too much in it", func(t *testing.T) {
		data := tarball(t, map[string]string{"a": strings.Repeat("a", 1000)})
		if _, err := untar(data, &budget{bytes: 999, files: 9}); err == nil || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("got %v", err)
		}
	})
}
