package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/apiserver"
)

// server is a real API server.
type server struct {
	t   *testing.T
	cfg *rest.Config
}

func startServer(t *testing.T) *server {
	t.Helper()
	return &server{t: t, cfg: apiserver.Start(t).Config}
}

// counted counts requests, and calls before, if any, in front of each.
type counted struct {
	http.RoundTripper
	n      atomic.Int32
	before atomic.Pointer[func(*http.Request)]
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	if f := c.before.Load(); f != nil {
		(*f)(r)
	}
	return c.RoundTripper.RoundTrip(r)
}

// awaitCache waits until what the server has in memory, of which lists and watches are, is as new as a version: a write is answered
// before it is there.
func (s *server) awaitCache(ctx context.Context, c *Client, r Resource, version string) {
	s.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // between two looks at a condition
		_, err := (&watcher{client: c, resource: r}).pages(ctx, "", version, func(*metav1.PartialObjectMetadata) {})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Error(err)
			return
		}
	}
}

// client returns a client whose requests are counted.
func (s *server) client(manager string) (*Client, *counted) {
	s.t.Helper()
	cfg, requests := rest.CopyConfig(s.cfg), &counted{}
	cfg.Wrap(func(t http.RoundTripper) http.RoundTripper { requests.RoundTripper = t; return requests })
	c, err := New(cfg, Options{FieldManager: manager})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c, requests
}

