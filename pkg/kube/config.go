package kube

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// Config is the client's connection for libraries that take a configuration, and for what they do within ctx, whatever context they give their
// requests. Writes are fenced by ctx, and all requests end with it. A request that is no watch ends in time, as the client's own do, and none is
// sent a second time. What an error means, the caller has to find out.
func (c *Client) Config(ctx context.Context) *rest.Config {
	return &rest.Config{
		Host: c.host, UserAgent: c.manager, QPS: -1, WarningHandler: rest.NoWarnings{},
		Transport: roundTripper(func(req *http.Request) (*http.Response, error) { return c.sendWithin(ctx, req) }),
	}
}

// roundTripper is a function that is a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// sendWithin sends a request that ends with ctx as well as with its own context.
func (c *Client) sendWithin(ctx context.Context, req *http.Request) (*http.Response, error) {
	var end context.CancelFunc
	query := req.URL.Query()
	if query.Has("watch") {
		ctx, end = context.WithCancel(ctx)
	} else {
		ctx, end = context.WithTimeout(ctx, c.timeout)
	}
	detach := context.AfterFunc(req.Context(), end) //nolint:contextcheck // a request ends with both
	done := func() { detach(); end() }
	bounded := req.Clone(ctx)
	if !query.Has("watch") && !query.Has("timeout") {
		query.Set("timeout", c.serverTimeout().String())
		bounded.URL.RawQuery = query.Encode()
	}
	resp, err := c.http.Transport.RoundTrip(bounded)
	if err != nil {
		done()
		return nil, err
	}
	// client-go would repeat a request, and follow a server to wherever it sends us.
	resp.Header.Del("Retry-After")
	resp.Header.Del("Location")
	resp.Body = &ending{resp.Body, done}
	return resp, nil
}

// ending is a body with whose end the request is done.
type ending struct {
	io.ReadCloser
	done func()
}

func (e *ending) Close() error {
	defer e.done()
	return e.ReadCloser.Close()
}
