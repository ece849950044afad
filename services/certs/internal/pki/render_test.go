package pki

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestPatchTouchesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	in, x := demo(), world{}
	x.turn(t, in, nil, now)
	roots, _, err := Required(in)
	if err != nil {
		t.Fatal(err)
	}
	w := &roots[0]
	t.Run("nothing when nothing differs, whatever others added to the metadata", func(t *testing.T) {
		t.Parallel()
		s := x[w.Component].DeepCopy()
		s.Labels["team"], s.Annotations["note"] = "a", "b"
		if p := patchOf(in, w, s, s.Data, false, now); p != nil {
			t.Errorf("got %v", p)
		}
	})
	t.Run("an edited label alone is put back, on the version that was seen", func(t *testing.T) {
		t.Parallel()
		s := x[w.Component].DeepCopy()
		s.ResourceVersion = "7"
		delete(s.Labels, name.LabelPartition)
		p := patchOf(in, w, s, s.Data, false, now)
		meta, _ := p["metadata"].(map[string]any)
		if _, data := p["data"]; data || len(meta) != 2 || meta["resourceVersion"] != "7" {
			t.Errorf("got %v", p)
		}
	})
}
