package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/stoker-k8s/stoker/local/address"
)

// lockDir makes sure that one process works on a directory. The system drops the lock of a process that dies.
func lockDir(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, &RunningError{PID: readPID(path), Dir: dir}
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		file.Close()
		return nil, err
	}
	return func() {
		_ = file.Truncate(0)
		file.Close()
	}, nil
}

// Running returns the id of the process that runs a stack on dir, or 0.
func Running(dir string) int {
	path := filepath.Join(dir, "lock")
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return 0
	}
	return readPID(path)
}

func readPID(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// writeFile replaces a file, which only its owner may read, in one step.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// shortDir is a directory with a short path for what holds sockets, whose paths may have a hundred bytes at most. It is
// in a directory that others can write to, so it has to be ours, and closed to others.
func shortDir(block address.Block) (string, error) {
	parent := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(parent); parent == "" || err != nil || !info.IsDir() || len(parent) > 32 {
		parent = os.TempDir()
	}
	dir := filepath.Join(parent, fmt.Sprintf("stoker-%d-%d", os.Getuid(), int(block)))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s isn't a directory of this user alone: remove it", dir)
	}
	return dir, nil
}
