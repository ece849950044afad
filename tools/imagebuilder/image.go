package imagebuilder

import (
	"context"
	"crypto/sha256"
	"fmt"
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
	for _, p := range b.Platforms {
		if i.others() && !own(p) {
			continue
		}
		programs := filepath.Join(dir, p.OS+"_"+p.Architecture)
		added, err := b.layers(i, programs)
		if err != nil {
			return built, err
		}
		img, err := b.manifest(ctx, i, p, added)
		if err != nil {
			return built, err
		}
		built.Index = mutate.AppendManifests(built.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
		artifact, err := b.sbomOf(i, img, added)
		if err != nil {
			return built, err
		}
		built.SBOMs = append(built.SBOMs, artifact)
	}
	built.Index, _ = mutate.Annotations(built.Index, b.labels(i)).(v1.ImageIndex)
	return built, nil
}

// manifest makes an image for one platform, with layers beside the base.
func (b Build) manifest(ctx context.Context, i Image, p v1.Platform, added [][]file) (v1.Image, error) {
	common, err := base(ctx)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var adds []mutate.Addendum
	for _, files := range append([][]file{common}, added...) {
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

// layer of files. It reads them anew each time it is read. Images share layers of the same files, so that each is compressed once.
func (b Build) layer(files []file) (v1.Layer, error) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %o %q %q %x\n", f.path, f.mode, f.from, f.link, sha256.Sum256(f.content))
	}
	key := [sha256.Size]byte(h.Sum(nil))
	if layer, ok := b.made[key]; ok {
		return layer, nil
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeTar(w, files, b.Created)) }() // ends when the reader closes
		return r, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err == nil && b.made != nil {
		b.made[key] = layer
	}
	return layer, err
}

// sbomOf makes an artifact with the SBOM of an image for one platform, which refers to that image.
func (b Build) sbomOf(i Image, img v1.Image, layers [][]file) (v1.Image, error) {
	text, err := b.sbom(i, layers)
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
