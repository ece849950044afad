package source

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

func TestChartFromRegistry(t *testing.T) {
	reg := newRegistry(t)
	digest := reg.push(t, "charts/demo", "1.2.3", pack(t, newChart("demo", "1.2.3", nil)))
	reg.push(t, "charts/plus", "1.2.3_build.4", pack(t, newChart("plus", "1.2.3+build.4", nil)))
	reg.push(t, "charts/withv", "v1.0.0", pack(t, newChart("withv", "v1.0.0", nil)))
	reg.push(t, "charts/other", "1.0.0", pack(t, newChart("demo", "1.0.0", nil)))
	reg.push(t, "charts/lying", "1.0.0", pack(t, newChart("lying", "2.0.0", nil)))
	reg.pushArtifact(t, "charts/artifact", "1.0.0", "application/vnd.cncf.flux.content.v1.tar+gzip", tarball(t, map[string]string{"a": "b"}))
	of := func(name, version string) *tenantaddon.TenantAddonSpec {
		return chartSpec(tenantaddon.Chart{Repository: "oci://" + reg.host + "/charts/" + name, Version: version, Origin: secret()})
	}
	in := Inputs{Credentials: reg.full()}

	t.Run("it is found by its version, and its digest is that of the manifest", func(t *testing.T) {
		c := mustResolve(t, of("demo", "1.2.3"), in)
		if c.Digest != digest || c.Version != "1.2.3" {
			t.Errorf("got %s %s, want %s 1.2.3", c.Digest, c.Version, digest)
		}
		built, err := c.Chart("release", nil)
		if err != nil {
			t.Fatal(err)
		}
		if built.Chart.Name() != "demo" || len(built.Chart.Templates) != 1 || built.RemoveCRDs {
			t.Errorf("got %+v", built)
		}
	})
	t.Run("a leading v doesn't count, and + is _ in a tag", func(t *testing.T) {
		for name, version := range map[string]string{"demo": "v1.2.3", "withv": "1.0.0", "plus": "1.2.3+build.4"} {
			if _, err := resolve(t, of(name, version), in, ""); err != nil {
				t.Errorf("%s %s: %v", name, version, err)
			}
		}
	})
	t.Run("the digest of the spec must be there", func(t *testing.T) {
		spec := of("demo", "1.2.3")
		spec.Chart.Digest = digest
		if _, err := resolve(t, spec, in, ""); err != nil {
			t.Error(err)
		}
		spec.Chart.Digest = "sha256:" + strings.Repeat("0", 64)
		_, err := resolve(t, spec, in, "")
		mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "404", spec.Chart.Digest)
	})
	t.Run("a login of .dockerconfigjson is that of the registry", func(t *testing.T) {
		config := func(host, pass string) []byte {
			login := base64.StdEncoding.EncodeToString([]byte(user + ":" + pass))
			data, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": login}}})
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		docker := func(data []byte) Inputs {
			return Inputs{Credentials: map[string][]byte{"ca.crt": reg.ca, ".dockerconfigjson": data}}
		}
		if _, err := resolve(t, of("demo", "1.2.3"), docker(config(reg.host, password)), ""); err != nil {
			t.Error(err)
		}
		_, err := resolve(t, of("demo", "1.2.3"), docker(config("ghcr.io", password)), "")
		mustFail(t, err, tenantaddon.ReasonInvalid, "spec.chart.credentials", ".dockerconfigjson", reg.host)
		_, err = resolve(t, of("demo", "1.2.3"), docker(config(reg.host, "wrong-horse")), "")
		mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "401", "spec.chart.credentials")
	})

	anonymous := of("demo", "1.2.3")
	wrong := Inputs{Credentials: map[string][]byte{"ca.crt": reg.ca, "username": []byte(user), "password": []byte("wrong-horse")}}
	away := of("demo", "1.2.3")
	away.Chart.Repository = "oci://127.0.0.1:1/charts/demo"
	for name, test := range map[string]struct {
		spec   *tenantaddon.TenantAddonSpec
		in     Inputs
		reason string
		says   []string
	}{
		"a version that isn't there": {
			of("demo", "9.9.9"), in,
			tenantaddon.ReasonSourceUnavailable, []string{"spec.chart.repository", "404", "version 9.9.9"},
		},
		"no login": {
			anonymous, Inputs{Credentials: reg.trust()},
			tenantaddon.ReasonSourceUnavailable, []string{"401", "name a Secret", "spec.chart.credentials"},
		},
		"a wrong password": {
			of("demo", "1.2.3"), wrong,
			tenantaddon.ReasonSourceUnavailable, []string{"401", "refuses the user and password"},
		},
		"an authority that nobody knows": {
			of("demo", "1.2.3"), Inputs{Credentials: map[string][]byte{"username": []byte(user), "password": []byte(password)}},
			tenantaddon.ReasonSourceUnavailable, []string{"unknown authority", "ca.crt", "spec.chart.credentials"},
		},
		"a server that is away": {
			away, in,
			tenantaddon.ReasonSourceUnavailable, []string{"127.0.0.1:1", "refused"},
		},
		"a chart of another name": {
			of("other", "1.0.0"), in,
			tenantaddon.ReasonSourceInvalid, []string{`the chart is "demo", not "other"`},
		},
		"a chart of another version": {
			of("lying", "1.0.0"), in,
			tenantaddon.ReasonSourceInvalid, []string{"spec.chart.version", `"2.0.0", not "1.0.0"`},
		},
		"an artifact that isn't a chart": {
			of("artifact", "1.0.0"), in,
			tenantaddon.ReasonSourceInvalid, []string{"no Helm chart"},
		},
		"a Secret that isn't there": {
			of("demo", "1.2.3"), Inputs{},
			tenantaddon.ReasonSourceUnavailable, []string{"spec.chart.credentials", `"login" isn't there`},
		},
		"a repository with a tag": {
			of("demo:1", "1.2.3"), in,
			tenantaddon.ReasonInvalid, []string{"spec.chart.repository", "neither tag nor digest"},
		},
		"a repository that isn't a path": {
			of("DEMO", "1.2.3"), in,
			tenantaddon.ReasonInvalid, []string{"spec.chart.repository", "must be a reference"},
		},
		"a repository with a user's name ": {
			chartSpec(tenantaddon.Chart{Repository: "oci://" + user + ":" + password + "@ghcr.io/x", Version: "1.0.0"}), in,
			tenantaddon.ReasonInvalid, []string{"spec.chart.repository: must not hold a user"},
		},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, err := resolve(t, test.spec, test.in, "")
			mustFail(t, err, test.reason, test.says...)
		})
	}
}

