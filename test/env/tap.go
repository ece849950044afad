package env

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Message is what a process sent to the API server or to NATS.
type Message struct {
	// What it is: method and path of a request with the name of the object that it makes, or "PUB" and the subject.
	What string
	// Write reports whether it changes something: requests but reads, reviews and dry runs; messages that are stored or answer a
	// command.
	Write bool
	// Data of a message to NATS, without headers; of a write to the API server, the body.
	Data []byte
	Time time.Time
	// Lost is true if it was not let through.
	Lost bool
}

// About returns a function that reports whether a message names an object, or another object whose name begins with this name.
func About(n string) func(Message) bool {
	named := regexp.MustCompile(`(^|[^a-z0-9-])` + regexp.QuoteMeta(n) + `($|[^a-z0-9])`)
	return func(m Message) bool { return named.MatchString(m.What) || m.Write && named.Match(m.Data) }
}

// Claims reports whether by this message a service's replica says that it holds a partition.
func (m Message) Claims(service, replica string, partition int) bool {
	var claims struct{ Holders [name.Partitions]string }
	return m.What == "PUB $KV."+events.BucketLeases+"."+service+".claims" && json.Unmarshal(m.Data, &claims) == nil &&
		claims.Holders[partition] == replica
}

// Beat reports whether by this message a service's replica says that it lives.
func (m Message) Beat(service string) bool {
	return m.What == "PUB $KV."+events.BucketLeases+"."+service+".beat"
}

// Tap is on a process's ways to the API server and to NATS: all that the process sends to them goes through it, is recorded, and may be
// the moment for something to happen to the process. It is safe for concurrent use.
type Tap struct {
	bus        net.Listener
	api        *Proxy
	kubeconfig string
	nats       string

	mu   sync.Mutex
	all  []Message
	trap *trap
	cut  bool // nothing gets through
	ends map[net.Conn]struct{}
}

// trap is a message at which something happens.
type trap struct {
	is func(Message) bool
	// before happens before the message is let through; it is not let through if this returns false. after happens when it was
	// answered, before the process has the answer.
	before func() bool
	after  func()
	sprung chan struct{}
}

// Tapped starts a replica of a service whose messages are recorded, and stops it when the test ends.
func (e *Env) Tapped(t testing.TB, service, replica string, vars ...string) (*Process, *Tap) {
	t.Helper()
	cfg := e.Stack.Service(service, replica)
	tap := newTap(t.TempDir())
	if err := tap.open(cfg.Kubeconfig, strings.TrimPrefix(cfg.NATS, "nats://")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.close)
	p := &Process{Name: service, Replica: replica, env: e, tap: tap, vars: vars}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.procs[service+"/"+replica] = p
	e.mu.Unlock()
	t.Cleanup(func() { p.Remove(t) })
	return p, tap
}

// APITap is on a way to the API server that a kubeconfig leads to, until the test ends. Its own kubeconfig is the second result, a file.
func APITap(t testing.TB, kubeconfig string) (*Tap, string) {
	t.Helper()
	tap := newTap(t.TempDir())
	if err := tap.serve(kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.api.Close)
	return tap, tap.kubeconfig
}

func newTap(dir string) *Tap {
	return &Tap{ends: map[net.Conn]struct{}{}, kubeconfig: filepath.Join(dir, "kubeconfig")}
}

// open opens both ways.
func (p *Tap) open(kubeconfig, nats string) (err error) {
	if p.bus, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	p.nats = "nats://" + p.bus.Addr().String()
	go func() {
		for {
			c, err := p.bus.Accept()
			if err != nil {
				return
			}
			go p.carry(c, nats)
		}
	}()
	return p.serve(kubeconfig)
}

// serve stands in for the API server that a kubeconfig leads to.
func (p *Tap) serve(kubeconfig string) (err error) {
	p.api, err = NewProxy(kubeconfig, "", func(server http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			through, after := p.note(request(r))
			if !through {
				panic(http.ErrAbortHandler)
			}
			if after == nil {
				server.ServeHTTP(w, r)
				return
			}
			// The process may give up on it when others of its requests are cut.
			defer after() // also when the server is away
			server.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			panic(http.ErrAbortHandler)
		})
	})
	if err != nil {
		return err
	}
	return p.api.Kubeconfig(p.kubeconfig, p.api.Address())
}

// request describes a request to the API server.
func request(r *http.Request) Message {
	m := Message{What: r.Method + " " + r.URL.Path, Time: time.Now()}
	if r.Method == http.MethodGet || r.URL.Query().Has("dryRun") || strings.HasSuffix(r.URL.Path, "reviews") {
		return m
	}
	m.Write = true
	m.Data, _ = io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(m.Data))
	var o struct{ Metadata struct{ Name string } }
	if r.Method == http.MethodPost && json.Unmarshal(m.Data, &o) == nil {
		m.What = r.Method + " " + path.Join(r.URL.Path, o.Metadata.Name)
	}
	return m
}

// note records a message, and says whether it gets through, and what happens once it was answered.
func (p *Tap) note(m Message) (through bool, after func()) {
	p.mu.Lock()
	trap := p.trap
	if p.cut || trap == nil || !trap.is(m) {
		m.Lost = p.cut
		p.all = append(p.all, m)
		p.mu.Unlock()
		return !m.Lost, nil
	}
	p.trap = nil
	if trap.before == nil {
		p.all = append(p.all, m)
		p.cut = true // but for this one
		p.mu.Unlock()
		return true, func() { trap.after(); close(trap.sprung) }
	}
	p.mu.Unlock()
	through = trap.before()
	p.mu.Lock()
	m.Lost = !through
	p.all = append(p.all, m)
	p.cut = !through
	p.mu.Unlock()
	close(trap.sprung)
	return through, nil
}

