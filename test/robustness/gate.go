package robustness

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/stoker-k8s/stoker/test/env"
)

// Gate is one replica's way to the API server: a proxy that can answer in the server's place, as a server does whose etcd is away, and
// behind a Link that can delay, hold up and cut. It is safe for concurrent use.
type Gate struct {
	*Link
	proxy *env.Proxy

	mu     sync.Mutex
	answer int // the status that requests are answered with instead; 0: none
}

// NewGate opens a way to the API server that a kubeconfig leads to. Requests go on from the address from, which the audit
// log then shows as theirs.
func NewGate(listen, from, kubeconfig string) (g *Gate, err error) {
	g = &Gate{}
	g.proxy, err = env.NewProxy(kubeconfig, from, func(server http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.mu.Lock()
			code := g.answer
			g.mu.Unlock()
			if code != 0 {
				refuse(w, code)
				return
			}
			server.ServeHTTP(w, r)
		})
	})
	if err != nil {
		return nil, err
	}
	if g.Link, err = NewLink(listen, g.proxy.Address()); err != nil {
		g.proxy.Close()
		return nil, err
	}
	return g, nil
}

// refuse answers as the API server does when it can't reach its etcd (500) or has too much to do (429).
func refuse(w http.ResponseWriter, code int) {
	message, reason := "etcdserver: request timed out", "InternalError"
	if code == http.StatusTooManyRequests {
		message, reason = "too many requests, please try again later", "TooManyRequests"
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

// Answer has every request answered with a status until Answer(0).
func (g *Gate) Answer(code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = code
}

// Close ends the way.
func (g *Gate) Close() {
	g.Link.Close()
	g.proxy.Close()
}

// Kubeconfig writes a copy of the kubeconfig that leads through the gate.
func (g *Gate) Kubeconfig(to string) error { return g.proxy.Kubeconfig(to, g.Address()) }
