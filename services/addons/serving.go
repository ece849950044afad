package addons

// Serving certificates of kubelets: a kubelet asks for one, the tenant's controller manager signs it, and nobody in Kubernetes approves
// it in between, for only who knows the nodes can tell whether the names in it are the node's. Where the tenant's annotation
// stoker.dev/kubelet-serving-certificates says so, this does. What isn't right is left as it is, for a person to decide.

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// requests has the name of each request that is to be looked at, and for those that were, but ask for an address that their node
// doesn't have yet, the node's.
type requests map[string]string

// seen notes a request that is new, changed or gone, and reports whether it is to be looked at.
func (r requests) seen(name string, gone bool) bool {
	if gone {
		delete(r, name)
		return false
	}
	if _, known := r[name]; !known && len(r) >= maxRequests {
		return false
	}
	r[name] = ""
	return true
}

// changed has those looked at again that wait for a node, and reports whether there are any.
func (r requests) changed(node string) bool {
	waited := false
	for name, of := range r {
		if of == node {
			r[name], waited = "", true
		}
	}
	return waited
}

// next returns some that are to be looked at, and whether there are more.
func (r requests) next() (some []string, more bool) {
	for name, waits := range r {
		if waits != "" {
			continue
		}
		if len(some) == requestsATurn {
			return some, true
		}
		some = append(some, name)
	}
	slices.Sort(some)
	return some, false
}

// approves begins or ends the approval of serving certificates.
func (w *connection) approves(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !on:
		w.requests = nil
	case w.requests == nil:
		w.requests = requests{}
	}
}

// about calls f with the requests, unless none are approved any more.
func (w *connection) about(f func(requests)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests != nil {
		f(w.requests)
	}
}

// watch watches the tenant until ctx or one of its watches ends.
func (w *connection) watch(ctx context.Context, drift func(Event), count, request func()) error {
	api, approves := w.api(), false
	w.about(func(requests) { approves = true })
	if !approves {
		return api.Watch(ctx, w.versions(), drift, count)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	tell := func(note func(requests) bool) {
		told := false
		w.about(func(r requests) { told = note(r) })
		if told {
			request()
		}
	}
	each := []func() error{
		func() error { return api.Watch(ctx, w.versions(), drift, count) },
		func() error {
			return api.watchNames(ctx, kube.SigningRequests, "spec.signerName="+certificatesv1.KubeletServingSignerName, func(c kube.Change) {
				tell(func(r requests) bool { return r.seen(c.Object.Name, c.Type == watch.Deleted) })
			})
		},
		func() error {
			return api.watchNames(ctx, kube.Nodes, "", func(c kube.Change) {
				tell(func(r requests) bool { return c.Type != watch.Deleted && r.changed(c.Object.Name) })
			})
		},
	}
	ended := make(chan error, len(each))
	for _, do := range each {
		go func() { ended <- do() }()
	}
	first := <-ended
	end()
	for range len(each) - 1 {
		<-ended
	}
	return first
}

// watchNames watches until ctx ends, or the server's certificate isn't trusted or ours isn't known.
func (c *Cluster) watchNames(ctx context.Context, r kube.Resource, fields string, changed func(kube.Change)) error {
	for {
		if err := c.kube.WatchNames(ctx, r, fields, changed); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		if !sleep(ctx, forbiddenPause) {
			return ctx.Err()
		}
	}
}

// approve looks at requests that were seen, and approves those that are right. What the tenant's API doesn't answer, or its own webhook
// refuses, concerns these requests alone: they are looked at again after a while.
func (s *svc) approve(ctx context.Context, t *loop.Turn, w *connection) {
	var names []string
	more := false
	w.about(func(r requests) { names, more = r.next() })
	again := time.Duration(0)
	if more {
		again = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	for _, name := range names {
		why, err := w.decide(ctx, name)
		if err != nil {
			w.about(func(all requests) { all[name] = "" })
			again, why = requestPause, err
		}
		if why != nil {
			s.clients.Log.Warn("a kubelet's serving certificate is not approved", "tenant", t.Key.String(), "request", name,
				"cause", state.ClipMessage(why.Error()))
		}
	}
	if again > 0 {
		t.Alarm(again, loop.Wake{Kind: requested})
	}
}

// decide approves one request, or says why it doesn't.
func (w *connection) decide(ctx context.Context, name string) (why, err error) {
	api := w.api()
	r := &certificatesv1.CertificateSigningRequest{}
	forget := func(all requests) { delete(all, name) }
	err = api.kube.Get(ctx, kube.SigningRequests, "", name, r)
	switch {
	case apierrors.IsNotFound(err), err == nil && len(r.Status.Conditions) > 0: // somebody has decided
		w.about(forget)
		return nil, nil
	case err != nil:
		return nil, err
	}
	node, asked, why := servingOf(&r.Spec)
	if why != nil {
		w.about(forget)
		return why, nil
	}
	// Before the node is read: what changes of it from here on is told.
	w.about(func(all requests) { all[name] = node })
	o := &corev1.Node{}
	if err := api.kube.Get(ctx, kube.Nodes, "", node, o); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no node %s", node), nil
	} else if err != nil {
		return nil, err
	}
	if why := foreign(asked, o.Status.Addresses); why != nil {
		return why, nil
	}
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(time.Now()),
		Reason: "StokerApproved", Message: "the node's kubelet asks for a serving certificate with addresses of the node's status",
	})
	if err := api.kube.Update(ctx, kube.SigningRequests, r, "approval"); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	w.about(forget)
	return nil, nil
}

