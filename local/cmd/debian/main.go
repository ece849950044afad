// Command debian finds a program of a Debian package, for tests that don't import the local stack.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/stoker-k8s/stoker/local/debian"
)

const usage = `Usage: debian PACKAGE PATTERN

Prints, as JSON, where the program is whose path below the root matches the pattern: the one installed, else the one
unpacked from the package into the cache ($STOKER_CACHE, or stoker in the user's cache directory), which takes no root and
starts no service. Progress goes to stderr.

Examples, anywhere in the repository:
  go run ./local/cmd/debian postgresql 'usr/lib/postgresql/*/bin/postgres'
  go run ./local/cmd/debian mariadb-server-core usr/sbin/mariadbd
`

func main() {
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "debian:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pkg, pattern string) error {
	p, err := debian.Find(ctx, pkg, pattern, func(line string, _ bool) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p)
}
