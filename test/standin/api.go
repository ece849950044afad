package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// tenantAPI is as much of a Kubernetes API as Stoker and Cluster API use of a tenant's: server-side apply by one manager, get, list, watch and
// delete, each of metadata, and discovery of the resources in kinds. Of an object it keeps the metadata and a hash of the rest. It knows every
// resource, and no rules. It is safe for concurrent use.
type tenantAPI struct {
	seed maphash.Seed

	mu      sync.Mutex
	version int64
	objects map[place]*stored
	past    []pastEvent
	changed chan struct{} // closed at the next change
}

// place of an object, or of a collection when it has no name. Resource is the path without namespace and name.
type place struct{ resource, namespace, name string }

type stored struct {
	meta metav1.PartialObjectMetadata
	hash uint64
}

type pastEvent struct {
	version int64
	what    watch.EventType
	at      place
	meta    metav1.PartialObjectMetadata
}

func newTenantAPI() *tenantAPI {
	a := &tenantAPI{seed: maphash.MakeSeed(), objects: map[place]*stored{}, changed: make(chan struct{})}
	for _, n := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		a.put(place{resource: "/api/v1/namespaces", name: n}, nil, &metav1.PartialObjectMetadata{})
	}
	return a
}

// placeOf reads the path of a request.
func placeOf(path string) (place, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	root := 2 // api/v1
	if parts[0] == "apis" {
		root = 3
	}
	if len(parts) <= root {
		return place{}, false
	}
	p := place{resource: "/" + strings.Join(parts[:root], "/") + "/"}
	rest := parts[root:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		p.namespace, rest = rest[1], rest[2:]
	}
	p.resource += rest[0]
	if len(rest) > 1 {
		p.name = rest[1]
	}
	return p, len(rest) <= 2
}

