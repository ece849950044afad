package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// struck is by how many seconds the wall clock is wrong: what the file that STOKER_ROBUSTNESS_CLOCK names holds, as it changes.
var struck = func() *atomic.Int64 {
	path, ok := syscall.Getenv("STOKER_ROBUSTNESS_CLOCK")
	if !ok {
		return new(atomic.Int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("clock " + path + ": " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("clock " + path + ": " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*atomic.Int64)(unsafe.Pointer(&page[0]))
}()

// struckNow is runtimeNow by a wall clock that may be wrong. The monotonic clock is right.
func struckNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	return sec + struck.Load(), nsec, mono
}