func TestOwnedObjects(t *testing.T) {
	s := startServer(t)
	own, requests := s.client("stoker-test")
	admin, _ := s.client("admin")
	ctx, owner := t.Context(), Owner{Name: "demo", UID: "a-1"}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(o Owner) []metav1.OwnerReference {
		return []metav1.OwnerReference{{
			APIVersion: TenantControlPlanes.GroupVersion.String(), Kind: TenantControlPlanes.Kind,
			Name: o.Name, UID: types.UID(o.UID), Controller: new(true),
		}}
	}
	want := func(n, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: n, OwnerReferences: of(owner), Labels: map[string]string{name.LabelProject: name.Project, name.LabelName: owner.Name},
		}, Data: map[string]string{"key": value}}
	}
	others := func(n string) *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: ConfigMaps.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}, Data: map[string]string{"key": "theirs"}}
	}
	look := func(t *testing.T, n string) (raw json.RawMessage, o corev1.ConfigMap) {
		t.Helper()
		must(t, admin.Get(ctx, ConfigMaps, "default", n, &raw))
		must(t, json.Unmarshal(raw, &o))
		return raw, o
	}
	remove := func(t *testing.T, n string) {
		t.Helper()
		_, err := admin.Delete(ctx, ConfigMaps, "default", n, metav1.DeleteOptions{})
		must(t, err)
	}
	apply := func(o *corev1.ConfigMap, known types.UID) (sent int32, err error) {
		before := requests.n.Load()
		err = own.ApplyOwned(ctx, ConfigMaps, o, owner, known)
		return requests.n.Load() - before, err
	}
	taken := func(t *testing.T, n string, err error, by string) {
		t.Helper()
		var no *TakenError
		if !errors.As(err, &no) || no.Kind != "ConfigMap" || no.Namespace != "default" || no.Name != n || !strings.Contains(err.Error(), by) {
			t.Errorf("got %v", err)
		}
	}

	t.Run("an object that isn't there is made, and one that is known to be the owner's changed, by one request each; all fields are applied ones", func(t *testing.T) {
		o := want("one", "1")
		if sent, err := apply(o, ""); err != nil || sent != 1 || o.UID == "" {
			t.Fatalf("%d requests, %v, %+v", sent, err, o.ObjectMeta)
		}
		o2 := want("one", "2")
		if sent, err := apply(o2, o.UID); err != nil || sent != 1 || o2.UID != o.UID {
			t.Fatalf("%d requests, %v", sent, err)
		}
		_, live := look(t, "one")
		if m := live.ManagedFields; len(m) != 1 || m[0].Manager != "stoker-test" || m[0].Operation != metav1.ManagedFieldsOperationApply || live.Data["key"] != "2" {
			t.Errorf("%+v", live)
		}
		without := want("one", "")
		without.Data = nil
		if _, err := apply(without, o.UID); err != nil || len(without.Data) > 0 {
			t.Errorf("a field that is no longer wanted stays: %v %v", err, without.Data)
		}
	})
	t.Run("the owner's object that isn't known is looked at, then changed", func(t *testing.T) {
		must(t, admin.Apply(ctx, ConfigMaps, want("unknown", "old")))
		o := want("unknown", "new")
		if sent, err := apply(o, ""); err != nil || sent != 3 || o.Data["key"] != "new" {
			t.Errorf("%d requests, %v", sent, err)
		}
	})
	t.Run("somebody else's object is neither changed nor deleted, whatever UID is thought to be known", func(t *testing.T) {
		must(t, admin.Create(ctx, ConfigMaps, others("theirs")))
		before, _ := look(t, "theirs")
		for _, known := range []types.UID{"", "5b7e6f3c-0000-4000-8000-000000000001"} {
			_, err := apply(want("theirs", "ours"), known)
			taken(t, "theirs", err, "it has no controller")
		}
		found, err := own.DeleteOwned(ctx, ConfigMaps, "default", "theirs", owner, metav1.DeleteOptions{})
		if err != nil || found {
			t.Errorf("found %t, %v", found, err)
		}
		if after, _ := look(t, "theirs"); string(after) != string(before) {
			t.Errorf("%s\nwas\n%s", after, before)
		}
	})
	t.Run("one that another controller took is named with it", func(t *testing.T) {
		o := want("adopted", "1")
		_, err := apply(o, "")
		must(t, err)
		_, live := look(t, "adopted")
		live.OwnerReferences[0].Kind, live.OwnerReferences[0].Name, live.OwnerReferences[0].UID = "Shop", "corner", "f00d"
		must(t, admin.MergePatch(ctx, ConfigMaps, "default", "adopted", map[string]any{"metadata": map[string]any{"ownerReferences": live.OwnerReferences}}, nil))
		_, err = apply(want("adopted", "2"), o.UID)
		taken(t, "adopted", err, "Shop corner")
	})
	t.Run("an earlier object of the owner's name has to go first", func(t *testing.T) {
		former := want("former", "1")
		former.OwnerReferences = of(Owner{owner.Name, "a-0"})
		must(t, admin.Apply(ctx, ConfigMaps, former))
		_, err := apply(want("former", "2"), "")
		taken(t, "former", err, "UID a-0")
		remove(t, "former")
		_, err = apply(want("former", "2"), former.UID)
		must(t, err)
	})
	t.Run("whoever makes the object between the look and the write keeps it", func(t *testing.T) {
		o := want("raced", "1")
		_, err := apply(o, "")
		must(t, err)
		remove(t, "raced")
		// The first write finds nothing of that UID, the look nothing at all; then somebody else is quicker.
		race := func(r *http.Request) {
			if body := readAll(t, r); r.Method == http.MethodPatch && strings.Contains(body, "resourceVersion") {
				requests.before.Store(nil)
				must(t, admin.Create(context.Background(), ConfigMaps, others("raced")))
			}
		}
		requests.before.Store(&race)
		_, err = apply(want("raced", "2"), o.UID)
		taken(t, "raced", err, "it has no controller")
		if _, live := look(t, "raced"); live.Data["key"] != "theirs" || len(live.Labels) > 0 {
			t.Errorf("%+v", live)
		}
	})
	t.Run("an object made in the place of the one that was looked at survives the deletion of that one", func(t *testing.T) {
		_, err := apply(want("replaced", "1"), "")
		must(t, err)
		race := func(r *http.Request) {
			if r.Method == http.MethodDelete {
				requests.before.Store(nil)
				remove(t, "replaced")
				must(t, admin.Create(context.Background(), ConfigMaps, others("replaced")))
			}
		}
		requests.before.Store(&race)
		found, err := own.DeleteOwned(ctx, ConfigMaps, "default", "replaced", owner, metav1.DeleteOptions{})
		if err != nil || found {
			t.Errorf("found %t, %v", found, err)
		}
		look(t, "replaced")
	})
	t.Run("one that is replaced again and again is tried four times", func(t *testing.T) {
		_, err := apply(want("again", "1"), "")
		must(t, err)
		race := func(r *http.Request) {
			if r.Method == http.MethodPatch {
				remove(t, "again")
				must(t, admin.Apply(context.Background(), ConfigMaps, want("again", "theirs")))
			}
		}
		requests.before.Store(&race)
		sent, err := apply(want("again", "2"), "")
		requests.before.Store(nil)
		if !errors.Is(err, intent.ErrStale) || sent != 2*ownedTries {
			t.Errorf("%d requests, %v", sent, err)
		}
		if _, live := look(t, "again"); live.Data["key"] != "theirs" {
			t.Errorf("%+v", live)
		}
	})
	t.Run("what the server refuses for another reason is said, and not tried again", func(t *testing.T) {
		o := want("refused", "1")
		_, err := apply(o, "")
		must(t, err)
		second := want("refused", "2")
		second.OwnerReferences = append(second.OwnerReferences, of(Owner{"second", "b-1"})...)
		if sent, err := apply(second, o.UID); !apierrors.IsInvalid(err) || sent != 2 {
			t.Errorf("%d requests, %v", sent, err)
		}
		long := want("refused", "2")
		long.Labels["long"] = strings.Repeat("x", 100)
		if sent, err := apply(long, o.UID); !apierrors.IsInvalid(err) || sent != 1 {
			t.Errorf("%d requests, %v", sent, err)
		}
	})
	t.Run("an object that can't be looked at is neither changed nor deleted, and that is an error", func(t *testing.T) {
		must(t, admin.Apply(ctx, ConfigMaps, want("hidden", "theirs")))
		ended, cancel := context.WithCancel(ctx)
		race := func(r *http.Request) {
			if r.Method == http.MethodGet {
				cancel()
			}
		}
		requests.before.Store(&race)
		err := own.ApplyOwned(ended, ConfigMaps, want("hidden", "ours"), owner, "")
		found, errDelete := own.DeleteOwned(ended, ConfigMaps, "default", "hidden", owner, metav1.DeleteOptions{})
		requests.before.Store(nil)
		if err == nil || errors.Is(err, intent.ErrStale) || apierrors.IsConflict(err) || errDelete == nil || found {
			t.Errorf("%v, %v, found %t", err, errDelete, found)
		}
		if _, live := look(t, "hidden"); live.Data["key"] != "theirs" {
			t.Errorf("%+v", live)
		}
	})
	t.Run("one that isn't there needs no deletion, one that may not be deleted stays", func(t *testing.T) {
		if found, err := own.DeleteOwned(ctx, ConfigMaps, "default", "nowhere", owner, metav1.DeleteOptions{}); err != nil || found {
			t.Errorf("found %t, %v", found, err)
		}
		_, live := look(t, "hidden")
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if found, err := own.DeleteOnly(ended, ConfigMaps, &live, metav1.DeleteOptions{}); err == nil || found {
			t.Errorf("found %t, %v", found, err)
		}
		if found, err := own.DeleteOnly(ctx, ConfigMaps, &live, metav1.DeleteOptions{}); err != nil || !found {
			t.Errorf("found %t, %v", found, err)
		}
	})
	t.Run("one that is to be gone is named while a finalizer keeps it, deleted once, and gone without", func(t *testing.T) {
		o := want("kept", "1")
		o.Finalizers = []string{"example.com/hold"}
		_, err := apply(o, "")
		must(t, err)
		for n := range 2 {
			before := requests.n.Load()
			deleted, err := own.RemoveOwned(ctx, ConfigMaps, "default", "kept", owner)
			kept := (*HeldError)(nil)
			if sent := int(requests.n.Load() - before); !errors.As(err, &kept) || deleted != (n == 0) || sent != 2-n {
				t.Fatalf("deleted %t by %d requests, %v", deleted, sent, err)
			}
			if kept.Kind != "ConfigMap" || kept.Name != "kept" || !slices.Equal(kept.Finalizers, o.Finalizers) || kept.Since.IsZero() ||
				!strings.Contains(err.Error(), `ConfigMap default/kept to go: it was deleted at 2`) || !strings.Contains(err.Error(), `"example.com/hold"`) {
				t.Errorf("%+v", kept)
			}
		}
		must(t, admin.MergePatch(ctx, ConfigMaps, "default", "kept", map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil))
		for _, n := range []string{"kept", "theirs"} {
			if deleted, err := own.RemoveOwned(ctx, ConfigMaps, "default", n, owner); deleted || err != nil {
				t.Errorf("%s: deleted %t, %v", n, deleted, err)
			}
		}
		look(t, "theirs")
		_, err = apply(want("kept", "2"), "")
		must(t, err)
		if deleted, err := own.RemoveOwned(ctx, ConfigMaps, "default", "kept", owner); !deleted || err != nil {
			t.Errorf("deleted %t, %v", deleted, err)
		}
	})
	t.Run("the owner's goes", func(t *testing.T) {
		found, err := own.DeleteOwned(ctx, ConfigMaps, "default", "unknown", owner, metav1.DeleteOptions{})
		if err != nil || !found {
			t.Errorf("found %t, %v", found, err)
		}
		if err := admin.Get(ctx, ConfigMaps, "default", "unknown", &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func TestWhoseAnObjectIs(t *testing.T) {
	owner := Owner{Name: "demo", UID: "a-1"}
	controller := func(kind, n, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: n, UID: types.UID(uid), Controller: new(true)}}
	}
	labels := func(project, n string) map[string]string {
		return map[string]string{name.LabelProject: project, name.LabelName: n}
	}
	for sentence, test := range map[string]struct {
		o    metav1.ObjectMeta
		want Belonging
	}{
		"its controller is the owner":               {metav1.ObjectMeta{OwnerReferences: controller("TenantControlPlane", "demo", "a-1")}, Own},
		"and the labels are lost":                   {metav1.ObjectMeta{OwnerReferences: controller("TenantControlPlane", "demo", "a-1"), Labels: labels("x", "y")}, Own},
		"its controller was an earlier one":         {metav1.ObjectMeta{OwnerReferences: controller("TenantControlPlane", "demo", "a-0")}, Former},
		"its controller is another tenant":          {metav1.ObjectMeta{OwnerReferences: controller("TenantControlPlane", "other", "b-1")}, Foreign},
		"its controller is of another kind":         {metav1.ObjectMeta{OwnerReferences: controller("Deployment", "demo", "a-2"), Labels: labels("kamaji", "demo")}, Foreign},
		"it has no controller, and both labels":     {metav1.ObjectMeta{Labels: labels("kamaji", "demo")}, Own},
		"it has no controller, and another's label": {metav1.ObjectMeta{Labels: labels("kamaji", "other")}, Foreign},
		"it has no controller, and one label":       {metav1.ObjectMeta{Labels: map[string]string{name.LabelName: "demo"}}, Foreign},
		"it has nothing":                            {metav1.ObjectMeta{}, Foreign},
		"it has an owner that is no controller": {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{Kind: "TenantControlPlane", Name: "demo", UID: "a-1"}}}, Foreign},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := owner.Of(&test.o); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestWhichRefusalsMeanThatAnotherObjectIsThere(t *testing.T) {
	invalid := func(details *metav1.StatusDetails) error {
		return fmt.Errorf("wrapped: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422, Details: details}})
	}
	of := func(fields ...string) *metav1.StatusDetails {
		d := &metav1.StatusDetails{}
		for _, f := range fields {
			d.Causes = append(d.Causes, metav1.StatusCause{Field: f})
		}
		return d
	}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"a conflict":                            {apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no")), true},
		"it has another UID":                    {invalid(of("metadata.uid")), true},
		"it would have a second controller":     {invalid(of("data", "metadata.ownerReferences")), true},
		"another field is invalid":              {invalid(of("data")), false},
		"it is invalid, and nothing says why":   {invalid(of()), false},
		"it is invalid, without any detail":     {invalid(nil), false},
		"the field is named, and it isn't that": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Details: of("metadata.uid")}}, false},
		"no status":                             {errors.New("EOF"), false},
		"no refusal":                            {nil, false},
	} {
		if got := another(c.err); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestWhatIsAppliedDependsOnTheObjectThatIsThere(t *testing.T) {
	for uid, want := range map[types.UID]string{
		"":  `{"metadata":{"name":"a","resourceVersion":"1"}}`,
		"u": `{"metadata":{"name":"a","uid":"u"}}`,
	} {
		o := map[string]any{"metadata": map[string]any{"name": "a", "uid": "before", "resourceVersion": "7"}}
		if got, err := onto(o, uid); err != nil || string(got) != want {
			t.Errorf("onto %q: %s, %v", uid, got, err)
		}
	}
	if _, err := onto(map[string]any{"metadata": "a"}, ""); err == nil {
		t.Error("an object without metadata is applied")
	}
	for what, o := range map[string]metav1.Object{
		"no JSON": struct {
			*corev1.ConfigMap
			C chan int
		}{ConfigMap: &corev1.ConfigMap{}},
		"no metadata": struct {
			*metav1.ObjectMeta `json:"meta"`
		}{&metav1.ObjectMeta{}},
	} {
		if err := (&Client{}).ApplyOwned(t.Context(), ConfigMaps, o, Owner{}, ""); err == nil {
			t.Errorf("%s is applied", what)
		}
	}
}

func TestWhoseAnObjectIsAndTheWayOutAreSaid(t *testing.T) {
	owner := Owner{Name: "demo", UID: "a-1"}
	for want, o := range map[string]*metav1.ObjectMeta{
		"belongs to nothing: it has no controller. Delete it":                   {},
		"belongs to Shop corner. Delete it":                                     {OwnerReferences: []metav1.OwnerReference{{Kind: "Shop", Name: "corner", Controller: new(true)}}},
		"belongs to an earlier TenantControlPlane demo (UID a-0): it is waited": {OwnerReferences: []metav1.OwnerReference{{Kind: TenantControlPlanes.Kind, Name: "demo", UID: "a-0", Controller: new(true)}}},
	} {
		o.Namespace, o.Name = "default", "x"
		if err := owner.Taken("Secret", o); !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "Secret default/x ") {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// readAll returns a request's body and leaves it there.
func readAll(t *testing.T, r *http.Request) string {
	t.Helper()
	if r.Body == nil {
		return ""
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return string(data)
}

func TestObjectsThatAreKept(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	b := &HeldError{"Secret", "default", "b", []string{"x", "y"}, at}
	a := &HeldError{"Secret", "default", "a", []string{"z"}, at.Add(time.Hour)}
	kind, text, since := Held([]*HeldError{b, a})
	const want = `Secret default/a to go: it was deleted at 2026-11-24T13:00:00Z, and is held by what isn't Stoker's: finalizer "z" (and 1 more)`
	if kind != "Secret" || text != want || !since.Equal(at) {
		t.Errorf("%s: %s, since %s", kind, text, since)
	}
	if !strings.Contains(b.Error(), `finalizers "x", "y"`) {
		t.Error(b)
	}
}
