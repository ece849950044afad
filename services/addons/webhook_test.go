package addons

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichWebhookKeepsObjectsFromBeingApplied(t *testing.T) {
	t.Parallel()
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	failed := status(http.StatusInternalServerError, `Internal error occurred: failed calling webhook "all.example.com": connection refused`)
	a := objectError(Ref{"ConfigMap", "kube-system", "a"}, failed)
	b := objectError(Ref{"ConfigMap", "kube-system", "b"}, failed)
	const want = `the tenant's own webhook "all.example.com" keeps ConfigMap/kube-system/a (2 objects in all) from being as it must be: ` +
		`Internal error occurred: failed calling webhook "all.example.com": connection refused`
	for sentence, test := range map[string]struct {
		err  error
		want string
	}{
		"all of them, in any order": {errors.Join(b, a), want},
		"also behind others' words": {fmt.Errorf("apply: %w", errors.Join(a, b)), want},
		"not where something else is wrong, too": {
			errors.Join(a, objectError(Ref{"ConfigMap", "kube-system", "b"}, status(http.StatusInsufficientStorage, "full"))), "",
		},
		"nor where no object is at fault": {errors.New("away"), ""},
		"nor where nothing is wrong":      {nil, ""},
	} {
		if got := barredBy(test.err); got != test.want {
			t.Errorf("%s: %q", sentence, got)
		}
	}
	if passing(failed) {
		t.Error("a webhook that fails is asked again at once")
	}
}
