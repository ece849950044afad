package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe watches a running container's health: first its startup probe, then readiness and liveness side by side. It
// sends to unhealthy, at most once, why the container has to be stopped, and returns when ctx ends.
func (c *container) probe(ctx context.Context, m *mounts, unhealthy chan<- string) {
	check := newChecker(m.address, c.spec)
	if p := c.spec.StartupProbe; p != nil {
		failure := follow(ctx, p, check.of(p), nil, func(bool, error) bool { return false })
		if ctx.Err() != nil {
			return
		}
		if failure != nil {
			c.pod.warn("Unhealthy", fmt.Sprintf("container %s: startup probe failed: %s", c.spec.Name, failure))
			unhealthy <- "startup probe failed: " + failure.Error()
			return
		}
		c.change(func() {
			c.started = true
			c.ready = c.spec.ReadinessProbe == nil
		})
		c.beginOnce.Do(func() { close(c.begun) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p := c.spec.ReadinessProbe; p != nil {
			notReady := false
			_ = follow(ctx, p, check.of(p), &notReady, func(ok bool, err error) bool {
				if err != nil {
					c.pod.warn("Unhealthy", fmt.Sprintf("container %s: readiness probe failed: %s", c.spec.Name, err))
				}
				c.change(func() { c.ready = ok })
				return true
			})
		}
	}()
	if p := c.spec.LivenessProbe; p != nil {
		alive := true
		if err := follow(ctx, p, check.of(p), &alive, func(ok bool, _ error) bool { return ok }); err != nil && ctx.Err() == nil {
			c.pod.warn("Unhealthy", fmt.Sprintf("container %s: liveness probe failed: %s", c.spec.Name, err))
			unhealthy <- "liveness probe failed: " + err.Error()
		}
	}
	<-done
}

// follow probes until ctx ends or turned says to stop, and calls turned when the verdict turns: from last (nil: from
// none) to healthy after successThreshold successes in a row, to unhealthy after failureThreshold failures. It returns
// the last failure if it stopped at a turn to unhealthy.
func follow(ctx context.Context, p *corev1.Probe, check func(context.Context) error, last *bool, turned func(ok bool, err error) (again bool)) error {
	if !sleep(ctx, seconds(p.InitialDelaySeconds, 0)) {
		return nil
	}
	period := time.NewTicker(seconds(p.PeriodSeconds, 10))
	defer period.Stop()
	good, bad := 0, 0
	for {
		attempt, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
		err := check(attempt)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case err == nil && good >= int(max(p.SuccessThreshold, 1)) && (last == nil || !*last):
			ok := true
			last = &ok
			if !turned(true, nil) {
				return nil
			}
		case err != nil && bad >= int(threshold(p.FailureThreshold)) && (last == nil || *last):
			ok := false
			last = &ok
			if !turned(false, err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-period.C:
		}
	}
}

func threshold(n int32) int32 {
	if n == 0 {
		return 3
	}
	return n
}

func seconds(n, fallback int32) time.Duration {
	if n == 0 {
		n = fallback
	}
	return time.Duration(n) * time.Second
}

// A checker makes the requests of one container's probes.
type checker struct {
	address string
	spec    *corev1.Container
	client  *http.Client
}

func newChecker(address string, spec *corev1.Container) *checker {
	return &checker{address: address, spec: spec, client: &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, // a probe asks whether a new connection is served
			// As on every node: a probe asks for life, not for identity. Resuming a session saves both sides most
			// of what a new connection costs.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)}, //nolint:gosec // see above
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// of is the check that one probe makes.
func (k *checker) of(p *corev1.Probe) func(context.Context) error {
	return func(ctx context.Context) error { return k.run(ctx, p) }
}

// run makes one request. An error says why the container isn't well.
func (k *checker) run(ctx context.Context, p *corev1.Probe) error {
	switch {
	case p.HTTPGet != nil:
		return k.http(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		target, err := k.target(p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return nil
}

func (k *checker) http(ctx context.Context, get *corev1.HTTPGetAction) error {
	target, err := k.target(get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	path, err := url.Parse(get.Path)
	if err != nil {
		return err
	}
	path.Scheme, path.Host = scheme, target
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	for _, h := range get.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			request.Host = h.Value
		}
	}
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d: %s", response.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// target is the address to call. A pod calls itself localhost; here it has an address.
func (k *checker) target(host string, port intstr.IntOrString) (string, error) {
	switch host {
	case "", "127.0.0.1", "localhost", "::1", "[::1]":
		host = k.address
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		number = 0
		for _, p := range k.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
		if number == 0 {
			n, err := strconv.Atoi(port.StrVal)
			if err != nil {
				return "", fmt.Errorf("the container has no port named %q", port.StrVal)
			}
			number = n
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
