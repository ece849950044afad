// Package source makes a Helm chart and values of what a TenantAddon says: it fetches, checks and builds.
//
// What is fetched is proven by its digest, kept in memory, and the same for all tenants. Nothing is run: no plugins, no git, no hooks. It knows
// nothing of Kubernetes' API: callers read the objects that a spec refers to.
package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/singleflight"
	"oras.land/oras-go/v2/registry"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Fetcher fetches what specs say, and keeps it in memory, up to 64 MiB. It is safe for concurrent use; what is asked for at the same time is
// fetched once.
type Fetcher struct {
	cache  *cache
	flight singleflight.Group
	// fetches and builds hold one for each of them that goes on.
	fetches, builds chan struct{}
}

// New makes a Fetcher.
func New() *Fetcher {
	return &Fetcher{cache: newCache(cacheSize), fetches: make(chan struct{}, maxFetches), builds: make(chan struct{}, maxBuilds)}
}

// Inputs are the contents of the management cluster's objects that a spec refers to.
type Inputs struct {
	// Files are the data of the ConfigMap of kustomization or manifests; nil if it isn't there.
	Files map[string][]byte
	// Credentials are the data of the Secret of credentials; nil if it isn't there.
	Credentials map[string][]byte
	// ValuesFrom are the values of the keys of spec.valuesFrom, one for each; nil where the object or key isn't there.
	ValuesFrom [][]byte
}

// Check says what is wrong with a spec and its inputs, as far as that can be told without the source's content. Errors are [*Error].
func Check(ctx context.Context, spec *tenantaddon.TenantAddonSpec, in Inputs) error {
	if _, err := parseSource(ctx, spec, in); err != nil {
		return err
	}
	if _, err := sharedValues(spec, in); err != nil {
		return err
	}
	_, err := parseTemplate(spec.ValuesTemplate)
	return err
}

// Resolve fetches, checks and builds what spec says, or takes it from memory.
//
// pinned, if it isn't empty, is the digest that was resolved for this spec before: then only content with it is returned, also if a tag has
// been moved; other content is an error with the reason SourceChanged. It isn't for what the management cluster has itself (inline, configMap):
// who changes that wants tenants to get the change.
//
// Errors are [*Error], or that of ctx.
func (f *Fetcher) Resolve(ctx context.Context, spec *tenantaddon.TenantAddonSpec, in Inputs, pinned string) (*Content, error) {
	src, err := parseSource(ctx, spec, in)
	if err != nil {
		return nil, err
	}
	if _, err := sharedValues(spec, in); err != nil {
		return nil, err
	}
	if _, err := parseTemplate(spec.ValuesTemplate); err != nil {
		return nil, err
	}
	if src.files != nil {
		if src.digest != "" && src.digest != src.filesDigest {
			return nil, sourceInvalid(src.field+".digest", "is %s, but the content has %s", src.digest, src.filesDigest)
		}
		pinned = src.filesDigest
	}
	want := cmp.Or(src.digest, pinned)
	if want != "" {
		if c := f.cache.get(src.key(want)); c != nil {
			return c, nil
		}
	}
	// Others may wait for the same: it goes on when this caller is gone, until fetchTimeout.
	result := f.flight.DoChan(src.key(want), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return f.resolve(ctx, src, pinned)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Content), nil
	}
}

// resolve fetches src and builds it, unless that is in memory.
func (f *Fetcher) resolve(ctx context.Context, src *source, pinned string) (*Content, error) {
	var data []byte
	digest := src.filesDigest
	if src.files == nil {
		var err error
		if data, digest, err = f.fetch(ctx, src, pinned); err != nil {
			return nil, err
		}
	}
	key := src.key(digest)
	if c := f.cache.get(key); c != nil {
		return c, nil
	}
	f.builds <- struct{}{} // each ends: it waits for nobody else
	defer func() { <-f.builds }()
	c, err := src.build(data, digest)
	if err != nil {
		return nil, err
	}
	f.cache.put(key, c)
	return c, nil
}

