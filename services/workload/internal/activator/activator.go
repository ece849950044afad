// Package activator holds connections to tenants that sleep until a pod accepts them. It listens for each of these tenants at a port of its
// own, the tenant's door, to which the tenant's Service leads. A connection must begin as TLS does. The activator doesn't terminate TLS: it
// copies bytes, so it needs no key.
package activator

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// Ports of the activator: those at which doors are, for what lets connections through to them.
const (
	firstDoor, lastDoor = 20000, 29999
)

const (
	// helloTime is how long a client may take to begin with TLS, and holdTime how long it is held until a pod is ready.
	helloTime = 5 * time.Second
	holdTime  = time.Minute
	// doorTime is how long a door stays open after it isn't needed any more: what leads there takes a moment to hear of it.
	doorTime = 30 * time.Second
	// maxPerDoor bounds how many connections a tenant's door holds, maxGuests how many a replica has with those that it has led on.
	maxPerDoor = 64
	maxGuests  = 2048
	// maxHello bounds what a client may say before a pod is there, in bytes.
	maxHello = 16 << 10
	// dialTime bounds how long a pod that is ready may take to take a connection.
	dialTime = 2 * time.Second
)

// Activator has the doors of one replica. It is safe for concurrent use.
type Activator struct {
	// Address is where the doors are. It is set before the first use; without an address nothing may be opened.
	Address netip.Addr
	log     *slog.Logger
	// call is told of the first client that waits at a door.
	call func(events.Key)

	mu     sync.Mutex
	doors  map[events.Key]*door
	all    int               // connections of clients
	going  map[net.Conn]bool // those that were led to pods
	closed bool
	done   sync.WaitGroup
}

// door is where connections to one tenant come in. It is guarded by the activator's mu.
type door struct {
	*Activator
	key      events.Key
	listener net.Listener
	// pods are where connections go on to, none while the tenant sleeps.
	pods []string
	// guests are the connections that are held here. Those are true that have begun with TLS and wait for a pod.
	guests map[net.Conn]bool
	// shuts shuts the door after a while; nil while it is needed.
	shuts *time.Timer
}

// New returns an activator without an address. It calls call for a tenant when the first client waits for it.
func New(log *slog.Logger, call func(events.Key)) *Activator {
	return &Activator{log: log, call: call, doors: map[events.Key]*door{}, going: map[net.Conn]bool{}}
}

// Open opens the tenant's door, if it isn't, and returns where it is. Connections are held from now on.
func (a *Activator) Open(key events.Key) (netip.AddrPort, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.doors[key]
	if d == nil {
		listener, err := a.listen(key)
		if err != nil {
			return netip.AddrPort{}, err
		}
		d = &door{Activator: a, key: key, listener: listener, guests: map[net.Conn]bool{}}
		a.doors[key] = d
		a.done.Go(d.accept)
	}
	d.pods = nil
	if d.shuts != nil {
		d.shuts.Stop()
		d.shuts = nil
	}
	return netip.MustParseAddrPort(d.listener.Addr().String()), nil
}

// listen takes the first free port from the one that is the tenant's by its name on, so that it mostly has the same one.
func (a *Activator) listen(key events.Key) (net.Listener, error) {
	if a.closed {
		return nil, net.ErrClosed
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, key.String())
	var err error
	const all = lastDoor - firstDoor + 1
	for i := range uint32(100) {
		port := firstDoor + (h.Sum32()%all+i)%all
		var l net.Listener
		if l, err = net.Listen("tcp", netip.AddrPortFrom(a.Address, uint16(port)).String()); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("activator: no port for %s: %w", key, err)
}

// Waiting reports whether a client waits for the tenant to wake.
func (a *Activator) Waiting(key events.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.doors[key]
	return d != nil && d.waits()
}

// Lead connects clients to pods: the held connections, and new ones until the door closes after doorTime.
func (a *Activator) Lead(key events.Key, pods []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.doors[key]
	if d == nil {
		return
	}
	if d.pods = pods; d.shuts == nil {
		d.shuts = time.AfterFunc(doorTime, func() { a.shut(key, d) })
	}
	for c, waits := range d.guests {
		if waits {
			_ = c.SetReadDeadline(time.Unix(1, 0)) // who reads from it then looks where to go on
		}
	}
}

// Close closes the tenant's door at once, and the connections that it holds.
func (a *Activator) Close(key events.Key) { a.shut(key, nil) }

// shut shuts the door of a tenant, if it is this one; nil for whichever there is.
func (a *Activator) shut(key events.Key, this *door) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.doors[key]
	if d == nil || this != nil && (d != this || d.shuts == nil) {
		return
	}
	if d.shuts != nil {
		d.shuts.Stop()
	}
	delete(a.doors, key)
	_ = d.listener.Close()
	for c := range d.guests {
		_ = c.Close()
	}
}

