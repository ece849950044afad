// Command containerimages builds Stoker's container images without a container engine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/tools/imagebuilder"
)

const usage = `Usage: containerimages [flags] [NAME…]

Builds the images named, all of Stoker's own without a name, and does with them what one of these flags says:

  -registry    push them there, with their SBOMs
  -output      write them with their SBOMs to a directory, an OCI image layout
  -load        give them to the container engine that the command docker talks to
  -root        write just the files of each into a directory below this one, for a Dockerfile

It prints the reference of each image; progress goes to stderr. The same sources, version and Go make the same digests.

Images: %s
Of other projects, for where theirs can't be pulled; for this machine's platform only: %s

Examples, in the root of the repository:
  containerimages -registry registry.example/stoker -tag v1.0.0
  containerimages -output dist -platforms linux/amd64 stoker-certs
  containerimages -load nats etcd

Flags:
`

type flags struct {
	registry, output, root, tag, version, revision, platforms string
	load                                                      bool
}

func main() {
	var f flags
	flag.StringVar(&f.registry, "registry", "", "`registry` to push to, with a path: registry.example/stoker; with -load what the images are named for, default localhost/stoker")
	flag.StringVar(&f.output, "output", "", "`directory` to write an OCI image layout to; it must be empty")
	flag.StringVar(&f.root, "root", "", "`directory` to write files to")
	flag.BoolVar(&f.load, "load", false, "docker load")
	flag.StringVar(&f.tag, "tag", "", "`tag` of the images; default: the version")
	flag.StringVar(&f.version, "version", "", "`version` that is stamped into programs and labels")
	flag.StringVar(&f.revision, "revision", "", "git `commit` that is stamped into programs and labels")
	flag.StringVar(&f.platforms, "platforms", imagebuilder.Platforms, "`platforms`, separated by commas")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, usage, names(imagebuilder.Images()), names(imagebuilder.Components()))
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := f.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "containerimages:", err)
		os.Exit(1)
	}
}

// names of images, each once.
func names(images []imagebuilder.Image) string {
	var all []string
	for n, i := range images {
		if n == 0 || !strings.Contains(" "+strings.Join(all, ", ")+",", " "+i.Name+",") {
			all = append(all, i.Name)
		}
	}
	return strings.Join(all, ", ")
}

func (f flags) run(ctx context.Context, selected []string) error {
	if err := f.check(); err != nil {
		return err
	}
	images, err := imagebuilder.Select(selected)
	if err != nil {
		return err
	}
	build, err := f.build(ctx)
	if err != nil {
		return err
	}
	programs, err := os.MkdirTemp("", "containerimages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	if f.root != "" {
		if err := build.Programs(ctx, build.Platforms[0], images, programs); err != nil {
			return err
		}
		return build.WriteRoot(ctx, images, programs, f.root)
	}
	built, err := build.Build(ctx, images, programs)
	if err != nil {
		return err
	}
	publish, err := f.publish()
	if err != nil {
		return err
	}
	for _, b := range built {
		ref, err := publish(ctx, b)
		if err != nil {
			return err
		}
		fmt.Println(ref)
	}
	return nil
}

// check says what of the flags can't be.
func (f flags) check() error {
	ways := 0
	for _, is := range []bool{f.registry != "" && !f.load, f.output != "", f.load, f.root != ""} {
		if is {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("give one of -registry, -output, -load and -root; --help says what each does")
	}
	return nil
}

func (f flags) build(ctx context.Context) (imagebuilder.Build, error) {
	root, err := os.Getwd()
	if err != nil {
		return imagebuilder.Build{}, err
	}
	platforms, err := imagebuilder.ParsePlatforms(f.platforms)
	if err != nil {
		return imagebuilder.Build{}, err
	}
	if f.root != "" && len(platforms) > 1 {
		return imagebuilder.Build{}, fmt.Errorf("-platforms %q: with -root give one", f.platforms)
	}
	created, err := imagebuilder.Created(ctx, root)
	return imagebuilder.Build{
		Source: root, Version: f.version, Revision: f.revision, Platforms: platforms, Created: created,
		Say: progress.Lines(os.Stderr, progress.Terminal(os.Stderr), func() string { return "" }),
	}, err
}

// publish is what is done with each image.
func (f flags) publish() (func(context.Context, imagebuilder.Built) (string, error), error) {
	tag := f.tag
	if tag == "" {
		tag = f.version
	}
	switch {
	case f.output != "":
		layout, err := imagebuilder.NewLayout(f.output)
		return func(_ context.Context, b imagebuilder.Built) (string, error) { return layout.Add(b, tag) }, err
	case f.load:
		registry := f.registry
		if registry == "" {
			registry = "localhost/stoker"
		}
		return func(ctx context.Context, b imagebuilder.Built) (string, error) { return b.Load(ctx, registry, tag) }, nil
	}
	return func(ctx context.Context, b imagebuilder.Built) (string, error) { return b.Push(ctx, f.registry, tag) }, nil
}
