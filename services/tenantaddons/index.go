package tenantaddons

// What the watches have seen of the management cluster.

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// seenTenant is a tenant.
type seenTenant struct {
	uid     types.UID
	labels  labels.Set
	created time.Time
	// paused says that nothing may be changed in it, until a time, zero for no end.
	paused   bool
	until    time.Time
	deleting bool
}

// pausedAt reports whether the tenant is paused at a time.
func (t *seenTenant) pausedAt(now time.Time) bool {
	return t.paused && (t.until.IsZero() || t.until.After(now))
}

// seenRelease is an AddonRelease.
type seenRelease struct {
	uid           types.UID
	addon, tenant types.NamespacedName
	// owner is the UID of the tenant that it was made for.
	owner      types.UID
	version    string
	generation int64
	deleting   bool
}

// index knows all tenants, namespaces and AddonReleases, whatever partition they are in: a TenantAddon is for tenants of many. It is safe for
// concurrent use.
type index struct {
	mu         sync.Mutex
	tenants    map[types.NamespacedName]seenTenant
	namespaces map[string]labels.Set
	addons     map[types.NamespacedName]struct{}
	releases   map[types.NamespacedName]seenRelease
	ofTenant   map[types.NamespacedName]map[types.NamespacedName]struct{}
	ofAddon    map[types.NamespacedName]map[types.NamespacedName]struct{}
	// unlisted are the watches that haven't told all there is yet; nil before the first.
	unlisted map[string]struct{}
}

// errPartial means that not all there is is known yet: nothing may be concluded from what isn't there.
var errPartial = errors.New("not all TenantAddons, AddonReleases and tenants are listed yet")

// reset forgets everything; lists are those that must be told before anything is known.
func (x *index) reset(lists ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tenants, x.namespaces = map[types.NamespacedName]seenTenant{}, map[string]labels.Set{}
	x.addons, x.releases = map[types.NamespacedName]struct{}{}, map[types.NamespacedName]seenRelease{}
	x.ofTenant, x.ofAddon = map[types.NamespacedName]map[types.NamespacedName]struct{}{}, map[types.NamespacedName]map[types.NamespacedName]struct{}{}
	x.unlisted = map[string]struct{}{}
	for _, l := range lists {
		x.unlisted[l] = struct{}{}
	}
}

// noteListed notes that a watch has told all there is, and reports whether that was the last one.
func (x *index) noteListed(list string) (last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, was := x.unlisted[list]
	delete(x.unlisted, list)
	return was && len(x.unlisted) == 0
}

// whole reports whether all there is is known; mu is held.
func (x *index) whole() bool { return x.unlisted != nil && len(x.unlisted) == 0 }

// noteTenant notes a tenant, and reports whether it is another than before to TenantAddons.
func (x *index) noteTenant(o *metav1.PartialObjectMetadata, gone bool) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	was, there := x.tenants[of]
	if gone {
		delete(x.tenants, of)
		return there
	}
	is := seenTenant{uid: o.UID, labels: o.Labels, created: o.CreationTimestamp.Time, deleting: o.DeletionTimestamp != nil}
	is.paused, is.until, _ = name.Paused(o.Annotations, time.Time{})
	x.tenants[of] = is
	return !there || was.uid != is.uid || was.paused != is.paused || !was.until.Equal(is.until) || was.deleting != is.deleting ||
		!maps.Equal(was.labels, is.labels)
}

// noteNamespace notes a namespace, and reports whether its labels are others than before.
func (x *index) noteNamespace(o *metav1.PartialObjectMetadata, gone bool) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, there := x.namespaces[o.Name]
	if gone {
		delete(x.namespaces, o.Name)
		return there
	}
	x.namespaces[o.Name] = o.Labels
	return !there || !maps.Equal(was, o.Labels)
}

// noteAddon notes a TenantAddon.
func (x *index) noteAddon(of types.NamespacedName, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if gone {
		delete(x.addons, of)
		return
	}
	x.addons[of] = struct{}{}
}

