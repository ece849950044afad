// Command kine serves etcd's API on another database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/k3s-io/kine/pkg/app"
)

func main() {
	if err := app.New().Run(os.Args); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "kine:", err)
		os.Exit(1)
	}
}
