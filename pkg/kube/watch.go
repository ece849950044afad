package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Change is what a watch saw.
type Change struct {
	// Type is ADDED (also for each object there is when the watch starts or starts over), MODIFIED or DELETED.
	Type watch.EventType
	// Object is the object's metadata.
	Object *metav1.PartialObjectMetadata
}

// Watch calls changed for every object a label selector matches and for each change of one, until ctx ends, through
// every outage of the server. It keeps names only: an object that went while the connection was away is reported as
// DELETED when the watch starts over. changed must not block; calls don't overlap.
//
// It returns nil when ctx ends, and early only with an error that doesn't pass by itself: the server refuses us
// (apierrors.IsForbidden, apierrors.IsUnauthorized), or its certificate isn't trusted.
func (c *Client) Watch(ctx context.Context, r Resource, namespace, selector string, changed func(Change)) error {
	return c.WatchListed(ctx, r, namespace, selector, changed, func() {})
}

// WatchListed is [Client.Watch] that also calls listed each time every object there is has been reported: what wasn't by then was
// deleted while nobody watched. listed must not block.
func (c *Client) WatchListed(ctx context.Context, r Resource, namespace, selector string, changed func(Change), listed func()) error {
	namespace, selector = c.within(r, namespace, selector)
	return c.watch(ctx, &watcher{resource: r, namespace: namespace, labels: selector, changed: changed, listed: listed})
}

// WatchNamed is [Client.Watch] for the one object of a name, whether it exists or not: it needs rights on that name alone.
func (c *Client) WatchNamed(ctx context.Context, r Resource, namespace, name string, changed func(Change)) error {
	return c.WatchNamedListed(ctx, r, namespace, name, changed, func() {})
}

// WatchNamedListed is [Client.WatchNamed] that also calls listed each time it was found out whether the object is there. listed must not
// block.
func (c *Client) WatchNamedListed(ctx context.Context, r Resource, namespace, name string, changed func(Change), listed func()) error {
	return c.watch(ctx, &watcher{resource: r, namespace: namespace, fields: "metadata.name=" + name, changed: changed, listed: listed})
}

// WatchFiltered is [Client.WatchListed] that calls changed only for objects that wanted accepts; of these it keeps the name, of others
// nothing, however many there are. What is DELETED while the connection is away is reported with namespace and name alone.
func (c *Client) WatchFiltered(
	ctx context.Context, r Resource, selector string, wanted func(namespace, name string) bool, changed func(Change), listed func(),
) error {
	namespace, selector := c.within(r, "", selector)
	return c.watch(ctx, &watcher{resource: r, namespace: namespace, labels: selector, wanted: wanted, changed: changed, listed: listed})
}

// WatchNames is [Client.Watch] of the objects, of all namespaces, that a field selector matches; empty: all. It keeps their names and
// nothing else, and what is DELETED while the connection is away is reported with namespace and name alone.
func (c *Client) WatchNames(ctx context.Context, r Resource, fields string, changed func(Change)) error {
	namespace, labels := c.within(r, "", "")
	all := func(string, string) bool { return true }
	return c.watch(ctx, &watcher{resource: r, namespace: namespace, labels: labels, fields: fields, wanted: all, changed: changed, listed: func() {}})
}

// PartitionWatch is a watch of the objects in the partitions that a replica holds. Its functions must not block; calls don't overlap.
type PartitionWatch struct {
	Held *partition.Held
	// Selector narrows it further, by labels; may be empty.
	Selector string
	Changed  func(Change)
	// Moved is called when the partitions have changed, before those that were gained are listed, with those that stayed: what was
	// reported of objects in others holds no more. May be nil.
	Moved func(stayed []int)
	// Listed is called each time every object there is in these partitions has been reported. May be nil.
	Listed func(partitions []int)
}

// WatchPartitions is [Client.WatchListed] in the partitions that are held, as they change: of those that stay nothing is listed and no
// change missed, those that are gained are listed, and objects in those that are lost are forgotten, without a DELETED.
func (c *Client) WatchPartitions(ctx context.Context, r Resource, p PartitionWatch) error {
	namespace, selector := c.within(r, "", p.Selector)
	w := &watcher{resource: r, namespace: namespace, labels: selector, changed: p.Changed}
	w.partitions = &watchedPartitions{follower: p.Held.Follow(), moved: p.Moved, listed: p.Listed, listedAt: map[int]string{}}
	w.listed = func() { w.partitions.tellListed(w.partitions.held) }
	return c.watch(ctx, w)
}