// noteRelease notes an AddonRelease, and reports whether what it asks of its tenant is something else than before.
func (x *index) noteRelease(o *metav1.PartialObjectMetadata, gone bool) (is seenRelease, asks bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	was, there := x.releases[of]
	if gone && there && o.UID != "" && was.uid != o.UID { // another one of its name is there by now
		return seenRelease{}, false
	}
	if gone {
		delete(x.releases, of)
		drop(x.ofTenant, was.tenant, of)
		drop(x.ofAddon, was.addon, of)
		return was, there
	}
	is = seenRelease{
		uid: o.UID, version: o.ResourceVersion, generation: o.Generation, deleting: o.DeletionTimestamp != nil,
		addon:  types.NamespacedName{Namespace: o.Labels[name.LabelTenantAddonNamespace], Name: o.Labels[name.LabelTenantAddon]},
		tenant: types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[name.LabelTenant]},
	}
	if len(o.OwnerReferences) > 0 {
		is.owner = o.OwnerReferences[0].UID
	}
	if there && (was.tenant != is.tenant || was.addon != is.addon) {
		drop(x.ofTenant, was.tenant, of)
		drop(x.ofAddon, was.addon, of)
	}
	x.releases[of] = is
	put(x.ofTenant, is.tenant, of)
	put(x.ofAddon, is.addon, of)
	return is, !there || was.uid != is.uid || was.generation != is.generation || was.deleting != is.deleting
}

func put(in map[types.NamespacedName]map[types.NamespacedName]struct{}, key, of types.NamespacedName) {
	if in[key] == nil {
		in[key] = map[types.NamespacedName]struct{}{}
	}
	in[key][of] = struct{}{}
}

func drop(in map[types.NamespacedName]map[types.NamespacedName]struct{}, key, of types.NamespacedName) {
	if delete(in[key], of); len(in[key]) == 0 {
		delete(in, key)
	}
}

// in are the AddonReleases of a tenant, and the tenant, if it is there; errPartial.
func (x *index) in(of types.NamespacedName) (releases map[types.NamespacedName]seenRelease, t seenTenant, there bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.whole() {
		return nil, t, false, errPartial
	}
	t, there = x.tenants[of]
	return x.pick(x.ofTenant[of]), t, there, nil
}

// releasesOf are the AddonReleases of a TenantAddon; errPartial.
func (x *index) releasesOf(addon types.NamespacedName) (map[types.NamespacedName]seenRelease, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.whole() {
		return nil, errPartial
	}
	return x.pick(x.ofAddon[addon]), nil
}

// pick copies AddonReleases; mu is held.
func (x *index) pick(of map[types.NamespacedName]struct{}) map[types.NamespacedName]seenRelease {
	all := make(map[types.NamespacedName]seenRelease, len(of))
	for n := range of {
		all[n] = x.releases[n]
	}
	return all
}

// addonsFor are the TenantAddons that may be for tenants of a namespace, empty for any: those in it, and those of the fleet's namespace.
func (x *index) addonsFor(namespace, fleet string) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(func(yield func(types.NamespacedName) bool) {
		for of := range x.addons {
			if (namespace == "" || of.Namespace == namespace || of.Namespace == fleet) && !yield(of) {
				return
			}
		}
	})
}

// tenantsWith are the tenants that selectors choose, by their own labels and by those of their namespaces; without one for namespaces, those
// of one namespace. errPartial.
func (x *index) tenantsWith(selector labels.Selector, namespaces labels.Selector, namespace string) (map[types.NamespacedName]seenTenant, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.whole() {
		return nil, errPartial
	}
	all := map[types.NamespacedName]seenTenant{}
	for of, t := range x.tenants {
		within := of.Namespace == namespace
		if namespaces != nil {
			in, there := x.namespaces[of.Namespace]
			within = there && namespaces.Matches(in)
		}
		if within && selector.Matches(t.labels) {
			all[of] = t
		}
	}
	return all, nil
}

// tenant that was seen.
func (x *index) tenant(of types.NamespacedName) (t seenTenant, there bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t, there = x.tenants[of]
	return t, there
}
