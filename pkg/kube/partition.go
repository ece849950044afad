package kube

// A watch of partitions that change. When they do, the watch in progress ends at the version it has come to, the partitions that were
// gained are listed, and a watch of all goes on from that version. So it is one watch at any time, however many partitions there are:
// each watch costs the server and this process something at rest.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// InPartitions returns the label selector for what was made for tenants of partitions, of which there must be one at least.
func InPartitions(partitions []int) string {
	if len(partitions) == name.Partitions {
		return name.LabelPartition
	}
	values := make([]string, len(partitions))
	for i, p := range partitions {
		values[i] = strconv.Itoa(p)
	}
	return name.LabelPartition + " in (" + strings.Join(values, ",") + ")"
}

// TenantsIn calls each for every tenant of partitions that Stoker works on, with its metadata. It lists all tenants' objects, of which labels
// don't tell: others may take those away. It lists until that succeeds or ctx ends, so that each may be called for a tenant more than once,
// and returns early only with an error that doesn't pass by itself, as [Client.Watch].
func (c *Client) TenantsIn(ctx context.Context, partitions []int, each func(*metav1.PartialObjectMetadata)) error {
	if len(partitions) == 0 {
		return nil
	}
	namespace, selector := c.within(TenantControlPlanes, "", "")
	w := &watcher{client: c, resource: TenantControlPlanes, namespace: namespace}
	in := func(o *metav1.PartialObjectMetadata) {
		if name.Taken(o.Labels, o.Annotations) && slices.Contains(partitions, name.Partition(o.Namespace, o.Name)) {
			each(o)
		}
	}
	for backoff := newBackoff(); ; {
		_, err := w.pages(quiet(ctx), selector, "0", in)
		switch {
		case err == nil:
			c.answered()
			return nil
		case ctx.Err() == nil && refused(err):
			return fmt.Errorf("list tenants: %w", err)
		}
		_ = c.classify(ctx, err) // reports an outage; it is tried again whatever the error
		if !sleep(ctx, backoff.Step()) {
			return nil
		}
	}
}

// watchedPartitions are those that a watcher watches. A nil one is of a watch that has nothing to do with partitions.
type watchedPartitions struct {
	follower *partition.Follower
	moved    func(stayed []int)
	listed   func(partitions []int)
	begun    bool
	// held are watched; unlisted are those of them that were gained and are yet to be listed.
	held, unlisted []int
	// listedAt has, of a partition that was listed later than the version from which it is watched, the version of that list.
	listedAt map[int]string
}

// watched are the partitions to watch, nil for all objects.
func (w *watcher) watched() []int {
	if w.partitions == nil {
		return nil
	}
	return w.partitions.held
}

// selector of the objects in partitions, nil for all.
func (w *watcher) selector(partitions []int) string {
	switch {
	case partitions == nil:
		return w.labels
	case w.labels == "":
		return InPartitions(partitions)
	}
	return InPartitions(partitions) + "," + w.labels
}

// mustMove reports whether the partitions have changed since move.
func (w *watcher) mustMove() bool {
	if w.partitions == nil {
		return false
	}
	select {
	case <-w.partitions.follower.Changed():
		return true
	default:
		return false
	}
}

// move goes over to the partitions that are held now; while there are none it waits. It returns false when ctx ends.
func (w *watcher) move(ctx context.Context, version *string) bool {
	p := w.partitions
	if p == nil {
		return true
	}
	for {
		if m, changed := p.follower.Next(); changed {
			p.held = m.Held
			maps.DeleteFunc(w.known, func(_ types.NamespacedName, o *metav1.PartialObjectMetadata) bool {
				return !slices.Contains(m.Stayed, partitionOf(o))
			})
			maps.DeleteFunc(p.listedAt, func(of int, _ string) bool { return !slices.Contains(m.Stayed, of) })
			p.unlisted = slices.DeleteFunc(p.unlisted, func(of int) bool { return !slices.Contains(m.Stayed, of) })
			p.unlisted = append(p.unlisted, m.Gained...)
			if p.begun && p.moved != nil {
				p.moved(m.Stayed)
			}
			p.begun = true
		}
		if len(p.held) > 0 {
			return true
		}
		*version = "" // by the time there are some, all of them are to be listed
		select {
		case <-ctx.Done():
			return false
		case <-p.follower.Changed():
		}
	}
}

// endOnMove ends a watch when the partitions change.
func (p *watchedPartitions) endOnMove(ctx context.Context, changed <-chan struct{}, end context.CancelFunc) {
	select {
	case <-ctx.Done():
	case <-changed:
		end()
	}
}

// noteAll notes that all partitions are listed, and watched from there.
func (p *watchedPartitions) noteAll() {
	if p != nil {
		p.unlisted = nil
		clear(p.listedAt)
	}
}

// noteGained notes that the partitions that were gained are listed.
func (p *watchedPartitions) noteGained(version string) {
	for _, of := range p.unlisted {
		p.listedAt[of] = version
	}
	p.unlisted = nil
}

func (p *watchedPartitions) tellListed(partitions []int) {
	if p.listed != nil {
		p.listed(partitions)
	}
}

// told reports whether the list of the object's partition has told already what an event says of the object. Versions that can't be
// compared are told again.
func (p *watchedPartitions) told(o *metav1.PartialObjectMetadata) bool {
	if p == nil || len(p.listedAt) == 0 {
		return false
	}
	maps.DeleteFunc(p.listedAt, func(_ int, at string) bool { return o.ResourceVersion != at && !Older(o.ResourceVersion, at) })
	_, told := p.listedAt[partitionOf(o)]
	return told
}

// partitionOf is the partition that an object is labelled with, -1 for none.
func partitionOf(o *metav1.PartialObjectMetadata) int {
	if p, err := strconv.Atoi(o.Labels[name.LabelPartition]); err == nil {
		return p
	}
	return -1
}