// KeepIn shuts the doors of tenants in partitions other than these: another replica opens its own.
func (a *Activator) KeepIn(partitions []int) {
	a.mu.Lock()
	var gone []events.Key
	for key := range a.doors {
		if !slices.Contains(partitions, key.Partition()) {
			gone = append(gone, key)
		}
	}
	a.mu.Unlock()
	for _, key := range gone {
		a.Close(key)
	}
}

// End shuts all doors, ends all connections and returns when none is left.
func (a *Activator) End() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.KeepIn(nil)
	a.mu.Lock()
	for c := range a.going {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.done.Wait()
}

// Count returns how many connections are held at doors, and how many there are to pods.
func (a *Activator) Count() (held, led int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.doors {
		held += len(d.guests)
	}
	return held, len(a.going)
}

// Metrics shows how many connections the activator has; a nil activator describes them.
func (a *Activator) Metrics() prometheus.Collector {
	connections := prometheus.NewDesc("stoker_workload_activator_connections",
		"Connections to tenants with the annotation stoker.dev/wake-on: held until a pod is ready, or led to one since.", []string{"state"}, nil)
	return metric.AtScrape{Gauges: []*prometheus.Desc{connections}, Values: func(c chan<- prometheus.Metric) {
		held, led := a.Count()
		c <- metric.Gauge(connections, float64(held), "held")
		c <- metric.Gauge(connections, float64(led), "led")
	}}
}

// waits reports whether a client waits. It is called with mu held.
func (d *door) waits() bool {
	for _, waits := range d.guests {
		if waits {
			return true
		}
	}
	return false
}

// accept takes connections until the door is shut.
func (d *door) accept() {
	for {
		c, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("connection not accepted", "tenant", d.key.String(), "error", err)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // out of file descriptors; nothing tells when there are some
			continue
		}
		d.done.Go(func() { d.serve(c) })
	}
}

// serve holds one connection until a pod is there, and takes it there.
func (d *door) serve(client net.Conn) {
	defer client.Close()
	if !d.enter(client) {
		return
	}
	defer d.leave(client)
	_ = client.SetReadDeadline(time.Now().Add(helloTime))
	said := make([]byte, 2<<10)
	n, err := io.ReadAtLeast(client, said, len(hello{}))
	if err != nil || !hello(said).begins() {
		return
	}
	said, pods := d.hold(client, said[:n])
	if len(pods) == 0 {
		return
	}
	server := d.dial(pods)
	if server == nil {
		return
	}
	defer server.Close()
	if _, err := server.Write(said); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(server, client) })
	pass(client, server)
	both.Wait()
}

// hello is the beginning of a connection that speaks TLS: of a record that holds a client's first message.
type hello [6]byte

func (h hello) begins() bool { return h[0] == 0x16 && h[1] == 3 && h[5] == 1 }

// hold waits until pods are there and returns them, and what the client has said until then; no pods for one that went, or was held for
// long enough.
func (d *door) hold(client net.Conn, said []byte) (all []byte, pods []string) {
	until := time.Now().Add(holdTime)
	d.wait(client)
	for more := make([]byte, 2<<10); len(said) < maxHello; {
		if pods = d.led(client, until); len(pods) > 0 {
			return said, pods
		}
		n, err := client.Read(more) // also says when the client goes
		said = append(said, more[:n]...)
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(until)) {
			break
		}
	}
	return nil, nil
}

// enter notes a connection; false when there are too many.
func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doors[d.key] != d || len(d.guests) >= maxPerDoor || d.all >= maxGuests {
		return false
	}
	d.guests[c] = false
	d.all++
	return true
}

// wait notes that a connection waits for the tenant, and calls for the tenant if it is the first that does.
func (d *door) wait(c net.Conn) {
	d.mu.Lock()
	first := !d.waits() && len(d.pods) == 0
	d.guests[c] = true
	d.mu.Unlock()
	if first {
		d.call(d.key)
	}
}

// led returns where a connection goes on to. While there is nowhere, it may be read from until a time.
func (d *door) led(c net.Conn, until time.Time) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pods) > 0 {
		delete(d.guests, c) // it waits no more
		d.going[c] = true
		_ = c.SetReadDeadline(time.Time{})
		return d.pods
	}
	_ = c.SetReadDeadline(until)
	return nil
}

func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, c)
	delete(d.going, c)
	d.all--
}

// dial connects to one of the pods, nil if none takes the connection.
func (d *door) dial(pods []string) net.Conn {
	for _, pod := range pods {
		c, err := net.DialTimeout("tcp", pod, dialTime) //nolint:noctx // the time-out is the only end it needs
		if err == nil {
			return c
		}
		d.log.Debug("pod takes no connection", "tenant", d.key.String(), "pod", pod, "error", err)
	}
	return nil
}

// pass copies one direction. Its end is passed on, so that the other can finish; an error ends both.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}
