// Command stoker works with an installation of Stoker: it applies, changes and deletes tenants by event, follows what happens to
// them, explains what they wait for, and runs everything on one machine (`stoker up`).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
