package imagebuilder

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/stoker-k8s/stoker/local/gobuild"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
)

// Platforms that Stoker's images are built for.
const Platforms = "linux/amd64,linux/arm64"

// Build makes images from a source tree.
type Build struct {
	// Source is the root of the repository.
	Source string
	// Version and Revision are stamped into Stoker's programs and their images' labels.
	Version, Revision string
	// Created is the time of the images and of all files in them, so that it must not be that of the build. See [Created].
	Created time.Time
	// Platforms to build for.
	Platforms []v1.Platform
	// Say gets what goes on.
	Say progress.Func

	made map[[sha256.Size]byte]v1.Layer // by what is in them
}

// Created is when the sources were: SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch), else the time of the
// commit that the tree at root is of, else the beginning of 1970.
func Created(ctx context.Context, root string) (time.Time, error) {
	text, from := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if text == "" {
		from = "git log"
		cmd := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct")
		out, err := cmd.Output()
		if err != nil {
			return time.Unix(0, 0).UTC(), ctx.Err()
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s says %q, which is no number of seconds since 1970", from, text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// ParsePlatforms reads a list such as linux/amd64,linux/arm64.
func ParsePlatforms(list string) ([]v1.Platform, error) {
	var all []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(strings.TrimSpace(text))
		if err != nil || p.OS != "linux" || p.Architecture == "" || p.Variant != "" {
			return nil, fmt.Errorf("platform %q is none that images are built for: give some of %s", text, Platforms)
		}
		all = append(all, v1.Platform{OS: p.OS, Architecture: p.Architecture})
	}
	return all, nil
}

// Compile compiles the programs of some of Stoker's images for one platform into dir, under their names.
func (b Build) Compile(ctx context.Context, platform v1.Platform, selected []Image, dir string) error {
	var packages []string
	for _, i := range selected {
		if i.Package != "" {
			packages = append(append(packages, i.Package), i.Tools...)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	const version = "github.com/stoker-k8s/stoker/pkg/version."
	return gobuild.Build{
		Name: platform.String(), Dir: b.Source, Packages: packages, Output: dir + string(filepath.Separator),
		LDFlags: "-s -w -X " + version + "version=" + b.Version + " -X " + version + "revision=" + b.Revision,
		Env:     append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOFLAGS="),
	}.Run(ctx, b.Say)
}

// Programs builds the programs of images for one platform into dir.
func (b Build) Programs(ctx context.Context, platform v1.Platform, selected []Image, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := b.Compile(ctx, platform, selected, dir); err != nil {
		return err
	}
	store, err := images.Open(b.Source)
	if err != nil {
		return err
	}
	for _, i := range selected {
		if !own(platform) {
			continue
		}
		if i.Component != "" {
			err = b.component(ctx, store, i, dir)
		} else if i.Node {
			err = b.components(ctx, store, filepath.Join(dir, "node"))
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
	}
	return nil
}

// component copies the program of another project that was built for this machine into dir.
func (b Build) component(ctx context.Context, store *images.Store, image Image, dir string) error {
	from, err := store.Build(ctx, image.Component, b.Say)
	if err != nil {
		return err
	}
	program, err := filepath.EvalSymlinks(filepath.Join(from, image.Program))
	if err != nil {
		return err
	}
	// One program may be several images (Kubernetes'): it is there once.
	err = os.Link(program, filepath.Join(dir, image.file()))
	if err != nil && !errors.Is(err, os.ErrExist) {
		return copyFile(program, filepath.Join(dir, image.file()), 0o755)
	}
	return nil
}

// components links the directories of all components' programs below dir, by the components' names.
func (b Build) components(ctx context.Context, store *images.Store, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, component := range images.Names() {
		from, err := store.Build(ctx, component, b.Say)
		if err != nil {
			return err
		}
		if err := os.Symlink(from, filepath.Join(dir, component)); err != nil {
			return err
		}
	}
	return nil
}

// file is the name of an image's program among those of all images.
func (i Image) file() string {
	if i.Component != "" {
		return i.Component + "." + i.Program
	}
	return i.Name
}

func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}

// Built is an image for some platforms.
type Built struct {
	Image Image
	// Index has a manifest for each platform.
	Index v1.ImageIndex
	// SBOMs are artifacts that name the manifest of a platform as their subject, in the index's order.
	SBOMs []v1.Image
}

// Build makes the images. dir is for the programs, of which the images read when they are written.
func (b Build) Build(ctx context.Context, selected []Image, dir string) ([]Built, error) {
	for _, p := range b.Platforms {
		if err := b.Programs(ctx, p, selected, filepath.Join(dir, p.OS+"_"+p.Architecture)); err != nil {
			return nil, err
		}
	}
	b.made = map[[sha256.Size]byte]v1.Layer{}
	var all []Built
	for _, i := range selected {
		built, err := b.image(ctx, i, dir)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
		}
		all = append(all, built)
	}
	return all, nil
}
