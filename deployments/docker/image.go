package docker

import (
	"context"
	"io"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// SBOMType is the media type of an SBOM, and the type of the artifact that carries it.
const SBOMType = "application/vnd.cyclonedx+json"

// source of the project, for labels and SBOMs.
const source = "https://github.com/stoker-k8s/stoker"

// own reports whether programs for a platform run on this machine, for which alone other projects' programs are built.
func own(p v1.Platform) bool { return p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH }

// image makes one image for all platforms.
func (b Build) image(ctx context.Context, i Image, dir string) (Built, error) {
	built := Built{Image: i, Index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	var all []v1.Image
	for _, p := range b.Platforms {
		if i.Component != "" && !own(p) {
			continue
		}
		img, err := b.manifest(ctx, i, p, filepath.Join(dir, p.OS+"_"+p.Architecture))
		if err != nil {
			return built, err
		}
		built.Index = mutate.AppendManifests(built.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
		all = append(all, img)
	}
	built.Index, _ = mutate.Annotations(built.Index, b.labels(i)).(v1.ImageIndex)
	for n, img := range all {
		artifact, err := b.sbomOf(i, img, filepath.Join(dir, b.Platforms[n].OS+"_"+b.Platforms[n].Architecture, i.file()))
		if err != nil {
			return built, err
		}
		built.SBOMs = append(built.SBOMs, artifact)
	}
	return built, nil
}

// manifest makes an image for one platform.
func (b Build) manifest(ctx context.Context, i Image, p v1.Platform, dir string) (v1.Image, error) {
	common, err := base(ctx)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var adds []mutate.Addendum
	layers := [][]file{common}
	for _, f := range i.program(dir) { // each a layer of its own, for a program may be that of several images
		layers = append(layers, []file{f})
	}
	for _, files := range layers {
		layer, err := b.layer(files)
		if err != nil {
			return nil, err
		}
		adds = append(adds, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: b.Created}, CreatedBy: "stoker container-images", Comment: files[0].path},
		})
	}
	if img, err = mutate.Append(img, adds...); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.OS, p.Architecture, v1.Time{Time: b.Created}
	config.Config = b.config(i)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	annotated, _ := mutate.Annotations(img, b.labels(i)).(v1.Image)
	return annotated, nil
}

// config says how an image's program is run.
func (b Build) config(i Image) v1.Config {
	c := v1.Config{
		User: user, WorkingDir: "/", Entrypoint: []string{i.Path}, Labels: b.labels(i),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=" + certificates, "ZONEINFO=" + timeZones},
	}
	for _, port := range i.Ports {
		if c.ExposedPorts == nil {
			c.ExposedPorts = map[string]struct{}{}
		}
		c.ExposedPorts[port] = struct{}{}
	}
	return c
}

// labels are the annotations of https://specs.opencontainers.org/image-spec/annotations.
func (b Build) labels(i Image) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title": i.Name, prefix + "description": i.Description, prefix + "vendor": "Stoker",
		prefix + "created": b.Created.Format(time.RFC3339), prefix + "version": i.Version,
	}
	if i.Component == "" {
		labels[prefix+"version"] = b.Version
		if b.Revision != "" {
			labels[prefix+"revision"] = b.Revision
		}
		labels[prefix+"licenses"], labels[prefix+"source"] = "Apache-2.0", source
		labels[prefix+"documentation"] = source + "/blob/main/docs/README.md"
	}
	return labels
}

// layer of files. It reads them anew each time it is read.
func (b Build) layer(files []file) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeTar(w, files, b.Created)) }() // ends when the reader closes
		return r, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// sbomOf makes an artifact with the SBOM of an image for one platform, which refers to that image.
func (b Build) sbomOf(i Image, img v1.Image, program string) (v1.Image, error) {
	text, err := b.sbom(i, program)
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), SBOMType)
	artifact, err = mutate.Append(artifact, mutate.Addendum{Layer: static.NewLayer(text, SBOMType), MediaType: SBOMType})
	if err != nil {
		return nil, err
	}
	annotated, _ := mutate.Annotations(artifact, map[string]string{"org.opencontainers.image.created": b.Created.Format(time.RFC3339)}).(v1.Image)
	attached, _ := mutate.Subject(annotated, v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest}).(v1.Image)
	return attached, nil
}

// SBOMText is what an SBOM's artifact carries.
func SBOMText(artifact v1.Image) ([]byte, error) {
	layers, err := artifact.Layers()
	if err != nil {
		return nil, err
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
