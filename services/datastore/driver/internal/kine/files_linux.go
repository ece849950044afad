package kine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// files are what kine reads by path, also when it connects again. They are in memory alone, and gone with the process
// however that ends: no private key lies on a disk.
type files []*os.File

// write makes a file and returns its path, which is good for this process.
func (f *files) write(name string, content []byte) (string, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return "", os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), name)
	*f = append(*f, file)
	_, err = file.Write(content)
	return fmt.Sprintf("/proc/self/fd/%d", fd), err
}

// remove removes all.
func (f *files) remove() (err error) {
	for _, file := range *f {
		err = errors.Join(err, file.Close())
	}
	return err
}
