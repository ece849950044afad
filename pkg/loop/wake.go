package loop

import (
	"slices"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Wake is why a service is to look at an object although no event says so: what a watch saw, or which alarm went off. Of
// wakes of one kind about one object the last one counts. It is small, because one is kept for each until the turn.
type Wake struct {
	// Kind says what happened, a constant of the service; those that begin with "loop." are the loop's own.
	Kind string
	// Object that was seen, as the service names it; may be empty.
	Object string
	// Version is the resourceVersion of Object that was seen; empty when it says nothing.
	Version string
	// Gone is true when Object was seen to be gone.
	Gone bool
}

// wakeOf is what a wake is about: a later one about the same says it all.
type wakeOf struct{ kind, object string }

func (w Wake) of() wakeOf { return wakeOf{w.Kind, w.Object} }

// Waker tells a loop that something about an object changed. It never blocks and is safe for concurrent use. What concerns a
// partition that this replica doesn't hold is dropped.
type Waker func(key events.Key, w Wake)

// wake is the loop's own Waker.
func (l *Loop) wake(key events.Key, w Wake) {
	if l.lease.keeps(key.Partition()) {
		l.enqueue(key, nil, w)
	}
}

// Woken reports whether the turn has a wake of this kind.
func (t *Turn) Woken(kind string) bool {
	return slices.ContainsFunc(t.Wakes, func(w Wake) bool { return w.Kind == kind })
}