// watcher is one watch. It belongs to the goroutine that runs it.
//
// Lists, requests and what their errors mean are client-go's; the loop and the reading of events are not. With cache.Reflector
// (client-go v0.36), a watched tenant, which is nine kinds, cost 377 KB and 38 goroutines; with this it costs 235 KB and 20, where
// all of Stoker has 500 KB for a tenant (TestWatchMemory of services/addons). A reflector has three goroutines for each watch, and a
// fourth is the connection's. A watch request made by hand saves nothing over client-go's.
type watcher struct {
	client            *Client
	resource          Resource
	namespace, labels string
	fields            string
	wanted            func(namespace, name string) bool // nil: all
	changed           func(Change)
	listed            func()
	partitions        *watchedPartitions // nil: all
	// known has what a DELETED needs: name, namespace, UID, labels. Of wanted objects it has the names alone.
	known map[types.NamespacedName]*metav1.PartialObjectMetadata
}

const (
	// shortestWatch is how long a watch must last at least: one that ends earlier counts as failed, as do those of a server
	// that is about to stop.
	shortestWatch = time.Second
	// maxEvent is an object with all the annotations and managed fields it may have.
	maxEvent = 2 << 20
)

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 5 * time.Second}
}

// watch lists and watches until ctx ends; it goes on from where a watch ended, and lists again where that isn't possible.
func (c *Client) watch(ctx context.Context, w *watcher) error {
	w.client, w.known = c, map[types.NamespacedName]*metav1.PartialObjectMetadata{}
	ctx = quiet(ctx)
	backoff := newBackoff()
	version := ""
	for w.move(ctx, &version) {
		lasted, err := w.once(ctx, &version)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		if refused(err) {
			_ = c.classify(ctx, err)
			return fmt.Errorf("watch %s: %w", w.resource.Plural, err)
		}
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			version = ""
		}
		if w.mustMove() { // which ended the watch
			continue
		}
		_ = c.classify(ctx, err) // reports an outage; it is tried again whatever the error
		if lasted >= shortestWatch {
			backoff = newBackoff()
			if err == nil { // the server ends a watch after its time; go on from where it was
				continue
			}
		}
		if !sleep(ctx, backoff.Step()) {
			return nil
		}
	}
	return nil
}

// refused reports an error that doesn't pass by itself.
func refused(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || errors.As(err, &untrusted)
}

// sleep waits; it returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// once lists, if version is empty or partitions were gained, and reads one watch to its end, or until the partitions change. It keeps
// version up to date, and returns how long the watch lasted.
func (w *watcher) once(ctx context.Context, version *string) (lasted time.Duration, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	events, err := w.open(ctx, end, version)
	if err != nil {
		return 0, err
	}
	defer events.Close()
	started := time.Now()
	err = w.follow(ctx, events, version)
	return time.Since(started), err
}

// open begins a watch where the last one ended, or where a list says it is. Only one watch of a tenant's API is opened at a time:
// a server that is away gets one attempt, and one that is back one connection. When the partitions change, the watch is ended by end.
func (w *watcher) open(ctx context.Context, end context.CancelFunc, version *string) (io.ReadCloser, error) {
	if w.client.opening != nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case w.client.opening <- struct{}{}:
			defer func() { <-w.client.opening }()
		}
	}
	if err := w.catchUp(ctx, version); err != nil {
		return nil, err
	}
	if w.partitions != nil {
		go w.partitions.endOnMove(ctx, w.partitions.follower.Changed(), end)
	}
	req := w.client.rest.Get().MaxRetries(0).AbsPath(w.resource.Path(w.namespace, "")).SetHeader("Accept", metadataOnly).
		Param("watch", "1").Param("allowWatchBookmarks", "true").Param("resourceVersion", *version).
		// Watches that began together don't end together.
		Param("timeoutSeconds", strconv.Itoa(1800+rand.IntN(1800))) //nolint:gosec // jitter
	if labels := w.selector(w.watched()); labels != "" {
		req.Param("labelSelector", labels)
	}
	if w.fields != "" {
		req.Param("fieldSelector", w.fields)
	}
	return req.Stream(ctx)
}

// catchUp lists what has to be listed before the watch begins: everything if there is no version to watch from, else the partitions
// that were gained.
func (w *watcher) catchUp(ctx context.Context, version *string) (err error) {
	switch {
	case *version == "":
		// What the server has in memory, in one answer.
		if *version, err = w.list(ctx, w.watched(), "0"); err == nil {
			w.partitions.noteAll()
			w.listed()
		}
	case w.partitions != nil && len(w.partitions.unlisted) > 0:
		// Not older than the version that is watched from: what came in between would be in neither.
		gained, at := w.partitions.unlisted, ""
		if at, err = w.list(ctx, gained, *version); err == nil {
			w.partitions.noteGained(at)
			w.partitions.tellListed(gained)
		}
	}
	return err
}

