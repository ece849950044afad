// Command gobuild is go build for Stoker's own programs: it says how many packages are left, and how long they will take.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/stoker-k8s/stoker/local/gobuild"
	"github.com/stoker-k8s/stoker/local/progress"
)

const usage = `Usage: gobuild -o OUTPUT [-ldflags FLAGS] PACKAGE…

Compiles the packages like go build, with the flags that all of Stoker's programs have, and shows on stderr how far it is.

Flags:
`

func main() {
	out := flag.String("o", "", "`file` to write, or a directory that ends in a slash")
	ldflags := flag.String("ldflags", "", "`flags` of the linker")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	build := gobuild.Build{Name: filepath.Clean(*out), Packages: flag.Args(), Output: *out, LDFlags: *ldflags}
	if err := build.Run(ctx, progress.Lines(os.Stderr, progress.Terminal(os.Stderr), func() string { return "" })); err != nil {
		fmt.Fprintln(os.Stderr, "gobuild:", err)
		os.Exit(1)
	}
}
