// Secrets in the management cluster: those that the state knows are read, then for each Secret nothing, a create or a patch. Content that holds keys
// is only ever created where there is none, or replaced under the resourceVersion that was read; whoever loses such a
// race takes what the winner wrote.

package pki

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

const (
	// sideBySide bounds the API calls of one tenant in flight.
	sideBySide = 4
	// tries bounds how often a Secret is read again because somebody else wrote it meanwhile.
	tries = 5
)

// Secrets are the Secrets of keys, certificates and kubeconfigs in the management cluster. It is safe for concurrent use.
type Secrets struct {
	Kube *kube.Client
	// Handlers is told how long each took, by its component; nil for nobody.
	Handlers *metric.HandlerTime
	// RenewBefore is how long before its end a certificate that isn't a CA's is renewed; 0 for when a third of its life is left.
	RenewBefore time.Duration
}

// Result is what has become of a tenant's own Secrets.
type Result struct {
	Data state.Certs
	// Reasons by component, of those that were made anew or put right.
	Reasons map[string]string
	// NewCA is set when a CA was made though certificates of another were there.
	NewCA bool
	// Found are the Secrets as they were before, by name; CA is the tenant's certificate authority as it is now.
	Found map[string]*corev1.Secret
	CA    *Signer
}

// Applied is what has become of one Secret.
type Applied struct {
	// State is what a state keeps of it.
	State state.Secret
	// RenewAt is when it is to be renewed, zero for never.
	RenewAt time.Time
	// Changed says why its content was changed, empty when it wasn't.
	Changed string

	signer *Signer // of an authority
}

// Look says which Secrets a turn reads. They are read by name: a list, though limited by labels, has the server go through all
// Secrets of a namespace, which may have a thousand tenants.
type Look struct {
	// Untouched says that what the state has is as it was left and in need of nothing: it isn't read, but for what signs others.
	Untouched bool
	// Generators are those of which there may be a kubeconfig that the state doesn't know.
	Generators []string
}

// Ensure makes the Secrets of an input as they must be; known is what the state has of them. Errors are those of [Required],
// *[kube.TakenError] for a Secret that is another's, an *[intent.Permanent] for one that the API server refuses for good, and those of
// the API server.
func (s *Secrets) Ensure(ctx context.Context, in Input, known *state.Certs, look Look, now time.Time) (*Result, error) {
	roots, leaves, err := Required(in)
	if err != nil {
		return nil, err
	}
	r := &Result{Data: state.Certs{Secrets: map[string]state.Secret{}}, Reasons: map[string]string{}}
	if look.Untouched {
		r.Data.RenewAt = known.RenewAt
		untouched := func(w Want) bool {
			is, known := known.Secrets[w.Component]
			if known && w.Component != name.ComponentCA {
				r.Data.Secrets[w.Component] = is
			}
			return known && w.Component != name.ComponentCA
		}
		roots, leaves = slices.DeleteFunc(roots, untouched), slices.DeleteFunc(leaves, untouched)
	}
	if r.Found, err = s.read(ctx, in, known, look); err != nil {
		return nil, err
	}
	signers, err := s.applyAll(ctx, in, roots, nil, known, r, now)
	if err != nil {
		return nil, err
	}
	if look.Untouched && r.Reasons[name.ComponentCA] != "" { // then nothing it has signed may stay
		return s.Ensure(ctx, in, known, Look{Generators: look.Generators}, now)
	}
	if _, err := s.applyAll(ctx, in, leaves, signers, known, r, now); err != nil {
		return nil, err
	}
	r.CA = signers[name.ComponentCA]
	r.Data.CA = string(r.CA.pem)
	r.NewCA = known.CA != "" && known.CA != r.Data.CA
	return r, nil
}

