// Whether clients reach a tenant at its endpoint, as far as Stoker can tell. It has nothing to do with the way that Stoker itself takes,
// and Ready doesn't depend on it.

package addons

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// looksAt reports whether a turn with these events and wakes looks at the tenant's endpoint: a rollout is over or certificates are new, it
// is time for another try, or the endpoint is another than the last time.
func looksAt(events []loop.Event, wakes []loop.Wake, before state.Reach, endpoint string) bool {
	return before.Endpoint != endpoint ||
		slices.ContainsFunc(wakes, func(w loop.Wake) bool { return w.Kind == unreached || w.Kind == rerouted }) ||
		slices.ContainsFunc(events, func(e loop.Event) bool {
			return e.Service == name.ServiceWorkload && e.What == event.Available || e.Service == name.ServiceCerts && e.What == event.Rotated
		})
}

// look begins to look at an endpoint with the tenant's authority, PEM. What it returns has one answer, nil included.
func look(ctx context.Context, endpoint, ca string) <-chan error {
	answer := make(chan error, 1)
	host, _, _ := net.SplitHostPort(endpoint)
	way := kube.Way{Name: state.WayEndpoint, Address: endpoint, ServerName: host}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, lookPatience)
		defer cancel()
		answer <- way.Check(ctx, []byte(ca))
	}()
	return answer
}

// reachAfter is what is known of an endpoint after a look that came to err. What is the same as before stays as it is.
func reachAfter(before state.Reach, endpoint string, err error, now time.Time) state.Reach {
	if err == nil {
		return state.Reach{Endpoint: endpoint, Reason: reason.Reached}
	}
	after := state.Reach{Endpoint: endpoint, Since: now.UTC().Truncate(time.Second)}
	after.Reason, after.Cause = causeOf(err)
	if before.Endpoint == endpoint && !before.Since.IsZero() {
		after.Since = before.Since
		if before.Reason == after.Reason {
			return before
		}
	}
	return after
}

// causeOf gives the reason for which a look failed, and says it for people. Nothing that a foreign server says is in it, and no address
// that a name stands for: whoever chooses the endpoint learns whether it leads to the tenant, and little else.
func causeOf(err error) (why, cause string) {
	var untrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var dns *net.DNSError
	var timeout net.Error
	var number syscall.Errno
	switch {
	case errors.Is(err, kube.ErrForeign):
		return reason.EndpointForeign, "answers with a certificate of another authority than the tenant's"
	case errors.As(err, &plain):
		return reason.EndpointForeign, "answers, but not by TLS"
	case errors.As(err, &untrusted):
		return reason.EndpointCertificate, certificateCause(err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return reason.EndpointUnresolved, "there is no such host"
	case errors.As(err, &dns):
		return reason.EndpointUnresolved, "the host name could not be looked up"
	case errors.Is(err, syscall.ECONNREFUSED):
		return reason.EndpointRefused, "the connection is refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reason.EndpointTimeout, fmt.Sprintf("nothing answers within %s", lookPatience)
	case errors.As(err, &number):
		return reason.EndpointUnreachable, number.Error()
	}
	return reason.EndpointUnreachable, "the connection ends before there is a certificate"
}

// certificateCause says what is wrong with a certificate of the tenant's authority.
func certificateCause(err error) string {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return "answers with a certificate of the tenant's authority that doesn't name this host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "answers with a certificate of the tenant's authority that has expired, or isn't valid yet"
	}
	return "answers with a certificate of the tenant's authority that isn't one for servers"
}

// lookAgainAfter is how long after now an endpoint is looked at again that hasn't answered since a time. What failed together isn't looked
// at together.
func lookAgainAfter(since, now time.Time) time.Duration {
	after := min(max(now.Sub(since), soonestLook), latestLook)
	return after*9/10 + rand.N(after/5) //nolint:gosec // jitter
}
