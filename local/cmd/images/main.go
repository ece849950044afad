// Command images builds the programs that the local stack's pods run, and says where they are. What was built before is
// found in the cache at once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/progress"
)

const usage = `Usage: images [NAME…]

Builds the images named, or all there are, and prints the directory of each, which holds its programs by their own names.
Progress goes to stderr. A Kubernetes takes minutes the first time; what was built before is found in the cache, which is
$STOKER_CACHE, or stoker in the user's cache directory.

Images: %s

Examples, anywhere in the repository:
  go run ./local/cmd/images                    # build all
  go run ./local/cmd/images etcd               # build one
  $(go run ./local/cmd/images etcd)/etcd --version
`

func main() {
	flag.Usage = func() { fmt.Fprintf(os.Stderr, usage, strings.Join(images.Names(), ", ")) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	store, err := images.Open(root)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = images.Names()
	}
	say := progress.Lines(os.Stderr, progress.Terminal(os.Stderr), func() string { return "" })
	for _, name := range names {
		dir, err := store.Build(ctx, name, say)
		if err != nil {
			return err
		}
		fmt.Println(dir)
	}
	return nil
}

// repository finds the root of the repository this is run in.
func repository() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "local", "images")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository of Stoker", at)
		}
	}
}