// applyAll makes the Secrets of a list as they must be, side by side, and returns the authorities among them by component. signers are those of an
// earlier list.
func (s *Secrets) applyAll(
	ctx context.Context, in Input, list []Want, signers map[string]*Signer, known *state.Certs, r *Result, now time.Time,
) (map[string]*Signer, error) {
	authorities := map[string]*Signer{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for i := range list {
		w := &list[i]
		g.Go(func() error {
			began := time.Now()
			a, err := s.apply(ctx, in, w, r.Found[w.Secret], signers[w.Signer], []byte(known.CA), now)
			s.Handlers.Since(w.Component, began)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if w.Kind == Authority {
				authorities[w.Component] = a.signer
			}
			if a.Changed != "" {
				r.Reasons[w.Component] = a.Changed
			}
			r.Data.Secrets[w.Component] = a.State
			r.Data.RenewAt = Earliest(r.Data.RenewAt, a.RenewAt)
			return nil
		})
	}
	return authorities, g.Wait()
}

// read reads the Secrets that a turn has to look at, by name. One that is missing in what it returns may be there all the same, if the
// state doesn't know it: that shows when it is created.
func (s *Secrets) read(ctx context.Context, in Input, known *state.Certs, look Look) (map[string]*corev1.Secret, error) {
	if len(known.Secrets) == 0 { // a new tenant, nearly always
		ca, err := s.Get(ctx, in.Namespace, name.CA(in.Name))
		if err != nil || ca == nil {
			return map[string]*corev1.Secret{}, err
		}
		return s.List(ctx, in.Namespace, in.Name) // the state was lost
	}
	names := map[string]bool{name.CA(in.Name): true}
	for _, secret := range known.Secrets {
		names[secret.Name] = names[secret.Name] || !look.Untouched
	}
	for _, g := range known.Generated {
		names[g.Name] = g.Name != ""
	}
	for _, g := range look.Generators {
		names[name.GeneratedKubeconfig(in.Name, g)] = true
	}
	found := map[string]*corev1.Secret{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for n, wanted := range names {
		if !wanted {
			continue
		}
		g.Go(func() error {
			secret, err := s.Get(ctx, in.Namespace, n)
			if err == nil && secret != nil {
				mu.Lock()
				defer mu.Unlock()
				found[n] = secret
			}
			return err
		})
	}
	return found, g.Wait()
}

// List reads the tenant's Secrets that are this service's, by name.
func (s *Secrets) List(ctx context.Context, namespace, tenant string) (map[string]*corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := s.Kube.List(ctx, kube.Secrets, namespace, selector(tenant), list); err != nil {
		return nil, fmt.Errorf("list the Secrets of %s/%s: %w", namespace, tenant, err)
	}
	found := map[string]*corev1.Secret{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// selector matches the tenant's Secrets of this service and no others.
func selector(tenant string) string {
	all := append(slices.Sorted(maps.Keys(All(tenant))), name.ComponentGeneratedKubeconfig)
	return name.LabelProject + "=" + name.Project + "," + name.LabelName + "=" + tenant + "," +
		name.LabelComponent + " in (" + strings.Join(all, ",") + ")"
}

// Apply makes one more Secret of the tenant as it must be, signed by its CA. found is the Secret as it was read, nil when it isn't there.
// Errors as those of [Secrets.Ensure].
func (s *Secrets) Apply(ctx context.Context, in Input, w *Want, found *corev1.Secret, ca *Signer, now time.Time) (Applied, error) {
	return s.apply(ctx, in, w, found, ca, nil, now)
}

func (s *Secrets) apply(
	ctx context.Context, in Input, w *Want, secret *corev1.Secret, ca *Signer, published []byte, now time.Time,
) (Applied, error) {
	changed := ""
	w.RenewBefore = s.RenewBefore
	for range tries {
		if secret != nil {
			if err := checkOwner(in, w, secret); err != nil {
				return Applied{}, err
			}
		}
		d := decide(w, secret, ca, published, now)
		data := d.Data
		if data == nil {
			var err error
			if data, err = w.Issue(ca, now); err != nil {
				return Applied{}, err
			}
		}
		patch := map[string]any(nil)
		if secret != nil {
			if patch = patchOf(in, w, secret, data, d.Data == nil, now); patch == nil {
				return Applied{State: stateOf(secret, &d), RenewAt: d.RenewAt, Changed: changed, signer: d.Signer}, nil
			}
		}
		written, err := s.write(ctx, in, w, data, patch)
		switch {
		case err != nil:
			return Applied{}, err
		case written == nil: // somebody else wrote it since it was read: what is there counts
			if secret, err = s.Get(ctx, in.Namespace, w.Secret); err != nil {
				return Applied{}, err
			}
			continue
		case d.Reason != "":
			changed = d.describe()
		}
		secret = written
	}
	return Applied{}, fmt.Errorf("somebody else keeps changing Secret %s", w.Secret)
}

// write creates a Secret, or patches the one that is there. nil: another has written, created or deleted it meanwhile, or it is
// there without our labels.
func (s *Secrets) write(ctx context.Context, in Input, w *Want, data map[string][]byte, patch map[string]any) (*corev1.Secret, error) {
	if patch == nil {
		secret := newSecret(in, w, data)
		err := s.Kube.Create(ctx, kube.Secrets, secret)
		switch {
		case err == nil:
			return secret, nil
		case apierrors.IsAlreadyExists(err):
			return nil, nil
		}
		return nil, refused(fmt.Errorf("create Secret %s: %w", w.Secret, err))
	}
	secret := &corev1.Secret{}
	err := s.Kube.MergePatch(ctx, kube.Secrets, in.Namespace, w.Secret, patch, secret)
	switch {
	case err == nil:
		return secret, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, refused(fmt.Errorf("patch Secret %s: %w", w.Secret, err))
}

// stateOf is what a state keeps of a Secret.
func stateOf(secret *corev1.Secret, d *decision) state.Secret {
	return state.Secret{
		Name: secret.Name, Checksum: name.ChecksumOf(secret, secret.Data, d.Data), ResourceVersion: secret.ResourceVersion,
		NotAfter: d.NotAfter, LastUpdate: d.IssuedAt,
	}
}

// Remove deletes the tenant's Secret of a name; one that is another's, or isn't there, is no error.
func (s *Secrets) Remove(ctx context.Context, tenant kube.Owner, namespace, secret string) error {
	_, err := s.removeOwn(ctx, tenant, namespace, secret)
	if kept := (*kube.HeldError)(nil); errors.As(err, &kept) {
		return nil // it goes when it is let go
	}
	return err
}

// RemoveAll deletes the tenant's Secrets and returns their names, and those of them that are kept: those of its components, and those
// that known has for generators, each looked at by its name. Only a state that knows of no Secret, since it was lost or there are none,
// can't tell those for generators: then the metadata of what has the tenant's labels is listed.
func (s *Secrets) RemoveAll(
	ctx context.Context, tenant kube.Owner, namespace string, known *state.Certs,
) (removed []string, held []*kube.HeldError, err error) {
	names := map[string]bool{}
	for _, n := range All(tenant.Name) {
		names[n] = true
	}
	for _, g := range known.Generated {
		names[g.Name] = true
	}
	if len(known.Secrets) == 0 {
		var list metav1.PartialObjectMetadataList
		if err := s.Kube.List(ctx, kube.Secrets, namespace, selector(tenant.Name), &list); err != nil {
			return nil, nil, fmt.Errorf("list the Secrets of %s/%s: %w", namespace, tenant.Name, err)
		}
		for i := range list.Items {
			names[list.Items[i].Name] = true
		}
	}
	delete(names, "") // of a kubeconfig that could not be made
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for n := range names {
		g.Go(func() error {
			deleted, err := s.removeOwn(ctx, tenant, namespace, n)
			mu.Lock()
			defer mu.Unlock()
			if deleted {
				removed = append(removed, n)
			}
			if kept := (*kube.HeldError)(nil); errors.As(err, &kept) {
				held, err = append(held, kept), nil
			}
			return err
		})
	}
	err = g.Wait()
	return removed, held, err
}

// removeOwn deletes the Secret of a name if it is the tenant's, and reports whether it was. Errors are those of [kube.Client.Remove].
func (s *Secrets) removeOwn(ctx context.Context, tenant kube.Owner, namespace, n string) (deleted bool, err error) {
	o := &metav1.PartialObjectMetadata{}
	err = s.Kube.Get(ctx, kube.Secrets, namespace, n, o)
	switch {
	case apierrors.IsNotFound(err), err == nil && !Own(tenant, o):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get Secret %s: %w", n, err)
	}
	if err := s.letGo(ctx, o); err != nil {
		return false, err
	}
	if deleted, err = s.Kube.Remove(ctx, kube.Secrets, o); err != nil {
		err = fmt.Errorf("delete Secret %s: %w", n, err)
	}
	return deleted, err
}

// Delete removes Secrets that were read; one that has been made in the place of one is left alone.
func (s *Secrets) Delete(ctx context.Context, secrets ...*corev1.Secret) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sideBySide)
	for _, o := range secrets {
		g.Go(func() error {
			if _, err := s.Kube.DeleteOnly(ctx, kube.Secrets, o, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("delete Secret %s: %w", o.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Get reads one Secret; nil when it isn't there.
func (s *Secrets) Get(ctx context.Context, namespace, secret string) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	err := s.Kube.Get(ctx, kube.Secrets, namespace, secret, out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", secret, err)
	}
	return out, nil
}

// refused says of the API server's refusals that no retry helps.
func refused(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &intent.Permanent{Reason: reason.SecretRefused, Message: "the management cluster refused a Secret", Err: err}
	}
	return err
}
