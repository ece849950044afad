package tenantaddons

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func seen(namespace, n, uid string, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n, UID: types.UID(uid), Labels: labels, ResourceVersion: uid, Generation: 1}}
}

func seenOf(uid string) *metav1.PartialObjectMetadata {
	return seen("ns", "shop.x.ns", uid, map[string]string{name.LabelTenant: "shop", name.LabelTenantAddon: "x", name.LabelTenantAddonNamespace: "ns"})
}

func TestIndex(t *testing.T) {
	shop, x := types.NamespacedName{Namespace: "ns", Name: "shop"}, types.NamespacedName{Namespace: "ns", Name: "x"}
	full := func() *index {
		i := &index{}
		i.reset("a", "b")
		i.noteListed("a")
		if i.noteListed("b") != true || i.noteListed("b") {
			t.Error("the last list is told once")
		}
		return i
	}
	t.Run("nothing is concluded before all is listed", func(t *testing.T) {
		i := &index{}
		i.reset("a")
		_, one := i.releasesOf(x)
		_, _, _, two := i.in(shop)
		_, three := i.tenantsWith(labels.Everything(), nil, "ns")
		for _, err := range []error{one, two, three} {
			if !errors.Is(err, errPartial) {
				t.Errorf("%v", err)
			}
		}
		if i = full(); i.noteTenant(seen("ns", "shop", "1", nil), false) != true {
			t.Error("a new tenant is a change")
		}
		i.reset("a")
		if _, err := i.tenantsWith(labels.Everything(), nil, "ns"); !errors.Is(err, errPartial) {
			t.Error("what is begun anew is whole")
		}
	})
	t.Run("tenants are chosen by their labels and namespaces", func(t *testing.T) {
		i := full()
		i.noteTenant(seen("ns", "shop", "1", map[string]string{"tier": "gold"}), false)
		i.noteTenant(seen("ns", "plain", "2", nil), false)
		i.noteTenant(seen("other", "shop", "3", map[string]string{"tier": "gold"}), false)
		i.noteTenant(seen("unknown", "shop", "4", map[string]string{"tier": "gold"}), false)
		i.noteNamespace(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, false)
		i.noteNamespace(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"env": "prod"}}}, false)
		gold, prod := labels.SelectorFromSet(labels.Set{"tier": "gold"}), labels.SelectorFromSet(labels.Set{"env": "prod"})
		for want, selectors := range map[string][2]labels.Selector{
			"ns/shop": {gold, nil}, "ns/plain ns/shop": {labels.Everything(), nil}, "other/shop": {gold, prod}, "ns/shop other/shop": {gold, labels.Everything()},
		} {
			all, err := i.tenantsWith(selectors[0], selectors[1], "ns")
			var got []string
			for of := range all {
				got = append(got, of.String())
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != want || err != nil {
				t.Errorf("%q, want %q; %v", s, want, err)
			}
		}
	})
	t.Run("a change is what matters to TenantAddons", func(t *testing.T) {
		i := full()
		i.noteTenant(seen("ns", "shop", "1", nil), false)
		again := seen("ns", "shop", "1", nil)
		again.ResourceVersion = "2"
		if i.noteTenant(again, false) {
			t.Error("another version is a change")
		}
		again.Annotations = map[string]string{name.AnnotationPausedUntil: "2026-11-27T12:00:00Z"}
		if !i.noteTenant(again, false) {
			t.Error("a pause is no change")
		}
		is := i.tenants[shop]
		if at := time.Date(2026, 11, 27, 11, 0, 0, 0, time.UTC); !is.pausedAt(at) || is.pausedAt(at.Add(2*time.Hour)) {
			t.Errorf("%+v", is)
		}
		if !i.noteTenant(again, true) || i.noteTenant(again, true) {
			t.Error("the end is a change, once")
		}
	})
	t.Run("an AddonRelease asks when its spec is another", func(t *testing.T) {
		i := full()
		if _, asks := i.noteRelease(seenOf("1"), false); !asks {
			t.Error("a new one asks nothing")
		}
		status := seenOf("1")
		status.ResourceVersion = "7"
		if is, asks := i.noteRelease(status, false); asks || is.tenant != shop || is.addon != x {
			t.Errorf("%+v, %v", is, asks)
		}
		status.Generation = 2
		if _, asks := i.noteRelease(status, false); !asks {
			t.Error("another spec asks nothing")
		}
	})
	t.Run("the end of an AddonRelease isn't that of the next one of its name", func(t *testing.T) {
		i := full()
		i.noteRelease(seenOf("1"), false)
		i.noteRelease(seenOf("2"), false)
		i.noteRelease(seenOf("1"), true)
		if all, err := i.releasesOf(x); len(all) != 1 || err != nil {
			t.Errorf("%v, %v", all, err)
		}
		i.noteRelease(seenOf("2"), true)
		all, _, _, err := i.in(shop)
		if len(all) != 0 || err != nil || len(i.ofTenant)+len(i.ofAddon) != 0 {
			t.Errorf("%v, %v, %v, %v", all, err, i.ofTenant, i.ofAddon)
		}
	})
	t.Run("TenantAddons of the fleet are for all namespaces", func(t *testing.T) {
		i := full()
		i.noteAddon(x, false)
		i.noteAddon(types.NamespacedName{Namespace: "fleet", Name: "y"}, false)
		for namespace, want := range map[string]int{"ns": 2, "other": 1, "": 2} {
			if all := i.addonsFor(namespace, "fleet"); len(all) != want {
				t.Errorf("%s: %v", namespace, all)
			}
		}
	})
}

func TestReferred(t *testing.T) {
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	one, two := ref{of: types.NamespacedName{Name: "one"}}, ref{of: types.NamespacedName{Name: "two"}}
	var log []string
	r := &referred{}
	r.follow(a, one)
	r.begin(func(of ref) context.CancelFunc {
		log = append(log, "+"+of.of.Name)
		return func() { log = append(log, "-"+of.of.Name) }
	})
	r.follow(b, one, two)
	r.follow(a)
	r.follow(b, two)
	if by := r.referring(two); !slices.Equal(by, []types.NamespacedName{b}) {
		t.Errorf("%v", by)
	}
	r.end()
	r.follow(b, one)
	if got := strings.Join(log, " "); got != "+one +two -one -two" {
		t.Errorf("%s", got)
	}
}
