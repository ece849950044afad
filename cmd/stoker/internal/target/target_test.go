package target

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	local := filepath.Join(root, LocalDir)
	deep := filepath.Join(root, "a", "b")
	for _, dir := range []string{filepath.Join(local, "nats"), deep} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(local, "nats", "url"), []byte("nats://127.1.0.1:4222\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seed, kubeconfig := filepath.Join(local, "nats", "operator.nk"), filepath.Join(local, "kubeconfigs", "admin.kubeconfig")
	tests := map[string]struct {
		flags Target
		dir   string
		env   map[string]string
		want  Target
	}{
		"the nearest local stack above is found": {
			dir: deep, want: Target{NATS: "nats://127.1.0.1:4222", Seed: seed, Kubeconfig: kubeconfig, Local: local},
		},
		"$NATS_URL means another installation, as a whole": {
			dir: deep, env: map[string]string{EnvNATS: "nats://prod", EnvSeed: "/seed"}, want: Target{NATS: "nats://prod", Seed: "/seed"},
		},
		"--nats means another installation, as a whole": {
			flags: Target{NATS: "nats://prod"}, dir: deep, env: map[string]string{EnvSeed: "/seed"}, want: Target{NATS: "nats://prod", Seed: "/seed"},
		},
		"a flag wins over the local stack's file": {
			flags: Target{Kubeconfig: "/mine"}, dir: root, want: Target{NATS: "nats://127.1.0.1:4222", Seed: seed, Kubeconfig: "/mine", Local: local},
		},
		"with nothing given it is the server on this machine": {
			dir: "/", want: Target{NATS: "nats://127.0.0.1:4222"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := Find(test.flags, test.dir, func(k string) string { return test.env[k] }); got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}
