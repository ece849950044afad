package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Disk is a file system of its own, in memory, that can be full: as large as what it holds, or with room. Making one takes the right to
// mount.
type Disk struct{ path string }

const room = "size=8g"

// NewDisk mounts a disk.
func NewDisk(path string) (*Disk, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return &Disk{path}, command("mount", "-t", "tmpfs", "-o", "mode=0700,"+room, "stoker-robustness", path)
}

// Fill takes all room away: what is written needs what others free.
func (d *Disk) Fill() (err error) {
	for range 20 { // what is written meanwhile makes it too small
		var now syscall.Statfs_t
		if err := syscall.Statfs(d.path, &now); err != nil {
			return err
		}
		used := (now.Blocks - now.Bfree) * uint64(now.Bsize)
		if err = command("mount", "-o", fmt.Sprintf("remount,size=%d", used), d.path); err == nil {
			return nil
		}
	}
	return err
}

// Empty gives the room back.
func (d *Disk) Empty() error { return command("mount", "-o", "remount,"+room, d.path) }

// Close unmounts the disk; what it holds is gone.
func (d *Disk) Close() error { return command("umount", "--lazy", d.path) }

func command(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// The etcds that have a disk of their own, beside the NATS servers: the API server's, and that of the DataStore.
const (
	etcdOfAPI       = "etcd-management"
	etcdOfDataStore = "etcd-" + dataStore
)

// mount gives the NATS servers and the etcds disks of their own. Where that isn't permitted, NoDisks says why.
func (s *Site) mount() {
	paths := map[string]string{}
	for _, etcd := range []string{etcdOfAPI, etcdOfDataStore} {
		paths[etcd] = filepath.Join(s.dir, "data", "etcd", etcd)
	}
	for i := range servers {
		paths[server(i)] = filepath.Join(s.dir, "nats", server(i))
	}
	s.disks = map[string]*Disk{}
	for of, path := range paths {
		d, err := NewDisk(path)
		if err != nil {
			s.NoDisks = errors.Join(fmt.Errorf("no disk is ever full: %w", err), s.Unmount())
			return
		}
		s.disks[of] = d
	}
}

// Unmount ends the disks; all that they hold is gone.
func (s *Site) Unmount() (all error) {
	for _, d := range s.disks {
		all = errors.Join(all, d.Close())
	}
	s.disks = nil
	return all
}

// fillNATS fills the disk of a NATS server. A server that can't write ends its part in JetStream until it is started again, which is
// what an operator does who has made room.
func fillNATS(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	i := pick.IntN(servers)
	d := s.disks[server(i)]
	if d == nil {
		return "", nil, s.NoDisks
	}
	return server(i), func(ctx context.Context) error { return errors.Join(d.Empty(), s.NATS.Restart(ctx, i)) }, d.Fill()
}

// fillEtcd fills the disk of an etcd. It ends when it can't write, and is started again until it can.
func fillEtcd(of string) strike {
	return func(_ context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
		d := s.disks[of]
		if d == nil {
			return "", nil, s.NoDisks
		}
		return of, func(context.Context) error { return d.Empty() }, d.Fill()
	}
}
