package release

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"

	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Installed is a release that is installed, and what a [Cluster.Watch] sees of its objects. It is safe for concurrent use.
type Installed struct {
	ID
	// Revision is the number of the Helm release.
	Revision int

	mu sync.Mutex
	// objects are CRDs, then the others in the order of the manifest; the last one is the Secret of the release.
	objects []*object
	at      map[Ref]*object
	// unseen is how many objects no watch has reported yet.
	unseen int
}

// object is an object of a release.
type object struct {
	Ref
	resource *kube.Resource
	// wanted and seen are its fields ([fieldsOf]) as they should be and as a watch saw them last.
	wanted, seen uint64
	reported     bool
	// passes means that the object goes by itself: a Job that is deleted some time after its end. Made anew, it would run again.
	passes bool
	health objectHealth
}

const (
	// gone are the fields of an object that isn't there, or of which we apply nothing.
	gone uint64 = 0
	// unknown are those that should be, of an object that nobody has noted.
	unknown uint64 = 1
)

// fieldsOf is a checksum of which fields of an object are as we have applied them. The API server keeps account of that: whoever changes such a field,
// or deletes it, becomes its manager in our place. What others add is none of our business, be it status, annotations of a controller's, or a
// field that the release doesn't set.
func fieldsOf(o metav1.Object) uint64 {
	for _, m := range o.GetManagedFields() {
		if m.Manager != name.FieldManagerTenantAddons || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		var fields any // in whatever order they come
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			return gone
		}
		sorted, err := json.Marshal(fields)
		if err != nil {
			return gone
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(m.APIVersion))
		_, _ = h.Write(sorted)
		return max(h.Sum64(), unknown+1)
	}
	return gone
}

// installed is what there is to be seen of a revision with these objects.
func (o *operation) installed(r *release.Release, objects []placed) *Installed {
	in := &Installed{ID: o.ID, Revision: r.Version, at: map[Ref]*object{}}
	add := func(ref Ref, resource *kube.Resource, passes bool) {
		if in.at[ref] == nil && ref.Name != "" {
			in.at[ref] = &object{Ref: ref, resource: resource, wanted: unknown, passes: passes}
			in.objects = append(in.objects, in.at[ref])
		}
	}
	for _, p := range objects {
		_, passes, _ := unstructured.NestedFieldNoCopy(p.Object, "spec", "ttlSecondsAfterFinished")
		add(refOf(p.Unstructured), p.resource, passes && p.GetKind() == "Job")
	}
	add(in.record(), &kube.Secrets, false)
	in.unseen = len(in.objects)
	return in
}

// record is the Secret that Helm keeps the release in.
func (in *Installed) record() Ref {
	return Ref{"", kube.Secrets.Kind, in.Namespace, secretName(in.Name, in.Revision)}
}

// Objects are all that the release has, CRDs included.
func (in *Installed) Objects() []Ref {
	var all []Ref
	for _, o := range in.objects[:len(in.objects)-1] {
		all = append(all, o.Ref)
	}
	return all
}

// Drift are the objects that aren't as the release has them, as far as a watch has seen. The Secret of the release is among them when it is gone;
// what helps is [Cluster.Install] then.
func (in *Installed) Drift() []Ref {
	in.mu.Lock()
	defer in.mu.Unlock()
	var drift []Ref
	for _, o := range in.objects {
		if o.reported && in.drifted(o) {
			drift = append(drift, o.Ref)
		}
	}
	return drift
}

func (in *Installed) drifted(o *object) bool {
	switch {
	case o.Ref == in.record():
		return o.seen == gone
	case o.passes && o.seen == gone:
		return false
	}
	return o.seen != o.wanted
}

// expect notes which fields an object should have.
func (in *Installed) expect(ref Ref, fields uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if o := in.at[ref]; o != nil {
		o.wanted = fields
	}
}

// expected is the other way.
func (in *Installed) expected(ref Ref) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if o := in.at[ref]; o != nil {
		return o.wanted
	}
	return unknown
}

