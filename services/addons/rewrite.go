package addons

// Objects that are to be encrypted by another key, or no more, are written anew once all API servers write so: an empty change, which the
// server writes although nothing is different, because it is stored otherwise than it would store it now. Nothing is read of them but their
// metadata. Whoever else writes one meanwhile has done it. It goes on in slices of time, so that the rest of the tenant isn't held
// up, and begins anew after a crash; what was written already is then no write for the server.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// rewriting is how far it is. It belongs to the tenant's turns.
type rewriting struct {
	revision int64
	// resource is the index of the one that is written, next where its list goes on.
	resource int
	next     string
	objects  int
	// refused counts objects that the tenant's API refuses to write, first is the first of them and why.
	refused int
	first   string
}

// toRewrite reports whether objects are to be written anew.
func toRewrite(certs *state.Certs, own *state.Addons) bool {
	e := certs.Encryption
	return e != nil && e.Phase == state.EncryptionRewriting && own.Rewritten != e.Revision
}

// rewrite writes objects anew for a while and returns the fact that all are, nil as long as they aren't: there will be another turn. An
// error that is a *[refusal] says that some were refused, after all others are written.
func (s *svc) rewrite(ctx context.Context, t *loop.Turn, w *connection, e *state.Encryption) (*event.AddonsRewritten, error) {
	if w.rewriting == nil || w.rewriting.revision != e.Revision {
		w.rewriting = &rewriting{revision: e.Revision}
	}
	r := w.rewriting
	more, err := w.api().rewrite(ctx, e.Resources, r, time.Now().Add(rewriteSlice))
	switch {
	case err != nil:
		return nil, s.refused(t.Key, err)
	case more:
		t.Alarm(0, loop.Wake{Kind: rewrites})
		return nil, nil
	}
	w.rewriting = nil
	if r.refused > 0 {
		return nil, &refusal{r}
	}
	return &event.AddonsRewritten{About: t.About(), Revision: e.Revision, Objects: r.objects}, nil
}

// refusal means that the tenant's API refuses to write objects anew.
type refusal struct{ *rewriting }

func (e *refusal) Error() string {
	return fmt.Sprintf("%d objects could not be written anew for the encryption (configuration %d), the first of them %s",
		e.refused, e.revision, e.first)
}

// rewritten has objects written anew, if they are to be, notes it in the state that is to be when all are, and returns the fact that
// says so.
func (s *svc) rewritten(ctx context.Context, t *loop.Turn, w *connection, certs *state.Certs, after *state.Addons) ([]loop.Tell, error) {
	if !toRewrite(certs, after) {
		return nil, nil
	}
	done, err := s.rewrite(ctx, t, w, certs.Encryption)
	if done == nil || err != nil {
		return nil, err
	}
	after.Rewritten = done.Revision
	return []loop.Tell{{What: event.Rewritten, Data: done}}, nil
}

// withheld ends a turn in which objects were refused; all are tried again soon, after as long as that has lasted.
func withheld(ctx context.Context, t *loop.Turn, e *refusal) error {
	return t.Blocked(ctx, state.Failure{Reason: reason.RewriteRefused, Message: e.Error()}, loop.Wake{Kind: rewrites})
}

// rewrite writes the objects of resources anew, from where r is, until all are or the time is up.
func (c *Cluster) rewrite(ctx context.Context, resources []string, r *rewriting, until time.Time) (more bool, err error) {
	for ; r.resource < len(resources); r.resource, r.next = r.resource+1, "" {
		resource, served, err := c.served(ctx, resources[r.resource])
		if err != nil {
			return true, err
		}
		for served {
			if time.Now().After(until) {
				return true, nil
			}
			var page []metav1.PartialObjectMetadata
			var next string
			err := retry(ctx, func() (err error) {
				page, next, err = c.kube.Page(ctx, resource, r.next)
				return err
			})
			if err != nil {
				return true, err
			}
			if err := c.rewriteAll(ctx, resource, page, r); err != nil {
				return true, err
			}
			if r.next = next; next == "" {
				break
			}
		}
	}
	return false, nil
}

// rewriteAll writes objects anew and counts them in r. An error is one of the tenant's API as a whole.
func (c *Cluster) rewriteAll(ctx context.Context, resource kube.Resource, page []metav1.PartialObjectMetadata, r *rewriting) error {
	var mu sync.Mutex
	var failed error
	var refused []string
	each(page, func(o metav1.PartialObjectMetadata) {
		mu.Lock()
		over := failed != nil
		mu.Unlock()
		if over {
			return
		}
		err := c.rewriteOne(ctx, resource, &o)
		mu.Lock()
		defer mu.Unlock()
		switch answered := apierrors.APIStatus(nil); {
		case err == nil:
		case !errors.As(err, &answered) || answered.Status().Code >= http.StatusInternalServerError && !webhookName.MatchString(err.Error()),
			apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err):
			failed = err
		default:
			refused = append(refused, fmt.Sprintf("%s %s: %v", resource.Plural, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), err))
		}
	})
	if failed != nil {
		return failed // the page again
	}
	r.objects += len(page)
	r.refused += len(refused)
	if slices.Sort(refused); len(refused) > 0 {
		r.first = cmp.Or(r.first, refused[0])
	}
	return nil
}

// rewriteOne has an object stored anew, as it was listed. One that somebody else has written since, or deleted, need not be.
func (c *Cluster) rewriteOne(ctx context.Context, resource kube.Resource, o *metav1.PartialObjectMetadata) error {
	patch := map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}}
	return retry(ctx, func() error {
		err := c.kube.MergePatch(ctx, resource, o.Namespace, o.Name, patch, &metav1.PartialObjectMetadata{})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// served finds a resource as an EncryptionConfiguration names it in the version that the tenant's API prefers; false for one that it
// doesn't serve, of which there are no objects.
func (c *Cluster) served(ctx context.Context, resource string) (r kube.Resource, served bool, err error) {
	plural, group, _ := strings.Cut(resource, ".")
	version := "v1"
	if group != "" {
		var found metav1.APIGroup
		err := retry(ctx, func() error { return c.kube.Document(ctx, "/apis/"+group, &found) })
		if apierrors.IsNotFound(err) {
			return r, false, nil
		}
		if err != nil {
			return r, false, err
		}
		version = found.PreferredVersion.Version
	}
	r = kube.Resource{GroupVersion: schema.GroupVersion{Group: group, Version: version}, Plural: plural}
	var list metav1.APIResourceList
	path := "/api/" + version
	if group != "" {
		path = "/apis/" + group + "/" + version
	}
	if err := retry(ctx, func() error { return c.kube.Document(ctx, path, &list) }); err != nil {
		return r, false, err
	}
	for _, one := range list.APIResources {
		if one.Name == plural {
			r.Kind, r.Namespaced = one.Kind, one.Namespaced
			return r, true, nil
		}
	}
	return r, false, nil
}
