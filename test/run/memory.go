package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

const (
	// shm is a file system in memory (tmpfs).
	shm = "/dev/shm"
	// room is how many bytes must be free there, and in memory.
	room = 10 << 30
)

// diskVariable tells tests that their files are on a disk.
const diskVariable = "STOKER_TEST_ON_DISK"

// scratch is the directory for the files of tests, as environment variables, and a function that removes it: in memory, unless memory is
// short or TMPDIR is set. Databases and event streams wait for a disk with each write, though what they write is gone a minute later; and
// ext4 takes long to create a file for minutes after others were deleted. The note, if any, warns that the files are on a disk.
func scratch() (env []string, remove func(), note string, err error) {
	disk := []string{diskVariable + "=1"}
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return disk, func() {}, "the tests' files are in TMPDIR, " + dir, nil
	}
	if has := min(free(shm), available()); has < room {
		return disk, func() {}, fmt.Sprintf("the tests' files are on the disk, which makes servers slow and tests fail: %s and memory have %d MB free, and %d are needed",
			shm, has>>20, room>>20), nil
	}
	left, _ := filepath.Glob(filepath.Join(shm, prefix+"*"))
	for _, dir := range left { // by a run that was killed
		if _, err := os.Stat(filepath.Join("/proc", strings.TrimPrefix(filepath.Base(dir), prefix))); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
	dir := filepath.Join(shm, prefix+strconv.Itoa(os.Getpid())) // short, for the path of a socket has at most 108 bytes
	if err := os.Mkdir(dir, 0o711); err != nil {                // database servers run as another user than root, and must pass
		return nil, nil, "", err
	}
	return []string{"TMPDIR=" + dir}, func() { _ = os.RemoveAll(dir) }, "", nil
}

// prefix begins the names of directories in memory; the process follows.
const prefix = "stoker."

// free is how many bytes a file system has, 0 if it isn't there.
func free(path string) int64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize
}

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// available is how many bytes of memory programs can have, 0 if that can't be said.
func available() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	found := memAvailable.FindSubmatch(data)
	if err != nil || found == nil {
		return 0
	}
	kB, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kB << 10
}
