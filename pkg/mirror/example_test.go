package mirror_test

import (
	"context"
	"log/slog"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/mirror"
)

// Databases of a remote API are made here, in namespaces of the same name, and their passwords go up.
func Example() {
	run := func(ctx context.Context, kubeconfig []byte) error {
		remote, err := mirror.Connect(kubeconfig, kube.Options{FieldManager: name.FieldManagerMirror})
		if err != nil {
			return err
		}
		defer remote.Close()
		local, err := kube.Connect("", kube.Options{FieldManager: name.FieldManagerMirror})
		if err != nil {
			return err
		}
		defer local.Close()
		databases := kube.Resource{Plural: "databases", Kind: "Database", Namespaced: true}
		databases.GroupVersion.Group, databases.GroupVersion.Version = "example.com", "v1"
		return mirror.Run(ctx, mirror.Config{
			Local: local, Remote: remote, Log: slog.Default(), Namespaces: true, RemoteSuffix: "-eu",
			Kinds: []mirror.Kind{{Resource: databases, Secrets: []string{"{name}-password"}, CreateSecrets: true}},
		})
	}
	_ = run
	// Output:
}