// fetch fetches src, once there is room for it.
func (f *Fetcher) fetch(ctx context.Context, src *source, pinned string) ([]byte, string, error) {
	select {
	case f.fetches <- struct{}{}:
		defer func() { <-f.fetches }()
		return src.fetch(ctx, pinned)
	case <-ctx.Done():
		return nil, "", unavailable(src.urlField, "%s: %d other sources are fetched, and take long; it is tried again", src.shown, maxFetches)
	}
}

// fetch returns the content of a source that isn't in the management cluster, and its digest.
func (s *source) fetch(ctx context.Context, pinned string) ([]byte, string, error) {
	client, err := s.client()
	if err != nil {
		return nil, "", unavailable(s.urlField, "%w", err)
	}
	defer client.CloseIdleConnections()
	var data []byte
	var digest string
	switch {
	case s.isOCI():
		data, digest, err = s.pull(ctx, client, pinned)
	case s.kind == kindChart:
		data, err = s.chartFromRepository(ctx, client)
	default:
		data, err = s.get(ctx, client, s.url, maxDownload)
	}
	if err != nil {
		return nil, "", s.fetchFailed(err)
	}
	if digest == "" {
		digest = digestOf(data)
	}
	return data, digest, s.checkDigest(digest, pinned)
}

func (s *source) checkDigest(digest, pinned string) error {
	switch {
	case s.digest != "" && digest != s.digest:
		return sourceInvalid(s.field+".digest", "is %s, but %s has the digest %s now", s.digest, s.shown, digest)
	case s.digest == "" && pinned != "" && digest != pinned:
		return fail(tenantaddon.ReasonSourceChanged, s.urlField, "%s has the digest %s now, but tenants were to get %s: if that is wanted, "+
			"set %s.digest to the new one, else have the old content put back", s.shown, digest, pinned, s.field)
	}
	return nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

type kind string

const (
	kindChart         kind = "chart"
	kindKustomization kind = "kustomization"
	kindManifests     kind = "manifests"
)

// source is where content is, of a spec that was checked.
type source struct {
	kind kind
	// field is that of the source in the spec, such as spec.chart; urlField the one with its place, such as spec.chart.repository.
	field, urlField string
	// shown is the place as people may see it: nothing in it is secret.
	shown string

	// url of what isn't in the management cluster, and for oci:// also its reference; that of a chart has no tag.
	url         *url.URL
	ref         registry.Reference
	credentials credentials

	// files are what is in the management cluster.
	files       []file
	filesDigest string

	// digest that the content must have; empty if the spec says none.
	digest string
	// name and version of a chart.
	name, version string
	// path in an archive, and what becomes of manifests.
	path            string
	template        bool
	targetNamespace string

	id string
}

func (s *source) isOCI() bool { return s.url != nil && s.url.Scheme == "oci" }

// key names content of this source in the cache. Who can't name the source's credentials doesn't get what was fetched with them.
func (s *source) key(digest string) string { return s.id + digest }

// parseSource reads the source of spec.
func parseSource(ctx context.Context, spec *tenantaddon.TenantAddonSpec, in Inputs) (*source, error) {
	s := &source{targetNamespace: spec.TargetNamespace}
	var origin tenantaddon.Origin
	var place, configMap, inline string
	switch {
	case spec.Chart != nil:
		s.kind, s.urlField = kindChart, "spec.chart.repository"
		s.name, s.version = spec.Chart.Name, spec.Chart.Version
		place, origin = spec.Chart.Repository, spec.Chart.Origin
	case spec.Kustomization != nil:
		k := spec.Kustomization
		s.kind, s.urlField, s.path, origin = kindKustomization, "spec.kustomization.url", k.Path, k.Origin
		place, configMap = k.URL, k.ConfigMap
	case spec.Manifests != nil:
		m := spec.Manifests
		s.kind, s.urlField, s.path, origin = kindManifests, "spec.manifests.url", m.Path, m.Origin
		place, configMap, inline = m.URL, m.ConfigMap, m.Inline
		s.template = m.Template
	default:
		return nil, invalid("spec", "exactly one of chart, kustomization and manifests must be given")
	}
	s.field = "spec." + string(s.kind)
	s.digest = origin.Digest
	if err := checkPath(s.path); err != nil {
		return nil, invalid(s.field+".path", "%q %w", s.path, err)
	}
	s.path = path.Clean(s.path)

	var err error
	switch {
	case place != "":
		err = s.parsePlace(ctx, place, origin.Credentials, in.Credentials)
	case configMap != "":
		err = s.takeFiles(configMap, in.Files)
	case inline != "":
		s.urlField = s.field + ".inline"
		s.files = []file{{name: "manifests.yaml", data: []byte(inline)}}
	default:
		err = invalid(s.field, "must say where it is")
	}
	if err != nil {
		return nil, err
	}
	s.identify()
	return s, nil
}

// takeFiles takes those of a ConfigMap.
func (s *source) takeFiles(configMap string, data map[string][]byte) error {
	s.urlField = s.field + ".configMap"
	s.shown = fmt.Sprintf("the ConfigMap %q", configMap)
	if data == nil {
		return unavailable(s.urlField, "%s isn't there", s.shown)
	}
	if s.path != "." {
		return invalid(s.field+".path", "is for archives and artifacts: the files of a ConfigMap lie in one directory; leave it out")
	}
	s.files = []file{}
	for name, content := range data {
		s.files = append(s.files, file{name: name, data: content})
	}
	slices.SortFunc(s.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return nil
}

// parsePlace reads a URL and what goes with it.
func (s *source) parsePlace(ctx context.Context, place, secret string, data map[string][]byte) error {
	u, err := url.Parse(place)
	switch {
	case err != nil:
		return invalid(s.urlField, "must be a URL") // err quotes it, and with it a password
	case u.User != nil:
		return invalid(s.urlField, "must not hold a user: put it and its password in a Secret, and name that in %s.credentials", s.field)
	case u.Host == "":
		return invalid(s.urlField, "must be a URL with a host, as oci://ghcr.io/… or https://example.com/…")
	case !slices.Contains([]string{"oci", "https", "http"}, u.Scheme):
		return invalid(s.urlField, "must begin with oci://, https:// or http://")
	case u.Fragment != "" || (u.RawQuery != "" && (u.Scheme == "oci" || s.kind == kindChart)):
		return invalid(s.urlField, "must hold neither ? nor #")
	}
	s.url, s.shown = u, (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	host := ""
	if u.Scheme == "oci" {
		if err := s.parseReference(strings.TrimPrefix(place, "oci://")); err != nil {
			return err
		}
		host = s.ref.Registry
	}
	if secret == "" {
		return nil
	}
	field := s.field + ".credentials"
	if data == nil {
		return unavailable(field, "the Secret %q isn't there", secret)
	}
	s.credentials, err = parseCredentials(ctx, field, data, host)
	return err
}

// parseReference reads that of an OCI source.
func (s *source) parseReference(raw string) error {
	ref, err := registry.ParseReference(raw)
	if err != nil {
		return invalid(s.urlField, "%s: must be a reference, as oci://registry/path:tag or oci://registry/path@sha256:…", s.shown)
	}
	s.ref = ref
	if s.kind == kindChart {
		if ref.Reference != "" {
			return invalid(s.urlField, "must have neither tag nor digest: they are in spec.chart.version and spec.chart.digest")
		}
		s.name = path.Base(ref.Repository)
		return nil
	}
	if ref.Reference == "" {
		return invalid(s.urlField, "must have a tag or a digest, as oci://…:v1 or oci://…@sha256:…")
	}
	if digest, err := ref.Digest(); err == nil {
		if s.digest != "" && s.digest != digest.String() {
			return invalid(s.field+".digest", "is %s, but %s names another", s.digest, s.urlField)
		}
		s.digest = digest.String()
	}
	return nil
}

// identify sets what names the source among others, and the digest of files.
func (s *source) identify() {
	place := ""
	if s.url != nil {
		place = s.url.String()
	}
	if s.files != nil {
		var all [][]byte
		for _, f := range s.files {
			all = append(all, []byte(f.name), f.data)
		}
		s.filesDigest = "sha256:" + hashOf(all)
	}
	s.id = hashOf([]any{
		s.kind, s.field, place, s.name, s.version, s.path, s.template, s.targetNamespace, s.credentials.login, s.credentials.ca,
	})
}

// hashOf is the SHA-256 of v as JSON, which never fails for what it is called with.
func hashOf(v any) string {
	data, _ := json.Marshal(v)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
