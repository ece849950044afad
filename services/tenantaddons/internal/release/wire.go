package release

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// wire notes what goes wrong with the requests of an operation. Helm's errors don't always have it: some are text, some are dropped.
type wire struct {
	mu sync.Mutex
	// away is why a request has no answer, err; refused and slow are the objects that the first write which was refused, or wasn't answered in
	// time, was about.
	away          error
	refused, slow *subject
}

// subject is which object a request is about.
type subject struct {
	schema.GroupVersionResource
	namespace, name string
}

func (p *subject) String() string {
	if p.namespace != "" {
		return p.Resource + " " + p.namespace + "/" + p.name
	}
	return p.Resource + " " + p.name
}

// note has the wire see a transport's requests.
func (w *wire) note(by http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := by.RoundTrip(req)
		w.mu.Lock()
		defer w.mu.Unlock()
		write := req.Method != http.MethodGet
		switch {
		case err != nil:
			if w.away == nil {
				w.away = err
			}
			if write && w.slow == nil && isTimeout(err) {
				w.slow = pathOf(req.URL)
			}
		case write && resp.StatusCode == http.StatusGatewayTimeout && w.slow == nil:
			w.slow = pathOf(req.URL)
		case write && resp.StatusCode >= http.StatusBadRequest && w.refused == nil && resp.StatusCode != http.StatusNotFound:
			w.refused = pathOf(req.URL)
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// pathOf reads a path of the API.
func pathOf(u *url.URL) *subject {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	p := &subject{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		p.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		p.Group, p.Version, parts = parts[1], parts[2], parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.Resource = parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	return p
}

// broken is why the first request without an answer has none, nil if all have one.
func (w *wire) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

// refusedObject names the object of the first write that was refused, "" for none.
func (w *wire) refusedObject() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		return ""
	}
	return w.refused.String()
}

// slowWrite is the object of the first write that wasn't answered in time, nil for none.
func (w *wire) slowWrite() *subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slow
}

// forget forgets what has gone wrong.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away, w.refused, w.slow = nil, nil, nil
}

// isTimeout reports whether a request had no answer in time.
func isTimeout(err error) bool {
	var timeout net.Error
	return kube.BrokenOff(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
