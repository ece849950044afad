package imagebuilder

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tag is what an image is tagged with: other projects' have their own version.
func (i Image) tag(tag string) string {
	if i.Component != "" {
		return i.Version
	}
	return tag
}

// Push writes an image with its SBOMs to a registry, below the path that repository is, and returns its reference by digest.
// Credentials are those of `docker login`.
func (b Built) Push(ctx context.Context, repository, tag string) (string, error) {
	ref, err := name.NewTag(repository + "/" + b.Image.Name + ":" + b.Image.tag(tag))
	if err != nil {
		return "", err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("stoker")}
	if err := remote.WriteIndex(ref, b.Index, options...); err != nil {
		return "", fmt.Errorf("push %s: %w", ref, err)
	}
	for _, sbom := range b.SBOMs {
		digest, err := sbom.Digest()
		if err != nil {
			return "", err
		}
		if err := remote.Write(ref.Digest(digest.String()), sbom, options...); err != nil {
			return "", fmt.Errorf("push the SBOM of %s: %w", ref, err)
		}
	}
	digest, err := b.Index.Digest()
	return ref.String() + "@" + digest.String(), err
}

// Layout is a directory of images as https://specs.opencontainers.org/image-spec/image-layout describes it, for skopeo and others.
type Layout struct{ path layout.Path }

// NewLayout makes an empty layout of a directory that is not there or empty.
func NewLayout(dir string) (Layout, error) {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return Layout{}, fmt.Errorf("directory %s isn't empty: give another, or remove it", dir)
	}
	path, err := layout.Write(dir, empty.Index)
	return Layout{path}, err
}

// Add writes an image with its SBOMs, as <name>:<tag>, and returns its reference by digest.
func (l Layout) Add(b Built, tag string) (string, error) {
	ref := b.Image.Name + ":" + b.Image.tag(tag)
	err := l.path.AppendIndex(b.Index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref}))
	for _, sbom := range b.SBOMs {
		if err == nil {
			err = l.path.AppendImage(sbom)
		}
	}
	if err != nil {
		return "", fmt.Errorf("write %s to %s: %w", ref, l.path, err)
	}
	digest, err := b.Index.Digest()
	return ref + "@" + digest.String(), err
}

// Load gives an image to the container engine that the command `docker` talks to, for the engine's own platform, and returns its tag.
func (b Built) Load(ctx context.Context, repository, tag string) (string, error) {
	ref, err := name.NewTag(repository + "/" + b.Image.Name + ":" + b.Image.tag(tag))
	if err != nil {
		return "", err
	}
	img, err := b.forThisMachine()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "docker", "load")
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	written := make(chan error, 1)
	go func() { // ends when docker does
		err := tarball.Write(ref, img, in)
		_ = in.Close()
		written <- err
	}()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker load of %s: %w: %s", ref, err, out)
	}
	return ref.String(), <-written
}

// forThisMachine is the image for this machine's platform.
func (b Built) forThisMachine() (v1.Image, error) {
	manifest, err := b.Index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && own(*m.Platform) {
			return b.Index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("image %s was not built for this machine: add its platform to -platforms", b.Image.Name)
}
