package mirror

// What wakes a pair of objects, and whether the APIs are there.

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// side is one of the two clusters.
type side int

const (
	local side = iota
	remote
)

func (s side) String() string { return [...]string{"local", "remote"}[s] }

// sideState says whether an API answers.
type sideState struct {
	away bool
	// contact is when it answered last, back since when it does without a break. Both are zero before the first answer.
	contact, back time.Time
}

// saw notes whether an API answers. When it is back, what failed is looked at again.
func (m *mirror) saw(s side, err error) {
	now := time.Now()
	m.mu.Lock()
	was := m.away[s]
	is := sideState{away: err != nil, contact: was.contact, back: was.back}
	if err == nil {
		is.contact = now
		if was.away || was.back.IsZero() {
			is.back = now
		}
	}
	m.away[s] = is
	m.mu.Unlock()
	switch {
	case is.away && !was.away:
		m.Log.Warn("API is away, waiting for it", "side", s.String(), "cause", err)
	case !is.away && was.away:
		m.Log.Info("API is back", "side", s.String())
		m.queue.retry()
	}
}

func (m *mirror) sideState(s side) sideState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away[s]
}

// wake has a pair looked at, if it is this process's, and forgets it otherwise.
func (m *mirror) wake(i item) {
	if m.owns(i) {
		m.queue.news(i)
	} else {
		m.index.is(i, "")
	}
}

// watches starts all watches in g.
func (m *mirror) watches(ctx context.Context, g *errgroup.Group) {
	start := func(s side, what string, watch func() error) {
		g.Go(func() error { m.forever(ctx, s, what, watch); return nil })
	}
	for kind, k := range m.Kinds {
		start(local, k.Resource.Plural, func() error {
			return m.Local.WatchListed(ctx, k.Resource, "", "", func(c kube.Change) { m.sawLocal(kind, c) }, func() {
				for _, i := range m.index.listedLocal(kind) {
					m.wake(i)
				}
			})
		})
		start(remote, k.Resource.Plural, func() error {
			return m.Remote.Watch(ctx, k.Resource, "", "", func(c kube.Change) { m.sawRemote(kind, c) })
		})
		if len(k.Secrets) > 0 {
			start(local, kube.Secrets.Plural, func() error { return m.watchSecrets(ctx, local, kind) })
		}
		if len(k.Secrets) > 0 && k.WatchSecrets {
			start(remote, kube.Secrets.Plural, func() error { return m.watchSecrets(ctx, remote, kind) })
		}
	}
	if m.Namespaces {
		start(local, kube.Namespaces.Plural, func() error { return m.Local.Watch(ctx, kube.Namespaces, "", "", m.sawNamespace) })
	}
	if m.Again != nil {
		g.Go(func() error { m.lookAgain(ctx); return nil })
	}
}

// forever watches again, after a pause, when a watch ends because the server refuses it: rights and certificates can be put right.
func (m *mirror) forever(ctx context.Context, s side, what string, watch func() error) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}
	for ctx.Err() == nil {
		if err := watch(); err != nil && ctx.Err() == nil {
			m.Log.Error("API refuses a watch", "side", s.String(), "resource", what, "cause", err)
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (m *mirror) lookAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-m.Again:
			if !open {
				return
			}
			for _, i := range m.index.all() {
				m.wake(i)
			}
		}
	}
}

func (m *mirror) sawRemote(kind int, c kube.Change) {
	if i, ok := m.ofRemote(kind, c.Object.Namespace, c.Object.Name); ok {
		m.index.sawRemote(i, c.Type != watch.Deleted)
		m.wake(i)
	}
}

func (m *mirror) sawLocal(kind int, c kube.Change) {
	i, ok := m.ofLocal(kind, c.Object.Namespace, c.Object.Name)
	if !ok {
		return
	}
	from := types.UID("")
	if c.Type != watch.Deleted {
		from, _ = m.recorded(c.Object)
	}
	m.index.sawLocal(i, from)
	m.wake(i)
}

// sawNamespace wakes the pairs of a local namespace: that for which it was made, should nothing else be left of it, and when it is gone,
// those that wait for that.
func (m *mirror) sawNamespace(c kube.Change) {
	i, ok := m.ofLocal(0, c.Object.Name, "-")
	if !ok {
		return
	}
	if owner, mine := m.ownerOf(c.Object); mine && c.Type != watch.Deleted {
		for kind := range m.Kinds {
			m.wake(item{kind, types.NamespacedName{Namespace: i.Namespace, Name: owner}})
		}
		return
	}
	for _, one := range m.index.in(i.Namespace, item{}) {
		m.wake(one)
	}
}

func (m *mirror) watchSecrets(ctx context.Context, s side, kind int) error {
	c, suffix := m.Local, ""
	if s == remote {
		c, suffix = m.Remote, m.RemoteSuffix
	}
	return c.WatchFiltered(ctx, kube.Secrets, "", func(_, secret string) bool { return m.mayBeSecret(kind, secret, suffix) },
		func(c kube.Change) { m.sawSecret(s, kind, c) }, func() {})
}

// sawSecret wakes the pair whose object controls a Secret; of one that went while nobody watched, the controller isn't known.
func (m *mirror) sawSecret(s side, kind int, c kube.Change) {
	by := metav1.GetControllerOf(c.Object)
	if by == nil || !m.isOf(kind, by) {
		return
	}
	i, ok := m.ofLocal(kind, c.Object.Namespace, by.Name)
	if s == remote {
		i, ok = m.ofRemote(kind, c.Object.Namespace, by.Name)
	}
	if ok {
		m.wake(i)
	}
}

// isOf reports whether an owner is an object of a kind, in whichever version.
func (m *mirror) isOf(kind int, by *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(by.APIVersion)
	r := m.Kinds[kind].Resource
	return err == nil && gv.Group == r.GroupVersion.Group && by.Kind == r.Kind
}