// set has something happen at the next message that is so.
func (p *Tap) set(t *trap) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.sprung = make(chan struct{})
	p.trap = t
	return t.sprung
}

// StopAt stops the process (SIGSTOP) at the next message that is so, and lets the message through; the channel is closed then.
func (p *Tap) StopAt(process *Process, is func(Message) bool) <-chan struct{} {
	return p.set(&trap{is: is, before: func() bool { process.Signal(syscall.SIGSTOP); return true }})
}

// KillBefore kills the process at the next message that is so, which gets no further; the channel is closed then.
func (p *Tap) KillBefore(process *Process, is func(Message) bool) <-chan struct{} {
	return p.set(&trap{is: is, before: func() bool { process.Kill(); return false }})
}

// KillAfter kills the process when the next message that is so has been answered, and before the process knows; the channel is closed
// then.
func (p *Tap) KillAfter(process *Process, is func(Message) bool) <-chan struct{} {
	return p.set(&trap{is: is, after: process.Kill})
}

// Disarm removes the trap. It reports false if the message has come, or no trap was set.
func (p *Tap) Disarm() (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was = p.trap != nil
	p.trap = nil
	return was
}

// Clear removes the trap, and lets all messages through.
func (p *Tap) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap, p.cut = nil, false
}

// Messages are those that the process sent so far, in order, from a number on.
func (p *Tap) Messages(from int) []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all[from:])
}

func (p *Tap) close() {
	_ = p.bus.Close()
	p.api.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.ends {
		_ = c.Close()
	}
}

// keep notes a connection, to be closed at the end.
func (p *Tap) keep(c net.Conn) (forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[c] = struct{}{}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.ends, c)
	}
}

// carry carries one connection to NATS.
func (p *Tap) carry(c net.Conn, nats string) {
	defer p.keep(c)()
	s, err := net.Dial("tcp", nats)
	if err != nil {
		return
	}
	defer p.keep(s)()
	w := &answers{}
	go func() { _, _ = io.Copy(io.MultiWriter(w, c), s); _ = c.Close(); w.end() }()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		frame, m, reply, err := published(r)
		if err != nil {
			return
		}
		var after func()
		if m.What != "" {
			through := false
			if through, after = p.note(m); !through {
				return
			}
		}
		if after != nil {
			w.expect(reply)
		}
		_, err = s.Write(frame)
		if after != nil {
			if err == nil {
				w.wait()
			}
			after()
			return
		}
		if err != nil {
			return
		}
	}
}

// published reads what a client sends next to a NATS server; the message is empty unless it is one.
func published(r *bufio.Reader) (frame []byte, m Message, reply string, _ error) {
	line, err := r.ReadString('\n')
	frame = []byte(line)
	fields := strings.Fields(line)
	if err != nil || len(fields) < 3 || fields[0] != "PUB" && fields[0] != "HPUB" {
		return frame, m, "", err
	}
	size, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return frame, m, "", fmt.Errorf("%q: %w", line, err)
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(r, body); err != nil {
		return frame, m, "", err
	}
	header, sizes := 0, 1
	if fields[0] == "HPUB" {
		sizes = 2
		if header, err = strconv.Atoi(fields[len(fields)-2]); err != nil {
			return frame, m, "", fmt.Errorf("%q: %w", line, err)
		}
	}
	if len(fields) == 3+sizes {
		reply = fields[2]
	}
	subject := fields[1]
	m = Message{What: "PUB " + subject, Data: slices.Clone(body[header:size]), Time: time.Now(), Write: stored.MatchString(subject)}
	return append(frame, body...), m, reply, nil
}

// stored are the subjects of what is kept or answers a command. What replicas tell each other is not among them, nor are
// acknowledgements.
var stored = regexp.MustCompile(`^(\$KV\.tenant_|stoker\.|\$JS\.API\.STREAM\.(CREATE|UPDATE|DELETE|PURGE)\.)`)

// answers is what a NATS server sends to a client. It is safe for concurrent use.
type answers struct {
	mu     sync.Mutex
	reply  []byte
	tail   []byte
	there  chan struct{}
	closed bool
}

// expect begins to look for an answer; any will do for a message that none is sent to.
func (a *answers) expect(reply string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply, a.tail, a.there = []byte(reply), nil, make(chan struct{})
	if a.closed || reply == "" {
		a.found()
	}
}

// Write looks at what came.
func (a *answers) Write(data []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.there != nil {
		a.tail = append(a.tail, data...)
		if bytes.Contains(a.tail, a.reply) {
			a.found()
			return 0, io.ErrClosedPipe // the client is not to know
		}
	}
	return len(data), nil
}

func (a *answers) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.found()
}

// found ends the wait. a.mu is held.
func (a *answers) found() {
	if a.there != nil {
		close(a.there)
		a.there = nil
	}
}

func (a *answers) wait() {
	a.mu.Lock()
	there := a.there
	a.mu.Unlock()
	if there != nil {
		<-there
	}
}