func TestPinnedInRegistry(t *testing.T) {
	reg := newRegistry(t)
	in := Inputs{Credentials: reg.full()}
	spec := chartSpec(tenantaddon.Chart{Repository: "oci://" + reg.host + "/demo", Version: "1.0.0", Origin: secret()})
	first := reg.push(t, "demo", "1.0.0", pack(t, newChart("demo", "1.0.0", nil)))
	second := reg.push(t, "demo", "1.0.0", pack(t, newChart("demo", "1.0.0", func(c *chart.Chart) { c.Metadata.Description = "moved" })))
	if first == second {
		t.Fatal("the tag hasn't moved")
	}
	t.Run("a tag that was moved changes nothing while the old content is there", func(t *testing.T) {
		c, err := resolve(t, spec, in, first)
		if err != nil {
			t.Fatal(err)
		}
		if c.Digest != first {
			t.Errorf("digest %s, want %s", c.Digest, first)
		}
	})
	t.Run("when that is gone, it says so", func(t *testing.T) {
		reg.remove(t, "demo", first)
		_, err := resolve(t, spec, in, first)
		mustFail(t, err, tenantaddon.ReasonSourceChanged, "spec.chart.repository", first, second, "spec.chart.digest")
	})
	t.Run("without a pin, the new content counts", func(t *testing.T) {
		if c := mustResolve(t, spec, in); c.Digest != second {
			t.Errorf("digest %s, want %s", c.Digest, second)
		}
	})
	t.Run("when nothing is there, it may come back", func(t *testing.T) {
		reg.remove(t, "demo", second)
		_, err := resolve(t, spec, in, first)
		mustFail(t, err, tenantaddon.ReasonSourceUnavailable, "404")
	})
}

