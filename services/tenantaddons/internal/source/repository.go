package source

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// index is what is read of the index.yaml of a Helm repository.
type index struct {
	Entries map[string][]indexEntry `json:"entries"`
}

type indexEntry struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

// parsing lets one index be parsed at a time: that takes many times its size.
var parsing sync.Mutex

// chartFromRepository fetches the archive of a chart from a Helm repository.
func (s *source) chartFromRepository(ctx context.Context, client *http.Client) ([]byte, error) {
	data, err := s.get(ctx, client, s.url.JoinPath("index.yaml"), maxIndex)
	if err != nil {
		return nil, err
	}
	entry, err := s.findEntry(data)
	if err != nil {
		return nil, err
	}
	if len(entry.URLs) == 0 {
		return nil, sourceInvalid(s.urlField, "%s: the index has no URL of %s %s", s.shown, s.name, entry.Version)
	}
	u, err := s.resolveURL(entry.URLs[0])
	if err != nil {
		return nil, err
	}
	archive, err := s.get(ctx, client, u, maxDownload)
	if err != nil {
		return nil, err
	}
	if want := "sha256:" + strings.TrimPrefix(entry.Digest, "sha256:"); entry.Digest != "" && want != digestOf(archive) {
		return nil, sourceInvalid(s.urlField, "%s: the archive of %s %s has the digest %s, the index says %s", s.shown, s.name, entry.Version,
			digestOf(archive), want)
	}
	return archive, nil
}

// findEntry finds the very version; a leading v doesn't count.
func (s *source) findEntry(data []byte) (indexEntry, error) {
	parsing.Lock()
	defer parsing.Unlock()
	var idx index
	if err := yaml.Unmarshal(data, &idx); err != nil || idx.Entries == nil {
		return indexEntry{}, sourceInvalid(s.urlField, "%s: its index.yaml is none of a Helm repository", s.shown)
	}
	versions, ok := idx.Entries[s.name]
	if !ok {
		return indexEntry{}, unavailable("spec.chart.name", "%s has no chart %q", s.shown, s.name)
	}
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, sameVersion} {
		for _, entry := range versions {
			if same(entry.Version, s.version) {
				return entry, nil
			}
		}
	}
	return indexEntry{}, unavailable("spec.chart.version", "%s has no version %q of %q", s.shown, s.version, s.name)
}

func sameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// resolveURL makes a URL of the index absolute.
func (s *source) resolveURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil {
		return nil, sourceInvalid(s.urlField, "%s: the index has a URL of %s %s that isn't valid or holds a user", s.shown, s.name, s.version)
	}
	base := *s.url
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
		base.RawPath = ""
	}
	u = base.ResolveReference(u)
	if u.Scheme != "https" && u.Scheme != "http" {
		return nil, sourceInvalid(s.urlField, "%s: the index has a URL of %s %s that is neither https:// nor http://", s.shown, s.name, s.version)
	}
	return u, nil
}
