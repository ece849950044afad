// Command dashboards writes the Grafana dashboards into a directory. Run it by `make generate`.
package main

import (
	"fmt"
	"os"

	"github.com/stoker-k8s/stoker/tools/monitoring"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIRECTORY")
		os.Exit(2)
	}
	if err := monitoring.Write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
