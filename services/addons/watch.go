package addons

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventType says what happened to an object.
type EventType string

// What Watch tells. An object that has lost our label counts as deleted.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is a change of an object this service has applied.
type Event struct {
	Ref     Ref
	Type    EventType
	Version string // as Apply returns it: if equal, the change was our own; of a deleted object, ""
}

const (
	pageSize      = 500
	maxFrame      = 2 << 20 // an event of an object with all the annotations and managed fields it may have
	firstPause    = 50 * time.Millisecond
	longestPause  = 5 * time.Second
	shortestWatch = time.Second // one that ends earlier counts as failed
)

// A stream is the watch of one kind.
type stream struct {
	kind    kind
	known   map[string]string // version by Ref.String(), of our objects only; "" if it isn't there
	from    string            // resource version to go on from; "" if a list has to say
	resp    *http.Response
	cancel  context.CancelFunc // of resp
	started time.Time
}

// Watch calls drift for each change of an object named in known, from the state in which known describes it: what
// happened before the call, or while the tenant's API was away, is told as soon as it answers. Known is what Apply
// returned; an object it doesn't name is none of ours, so start Watch anew when Apply has a new one.
//
// Events of our own writes are told as well; their version is that of Apply. The status of Deployments and DaemonSets is
// no change, and neither is an object that became what it was. Calls to drift don't overlap and must return soon.
//
// Watch goes on through restarts of the tenant's API until ctx ends, and returns its error; or one of the server that
// will not pass: it doesn't know our certificate, or we don't know its.
func (c *Cluster) Watch(ctx context.Context, known map[string]string, drift func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()

	var mu sync.Mutex
	tell := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			drift(e)
		}
	}
	// Streams are opened one after the other, so that a tenant which is away costs one attempt at a time, and one that
	// is back one connection.
	closed := make(chan *stream, len(kinds))
	for _, k := range kinds {
		s := &stream{kind: k, known: map[string]string{}}
		for ref, version := range known {
			if strings.HasPrefix(ref, k.name+"/") {
				s.known[ref] = version
			}
		}
		closed <- s
	}
	pause := firstPause
	for {
		var s *stream
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s = <-closed:
		}
		err := c.open(ctx, s, tell)
		if err == nil {
			pause = firstPause
			readers.Go(func() {
				s.read(tell)
				if time.Since(s.started) < shortestWatch {
					sleep(ctx, shortestWatch)
				}
				closed <- s
			})
			continue
		}
		var untrusted *tls.CertificateVerificationError
		if apierrors.IsUnauthorized(err) || errors.As(err, &untrusted) {
			return fmt.Errorf("watch %s: %w", s.kind.plural, err)
		}
		closed <- s
		sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// sleep waits for d and up to half as much again, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d + rand.N(d/2+1)) //nolint:gosec // jitter
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// open starts the stream where it ended, or where a list says it is.
func (c *Cluster) open(ctx context.Context, s *stream, tell func(Event)) error {
	if s.from == "" {
		if err := c.list(ctx, s, tell); err != nil {
			return err
		}
	}
	path := s.path(url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"true"},
		"resourceVersion":     {s.from},
		// Watches of many tenants that began together don't end together.
		"timeoutSeconds": {strconv.Itoa(1800 + rand.IntN(1800))}, //nolint:gosec // jitter
	})
	ctx, cancel := context.WithCancel(ctx)
	giveUp := time.AfterFunc(requestTimeout, cancel)
	resp, err := c.send(ctx, http.MethodGet, path, "", metadataOnly, nil)
	if !giveUp.Stop() && err == nil {
		_ = resp.Body.Close()
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			s.from = ""
		}
		return err
	}
	s.resp, s.cancel, s.started = resp, cancel, time.Now()
	return nil
}

type objectList struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []objectMeta    `json:"items"`
}

// list tells what has changed since the stream last saw its objects.
func (c *Cluster) list(ctx context.Context, s *stream, tell func(Event)) error {
	missing := make(map[string]bool, len(s.known))
	for ref := range s.known {
		missing[ref] = true
	}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page objectList
		if err := c.do(ctx, http.MethodGet, s.path(query), "", nil, &page); err != nil {
			return err
		}
		for i := range page.Items {
			delete(missing, s.ref(&page.Items[i]).String())
			s.note(Modified, &page.Items[i], tell)
		}
		if page.Metadata.Continue == "" {
			s.from = page.Metadata.ResourceVersion
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	for ref := range missing {
		parts := strings.SplitN(ref, "/", 3)
		s.note(Deleted, &objectMeta{metav1.ObjectMeta{Namespace: parts[1], Name: parts[2]}}, tell)
	}
	return nil
}

func (s *stream) path(query url.Values) string {
	query.Set("labelSelector", LabelProject+"="+Project)
	return s.kind.root + "/" + s.kind.plural + "?" + query.Encode()
}

func (s *stream) ref(o *objectMeta) Ref {
	return Ref{s.kind.name, o.Metadata.Namespace, o.Metadata.Name}
}

// note tells of the object if it is ours and not what it was.
func (s *stream) note(what EventType, o *objectMeta, tell func(Event)) {
	ref := s.ref(o)
	was, ours := s.known[ref.String()]
	now := ""
	if what != Deleted {
		now = o.version(s.kind.name)
		if was == "" {
			what = Added
		}
	}
	if !ours || was == now {
		return
	}
	s.known[ref.String()] = now
	tell(Event{Ref: ref, Type: what, Version: now})
}

// read follows the stream to its end.
func (s *stream) read(tell func(Event)) {
	defer s.cancel()
	defer s.resp.Body.Close()
	// Most of a stream's life is waiting, so its buffer is small and that of an event lives as long as the event.
	r := bufio.NewReaderSize(s.resp.Body, 256)
	for {
		text, err := frame(r)
		if err != nil {
			return
		}
		var event struct {
			Type   string
			Object struct {
				objectMeta
				Code int
			}
		}
		if err := json.Unmarshal(text, &event); err != nil {
			s.from = "" // what we can't read may have been a change
			return
		}
		switch o := &event.Object.objectMeta; event.Type {
		case "ERROR":
			if event.Object.Code == http.StatusGone {
				s.from = ""
			}
			return
		case "BOOKMARK":
			s.from = o.Metadata.ResourceVersion
		default:
			s.from = o.Metadata.ResourceVersion
			s.note(EventType(event.Type), o, tell)
		}
	}
}

// frame reads a line.
func frame(r *bufio.Reader) ([]byte, error) {
	var line bytes.Buffer
	for {
		part, err := r.ReadSlice('\n')
		line.Write(part)
		switch {
		case err == nil:
			return line.Bytes(), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case line.Len() > maxFrame:
			return nil, bufio.ErrTooLong
		}
	}
}