// ServeHTTP answers as an API server does.
func (a *tenantAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := discovered(r.URL.Path); answer != nil && r.Method == http.MethodGet {
		send(w, http.StatusOK, answer)
		return
	}
	at, ok := placeOf(r.URL.Path)
	switch {
	case !ok:
		say(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
	case r.Method == http.MethodGet && at.name != "":
		a.get(w, at)
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		a.watch(w, r, at)
	case r.Method == http.MethodGet:
		a.list(w, r, at)
	case r.Method == http.MethodPatch && at.name != "":
		a.apply(w, r, at)
	case r.Method == http.MethodDelete && at.name != "":
		a.delete(w, r, at)
	default:
		say(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

// kinds of the core resources that clients look up by discovery: Cluster API and kubectl.
var kinds = map[string]string{"namespaces": "Namespace", "nodes": "Node"}

// discovered returns the answer about an API as a whole, or nil for another path. Cluster API reads these answers before it uses a tenant's
// API; kubectl reads them before it lists resources.
func discovered(path string) any {
	switch path {
	case "/":
		return metav1.RootPaths{Paths: []string{"/api", "/api/v1", "/apis"}}
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}}
	case "/apis":
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	case "/api/v1":
		all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1"}
		for _, plural := range slices.Sorted(maps.Keys(kinds)) {
			kind := kinds[plural]
			all.APIResources = append(all.APIResources, metav1.APIResource{
				Name: plural, SingularName: strings.ToLower(kind), Kind: kind, Verbs: metav1.Verbs{"get", "list", "watch"},
			})
		}
		return all
	}
	return nil
}

// say answers a Status.
func say(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	send(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func send(w http.ResponseWriter, code int, answer any) {
	data, _ := json.Marshal(answer) // plain data
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

func (a *tenantAPI) get(w http.ResponseWriter, at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.objects[at]; o != nil {
		send(w, http.StatusOK, o.meta)
		return
	}
	say(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", at.resource, at.name))
}

// apply makes an object what the body says; one that is so already keeps its version.
func (a *tenantAPI) apply(w http.ResponseWriter, r *http.Request, at place) {
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case string(types.ApplyPatchType):
	case string(types.JSONPatchType): // sets as a whole what was applied before, and nobody here adds to that
		a.get(w, at)
		return
	default:
		say(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, kind)
		return
	}
	body, err := io.ReadAll(r.Body)
	meta := &metav1.PartialObjectMetadata{}
	if err == nil {
		err = json.Unmarshal(body, meta)
	}
	if err != nil {
		say(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	code := http.StatusOK
	if a.objects[at] == nil {
		code = http.StatusCreated
	}
	send(w, code, a.put(at, body, meta).meta)
}

// put stores an object; a.mu is held, or nobody else knows a.
func (a *tenantAPI) put(at place, body []byte, meta *metav1.PartialObjectMetadata) *stored {
	hash, before := maphash.Bytes(a.seed, body), a.objects[at]
	if before != nil && before.hash == hash {
		return before
	}
	what := watch.Modified
	meta.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}
	meta.Name, meta.Namespace = at.name, at.namespace
	if before == nil {
		what = watch.Added
		meta.UID, meta.CreationTimestamp, meta.Generation = types.UID(nuid.Next()), metav1.Now(), 1
	} else {
		meta.UID, meta.CreationTimestamp, meta.Generation = before.meta.UID, before.meta.CreationTimestamp, before.meta.Generation+1
	}
	now := &stored{*meta, hash}
	a.objects[at] = now
	a.note(what, at, &now.meta)
	return now
}

// note counts a change and tells watches; the object's version is the change's.
func (a *tenantAPI) note(what watch.EventType, at place, meta *metav1.PartialObjectMetadata) {
	a.version++
	meta.ResourceVersion = strconv.FormatInt(a.version, 10)
	a.past = append(a.past, pastEvent{a.version, what, at, *meta})
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *tenantAPI) delete(w http.ResponseWriter, r *http.Request, at place) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		say(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[at]
	if o == nil {
		say(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", at.resource, at.name))
		return
	}
	if p := options.Preconditions; p != nil &&
		(p.UID != nil && *p.UID != o.meta.UID || p.ResourceVersion != nil && *p.ResourceVersion != o.meta.ResourceVersion) {
		say(w, http.StatusConflict, metav1.StatusReasonConflict, "precondition failed")
		return
	}
	delete(a.objects, at)
	gone := o.meta
	a.note(watch.Deleted, at, &gone)
	send(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// within reports whether an object is in a collection.
func (p place) within(collection place) bool {
	return p.resource == collection.resource && (collection.namespace == "" || p.namespace == collection.namespace)
}

func (a *tenantAPI) list(w http.ResponseWriter, r *http.Request, at place) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		say(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metav1.SchemeGroupVersion.String()},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(a.version, 10)},
	}
	plural, core := strings.CutPrefix(at.resource, "/api/v1/")
	kind := kinds[plural]
	if core = core && kind != ""; core {
		list.TypeMeta = metav1.TypeMeta{Kind: kind + "List", APIVersion: "v1"}
	}
	for p, o := range a.objects {
		if p.within(at) && selector.Matches(labels.Set(o.meta.Labels)) {
			item := o.meta
			if core {
				item.TypeMeta = metav1.TypeMeta{Kind: kind, APIVersion: "v1"}
			}
			list.Items = append(list.Items, item)
		}
	}
	slices.SortFunc(list.Items, func(x, y metav1.PartialObjectMetadata) int {
		return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name)
	})
	send(w, http.StatusOK, list)
}

// watch sends what happened after the version that is asked for, and what happens, until its time is over.
func (a *tenantAPI) watch(w http.ResponseWriter, r *http.Request, at place) {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	since, errSince := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if err != nil || errSince != nil {
		say(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, r.URL.RawQuery)
		return
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	over := time.NewTimer(time.Duration(max(1, seconds)) * time.Second)
	defer over.Stop()
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	for {
		a.mu.Lock()
		var lines bytes.Buffer
		from, _ := slices.BinarySearchFunc(a.past, since+1, func(e pastEvent, v int64) int { return int(e.version - v) })
		for _, e := range a.past[from:] {
			if e.at.within(at) && selector.Matches(labels.Set(e.meta.Labels)) {
				data, _ := json.Marshal(map[string]any{"type": e.what, "object": e.meta}) // plain data
				lines.Write(append(data, '\n'))
			}
		}
		since = a.version
		changed := a.changed
		a.mu.Unlock()
		if _, err := w.Write(lines.Bytes()); err != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-over.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
