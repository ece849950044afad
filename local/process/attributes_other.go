//go:build !linux

package process

import "syscall"

func attributes(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitStop(int) {}
