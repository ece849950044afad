package store

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestPausedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, st := newWorld(func() error { return nil })
		shown := func(generation int64, annotations map[string]string) bool {
			changed, _ := st.Observe(kube.Change{Type: watch.Modified, Object: &metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "uid", Generation: generation, Annotations: annotations},
			}}, time.Now())
			return changed
		}
		generation := func() int64 {
			o, opened, err := st.Load(t.Context())
			if opened != nil || err != nil {
				t.Fatal(opened, err)
			}
			return o.Generation
		}
		change := func(generation int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.object = w.object.DeepCopy()
			w.object.Generation = generation
		}
		st.AddTenant(events.Tenant("default", "a"))
		if generation() != 1 || shown(1, nil) {
			t.Error("a change of the status alone is a change for tenants")
		}
		if shown(1, map[string]string{name.AnnotationPaused: ""}) {
			t.Error("the beginning of a pause is a change for tenants")
		}
		change(2)
		if shown(2, map[string]string{name.AnnotationPaused: ""}) {
			t.Error("a change in a pause is a change for tenants")
		}
		st.Invalidate()
		if time.Sleep(time.Hour); generation() != 1 { //nolint:forbidigo // the bubble's clock
			t.Error("it was read again while paused")
		}
		if !shown(2, nil) {
			t.Error("the end of a pause is no change")
		}
		st.Invalidate()
		if generation() != 2 {
			t.Error("what changed in the pause was missed")
		}
		until := time.Now().Add(time.Minute)
		shown(2, map[string]string{name.AnnotationPausedUntil: until.Format(time.RFC3339)})
		if !st.Paused(time.Now()) || !st.PausedUntil(time.Now()).Equal(until.Truncate(time.Second)) || st.Paused(until) {
			t.Error(st.PausedUntil(time.Now()))
		}
	})
}
