package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestMaterialise(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	files := map[string]file{
		"ca.key":       {[]byte("secret"), 0o644},
		"run.sh":       {[]byte("x"), 0o755},
		"etcd/ca.crt":  {[]byte("cert"), 0o444},
		"deep/a/b/c.y": {[]byte("c"), 0o600},
	}
	if err := materialise(dir, files); err != nil {
		t.Fatal(err)
	}
	t.Run("nobody else can read it, and the owner's part of the mode holds", func(t *testing.T) {
		for path, want := range map[string]fs.FileMode{
			".": 0o700, "etcd": 0o700, "deep": 0o700, "deep/a/b": 0o700,
			"ca.key": 0o600, "run.sh": 0o700, "etcd/ca.crt": 0o400, "deep/a/b/c.y": 0o600,
		} {
			info, err := os.Stat(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, want %o", path, got, want)
			}
		}
	})
	t.Run("what isn't wanted any more is gone", func(t *testing.T) {
		if err := materialise(dir, map[string]file{"only": {nil, 0o644}}); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "only" {
			t.Errorf("left: %v, %v", entries, err)
		}
	})
	t.Run("a file outside the volume is refused", func(t *testing.T) {
		for _, name := range []string{"../out", "/etc/passwd", "a/../../out"} {
			if err := materialise(dir, map[string]file{name: {nil, 0o600}}); err == nil {
				t.Errorf("%q was written", name)
			}
		}
	})
}

func TestProject(t *testing.T) {
	data := map[string][]byte{"a": []byte("1"), "b": []byte("2")}
	t.Run("without items, every key under its own name", func(t *testing.T) {
		files, err := project(data, nil, 0o644, nil)
		if err != nil || len(files) != 2 || string(files["b"].data) != "2" || files["b"].mode != 0o644 {
			t.Errorf("got %v, %v", files, err)
		}
	})
	t.Run("with items, these under their paths and modes", func(t *testing.T) {
		files, err := project(data, []corev1.KeyToPath{{Key: "a", Path: "x/y", Mode: ptr.To(int32(0o400))}}, 0o644, nil)
		if err != nil || len(files) != 1 || string(files["x/y"].data) != "1" || files["x/y"].mode != 0o400 {
			t.Errorf("got %v, %v", files, err)
		}
	})
	missing := []corev1.KeyToPath{{Key: "c", Path: "c"}}
	t.Run("a missing key is an error", func(t *testing.T) {
		if _, err := project(data, missing, 0o644, nil); err == nil {
			t.Error("no error")
		}
	})
	t.Run("unless it's optional", func(t *testing.T) {
		if files, err := project(data, missing, 0o644, ptr.To(true)); err != nil || len(files) != 0 {
			t.Errorf("got %v, %v", files, err)
		}
	})
}

func TestMountPaths(t *testing.T) {
	m := &mounts{volumes: map[string]string{"pki": "/h/pki", "conf": "/h/conf", "certs": "/etc/ssl/certs"}}
	got := m.paths(&corev1.Container{VolumeMounts: []corev1.VolumeMount{
		{Name: "pki", MountPath: "/etc/kubernetes/pki/"},
		{Name: "conf", MountPath: "/etc/kubernetes/x.conf", SubPath: "x.conf"},
		{Name: "certs", MountPath: "/etc/ssl/certs"},
	}})
	want := map[string]string{"/etc/kubernetes/pki": "/h/pki", "/etc/kubernetes/x.conf": "/h/conf/x.conf"}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for at, host := range want {
		if got[at] != host {
			t.Errorf("%s is %q, want %q", at, got[at], host)
		}
	}
}