// servingOf returns the node whose kubelet asks for a serving certificate, and what it asks for; the error says why it is no such
// request, or not that node's.
func servingOf(r *certificatesv1.CertificateSigningRequestSpec) (node string, asked *x509.CertificateRequest, err error) {
	node, ok := strings.CutPrefix(r.Username, nodeUserPrefix)
	if !ok || len(validation.IsDNS1123Subdomain(node)) > 0 || !slices.Contains(r.Groups, nodesGroup) {
		return "", nil, fmt.Errorf("it is of %q, who is no node", r.Username)
	}
	block, rest := pem.Decode(r.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return "", nil, errors.New("it is no CERTIFICATE REQUEST in PEM")
	}
	asked, err = x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", nil, err
	}
	if err := asked.CheckSignature(); err != nil {
		return "", nil, err
	}
	usages := slices.DeleteFunc(slices.Clone(r.Usages), func(u certificatesv1.KeyUsage) bool {
		return u == certificatesv1.UsageKeyEncipherment // of RSA keys
	})
	slices.Sort(usages)
	switch {
	case r.SignerName != certificatesv1.KubeletServingSignerName:
		err = fmt.Errorf("it is for the signer %q", r.SignerName)
	case asked.Subject.CommonName != r.Username:
		err = fmt.Errorf("it is of %q, and for %q", r.Username, asked.Subject.CommonName)
	case !slices.Equal(asked.Subject.Organization, []string{nodesGroup}):
		err = fmt.Errorf("its organizations are %q", asked.Subject.Organization)
	case !slices.Equal(usages, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}):
		err = fmt.Errorf("its usages are %q", r.Usages)
	case len(asked.EmailAddresses) > 0:
		err = fmt.Errorf("it has e-mail addresses: %q", asked.EmailAddresses)
	case len(asked.URIs) > 0:
		err = fmt.Errorf("it has URIs: %q", asked.URIs)
	case len(asked.DNSNames) == 0 && len(asked.IPAddresses) == 0:
		err = errors.New("it has no name and no address")
	}
	return node, asked, err
}

// foreign says which name or address isn't the node's, nil if all are.
func foreign(asked *x509.CertificateRequest, addresses []corev1.NodeAddress) error {
	has := func(same func(address string) bool) bool {
		return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool { return same(a.Address) })
	}
	for _, name := range asked.DNSNames {
		if !has(func(a string) bool { return net.ParseIP(a) == nil && strings.EqualFold(a, name) }) {
			return fmt.Errorf("the node's status has no address %q", name)
		}
	}
	for _, ip := range asked.IPAddresses {
		if !has(func(a string) bool { return ip.Equal(net.ParseIP(a)) }) {
			return fmt.Errorf("the node's status has no address %s", ip)
		}
	}
	return nil
}
