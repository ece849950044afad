// Command kamaji is Kamaji, of which tests run `kamaji manager`.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clastix/kamaji/cmd"
	"github.com/clastix/kamaji/cmd/manager"
	"github.com/clastix/kamaji/cmd/migrate"
)

func main() {
	scheme := runtime.NewScheme()

	root, mgr, migrator := cmd.NewCmd(scheme), manager.NewCmd(scheme), migrate.NewCmd(scheme)
	root.AddCommand(mgr)
	root.AddCommand(migrator)

	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}
