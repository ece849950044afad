// Command natsserver runs the embedded NATS server as a process, for tests of pkg, whose module must not depend on a server. It prints
// its URL once it takes connections, and ends when its standard input does, so that it never outlives the test.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/stoker-k8s/stoker/local/natsserver"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: natsserver DIR HOST:PORT")
		os.Exit(2)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := natsserver.Start(context.Background(), os.Args[1], os.Args[2], log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Stop()
}
