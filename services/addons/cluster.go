package addons

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

// Cluster is a tenant's API: what this service applies there, deletes and watches. Safe for concurrent use.
type Cluster struct {
	kube     *kube.Client
	handlers *metric.HandlerTime // nil for none
}

// NewCluster makes a Cluster of a kubeconfig with embedded certificates, such as super-admin.conf. It doesn't connect. requests
// is told of each request; nil for nobody.
func NewCluster(kubeconfig []byte, requests kube.RequestFunc) (*Cluster, error) {
	return newCluster(kubeconfig, kube.Options{Requests: requests})
}

func newCluster(kubeconfig []byte, o kube.Options) (*Cluster, error) {
	o.FieldManager = name.FieldManagerAddons
	k, err := kube.ForTenant(kubeconfig, o)
	if err != nil {
		return nil, err
	}
	return &Cluster{kube: k}, nil
}

// Close ends the connection once no request uses it. End the watches first.
func (c *Cluster) Close() { c.kube.Close() }

// Probe asks the tenant's API for one small object and fails soon when it doesn't answer, so that a turn for an API that hangs is
// short: Apply waits longer, for each of many requests.
func (c *Cluster) Probe(ctx context.Context) error {
	err := retry(ctx, func() error {
		ask, cancel := context.WithTimeout(ctx, probePatience)
		defer cancel()
		return c.kube.Get(ask, kube.Namespaces, "", metav1.NamespaceSystem, &metav1.PartialObjectMetadata{})
	})
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && answered.Status().Code < http.StatusInternalServerError {
		return nil // what that means for an object, Apply finds out
	}
	return err
}

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
	versions, took := make(map[string]string, len(objs)), map[string]time.Duration{}
	defer func() {
		for handler, d := range took {
			c.handlers.Took(handler, d)
		}
	}()
	var mu sync.Mutex
	var errs []error
	hooks := c.slowHooks(ctx)
	// Pods made before their ServiceAccount or ConfigMap are refused or restarted, which costs more than the order.
	for _, runs := range []bool{false, true} {
		var wave []*unstructured.Unstructured
		for _, o := range objs {
			if k, _ := RefOf(o).kind(); k.runs == runs {
				wave = append(wave, o)
			}
		}
		each(wave, func(o *unstructured.Unstructured) {
			began := time.Now()
			version, err := "", error(nil)
			hook := hooks.before(RefOf(o))
			if hook == "" {
				version, err = c.applyOne(ctx, o)
				hook = hooks.after(RefOf(o), err)
			}
			mu.Lock()
			defer mu.Unlock()
			took[handlerOf(RefOf(o))] += time.Since(began)
			switch {
			case hook != "":
				errs = append(errs, &ObjectError{Ref: RefOf(o), Webhook: hook, Err: errHookHangs})
				return
			case err != nil:
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
	k, err := ref.kind()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return "", err
	}
	meta := &metav1.PartialObjectMetadata{}
	apply := func() error {
		err := c.kube.ApplyRaw(ctx, k.Resource, ref.Namespace, ref.Name, body, meta)
		if k.whole && (err == nil || apierrors.IsInvalid(err)) { // invalid together with what somebody added
			*meta = metav1.PartialObjectMetadata{}
			err = c.kube.JSONPatch(ctx, k.Resource, ref.Namespace, ref.Name, only(o), meta)
		}
		return err
	}
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
	return k.version(meta), nil
}

// only is the patch that leaves nothing in an object's spec, labels and finalizers but what is in o.
func only(o *unstructured.Unstructured) []map[string]any {
	return []map[string]any{
		{"op": "add", "path": "/spec", "value": o.Object["spec"]},
		{"op": "add", "path": "/metadata/labels", "value": o.GetLabels()},
		{"op": "add", "path": "/metadata/finalizers", "value": []string{}},
	}
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
	k, err := ref.kind()
	if err != nil {
		return false, err
	}
	var deleted bool
	err = retry(ctx, func() error {
		meta := &metav1.PartialObjectMetadata{}
		err := c.kube.Get(ctx, k.Resource, ref.Namespace, ref.Name, meta)
		if apierrors.IsNotFound(err) || err == nil && meta.Labels[LabelProject] != Project {
			return nil
		}
		if err != nil {
			return err
		}
		// The preconditions make sure that what goes is what carried the label.
		deleted, err = c.kube.Delete(ctx, k.Resource, ref.Namespace, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &meta.UID, ResourceVersion: &meta.ResourceVersion},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		return err
	})
	return deleted, err
}

// version changes when an object isn't what it was. It is the resource version, except for kinds with a status, which
// changes all the time and is nothing to us.
func (k kind) version(m *metav1.PartialObjectMetadata) string {
	if !k.runs && !k.whole {
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
	case webhookName.MatchString(status.Message):
		return false // looked at again soon, see webhook.go
	case apierrors.IsNotFound(err):
		// A server that has just started has yet to make its own namespaces.
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
	// That the tenant's API is away is decided once for all objects, by tenantAway.
	if away := (*intent.Unavailable)(nil); errors.As(err, &away) {
		err = away.Err
	}
	e := &ObjectError{Ref: ref, Err: err}
	if found := webhookName.FindStringSubmatch(err.Error()); found != nil {
		e.Webhook = found[1]
	}
	return e
}
