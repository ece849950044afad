package addons

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/pkg/fence"
)

// FieldManager owns, in the tenant, the fields this service applies.
const FieldManager = "stoker-addons"

const (
	// requestTimeout bounds a request that isn't a watch.
	requestTimeout = 10 * time.Second
	// serverTimeout lets the server give up first, so that its answer still says why.
	serverTimeout = 9 * time.Second
	// patience is how long Apply and Delete retry what may pass by itself. Beyond it the caller's own retries begin.
	patience = 3 * time.Second
	// parallel is how many requests Apply and Delete have under way.
	parallel = 8

	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Cluster is a tenant's API. All its requests and watches share one HTTP/2 connection. Safe for concurrent use.
type Cluster struct {
	server    string // https://host:port, without a slash at its end
	transport *http.Transport
}

// NewCluster makes a Cluster of a kubeconfig with embedded certificates, such as super-admin.conf. It doesn't connect.
func NewCluster(kubeconfig []byte) (*Cluster, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("tenant kubeconfig: %w", err)
	}
	current := cfg.Contexts[cfg.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("tenant kubeconfig: no context %q", cfg.CurrentContext)
	}
	cluster, user := cfg.Clusters[current.Cluster], cfg.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, fmt.Errorf("tenant kubeconfig: context %q names no cluster or no user", cfg.CurrentContext)
	}
	tlsConfig, err := tlsFor(cluster, user)
	if err != nil {
		return nil, fmt.Errorf("tenant kubeconfig: %w", err)
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, fmt.Errorf("tenant kubeconfig: server %q is no https URL", cluster.Server)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 5 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        2,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     2 << 10,
		ReadBufferSize:      2 << 10,
		DisableCompression:  true, // answers are small, and compressors are not
		HTTP2: &http.HTTP2Config{
			// Watches are quiet; a ping tells a quiet connection from a dead one.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     10 * time.Second,
			// Frames arrive one event at a time; the default would keep a buffer of a megabyte's credit on each stream.
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
		},
	}
	return &Cluster{server: strings.TrimSuffix(cluster.Server, "/"), transport: t}, nil
}

func tlsFor(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return nil, errors.New("no CA certificate in it")
	}
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    roots,
		ServerName: cluster.TLSServerName,
		NextProtos: []string{"h2", "http/1.1"},
		// Also to a server that names another CA, which then says 401 and doesn't take us for anybody.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}, nil
}

// Close ends the connection once no request uses it. End the watches first.
func (c *Cluster) Close() { c.transport.CloseIdleConnections() }

// ObjectError is a failure to apply or delete one object.
type ObjectError struct {
	Ref     Ref
	Webhook string // the tenant's own admission webhook that is at fault, if it was one
	Err     error  // an apierrors.APIStatus if the server answered
}

func (e *ObjectError) Error() string {
	if e.Webhook != "" {
		return fmt.Sprintf("%s: the tenant's own webhook %q: %v", e.Ref, e.Webhook, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Ref, e.Err)
}

func (e *ObjectError) Unwrap() error { return e.Err }

// Apply makes the objects so by server-side apply and returns the version of each that was applied, by Ref.String(): what
// Watch needs to know, and what tells an event about our own write from drift. Objects don't hold up one another, so that a broken
// webhook of the tenant stops only what it intercepts. What may pass by itself is retried for some seconds; the error
// joins an *ObjectError for each object that failed.
func (c *Cluster) Apply(ctx context.Context, objs []*unstructured.Unstructured) (map[string]string, error) {
	versions := make(map[string]string, len(objs))
	var mu sync.Mutex
	var errs []error
	// Pods made before their ServiceAccount or ConfigMap are refused or restarted, which costs more than the order.
	for _, runs := range []bool{false, true} {
		var wave []*unstructured.Unstructured
		for _, o := range objs {
			if k, _ := kindOf(o.GetKind()); k.runs == runs {
				wave = append(wave, o)
			}
		}
		each(wave, func(o *unstructured.Unstructured) {
			version, err := c.applyOne(ctx, o)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, objectError(RefOf(o), err))
				return
			}
			versions[RefOf(o).String()] = version
		})
	}
	return versions, errors.Join(errs...)
}

func (c *Cluster) applyOne(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	ref := RefOf(o)
	path, err := ref.path()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return "", err
	}
	path += "?fieldManager=" + FieldManager + "&force=true&timeout=" + serverTimeout.String()
	var meta objectMeta
	apply := func() error { return c.do(ctx, http.MethodPatch, path, "application/apply-patch+yaml", body, &meta) }
	err = retry(ctx, apply)
	if immutable(err) {
		// Somebody made it anew with another role or address. It can't be changed back, only replaced.
		if _, err := c.deleteOne(ctx, ref); err != nil {
			return "", err
		}
		err = retry(ctx, apply)
	}
	if err != nil {
		return "", err
	}
	return meta.version(ref.Kind), nil
}

// Delete deletes those of the objects that carry our label and returns how many there were. An object that doesn't exist
// or isn't labelled is no error.
func (c *Cluster) Delete(ctx context.Context, refs []Ref) (int, error) {
	var mu sync.Mutex
	var errs []error
	var deleted int
	each(refs, func(ref Ref) {
		ok, err := c.deleteOne(ctx, ref)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, objectError(ref, err))
		} else if ok {
			deleted++
		}
	})
	return deleted, errors.Join(errs...)
}

