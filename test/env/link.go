package env

import (
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Link is a way to a server, byte by byte, which a test can make a black hole.
type Link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	hole  bool
	conns map[net.Conn]struct{}
	taken int // connections so far
}

// NewLink opens a way to a server, host:port, until the test ends.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: listener, to: to, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() { _ = listener.Close(); l.cut() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(c)
		}
	}()
	return l
}

// Address is where the way begins.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Taken is how many connections were made so far.
func (l *Link) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// Open is how many connections there are now.
func (l *Link) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Hole has connections be taken and nothing be carried, of those there are, too; or has new ones be carried, and ends those that weren't.
func (l *Link) Hole(is bool) {
	l.mu.Lock()
	l.hole = is
	l.mu.Unlock()
	if !is {
		l.cut()
	}
}

func (l *Link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

func (l *Link) carry(c net.Conn) {
	l.mu.Lock()
	l.taken++
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	server, err := net.Dial("tcp", l.to)
	if err != nil {
		_ = c.Close()
		return
	}
	one := func(to, from net.Conn) {
		defer to.Close()
		_, _ = io.Copy(to, holed{from, l})
	}
	go one(server, c)
	one(c, server)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// holed is a connection of which nothing is read while its link is a black hole.
type holed struct {
	net.Conn
	link *Link
}

func (h holed) Read(b []byte) (n int, err error) {
	for {
		n, err = h.Conn.Read(b)
		h.link.mu.Lock()
		hole := h.link.hole
		h.link.mu.Unlock()
		if !hole || err != nil {
			return n, err
		}
	}
}

// Through returns a kubeconfig that leads to the API server of another one, a file, through a link that is made for it, with a token.
func Through(t testing.TB, kubeconfig, token string) ([]byte, *Link) {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	link := NewLink(t, server.Host)
	data, err = clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"x": {
			Server: "https://" + link.Address(), TLSServerName: server.Hostname(), CertificateAuthorityData: cluster.CertificateAuthorityData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"x": {Token: token}},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "x", AuthInfo: "x"}}, CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return data, link
}
