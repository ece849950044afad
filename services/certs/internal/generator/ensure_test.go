package generator

import (
	"errors"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestWhatBecomesOfWhatNobodyRequests(t *testing.T) {
	t.Parallel()
	secret := func(generator string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name:   name.GeneratedKubeconfig("demo", generator),
				Labels: map[string]string{name.LabelManagedBy: generator, name.LabelManagedFor: "demo"},
			},
			Data: map[string][]byte{"value": []byte(generator)},
		}
	}
	have := map[string]*corev1.Secret{
		"demo-a": secret("a"), "demo-c": secret("c"), name.CA("demo"): {ObjectMeta: metav1.ObjectMeta{Name: name.CA("demo")}},
	}
	got := unrequested("demo", Requests{all: map[string]request{"a": {}}}, map[string]state.Generated{"a": {}, "b": {}}, have)
	if b, ok := got["b"]; len(got) != 2 || !ok || b != nil || got["c"] == nil {
		t.Errorf("got %v", got)
	}
	is := func(checksum, version, inputs string) state.Generated {
		return state.Generated{Secret: state.Secret{Name: "demo-c", Checksum: checksum, ResourceVersion: version}, Inputs: inputs}
	}
	sum := name.Checksum(have["demo-c"].Data)
	was := is(sum, "6", "a-1")
	have["demo-c"].ResourceVersion = "7"
	for sentence, test := range map[string]struct {
		before state.Generated
		o      *corev1.Secret
		want   state.Generated
	}{
		"what is left alone stays as it was":     {was, have["demo-c"], is(sum, "7", "a-1")},
		"what was edited isn't as requested":     {is("other", "", "a-1"), have["demo-c"], is(sum, "7", "")},
		"what was deleted isn't there":           {was, nil, state.Generated{}},
		"what nobody knew is noted":              {state.Generated{}, have["demo-c"], is(sum, "7", "")},
		"what failed before still has its cause": {state.Generated{Error: "taken", Since: now}, nil, state.Generated{Error: "taken", Since: now}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := asFound(test.before, test.o); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("a failure is told since when it is there", func(t *testing.T) {
		t.Parallel()
		first := failed(was, have["demo-c"], errors.New("unreadable"), now)
		if first.Error == "" || first.Since != now || first.Inputs != "" || first.Name != "demo-c" {
			t.Errorf("%+v", first)
		}
		if again := failed(first, have["demo-c"], errNoText, now.Add(time.Hour)); again.Since != now || again.Error == first.Error {
			t.Errorf("%+v", again)
		}
	})
}