func (c *Cluster) deleteOne(ctx context.Context, ref Ref) (bool, error) {
	path, err := ref.path()
	if err != nil {
		return false, err
	}
	var deleted bool
	err = retry(ctx, func() error {
		var meta objectMeta
		if err := c.do(ctx, http.MethodGet, path, "", nil, &meta); err != nil {
			return err
		}
		if meta.Metadata.Labels[LabelProject] != Project {
			return nil
		}
		// The preconditions make sure that what goes is what carried the label.
		options, err := json.Marshal(metav1.DeleteOptions{
			TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions:     &metav1.Preconditions{UID: &meta.Metadata.UID, ResourceVersion: &meta.Metadata.ResourceVersion},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if err != nil {
			return err
		}
		err = c.do(ctx, http.MethodDelete, path+"?timeout="+serverTimeout.String(), "application/json", options, nil)
		deleted = err == nil
		return err
	})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return deleted, err
}

// objectMeta is what this service reads of any object.
type objectMeta struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
}

// version changes when an object isn't what it was. It is the resource version, except for kinds with a status, which
// changes all the time and is nothing to us.
func (o *objectMeta) version(kindName string) string {
	m := &o.Metadata
	if k, _ := kindOf(kindName); !k.runs {
		return m.ResourceVersion
	}
	h := fnv.New64a()
	for _, set := range []map[string]string{m.Labels, m.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			if key != "deployment.kubernetes.io/revision" { // counts rollouts; the controller manager's own
				fmt.Fprintf(h, "%q=%q,", key, set[key])
			}
		}
		fmt.Fprint(h, ";")
	}
	return fmt.Sprintf("%s.%d.%x", m.UID, m.Generation, h.Sum64())
}

// do sends a request and reads the answer's metadata into out, if out isn't nil. An error is an apierrors.APIStatus if
// the server gave it.
func (c *Cluster) do(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	accept := metadataOnly
	if _, ok := out.(*objectList); ok {
		accept = metadataListOnly
	}
	resp, err := c.send(ctx, method, path, contentType, accept, body)
	if err != nil {
		return err
	}
	defer drain(resp)
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: answer: %w", method, path, err)
	}
	return nil
}

// send returns the answer if it is one of success.
func (c *Cluster) send(ctx context.Context, method, path, contentType, accept string, body []byte) (*http.Response, error) {
	if method != http.MethodGet {
		if err := fence.Check(ctx); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", FieldManager)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer drain(resp)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	status := metav1.Status{}
	if json.Unmarshal(text, &status) != nil || status.Kind != "Status" {
		return nil, apierrors.NewGenericServerResponse(resp.StatusCode, method, schema.GroupResource{Resource: path}, "", strings.TrimSpace(string(text)), 0, true)
	}
	return nil, apierrors.FromObject(&status)
}

// drain makes a connection fit for its next request.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
}

// each runs do for all items, some at a time.
func each[T any](items []T, do func(T)) {
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(item)
		})
	}
	wg.Wait()
}

// retry repeats do while its error may pass by itself, for a few seconds.
func retry(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(patience)
	wait := 25 * time.Millisecond
	for {
		err := do()
		if err == nil || !passing(err) || time.Now().After(deadline) {
			return err
		}
		pause := time.NewTimer(wait + rand.N(wait)) //nolint:gosec // jitter
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

// passing tells an error that may be gone in a moment.
func passing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fence.ErrFenced) {
		return false
	}
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) {
		// No answer: the server starts, stops or is elsewhere now. A certificate that isn't trusted stays so.
		var untrusted *tls.CertificateVerificationError
		return !errors.As(err, &untrusted)
	}
	status := answered.Status()
	switch {
	case apierrors.IsNotFound(err):
		// A server that has just started has yet to make its own namespaces. Delete finds no object for good.
		return status.Details != nil && status.Details.Kind == "namespaces"
	case apierrors.IsForbidden(err):
		// Likewise, its own roles.
		return strings.Contains(status.Message, "not yet ready to handle request") || strings.Contains(status.Message, "RBAC: ")
	}
	return status.Code == http.StatusConflict || status.Code == http.StatusTooManyRequests || status.Code >= 500
}

// immutable tells that the object exists and can't become what it should be.
func immutable(err error) bool {
	var answered apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &answered) {
		return false
	}
	message := answered.Status().Message
	for _, sign := range []string{"field is immutable", "cannot change roleRef", "may not change once set"} {
		if strings.Contains(message, sign) {
			return true
		}
	}
	return false
}

// webhookName finds the webhook in what the API server says when one failed or refused.
var webhookName = regexp.MustCompile(`(?:failed calling webhook|admission webhook) "([^"]+)"`)

func objectError(ref Ref, err error) error {
	e := &ObjectError{Ref: ref, Err: err}
	if found := webhookName.FindStringSubmatch(err.Error()); found != nil {
		e.Webhook = found[1]
	}
	return e
}
