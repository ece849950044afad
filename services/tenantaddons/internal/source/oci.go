package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// wanted is what is looked for in a registry, for messages.
func (s *source) wanted() string {
	switch {
	case s.digest != "":
		return "digest " + s.digest
	case s.kind == kindChart:
		return "version " + s.version
	default:
		return "tag " + s.ref.Reference
	}
}

// pull returns the layer of the artifact with the chart or files, and the digest of its manifest.
func (s *source) pull(ctx context.Context, client *http.Client, pinned string) ([]byte, string, error) {
	repo := &remote.Repository{
		Client: &auth.Client{
			Client:     client,
			Cache:      auth.NewCache(),
			Credential: auth.StaticCredential(s.ref.Host(), s.credentials.login),
		},
		Reference:          s.ref,
		ManifestMediaTypes: []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex},
		MaxMetadataBytes:   maxManifest,
	}
	manifest, digest, err := s.findManifest(ctx, repo, pinned)
	if err != nil {
		return nil, "", err
	}
	layer, err := s.layer(manifest)
	if err != nil {
		return nil, "", sourceInvalid(s.urlField, "%s: %w", s.shown, err)
	}
	r, err := repo.Blobs().Fetch(ctx, layer)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Close() }()
	data, err := content.ReadAll(r, layer)
	return data, digest, err
}

// findManifest looks for the digest that must be, else for the tag. If the pinned digest is gone, the tag's content is what has changed.
func (s *source) findManifest(ctx context.Context, repo *remote.Repository, pinned string) ([]byte, string, error) {
	var references []string
	switch {
	case s.digest != "":
		references = []string{s.digest}
	case pinned != "":
		references = append([]string{pinned}, s.tags()...)
	default:
		references = s.tags()
	}
	var err error
	for _, reference := range references {
		var data []byte
		var digest string
		if data, digest, err = fetchManifest(ctx, repo, reference); err == nil {
			return data, digest, s.checkDigest(digest, pinned)
		}
		if !errors.Is(err, errdef.ErrNotFound) {
			return nil, "", err
		}
	}
	return nil, "", err
}

// tags of the version of a chart: with and without a leading v, + as _, as Helm pushes them.
func (s *source) tags() []string {
	if s.kind != kindChart {
		return []string{s.ref.Reference}
	}
	tag := strings.ReplaceAll(s.version, "+", "_")
	if bare, ok := strings.CutPrefix(tag, "v"); ok {
		return []string{tag, bare}
	}
	return []string{tag, "v" + tag}
}

func fetchManifest(ctx context.Context, repo *remote.Repository, reference string) ([]byte, string, error) {
	desc, r, err := repo.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Close() }()
	if desc.Size > maxManifest {
		return nil, "", refusal("its manifest is too large")
	}
	data, err := content.ReadAll(r, desc)
	return data, desc.Digest.String(), err
}

// layer finds the one with the chart or files.
func (s *source) layer(data []byte) (ocispec.Descriptor, error) {
	var none ocispec.Descriptor
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return none, errors.New("the registry answers no OCI manifest")
	}
	if manifest.MediaType == ocispec.MediaTypeImageIndex {
		return none, errors.New("is an index of artifacts; name one of these by its digest")
	}
	var found []ocispec.Descriptor
	for _, layer := range manifest.Layers {
		isChart := layer.MediaType == helmregistry.ChartLayerMediaType || layer.MediaType == helmregistry.LegacyChartLayerMediaType
		isArchive := strings.HasSuffix(layer.MediaType, "tar+gzip")
		if (s.kind == kindChart && isChart) || (s.kind != kindChart && isArchive) {
			found = append(found, layer)
		}
	}
	switch {
	case len(found) == 0 && s.kind == kindChart:
		return none, errors.New("is no Helm chart: no layer has the media type " + helmregistry.ChartLayerMediaType)
	case len(found) != 1:
		return none, fmt.Errorf("must have one layer with a media type that ends with tar+gzip, as flux push artifact makes; has %d", len(found))
	case found[0].Size > maxDownload:
		return none, fmt.Errorf("is larger than %d MiB", maxDownload>>20)
	}
	return found[0], nil
}