// list reports what there is in partitions, nil for all, at a version or later, and what went there since it was last known; it
// returns the version of the list, empty after an error.
func (w *watcher) list(ctx context.Context, partitions []int, from string) (version string, err error) {
	before := w.known
	seen := map[types.NamespacedName]*metav1.PartialObjectMetadata{}
	w.known = seen
	version, err = w.pages(ctx, w.selector(partitions), from, func(o *metav1.PartialObjectMetadata) { w.change(watch.Added, o) })
	if err != nil {
		maps.Copy(before, seen)
		w.known = before
		return "", err
	}
	for key, o := range before {
		if _, still := seen[key]; still {
			continue
		}
		if partitions != nil && !slices.Contains(partitions, partitionOf(o)) {
			seen[key] = o
			continue
		}
		if o == nil {
			o = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		}
		w.changed(Change{watch.Deleted, o})
	}
	return version, nil
}

// pages lists the objects that labels select, at a version or later, each as it arrives.
func (w *watcher) pages(
	ctx context.Context, labels, from string, each func(*metav1.PartialObjectMetadata),
) (version string, err error) {
	next := ""
	for {
		req := w.client.rest.Get().MaxRetries(0).AbsPath(w.resource.Path(w.namespace, "")).SetHeader("Accept", metadataLists)
		switch {
		case w.wanted == nil:
			// What the server has in memory, in one answer: it ignores a limit then. With a limit and the newest version, servers
			// before 1.34 read all objects of all tenants from etcd, to pick those that the selector matches.
			req.Param("resourceVersion", from)
		case next != "":
			req.Param("limit", strconv.Itoa(pageSize)).Param("continue", next)
		default:
			req.Param("limit", strconv.Itoa(pageSize))
		}
		if labels != "" {
			req.Param("labelSelector", labels)
		}
		if w.fields != "" {
			req.Param("fieldSelector", w.fields)
		}
		meta, err := readList(ctx, req, each)
		if err != nil {
			return "", err
		}
		if next = meta.Continue; next == "" {
			return meta.ResourceVersion, nil
		}
	}
}

// follow reads events to the end of the watch: nil at the end of its time or of the connection.
func (w *watcher) follow(ctx context.Context, events io.Reader, version *string) error {
	w.client.answered()
	// Most of a watch's life is waiting, so its buffer is small, and that of an event lives as long as the event.
	r := bufio.NewReaderSize(events, 256)
	for {
		line, err := readLine(r)
		if err != nil {
			return ctx.Err()
		}
		var event struct {
			Type   watch.EventType
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(line, &event); err != nil && event.Type != watch.Error {
			*version = "" // what can't be read may have been a change
			return fmt.Errorf("watch of %s: %w", w.resource.Plural, err)
		}
		switch event.Type {
		case watch.Error:
			var failed struct{ Object metav1.Status }
			if err := json.Unmarshal(line, &failed); err != nil {
				*version = ""
				return fmt.Errorf("watch of %s ended with an error that is no Status: %w", w.resource.Plural, err)
			}
			return apierrors.FromObject(&failed.Object)
		case watch.Bookmark:
		default:
			if !w.partitions.told(&event.Object) {
				w.change(event.Type, &event.Object)
			}
		}
		*version = event.Object.ResourceVersion
	}
}

// readLine reads an event.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line bytes.Buffer
	for {
		part, err := r.ReadSlice('\n')
		line.Write(part)
		switch {
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case line.Len() > maxEvent:
			return nil, bufio.ErrTooLong
		}
	}
}

// change notes an object and hands it on, if it is wanted.
func (w *watcher) change(what watch.EventType, o *metav1.PartialObjectMetadata) {
	if w.wanted != nil && !w.wanted(o.Namespace, o.Name) {
		return
	}
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	switch {
	case what == watch.Deleted:
		delete(w.known, key)
	case w.wanted != nil:
		w.known[key] = nil
	default:
		w.known[key] = &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Labels: o.Labels},
		}
	}
	w.changed(Change{what, o})
}

// Metadata lists the metadata of the objects a label selector matches, in all namespaces. Errors as of [Client.Get].
func (c *Client) Metadata(ctx context.Context, r Resource, selector string) ([]metav1.PartialObjectMetadata, error) {
	namespace, selector := c.within(r, "", selector)
	var all []metav1.PartialObjectMetadata
	_, err := (&watcher{client: c, resource: r, namespace: namespace}).pages(
		quiet(ctx), selector, "0", func(o *metav1.PartialObjectMetadata) { all = append(all, *o) })
	return all, c.classify(ctx, err)
}