// TestRegistryWithTokens has a registry whose tokens are another server's to give, as most have.
func TestRegistryWithTokens(t *testing.T) {
	const token = "a-token"
	realm := "" // where tokens are
	var reg *server
	tokens := serve(t, login(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"token": "` + token + `"}`))
	})))
	app := newRegistryWithoutLogin(t)
	reg = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+token {
			if strings.HasPrefix(got, "Basic") {
				t.Errorf("the password was sent to %s", r.URL)
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="test",scope="repository:demo:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		app.ServeHTTP(w, r)
	}))
	open := serve(t, app)
	open.push(t, "demo", "1.0.0", pack(t, newChart("demo", "1.0.0", nil)))
	in := Inputs{Credentials: reg.full()}
	in.Credentials["ca.crt"] = append(in.Credentials["ca.crt"], tokens.ca...)
	spec := chartSpec(tenantaddon.Chart{Repository: "oci://" + reg.host + "/demo", Version: "1.0.0", Origin: secret()})

	realm = tokens.URL + "/token"
	mustResolve(t, spec, in)
	if got := tokens.authorized(); len(got) != 1 {
		t.Errorf("tokens asked for: %q", got)
	}
	t.Run("the password isn't sent without TLS", func(t *testing.T) {
		plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			t.Errorf("asked for %s", r.URL)
		}))
		t.Cleanup(plain.Close)
		realm = plain.URL + "/token"
		if _, err := resolve(t, spec, in, ""); err == nil {
			t.Error("resolved")
		} else {
			mustFail(t, err, Reason(err), "spec.chart.repository")
		}
	})
}

func TestArtifact(t *testing.T) {
	reg := newRegistry(t)
	in := Inputs{Credentials: reg.full()}
	const flux = "application/vnd.cncf.flux.content.v1.tar+gzip"
	data := tarball(t, map[string]string{
		"./deploy/kustomization.yaml": "namePrefix: x-\nresources: [a.yaml, ../base]\n",
		"./deploy/a.yaml":             configMap("a"),
		"./base/kustomization.yaml":   "resources: [b.yaml]\n",
		"./base/b.yaml":               configMap("b"),
	})
	digest := reg.pushArtifact(t, "manifests", "v1", flux, data)
	reg.pushArtifact(t, "plain", "v1", "application/vnd.oci.image.layer.v1.tar+gzip", data)
	reg.pushArtifact(t, "two", "v1", flux, data, tarball(t, map[string]string{"c": "d"}))
	reg.pushArtifact(t, "none", "v1", "text/plain", []byte("hello"))
	url := func(rest string) string { return "oci://" + reg.host + "/" + rest }

	t.Run("a kustomization is built from it", func(t *testing.T) {
		for _, u := range []string{url("manifests:v1"), url("manifests@" + digest), url("manifests:v1@" + digest), url("plain:v1")} {
			c := mustResolve(t, kustomizationSpec(tenantaddon.Kustomization{URL: u, Path: "./deploy", Origin: secret()}), in)
			if strings.Contains(u, "manifests") && (c.Digest != digest || c.Version != strings.TrimPrefix(digest, "sha256:")[:12]) {
				t.Errorf("%s: got %s %s", u, c.Digest, c.Version)
			}
			wantNames(t, c, "x-a", "x-b")
		}
	})
	t.Run("manifests are taken from it", func(t *testing.T) {
		c := mustResolve(t, manifestsSpec(tenantaddon.Manifests{URL: url("manifests:v1"), Path: "base", Template: true, Origin: secret()}), in)
		built, err := c.Chart("demo", nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(built.Chart.Templates) != 2 || built.Chart.Templates[0].Name != "templates/b.yaml" {
			t.Errorf("got %+v", built.Chart.Templates)
		}
	})
	for name, test := range map[string]struct {
		spec   *tenantaddon.TenantAddonSpec
		reason string
		says   []string
	}{
		"two layers": {
			kustomizationSpec(tenantaddon.Kustomization{URL: url("two:v1"), Origin: secret()}),
			tenantaddon.ReasonSourceInvalid, []string{"spec.kustomization.url", "has 2"},
		},
		"no archive": {
			manifestsSpec(tenantaddon.Manifests{URL: url("none:v1"), Origin: secret()}),
			tenantaddon.ReasonSourceInvalid, []string{"spec.manifests.url", "tar+gzip"},
		},
		"no tag": {
			manifestsSpec(tenantaddon.Manifests{URL: url("none"), Origin: secret()}),
			tenantaddon.ReasonInvalid, []string{"must have a tag or a digest"},
		},
		"a tag not there": {
			manifestsSpec(tenantaddon.Manifests{URL: url("manifests:v2"), Origin: secret()}),
			tenantaddon.ReasonSourceUnavailable, []string{"404", "tag v2"},
		},
		"a path not there": {
			kustomizationSpec(tenantaddon.Kustomization{URL: url("manifests:v1"), Path: "x", Origin: secret()}),
			tenantaddon.ReasonSourceInvalid, []string{`no directory "x"`},
		},
		"two digests": {
			manifestsSpec(tenantaddon.Manifests{
				URL: url("manifests@" + digest), Origin: tenantaddon.Origin{Digest: "sha256:" + strings.Repeat("1", 64), Credentials: "x"},
			}),
			tenantaddon.ReasonInvalid, []string{"spec.manifests.digest", "names another"},
		},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, err := resolve(t, test.spec, in, "")
			mustFail(t, err, test.reason, test.says...)
		})
	}
}
