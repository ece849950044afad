package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// entries makes an index.yaml.
func entries(t *testing.T, charts map[string][]indexEntry) []byte {
	t.Helper()
	data, err := yaml.Marshal(index{Entries: charts})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("apiVersion: v1\n"), data...)
}

func TestChartFromRepository(t *testing.T) {
	demo := pack(t, newChart("demo", "1.2.3", nil))
	other := serve(t, files{"demo.tgz": demo})
	content := files{
		"charts/a/demo.tgz": demo,
		"charts/v.tgz":      pack(t, newChart("v", "v2.0.0", nil)),
		"charts/wrong.tgz":  pack(t, newChart("not", "1.0.0", nil)),
		"charts/text.tgz":   []byte("<html>"),
	}
	srv := serve(t, login(content))
	content["charts/index.yaml"] = entries(t, map[string][]indexEntry{
		"demo": {
			{Version: "1.2.4", URLs: []string{"x"}},
			{Version: "1.2.3", URLs: []string{"a/demo.tgz"}, Digest: strings.TrimPrefix(digestOf(demo), "sha256:")},
		},
		"absolute":  {{Version: "1.2.3", URLs: []string{srv.URL + "/charts/a/demo.tgz"}}},
		"elsewhere": {{Version: "1.2.3", URLs: []string{other.URL + "/demo.tgz"}}},
		"v":         {{Version: "v2.0.0", URLs: []string{"v.tgz"}}},
		"wrong":     {{Version: "1.0.0", URLs: []string{"wrong.tgz"}}},
		"text":      {{Version: "1.0.0", URLs: []string{"text.tgz"}}},
		"changed":   {{Version: "1.2.3", URLs: []string{"a/demo.tgz"}, Digest: strings.Repeat("0", 64)}},
		"nowhere":   {{Version: "1.2.3"}},
		"file":      {{Version: "1.2.3", URLs: []string{"file:///etc/passwd"}}},
		"user":      {{Version: "1.2.3", URLs: []string{"https://a:b@example.com/x"}}},
		"gone":      {{Version: "1.2.3", URLs: []string{"gone.tgz"}}},
	})
	of := func(name, version string) *tenantaddon.TenantAddonSpec {
		return chartSpec(tenantaddon.Chart{Repository: srv.URL + "/charts", Name: name, Version: version, Origin: secret()})
	}
	in := Inputs{Credentials: srv.full()}
	in.Credentials["ca.crt"] = append(slices.Clone(srv.ca), other.ca...)

	t.Run("the very version is found, by a URL of any kind", func(t *testing.T) {
		c := mustResolve(t, of("demo", "1.2.3"), in)
		if c.Digest != digestOf(demo) || c.Version != "1.2.3" {
			t.Errorf("got %s %s", c.Digest, c.Version)
		}
		mustResolve(t, of("demo", "v1.2.3"), in)
		mustResolve(t, of("v", "2.0.0"), in)
	})
	t.Run("a URL of the repository's host gets the credentials, one of another host doesn't", func(t *testing.T) {
		_, err := resolve(t, of("absolute", "1.2.3"), in, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, `the chart is "demo"`)
		_, err = resolve(t, of("elsewhere", "1.2.3"), in, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, `the chart is "demo"`)
		if got := other.authorized(); len(got) > 0 || other.count("demo.tgz") != 1 {
			t.Errorf("asked %d times, with credentials for %q", other.count("demo.tgz"), got)
		}
	})
	for name, test := range map[string]struct {
		spec   *tenantaddon.TenantAddonSpec
		in     Inputs
		reason string
		says   []string
	}{
		"a chart that isn't in it": {
			of("x", "1.0.0"), in,
			tenantaddon.ReasonSourceUnavailable, []string{"spec.chart.name", `no chart "x"`},
		},
		"a version that isn't in it": {
			of("demo", "1.2.5"), in,
			tenantaddon.ReasonSourceUnavailable, []string{"spec.chart.version", `no version "1.2.5"`},
		},
		"another digest": {
			of("changed", "1.2.3"), in,
			tenantaddon.ReasonSourceInvalid, []string{"the index says"},
		},
		"another chart": {
			of("wrong", "1.0.0"), in,
			tenantaddon.ReasonSourceInvalid, []string{`the chart is "not"`},
		},
		"no archive": {of("text", "1.0.0"), in, tenantaddon.ReasonSourceInvalid, []string{"not a tar.gz"}},
		"no URL":     {of("nowhere", "1.2.3"), in, tenantaddon.ReasonSourceInvalid, []string{"no URL"}},
		"a file of our own": {
			of("file", "1.2.3"), in,
			tenantaddon.ReasonSourceInvalid, []string{"neither https://"},
		},
		"a URL with a user": {of("user", "1.2.3"), in, tenantaddon.ReasonSourceInvalid, []string{"holds a user"}},
		"an archive that isn't there": {of("gone", "1.2.3"), in, tenantaddon.ReasonSourceUnavailable,
			[]string{"404"}},
		"no login": {
			of("demo", "1.2.3"), Inputs{Credentials: srv.trust()},
			tenantaddon.ReasonSourceUnavailable, []string{"401", "name a Secret"},
		},
		"no repository": {
			chartSpec(tenantaddon.Chart{Repository: other.URL + "/demo.tgz", Name: "x", Version: "1.0.0", Origin: secret()}), in,
			tenantaddon.ReasonSourceUnavailable, []string{"404"},
		},
		"a docker config": {
			of("demo", "1.2.3"), Inputs{Credentials: map[string][]byte{".dockerconfigjson": []byte("{}")}},
			tenantaddon.ReasonInvalid, []string{"is for an OCI registry"},
		},
		"half a login": {
			of("demo", "1.2.3"), Inputs{Credentials: map[string][]byte{"password": []byte(password)}},
			tenantaddon.ReasonInvalid, []string{"username", "or neither"},
		},
		"an empty Secret": {
			of("demo", "1.2.3"), Inputs{Credentials: map[string][]byte{}},
			tenantaddon.ReasonInvalid, []string{"has none of the keys"},
		},
		"a bad authority": {
			of("demo", "1.2.3"), Inputs{Credentials: map[string][]byte{"ca.crt": []byte("x")}},
			tenantaddon.ReasonInvalid, []string{"ca.crt holds no certificate"},
		},
		"a URL with a query": {
			chartSpec(tenantaddon.Chart{Repository: srv.URL + "/charts?token=" + password, Name: "demo", Version: "1.2.3"}), in,
			tenantaddon.ReasonInvalid, []string{"neither ? nor #"},
		},
		"no URL at all": {
			chartSpec(tenantaddon.Chart{Repository: "https://a b:" + password + "@x", Name: "demo", Version: "1.2.3"}), in,
			tenantaddon.ReasonInvalid, []string{"must be a URL"},
		},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, err := resolve(t, test.spec, test.in, "")
			mustFail(t, err, test.reason, test.says...)
		})
	}
	t.Run("content that has changed is refused while it is pinned", func(t *testing.T) {
		_, err := resolve(t, of("demo", "1.2.3"), in, "sha256:"+strings.Repeat("1", 64))
		mustFail(t, err, tenantaddon.ReasonSourceChanged, "spec.chart.repository", digestOf(demo), "spec.chart.digest")
	})
	t.Run("an index that is none", func(t *testing.T) {
		content["charts/index.yaml"] = []byte("<html>hello</html>")
		_, err := resolve(t, of("demo", "1.2.3"), in, "")
		mustFail(t, err, tenantaddon.ReasonSourceInvalid, "index.yaml")
	})
}

