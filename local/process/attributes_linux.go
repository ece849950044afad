package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is in every /etc/passwd, where some programs look themselves up.
const nobody = 65534

func attributes(notRoot bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if notRoot {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
	}
	return a
}

// awaitStop returns when a child has stopped or ended; how it ended stays for [os/exec.Cmd.Wait] to see.
func awaitStop(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
