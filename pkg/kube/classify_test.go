package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestClassify(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for what, c := range map[string]struct {
		err  error
		want intent.Intent
	}{
		"no error":                     {nil, intent.Done},
		"no connection":                {errors.New("connection refused"), intent.Wait},
		"too many requests":            {apierrors.NewTooManyRequests("busy", 1), intent.Wait},
		"a server that is stopping":    {apierrors.NewServiceUnavailable("stopping"), intent.Wait},
		"a token that has run out":     {apierrors.NewUnauthorized("who"), intent.Wait},
		"a time-out of the server":     {apierrors.NewTimeoutError("slow", 1), intent.Wait},
		"a time-out of the server's":   {apierrors.NewServerTimeout(secrets, "get", 1), intent.Wait},
		"an object that isn't there":   {apierrors.NewNotFound(secrets, "x"), intent.Retry},
		"an object that is refused":    {apierrors.NewForbidden(secrets, "x", nil), intent.Retry},
		"a webhook that fails":         {apierrors.NewInternalError(errors.New("failed calling webhook")), intent.Retry},
		"a write that was kept back":   {fmt.Errorf("patch: %w", fence.ErrFenced), intent.HandOver},
		"a write that somebody's beat": {apierrors.NewConflict(secrets, "x", nil), intent.Retry},
	} {
		t.Run(what, func(t *testing.T) {
			err := (&Client{dependency: Dependency}).classify(t.Context(), c.err)
			if got := intent.Of(err); got != c.want || c.want == intent.Wait != IsAway(err) {
				t.Errorf("%v: intent %d, away %v", err, got, IsAway(err))
			}
			var asked, answered apierrors.APIStatus
			if errors.As(c.err, &asked) != errors.As(err, &answered) {
				t.Errorf("the server's answer is lost: %v", err)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := (&Client{}).classify(ended, errors.New("closed")); !errors.Is(err, context.Canceled) || IsAway(err) {
		t.Errorf("of a context that ended: %v", err)
	}
}
