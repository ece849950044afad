package robustness

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestADiskIsFullAndHasRoomAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	d, err := NewDisk(path)
	if err != nil {
		t.Skipf("set-up: %v", err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func(file string) error { return os.WriteFile(filepath.Join(path, file), make([]byte, 1<<20), 0o600) }
	if err := write("before"); err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := write("full"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("written to a full disk: %v", err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	if err := write("after"); err != nil {
		t.Error(err)
	}
}

func TestTheDisksOfTheEtcdsAreFilled(t *testing.T) {
	s := &Site{dir: t.TempDir()}
	if s.mount(); s.NoDisks != nil {
		t.Skipf("set-up: %v", s.NoDisks)
	}
	defer func() {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	}()
	for name, component := range map[string]string{
		"disk of the API server's etcd full": "etcd-management", "disk of the DataStore's etcd full": "etcd-default",
	} {
		write := func(file string) error {
			return os.WriteFile(filepath.Join(s.dir, "data", "etcd", component, file), make([]byte, 1<<20), 0o600)
		}
		if err := write("before"); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("there is no fault %q", name)
		}
		target, heal, err := Faults()[i].strike(t.Context(), s, nil)
		if err != nil || target != component {
			t.Fatalf("struck %q: %v", target, err)
		}
		if err := write("full"); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: written to a full disk: %v", component, err)
		}
		if err := heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := write("after"); err != nil {
			t.Error(err)
		}
	}
}
