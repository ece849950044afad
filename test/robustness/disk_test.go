package robustness

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestADiskIsFullAndHasRoomAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	d, err := NewDisk(path)
	if err != nil {
		t.Skip(err)
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