// see notes which fields an object has, and reports whether that is drift that wasn't seen before.
func (in *Installed) see(ref Ref, fields uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := in.at[ref]
	if ref == in.record() && fields == gone { // Helm's own, which nobody applies
		fields = unknown
	}
	return in.saw(o, fields)
}

// miss notes that an object isn't there.
func (in *Installed) miss(ref Ref) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := in.at[ref]
	drift := in.saw(o, gone)
	in.work(o, missing)
	return drift
}

func (in *Installed) saw(o *object, fields uint64) bool {
	before, reported := o.seen, o.reported
	if !reported {
		in.unseen--
	}
	o.seen, o.reported = fields, true
	return in.drifted(o) && (!reported || before != fields)
}

// missing is the health of what isn't there.
var missing = objectHealth{State: InProgress, Message: "it isn't there"}

// works notes whether an object works.
func (in *Installed) works(ref Ref, health objectHealth) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.work(in.at[ref], health)
}

func (in *Installed) work(o *object, health objectHealth) {
	if o.passes && health == missing {
		health = objectHealth{State: Current}
	}
	o.health = health
}

// fields are the wanted ones of all objects, as [Installed.expectAll] reads them.
func (in *Installed) fields() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var all []string
	for _, o := range in.objects {
		all = append(all, strconv.FormatUint(o.wanted, 36))
	}
	return strings.Join(all, " ")
}

// expectAll notes which fields all objects should have, as far as that is known.
func (in *Installed) expectAll(fields string) {
	all := strings.Fields(fields)
	if len(all) != len(in.objects) {
		return
	}
	for i, o := range in.objects {
		if wanted, err := strconv.ParseUint(all[i], 36, 64); err == nil {
			o.wanted = wanted
		}
	}
}

// States of objects and releases.
const (
	// Unknown is the state of what no watch has seen yet.
	Unknown = ""
	// Current is that of what works.
	Current = "Current"
	// InProgress is that of what doesn't work yet.
	InProgress = "InProgress"
	// Failed is that of what doesn't work.
	Failed = "Failed"
)

// objectHealth says whether an object works.
type objectHealth struct {
	State, Message string
}

// Health says whether a release works.
type Health struct {
	// State is that of the worst object: Failed, Unknown, InProgress or Current.
	State string
	// Message names objects that don't work and says why, at most 512 bytes; "" if all do.
	Message string
}

// maxHealth bounds Health.Message, in bytes.
const maxHealth = 512

// Health says whether the release works, as far as a watch has seen.
func (in *Installed) Health() Health {
	in.mu.Lock()
	defer in.mu.Unlock()
	byState := map[string][]string{}
	for _, o := range in.objects {
		switch {
		case !looked(o.resource) || o.health.State == Current:
		case o.health.State == Unknown:
			byState[Unknown] = append(byState[Unknown], o.Ref.String())
		default:
			byState[o.health.State] = append(byState[o.health.State], clip(o.Ref.String()+": "+o.health.Message, maxHealth/2))
		}
	}
	for _, state := range []string{Failed, Unknown, InProgress} {
		if why := byState[state]; len(why) > 0 {
			if state == Failed {
				why = append(why, byState[InProgress]...)
			}
			return Health{state, listed(why, maxHealth)}
		}
	}
	if in.unseen > 0 {
		return Health{State: Unknown}
	}
	return Health{State: Current}
}

// listed joins texts as long as they fit into so many bytes, and says how many don't.
func listed(texts []string, bytes int) string {
	const room = len("; and 10000 more")
	joined := ""
	for i, text := range texts {
		next := text
		if i > 0 {
			next = joined + "; " + text
		}
		if len(next) > bytes-room {
			if i == 0 {
				return clip(text, bytes)
			}
			return joined + "; and " + strconv.Itoa(len(texts)-i) + " more"
		}
		joined = next
	}
	return joined
}
