package tenantaddons

// How TenantAddons stand in tenants, as their AddonReleases were read last. An AddonRelease is read again when a watch has shown another version.

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// selectorOf selects the AddonReleases of a TenantAddon.
func selectorOf(of types.NamespacedName) string {
	return fmt.Sprintf("%s=%s,%s=%s", name.LabelTenantAddon, of.Name, name.LabelTenantAddonNamespace, of.Namespace)
}

// known is an AddonRelease as it was read.
type known struct {
	uid, owner types.UID
	version    string
	deleting   bool
	spec       tenantaddon.AddonReleaseSpec
	standing
}

func knownOf(o *tenantaddon.AddonRelease) *known {
	k := &known{uid: o.UID, version: o.ResourceVersion, deleting: o.DeletionTimestamp != nil, spec: o.Spec}
	if len(o.OwnerReferences) > 0 {
		k.owner = o.OwnerReferences[0].UID
	}
	k.standing = standing{allowed: o.Spec.Revision, tried: o.Status.Revision, failed: o.Status.Failed}
	if c := meta.FindStatusCondition(o.Status.Conditions, tenantaddon.ConditionReady); c != nil {
		k.ready, k.reason, k.message, k.since = c.Status == metav1.ConditionTrue, c.Reason, c.Message, c.LastTransitionTime.Time
	}
	return k
}

// standings returns the AddonReleases of a TenantAddon, and reads those that have changed since they were read. Turns of one TenantAddon don't
// overlap, so that what is returned belongs to the turn.
func (s *svc) standings(ctx context.Context, of types.NamespacedName) (map[types.NamespacedName]*known, error) {
	seen, err := s.index.releasesOf(of)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	all := maps.Clone(s.known[of])
	s.mu.Unlock()
	if all == nil {
		all = map[types.NamespacedName]*known{}
	}
	var stale []types.NamespacedName
	for n, is := range seen {
		if k := all[n]; k == nil || k.version != is.version {
			stale = append(stale, n)
		}
	}
	maps.DeleteFunc(all, func(n types.NamespacedName, _ *known) bool { _, there := seen[n]; return !there })
	if len(stale) >= listFrom {
		stale = nil
		err := kube.Each(ctx, s.kube, kube.AddonReleases, selectorOf(of), func(o *tenantaddon.AddonRelease) {
			all[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = knownOf(o)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, n := range stale {
		o := &tenantaddon.AddonRelease{}
		err := s.kube.Get(ctx, kube.AddonReleases, n.Namespace, n.Name, o)
		if apierrors.IsNotFound(err) {
			delete(all, n)
			s.index.noteRelease(metadataOf(&metav1.ObjectMeta{UID: seen[n].uid}, n), true)
			continue
		}
		if err != nil {
			return nil, err
		}
		all[n] = knownOf(o)
	}
	s.mu.Lock()
	s.known[of] = maps.Clone(all)
	s.mu.Unlock()
	return all, nil
}

// metadataOf is the metadata of an AddonRelease of a name, as a watch shows it.
func metadataOf(o *metav1.ObjectMeta, of types.NamespacedName) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: *o}
	m.Namespace, m.Name = of.Namespace, of.Name
	return m
}

// learn notes an AddonRelease of a TenantAddon as it was just written.
func (s *svc) learn(addon types.NamespacedName, o *tenantaddon.AddonRelease) {
	of := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	is, asks := s.index.noteRelease(metadataOf(&o.ObjectMeta, of), false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if asks && s.wake != nil { // the watch will show nothing new
		s.wake(events.Tenant(is.tenant.Namespace, is.tenant.Name), loop.Wake{Kind: wakeSeen})
	}
	if s.known[addon] == nil {
		s.known[addon] = map[types.NamespacedName]*known{}
	}
	s.known[addon][of] = knownOf(o)
}

// forget forgets a TenantAddon that is gone.
func (s *svc) forget(of types.NamespacedName) {
	s.referred.follow(of)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, of)
	delete(s.planned, of)
	delete(s.told, of)
	delete(s.prepared, of)
}