func TestLargeIndex(t *testing.T) {
	var all strings.Builder
	all.WriteString("apiVersion: v1\nentries:\n")
	for c := range 300 {
		fmt.Fprintf(&all, "  # comment\n  chart%d:\n", c)
		for v := range 60 {
			all.WriteString("  - annotations:\n      images: |\n        - name: a\n\n        chart1:\n")
			fmt.Fprintf(&all, "    description: %q\n    name: chart%d\n", strings.Repeat("x", 300), c)
			fmt.Fprintf(&all, "    urls:\n    - https://example.com/chart%d-%d.tgz\n    version: 1.%d.0\n", c, v, v)
		}
	}
	all.WriteString("generated: \"2026-01-01T00:00:00Z\"\n")
	data := []byte(all.String())
	if len(data) <= maxParsed {
		t.Fatalf("the index has %d bytes only", len(data))
	}
	for _, name := range []string{"chart0", "chart1", "chart299"} {
		got, err := parseIndex(data, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || len(got[name]) != 60 || got[name][59].URLs[0] != "https://example.com/"+name+"-59.tgz" {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if _, err := parseIndex(data, "chart300"); err == nil || !strings.Contains(err.Error(), "chart300") {
		t.Errorf("got %v", err)
	}
	t.Run("in other ways of writing it", func(t *testing.T) {
		for _, text := range []string{
			"entries:\n    demo:\n        - version: 1.0.0\n    other:\n        - version: 2.0.0\n",
			"entries:\n  other: []\n  \"demo\":\n  - version: 1.0.0\nentriesOf: x\n",
			"entries: {demo: [{version: 1.0.0}]}",
			`{"entries": {"demo": [{"version": "1.0.0"}]}}`,
			"entries:\r\n  demo:\r\n  - version: 1.0.0\r\n",
			"entries:\n  demo: [{version: 1.0.0}]\n",
		} {
			got, err := parseIndex([]byte(text), "demo")
			if err != nil || len(got["demo"]) != 1 || got["demo"][0].Version != "1.0.0" {
				t.Errorf("%q: got %v, %v", text, got, err)
			}
		}
	})
}

func TestChartChecked(t *testing.T) {
	schema := func(s string) func(*chart.Chart) {
		return func(c *chart.Chart) { c.Schema = []byte(s) }
	}
	of := func(c *chart.Chart) (*Content, error) {
		index := entries(t, map[string][]indexEntry{"demo": {{Version: "1.0.0", URLs: []string{"demo.tgz"}}}})
		srv := serve(t, files{"demo.tgz": pack(t, c), "index.yaml": index})
		spec := chartSpec(tenantaddon.Chart{Repository: srv.URL, Name: "demo", Version: "1.0.0", Origin: secret()})
		return resolve(t, spec, Inputs{Credentials: srv.trust()}, "")
	}
	for name, test := range map[string]struct {
		change func(*chart.Chart)
		says   string
	}{
		"a library": {func(c *chart.Chart) { c.Metadata.Type = "library" }, "library"},
		"a missing chart": {func(c *chart.Chart) {
			c.Metadata.Dependencies = []*chart.Dependency{{Name: "sub", Version: "1"}}
		}, "helm dependency build"},
		"a CRD that is none": {func(c *chart.Chart) {
			c.Files = []*common.File{{Name: "crds/a.yaml", Data: []byte("kind: X")}}
		}, "apiVersion is missing"},
		"a schema of no JSON": {func(c *chart.Chart) { c.Schema = []byte(`{"type": 7}`) }, "values.schema.json"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, err := of(newChart("demo", "1.0.0", test.change))
			mustFail(t, err, tenantaddon.ReasonSourceInvalid, test.says)
		})
	}
	t.Run("a schema that refers to other places isn't used, nor fetched", func(t *testing.T) {
		asked := serve(t, files{})
		plain := strings.Replace(asked.URL, "https", "http", 1)
		for _, ref := range []string{asked.URL + "/x.json", "file:///etc/hostname", "other.json", plain} {
			c, err := of(newChart("demo", "1.0.0", schema(`{"properties": {"a": {"$ref": "`+ref+`"}}}`)))
			if err != nil {
				t.Fatal(err)
			}
			built, err := c.Chart("demo", nil)
			if err != nil {
				t.Fatal(err)
			}
			if built.Chart.Schema != nil || !slices.Equal(built.Unchecked, []string{"demo"}) {
				t.Errorf("%s: schema %s, unchecked %q", ref, built.Chart.Schema, built.Unchecked)
			}
		}
		if n := asked.count(""); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
	t.Run("a schema that refers to itself is used", func(t *testing.T) {
		c, err := of(newChart("demo", "1.0.0", schema(`{"$schema": "http://json-schema.org/draft-07/schema#",
			"definitions": {"x": {"type": "string"}}, "properties": {"a": {"$ref": "#/definitions/x"}}}`)))
		if err != nil {
			t.Fatal(err)
		}
		if built, err := c.Chart("demo", nil); err != nil || built.Chart.Schema == nil || len(built.Unchecked) > 0 {
			t.Errorf("got %+v, %v", built, err)
		}
	})
	t.Run("CRDs are those of the dependencies that values enable", func(t *testing.T) {
		c, err := of(newChart("demo", "1.0.0", func(c *chart.Chart) {
			c.Files = []*common.File{{Name: "crds/a.yaml", Data: []byte(strings.ReplaceAll(crd, "things", "own"))}}
			c.Metadata.Dependencies = []*chart.Dependency{{Name: "sub", Version: "1.0.0", Condition: "sub.enabled"}}
			c.AddDependency(newChart("sub", "1.0.0", func(c *chart.Chart) { c.Files = []*common.File{{Name: "crds/a.yaml", Data: []byte(crd)}} }))
		}))
		if err != nil {
			t.Fatal(err)
		}
		for enabled, want := range map[bool]int{true: 2, false: 1} {
			built, err := c.Chart("demo", map[string]any{"sub": map[string]any{"enabled": enabled}})
			if err != nil {
				t.Fatal(err)
			}
			if len(built.CRDs) != want || len(built.Chart.Dependencies()) != 1 {
				t.Errorf("enabled %t: %d CRDs, want %d", enabled, len(built.CRDs), want)
			}
		}
	})
	t.Run("charts in charts count together", func(t *testing.T) {
		inner := tarball(t, map[string]string{"sub/Chart.yaml": strings.Repeat("#", 2000)})
		outer := tarball(t, map[string]string{"demo/Chart.yaml": "x", "demo/charts/sub.tgz": string(inner)})
		if err := checkChartSize(outer, &budget{bytes: 3000, files: 9}, 0); err != nil {
			t.Error(err)
		}
		if err := checkChartSize(outer, &budget{bytes: 1999, files: 9}, 0); err == nil || !strings.Contains(err.Error(), "charts/sub.tgz") {
			t.Errorf("got %v", err)
		}
		for range maxNested + 1 {
			outer = tarball(t, map[string]string{"demo/charts/sub.tgz": string(outer)})
		}
		if err := checkChartSize(outer, newBudget(maxChart), 0); err == nil || !strings.Contains(err.Error(), "deep") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFetchedOnce(t *testing.T) {
	demo := pack(t, newChart("demo", "1.0.0", nil))
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	index := entries(t, map[string][]indexEntry{"demo": {{Version: "1.0.0", URLs: []string{"demo.tgz"}}}})
	content := files{"demo.tgz": demo, "index.yaml": index}
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(begun) })
		<-release
		content.ServeHTTP(w, r)
	}))
	spec := chartSpec(tenantaddon.Chart{Repository: srv.URL, Name: "demo", Version: "1.0.0", Origin: secret()})
	in := Inputs{Credentials: srv.trust()}
	f := New()

	results := make(chan error, 5)
	for range cap(results) {
		go func() {
			_, err := f.Resolve(t.Context(), spec, in, "")
			results <- err
		}()
	}
	<-begun
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Resolve(cancelled, spec, in, ""); !errors.Is(err, cancelled.Err()) || Reason(err) != "" {
		t.Errorf("a caller that went away got %v", err)
	}
	close(release)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	before := srv.count("demo.tgz")
	if before == 0 || before > cap(results) {
		t.Errorf("fetched %d times", before)
	}
	c, err := f.Resolve(t.Context(), spec, in, digestOf(demo))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.Resolve(t.Context(), spec, in, c.Digest); err != nil || again != c {
		t.Errorf("another content, %v", err)
	}
	if got := srv.count("demo.tgz"); got != before {
		t.Errorf("fetched %d times, not %d", got, before)
	}
	t.Run("who has other credentials doesn't get what was fetched with these", func(t *testing.T) {
		_, err := f.Resolve(t.Context(), spec, Inputs{Credentials: map[string][]byte{"username": []byte("a"), "password": []byte("b")}}, c.Digest)
		mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "unknown authority")
	})
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(10)
	for i := range 4 {
		c.put(fmt.Sprint(i), &Content{size: 4})
		if i == 1 {
			c.get("0")
		}
	}
	c.put("large", &Content{size: 11})
	for key, want := range map[string]bool{"0": false, "1": false, "2": true, "3": true, "large": false} {
		if got := c.get(key) != nil; got != want {
			t.Errorf("%s is there: %t", key, got)
		}
	}
	if c.size != 8 || len(c.entries) != 2 || c.order.Len() != 2 {
		t.Errorf("size %d, %d entries", c.size, len(c.entries))
	}
	used := newCache(10)
	used.put("a", &Content{size: 5})
	used.put("b", &Content{size: 5})
	used.get("a")
	used.put("c", &Content{size: 5})
	if used.get("a") == nil || used.get("b") != nil {
		t.Error("not what was used last is kept")
	}
}
