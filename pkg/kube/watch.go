package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Change is what a watch saw.
type Change struct {
	// Type is ADDED (also for each object there is when the watch starts or starts over), MODIFIED or DELETED.
	Type watch.EventType
	// Object is the object's metadata.
	Object *metav1.PartialObjectMetadata
}

// metadataOnly asks the server for metadata instead of whole objects.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

const metadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// Watch calls changed for every object a label selector matches and for each change of one, until ctx ends, through
// every outage of the server. It keeps names only: an object that went while the connection was away is reported as
// DELETED when the watch starts over. changed must not block.
func (c *Client) Watch(ctx context.Context, r Resource, namespace, selector string, changed func(Change)) error {
	return c.WatchListed(ctx, r, namespace, selector, changed, func() {})
}

// WatchListed is Watch that also calls listed each time every object there is has been reported: what wasn't by then was
// deleted while nobody watched. listed must not block.
func (c *Client) WatchListed(ctx context.Context, r Resource, namespace, selector string, changed func(Change), listed func()) error {
	namespace, selector = c.within(r, namespace, selector)
	return (&watcher{c: c, r: r, namespace: namespace, selector: selector, changed: changed, listed: listed}).run(ctx)
}

// WatchOne is Watch for the one object of a name, be there such an object or not: it needs rights on that name alone.
func (c *Client) WatchOne(ctx context.Context, r Resource, namespace, name string, changed func(Change)) error {
	return (&watcher{c: c, r: r, namespace: namespace, name: name, changed: changed, listed: func() {}}).run(ctx)
}

// run is the watch, until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	c, r := w.c, w.r
	w.known = map[string]*metav1.PartialObjectMetadata{}
	backoff := 100 * time.Millisecond
	version := ""
	for ctx.Err() == nil {
		var err error
		short := false
		if version == "" {
			version, err = w.list(ctx)
		}
		if err == nil {
			started := time.Now()
			version, err = w.follow(ctx, version)
			if time.Since(started) > 5*time.Second {
				backoff = 100 * time.Millisecond
			}
			short = time.Since(started) < time.Second
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for
		}
		switch {
		case err == nil && !short: // the server ends a watch after its time; go on from where it was
			continue
		case err == nil: // it ends watches as soon as they begin, as one does that is about to stop
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return fmt.Errorf("watch %s: %w", r.Plural, err)
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			version = ""
		default:
			if c.health != nil && IsAway(err) {
				c.health.Down(Dependency, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff + time.Duration(rand.Int64N(int64(backoff)))): //nolint:gosec // jitter
		}
		backoff = min(2*backoff, 5*time.Second)
	}
	return nil
}

// Metadata lists the metadata of the objects a label selector matches, in all namespaces.
func (c *Client) Metadata(ctx context.Context, r Resource, selector string) ([]metav1.PartialObjectMetadata, error) {
	namespace, selector := c.within(r, "", selector)
	w := &watcher{c: c, r: r, namespace: namespace, selector: selector, listed: func() {}}
	var all []metav1.PartialObjectMetadata
	w.changed = func(change Change) { all = append(all, *change.Object) }
	if _, err := w.list(ctx); err != nil {
		return nil, err
	}
	return all, nil
}

type watcher struct {
	c                   *Client
	r                   Resource
	namespace, selector string
	name                string // of the one object that is meant, empty for all
	changed             func(Change)
	listed              func()
	known               map[string]*metav1.PartialObjectMetadata // what a DELETED needs: name, namespace, labels
}

func (w *watcher) list(ctx context.Context) (version string, err error) {
	seen := map[string]*metav1.PartialObjectMetadata{}
	next := ""
	for {
		q := w.selectors(url.Values{"limit": {"500"}})
		if next != "" {
			q.Set("continue", next)
		} else {
			q.Set("resourceVersion", "0")
		}
		list := &metav1.PartialObjectMetadataList{}
		if err := w.get(ctx, q, list); err != nil {
			return "", err
		}
		for i := range list.Items {
			o := &list.Items[i]
			seen[o.Namespace+"/"+o.Name] = keep(o)
			w.changed(Change{watch.Added, o})
		}
		version, next = list.ResourceVersion, list.Continue
		if next == "" {
			break
		}
	}
	for key, o := range w.known {
		if seen[key] == nil {
			w.changed(Change{watch.Deleted, o})
		}
	}
	w.known = seen
	w.listed()
	return version, nil
}

// selectors adds to a query which objects are meant.
func (w *watcher) selectors(q url.Values) url.Values {
	if w.selector != "" {
		q.Set("labelSelector", w.selector)
	}
	if w.name != "" {
		q.Set("fieldSelector", "metadata.name="+w.name)
	}
	return q
}

// keep is the part of the metadata that must be known when the object is gone.
func keep(o *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Labels: o.Labels}}
}

func (w *watcher) get(ctx context.Context, q url.Values, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.c.base+w.r.Path(w.namespace, "")+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", metadataListOnly+",application/json")
	resp, err := w.c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return readStatus(resp)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// follow reads one watch request to its end; it returns the version to go on from.
func (w *watcher) follow(ctx context.Context, version string) (string, error) {
	q := w.selectors(url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(1800 + rand.IntN(1800))}, //nolint:gosec // jitter
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.c.base+w.r.Path(w.namespace, "")+"?"+q.Encode(), nil)
	if err != nil {
		return version, err
	}
	req.Header.Set("Accept", metadataOnly+",application/json")
	resp, err := w.c.watches.Do(req)
	if err != nil {
		return version, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return version, readStatus(resp)
	}
	if w.c.health != nil {
		w.c.health.Up(Dependency)
	}
	d := json.NewDecoder(bufio.NewReaderSize(resp.Body, 512))
	for {
		var e struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			// The end of the watch's time, or of the connection: either way go on from the last version.
			return version, ctx.Err()
		}
		if e.Type == watch.Error {
			s := &metav1.Status{}
			if err := json.Unmarshal(e.Object, s); err != nil {
				return "", errors.New("watch ended with an error that is no Status")
			}
			return version, apierrors.FromObject(s)
		}
		o := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(e.Object, o); err != nil {
			return "", fmt.Errorf("watch of %s: %w", w.r.Plural, err)
		}
		version = o.ResourceVersion
		key := o.Namespace + "/" + o.Name
		switch e.Type {
		case watch.Bookmark:
			continue
		case watch.Deleted:
			delete(w.known, key)
		default:
			w.known[key] = keep(o)
		}
		w.changed(Change{e.Type, o})
	}
}

func readStatus(resp *http.Response) error {
	data := make([]byte, 64<<10)
	n, _ := resp.Body.Read(data)
	return statusError(resp, data[:n])
}

// InPartitions returns the label selector that limits a watch to the tenants of partitions.
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
