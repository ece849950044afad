package source

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// kustomizeFiles builds files whose kustomization is in the root.
func kustomizeFiles(t *testing.T, content map[string]string) (*Content, error) {
	t.Helper()
	data := map[string][]byte{}
	for name, text := range content {
		data[name] = []byte(text)
	}
	return resolve(t, kustomizationSpec(tenantaddon.Kustomization{ConfigMap: "k"}), Inputs{Files: data}, "")
}

func TestKustomization(t *testing.T) {
	c, err := kustomizeFiles(t, map[string]string{
		"kustomization.yaml": `namespace: demo
resources: [a.yaml, crd.yaml]
configMapGenerator:
- name: generated
  files: [key=data.txt]
  options: {disableNameSuffixHash: true}
patches:
- path: patch.yaml
patchesStrategicMerge:
- |
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: a}
  data: {link: "https://example.com/a@b"}
`,
		"a.yaml": configMap("a"), "crd.yaml": crd, "data.txt": "hello",
		"patch.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {patched: 'yes'}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, c, "a", "generated")
	text := rendered(t, c, nil)
	for _, part := range []string{"namespace: demo", "patched:", "key: hello", "https://example.com/a@b"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q isn't in\n%s", part, text)
		}
	}
	built, err := c.Chart("demo", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(built.CRDs) != 1 || !built.RemoveCRDs {
		t.Errorf("got %+v", built)
	}
	t.Run("several at once", func(t *testing.T) {
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				content := map[string]string{"kustomization.yaml": "resources: [a.yaml]", "a.yaml": configMap(string(rune('a' + i)))}
				if _, err := kustomizeFiles(t, content); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
	t.Run("a directory that isn't the root, with a base beside it", func(t *testing.T) {
		srv := serve(t, files{"x.tar.gz": tarball(t, map[string]string{
			"repo/over/kustomization.yaml": "resources: [../base]\ncomponents: [../part]\nnameSuffix: -x\n",
			"repo/base/kustomization.yml":  "resources: [a.yaml]",
			"repo/base/a.yaml":             configMap("a"),
			"repo/part/Kustomization":      "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [b.yaml]\n",
			"repo/part/b.yaml":             configMap("b"),
			"other/kustomization.yaml":     "resources: [https://example.com/not-followed]",
		})})
		spec := kustomizationSpec(tenantaddon.Kustomization{URL: srv.URL + "/x.tar.gz", Path: "repo/over", Origin: secret()})
		wantNames(t, mustResolve(t, spec, Inputs{Credentials: srv.trust()}), "a-x", "b-x")
	})
}

// TestKustomizationFetchesNothing has a git in the PATH and a server that note that they were called.
func TestKustomizationFetchesNothing(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, "called")
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte("#!/bin/sh\necho \"$@\" >> "+marker+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(configMap("fetched")))
	}))
	t.Cleanup(srv.Close)

	base := map[string]string{"a.yaml": configMap("a"), "bad.yaml": "{", "github.com": "x"}
	for name, kustomization := range map[string]string{
		"a file by http":               "resources: [" + srv.URL + "/a.yaml]",
		"a base by git":                "resources: ['https://github.com/a/b?ref=main']",
		"a base by git and http":       "resources: ['" + srv.URL + "/a/b.git']",
		"github without a scheme":      "resources: [github.com/a/b]",
		"github in capitals":           "resources: [GitHub.com/a/b]",
		"github by ssh":                "resources: ['git@github.com:a/b']",
		"another user by ssh":          "resources: ['me@host:a/b']",
		"ssh":                          "resources: ['ssh://git@host/a/b']",
		"a forced protocol":            "resources: ['git::https://host/a/b']",
		"a file of our own":            "resources: ['file:///etc/passwd']",
		"bases":                        "bases: [github.com/a/b]",
		"components":                   "components: [github.com/a/b]",
		"crds":                         "resources: [a.yaml]\ncrds: [" + srv.URL + "/a.yaml]",
		"configurations":               "resources: [a.yaml]\nconfigurations: [" + srv.URL + "/a.yaml]",
		"openapi":                      "resources: [a.yaml]\nopenapi: {path: '" + srv.URL + "'}",
		"patches":                      "resources: [a.yaml]\npatches: [{path: '" + srv.URL + "'}]",
		"patchesJson6902":              "resources: [a.yaml]\npatchesJson6902: [{path: '" + srv.URL + "', target: {kind: ConfigMap}}]",
		"patchesStrategicMerge":        "resources: [a.yaml]\npatchesStrategicMerge: ['" + srv.URL + "']",
		"replacements":                 "resources: [a.yaml]\nreplacements: [{path: '" + srv.URL + "'}]",
		"files of a ConfigMap":         "configMapGenerator: [{name: x, files: ['key=" + srv.URL + "']}]",
		"files of a ConfigMap, no key": "configMapGenerator: [{name: x, files: ['" + srv.URL + "']}]",
		"envs of a Secret":             "secretGenerator: [{name: x, envs: ['" + srv.URL + "']}]",
		"the env of a Secret":          "secretGenerator: [{name: x, env: '" + srv.URL + "'}]",
		"a generator by http":          "generators: ['" + srv.URL + "']",
		"a generator":                  "generators: [\"apiVersion: x/v1\\nkind: X\\nmetadata: {name: x}\\n\"]",
		"a transformer by git":         "resources: [a.yaml]\ntransformers: ['github.com/a/b']",
		"a validator":                  "resources: [a.yaml]\nvalidators: [a.yaml]",
		"a Helm chart":                 "helmCharts: [{name: x, repo: '" + srv.URL + "', version: 1.0.0}]",
		"a Helm chart, old":            "helmChartInflationGenerator: [{chartName: x, chartRepoUrl: '" + srv.URL + "'}]",
		"fields in capitals":           "RESOURCES: [" + srv.URL + "/a.yaml]",
		"a line feed in a URL":         "resources: [\"https://github.com/a/b\\n\"]",
		"an absolute path":             "resources: [/etc/passwd]",
		"an absolute path in memory":   "resources: [/source/a.yaml]",
		"a path that leads out":        "resources: [../../etc]",
		"a path that isn't there":      "resources: [b.yaml]",
		"an empty path":                "resources: ['']",
		"a file out of the root":       "configMapGenerator: [{name: x, files: [../../../etc/passwd]}]",
		"a file that isn't YAML":       "resources: [bad.yaml]",
		"itself":                       "resources: [.]",
		"a field that isn't known":     "resourcez: [a.yaml]",
		"nothing":                      "",
	} {
		t.Run(name, func(t *testing.T) {
			content := maps.Clone(base)
			content["kustomization.yaml"] = kustomization
			_, err := kustomizeFiles(t, content)
			mustFail(t, err, tenantaddon.ReasonSourceInvalid, "spec.kustomization.configMap")
		})
	}
	t.Run("a base refers to another place", func(t *testing.T) {
		archive := serve(t, files{"x.tar.gz": tarball(t, map[string]string{
			"kustomization.yaml": "resources: [b]", "b/kustomization.yaml": "resources: [" + srv.URL + "]",
		})})
		spec := kustomizationSpec(tenantaddon.Kustomization{URL: archive.URL + "/x.tar.gz", Origin: secret()})
		_, err := resolve(t, spec, Inputs{Credentials: archive.trust()}, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, `kustomization in "b": resources`, srv.URL, "nothing is fetched")
	})
	t.Run("few files that make very many objects", func(t *testing.T) {
		content := map[string]string{"0/kustomization.yaml": "resources: [a.yaml]", "0/a.yaml": configMap("a")}
		for i := 1; i <= 30; i++ {
			below := strconv.Itoa(i - 1)
			for _, side := range []string{"l", "r"} {
				content[fmt.Sprintf("%d%s/kustomization.yaml", i, side)] = "namePrefix: " + side + "\nresources: [../" + below + "]"
			}
			content[fmt.Sprintf("%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../%dl, ../%dr]", i, i)
		}
		archive := serve(t, files{"x.tar.gz": tarball(t, content)})
		spec := kustomizationSpec(tenantaddon.Kustomization{URL: archive.URL + "/x.tar.gz", Path: "30", Origin: secret()})
		_, err := resolve(t, spec, Inputs{Credentials: archive.trust()}, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "more than 10000 files")
		spec.Kustomization.Path = "3"
		c := mustResolve(t, spec, Inputs{Credentials: archive.trust()})
		wantNames(t, c, "llla", "llra", "lrla", "lrra", "rlla", "rlra", "rrla", "rrra")
	})
	t.Run("files that can't lie beside each other", func(t *testing.T) {
		for _, content := range []map[string]string{
			{".": "x", "kustomization.yaml": "resources: [a.yaml]", "a.yaml": configMap("a")}, {"a": "x", "a/kustomization.yaml": "resources: []"},
		} {
			archive := serve(t, files{"x.tar.gz": tarball(t, content)})
			spec := kustomizationSpec(tenantaddon.Kustomization{URL: archive.URL + "/x.tar.gz", Origin: secret()})
			_, err := resolve(t, spec, Inputs{Credentials: archive.trust()}, "")
			mustFail(t, err, tenantaddon.ReasonSourceInvalid, "spec.kustomization.url")
		}
	})
	t.Run("two kustomizations in one directory", func(t *testing.T) {
		_, err := kustomizeFiles(t, map[string]string{"kustomization.yaml": "resources: [a.yaml]", "kustomization.yml": "resources: []"})
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "holds 2")
	})
	if n := asked.Load(); n > 0 {
		t.Errorf("asked %d times by HTTP", n)
	}
	if calls, err := os.ReadFile(marker); err == nil {
		t.Errorf("git was run: %s", calls)
	}
}
