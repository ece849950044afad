package kube

import (
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestFind(t *testing.T) {
	c, _ := startServer(t).client("test")
	for _, want := range []Resource{ConfigMaps, Deployments, Namespaces} {
		if got, err := c.Find(t.Context(), want.GroupVersion.WithKind(want.Kind)); err != nil || got != want {
			t.Errorf("got %v, %v", got, err)
		}
	}
	for _, k := range []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Scale"}, {Group: "none.example.com", Version: "v1", Kind: "Thing"}} {
		var none *NoKindError
		if got, err := c.Find(t.Context(), k); !errors.As(err, &none) || none.Kind != k {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

func TestObserved(t *testing.T) {
	s := &script{answers: []func(http.ResponseWriter, *http.Request){
		answer(http.StatusOK, metav1.PartialObjectMetadata{}), answer(http.StatusServiceUnavailable, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)),
		answer(http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound)),
	}}
	var first, second []error
	c := s.client(t).Observed(func(err error) { first = append(first, err) }).As("other").Observed(func(err error) { second = append(second, err) })
	for range 3 {
		_ = c.Get(t.Context(), Secrets, "default", "x", &metav1.PartialObjectMetadata{})
	}
	var away *intent.Unavailable
	if len(first) != 3 || len(second) != 3 || first[0] != nil || !errors.As(first[1], &away) || !errors.As(second[1], &away) || second[2] != nil {
		t.Errorf("told %v and %v", first, second)
	}
}
