package robustness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// servers is how many NATS servers there are.
const servers = 3

// NATS is a cluster of NATS servers, each a process, with Stoker's users and everything synced to disk at once.
type NATS struct {
	dir, bin string
	clients  [servers]string // address for clients
	monitors [servers]string // address where a server says how it is
	routes   [servers]*Link  // each server is reached by the others through its link

	mu    sync.Mutex // guards procs: faults overlap
	procs [servers]*process.Process
}

// server is a server's name.
func server(i int) string { return fmt.Sprintf("n%d", i) }

// NewNATS writes the configuration of a cluster on a host; Start starts its servers.
func NewNATS(dir, bin, host string) (*NATS, error) {
	n := &NATS{dir: dir, bin: bin}
	public, err := n.users()
	if err != nil {
		return nil, err
	}
	free := make([]string, 3*servers)
	for i := range free { // until this process ends: servers are started again on their ports
		if free[i], _, err = port.Reserve(host); err != nil {
			return nil, err
		}
	}
	routes := free[servers : 2*servers]
	copy(n.clients[:], free)
	copy(n.monitors[:], free[2*servers:])
	for i := range servers {
		if n.routes[i], err = NewLink(net.JoinHostPort(host, "0"), routes[i]); err != nil {
			return nil, err
		}
	}
	for i := range servers {
		var others []string
		for j := range servers {
			if j != i {
				others = append(others, fmt.Sprintf("%q", "nats-route://"+n.routes[j].Address()))
			}
		}
		conf := fmt.Sprintf(`server_name: n%d
listen: %q
http: %q
jetstream { store_dir: %q, sync_interval: always }
cluster {
  name: stoker, listen: %q, advertise: %q, no_advertise: true, ping_interval: "2s", ping_max: 2, routes: [%s]
}
%s`, i, n.clients[i], n.monitors[i], n.store(i), routes[i], n.routes[i].Address(), strings.Join(others, ", "),
			events.Authorization(public, nil))
		if err := os.WriteFile(n.conf(i), []byte(conf), 0o600); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// users makes an nkey for each user, writes the file with the portal's account, and returns the public nkeys.
func (n *NATS) users() (map[string]string, error) {
	public := map[string]string{}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	for _, user := range append(events.Users(), events.UserPortal) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(n.Seed(user), seed, 0o600); err != nil {
			return nil, err
		}
		if public[user], err = pair.PublicKey(); err != nil {
			return nil, err
		}
	}
	p := events.Portal{Name: events.UserPortal, Namespaces: []string{namespace}, Kinds: []string{event.DataStores}, Limits: events.DefaultLimits(), NKey: public[events.UserPortal]}
	return public, os.WriteFile(filepath.Join(n.dir, events.PortalsFile), []byte(events.Portals([]events.Portal{p})), 0o600)
}

// Seed is the file with a user's nkey seed.
func (n *NATS) Seed(user string) string { return filepath.Join(n.dir, user+".nk") }

// URL for clients, of all servers.
func (n *NATS) URL() string {
	var urls []string
	for _, address := range n.clients {
		urls = append(urls, "nats://"+address)
	}
	return strings.Join(urls, ",")
}

// Monitors are the URLs where the servers say how they are.
func (n *NATS) Monitors() []string {
	var urls []string
	for _, address := range n.monitors {
		urls = append(urls, "http://"+address)
	}
	return urls
}

func (n *NATS) conf(i int) string  { return filepath.Join(n.dir, fmt.Sprintf("n%d.conf", i)) }
func (n *NATS) store(i int) string { return filepath.Join(n.dir, server(i), "store") } // server(i) may be a disk

// Start starts a server, unless it runs.
func (n *NATS) Start(i int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.start(i)
}

// start is Start. n.mu is held.
func (n *NATS) start(i int) (err error) {
	if n.procs[i] != nil && n.procs[i].Running() {
		return nil
	}
	n.procs[i], err = process.Start(process.Spec{
		Path: n.bin, Args: []string{"nats-server", "-c", n.conf(i)}, Dir: n.dir, Log: filepath.Join(n.dir, fmt.Sprintf("n%d.log", i)),
	})
	return err
}

// Kill ends a server as the kernel would (SIGKILL) and waits.
func (n *NATS) Kill(i int) error {
	p := n.process(i)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// process is a server's, the one that was started last.
func (n *NATS) process(i int) *process.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.procs[i]
}

// Restart stops a server and starts it.
func (n *NATS) Restart(ctx context.Context, i int) error {
	n.process(i).Stop(ctx, 10*time.Second)
	return n.Start(i)
}

// Wipe stops all servers, removes all that they hold, and starts them. No other fault starts one meanwhile, which would then run
// without what it has on disk.
func (n *NATS) Wipe(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.procs {
		p.Stop(ctx, 10*time.Second)
	}
	var all error
	for i := range servers {
		all = errors.Join(all, os.RemoveAll(n.store(i)), n.start(i))
	}
	return all
}

// Stop ends all servers.
func (n *NATS) Stop(ctx context.Context) {
	for i, p := range n.procs {
		if p != nil {
			p.Stop(ctx, 10*time.Second)
		}
		n.routes[i].Close()
	}
}
