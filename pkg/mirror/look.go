package mirror

// One look at a pair of objects: both are read, and what isn't as it should be is made so, step by step. An error ends the look, which is
// repeated from the beginning.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// look is one look. It belongs to one goroutine.
type look struct {
	*mirror
	item item
	r    kube.Resource
	// remote and local are the objects as they are now, nil for none.
	remote, local *unstructured.Unstructured
	// wrote says that something was changed, why what a state other than Synced is about.
	wrote bool
	why   string
}

// work looks at the next pair. It returns false when there is none any more.
func (m *mirror) work(ctx context.Context) bool {
	i, shut := m.queue.Get()
	if shut {
		return false
	}
	defer m.queue.Done(i)
	if !m.owns(i) {
		m.index.is(i, "")
		return true
	}
	l := &look{mirror: m, item: i, r: m.Kinds[i.kind].Resource}
	state, err := l.do(fence.With(ctx, func() bool { return m.owns(i) }))
	switch {
	case ctx.Err() != nil:
		return true
	case errors.Is(err, fence.ErrFenced):
		state, err = "", nil // whoever works on it now looks at it
	case err != nil && state == "":
		state = Failed
	}
	m.queue.looked(i, l.wrote, err)
	if news := m.index.is(i, state); news || err != nil {
		l.log(ctx, state, err)
	}
	return true
}

// log tells what came of a look. What an outage is to blame for is told once, when it begins.
func (l *look) log(ctx context.Context, state State, err error) {
	log := l.Log.With("kind", l.r.Kind, "namespace", l.item.Namespace, "name", l.item.Name, "state", string(state))
	switch {
	case err == nil && slices.Contains([]State{Foreign, Replaced, Missing, Held}, state):
		log.WarnContext(ctx, "object not mirrored", "why", l.why)
	case err == nil:
		log.InfoContext(ctx, "object seen in another state")
	case kube.IsAway(err) || stale(err):
		log.DebugContext(ctx, "object not mirrored", "cause", err)
	default:
		l.Metrics.failed(l.r.Kind)
		log.WarnContext(ctx, "object not mirrored", "cause", err)
	}
}

// stale reports that somebody wrote between reading and writing.
func stale(err error) bool { return apierrors.IsConflict(err) || errors.Is(err, intent.ErrStale) }

// do looks. The state is empty when nothing is left of the pair, or with an error that doesn't tell.
func (l *look) do(ctx context.Context) (State, error) {
	if err := l.read(ctx); err != nil {
		return "", err
	}
	if paused, until, err := l.paused(time.Now()); paused || err != nil {
		if !until.IsZero() {
			l.queue.AddAfter(l.item, time.Until(until))
		}
		return Paused, err
	}
	switch {
	case l.remote == nil:
		return l.missing(ctx)
	case l.remote.GetDeletionTimestamp() != nil:
		return l.end(ctx)
	}
	return l.follow(ctx)
}

// read gets both objects from their servers, at the same time.
func (l *look) read(ctx context.Context) error {
	var remoteErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.remote, remoteErr = get(ctx, l.Remote, l.r, l.item.Namespace, l.remoteName(l.item))
	}()
	var err error
	l.local, err = get(ctx, l.Local, l.r, l.localNamespace(l.item), l.item.Name)
	<-done
	return errors.Join(of(local, err), of(remote, remoteErr))
}

// get returns an object, nil for none.
func get(ctx context.Context, c *kube.Client, r kube.Resource, namespace, object string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	err := c.Get(ctx, r, namespace, object, o)
	switch {
	case apierrors.IsNotFound(err) && names(err, object):
		return nil, nil //nolint:nilnil // which is how looks speak of no object
	case err != nil:
		return nil, err
	}
	return o, nil
}

// names reports whether an answer is about the object, and not about its kind, which an API may not know for a while.
func names(err error, object string) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == object
}

// of says which side an error comes from.
func of(s side, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s, err)
}

// paused reports whether either object asks that nothing be done, and until when, zero for no end.
func (l *look) paused(now time.Time) (paused bool, until time.Time, err error) {
	for _, o := range []*unstructured.Unstructured{l.remote, l.local} {
		if o == nil {
			continue
		}
		if o.GetAnnotations()[l.keys.Paused] == "true" {
			return true, time.Time{}, nil
		}
		value := o.GetAnnotations()[l.keys.PausedUntil]
		if value == "" {
			continue
		}
		end, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return true, time.Time{}, fmt.Errorf("annotation %s: %q is no time as 2006-01-02T15:04:05Z; nothing is done until it is put right",
				l.keys.PausedUntil, value)
		}
		if end.After(now) && end.After(until) {
			paused, until = true, end
		}
	}
	return paused, until, nil
}

// follow makes the local object what the remote one asks for, and tells that how it is. A status that can't be told keeps the spec from
// coming down, so that nothing is changed of which nobody would hear.
func (l *look) follow(ctx context.Context) (State, error) {
	if l.local != nil && !l.adopt() {
		switch l.whose(l.remote, l.local) {
		case foreign:
			return Foreign, l.tell(ctx, fmt.Sprintf("%s was not made from this object and is left as it is: delete it there, or have it "+
				"taken over by the annotation %s: \"true\" there", l.localObject(), l.keys.Adopt))
		case former:
			return l.replaced(ctx)
		case own:
		}
	}
	l.index.found(l.item)
	l.index.follows(l.item, l.remote.GetUID())
	if err := l.claim(ctx); err != nil {
		return "", err
	}
	secrets, err := l.readSecrets(ctx)
	if err != nil {
		return "", err
	}
	if err := l.statusUp(ctx); err != nil {
		err = fmt.Errorf("status up: %w", err)
		return "", errors.Join(err, l.tellRefusal(ctx, "the status of "+l.localObject()+" can't be written here, so nothing is changed there", err))
	}
	failed := l.secretsUp(ctx, secrets)
	if l.local != nil && l.local.GetDeletionTimestamp() != nil {
		return Waiting, failed // it is made anew once it is gone
	}
	state, err := l.down(ctx)
	if err != nil || state != "" {
		return state, errors.Join(err, failed)
	}
	if err := l.generations(ctx); err != nil {
		return "", errors.Join(err, failed)
	}
	if failed != nil {
		return Failed, failed
	}
	return Synced, nil
}

// adopt reports whether a local object is taken over that isn't the remote one's by the records. Whoever writes remotely can't take any: the
// local object must say so, or have been made from this source. What another source or a controller writes is never taken.
func (l *look) adopt() bool {
	source, says := l.local.GetAnnotations()[l.keys.Source], func(o *unstructured.Unstructured) bool { return o.GetAnnotations()[l.keys.Adopt] == "true" }
	if source != "" && source != l.Source || metav1.GetControllerOf(l.local) != nil {
		return false
	}
	_, ours := l.recorded(l.local)
	return l.Adopt || says(l.local) || ours && says(l.remote)
}

// localObject names the local object for people.
func (l *look) localObject() string {
	return fmt.Sprintf("%s %s/%s in the local cluster", l.r.Kind, l.localNamespace(l.item), l.item.Name)
}
