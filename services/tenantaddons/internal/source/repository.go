package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// parsing lets one index be parsed at a time.
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
	entries, err := parseIndex(data, s.name)
	if err != nil {
		return indexEntry{}, sourceInvalid(s.urlField, "%s: its index.yaml %w", s.shown, err)
	}
	versions, ok := entries[s.name]
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

// parseIndex parses an index, or just the part of it that has the chart name.
func parseIndex(data []byte, name string) (map[string][]indexEntry, error) {
	var idx index
	unmarshal := func(data []byte, v any) error { return yaml.Unmarshal(data, v) }
	if json.Valid(data) {
		unmarshal = json.Unmarshal
	} else if part := cutEntries(data, name); part != nil {
		data = part
	}
	if len(data) > maxParsed && !json.Valid(data) {
		return nil, fmt.Errorf("has no chart %q where `helm repo index` writes it, and is too large to be read whole", name)
	}
	if err := unmarshal(data, &idx); err != nil || idx.Entries == nil {
		return nil, errors.New("is none of a Helm repository")
	}
	return idx.Entries, nil
}

// cutEntries cuts the lines of one chart out of an index as Helm writes it: the charts are the keys below entries, one indented as all others. It
// returns nil if the chart isn't there.
func cutEntries(data []byte, name string) []byte {
	const header = "entries:"
	var part []byte
	within, indent := false, 0
	for line := range bytes.Lines(data) {
		text := bytes.TrimLeft(line, " ")
		depth := len(line) - len(text)
		text = bytes.TrimRight(text, " \r\n")
		switch {
		case len(text) == 0 || text[0] == '#':
		case depth == 0:
			if part != nil {
				return part
			}
			within, indent = string(text) == header, 0
		case !within:
		case indent == 0 || (depth <= indent && text[0] != '-'): // a chart
			if part != nil {
				return part
			}
			indent = depth
			if string(bytes.Trim(text, `"':`)) == name {
				part = append([]byte(header+"\n"), line...)
			}
		case part != nil:
			part = append(part, line...)
		}
	}
	return part
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
