package intake

// Commands that change an object there is: it is read, the verb says the merge patch (verbs.go), and that is written.

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// change makes an object what a command asks of it.
func (s *svc) change(ctx context.Context, t *loop.Turn, c command, what change) (result, error) {
	for range maxRaces {
		there, err := s.read(ctx, c)
		if err != nil {
			return result{}, err
		}
		if there == nil {
			return result{}, c.missing()
		}
		if err := sameUID(c, what.uid, there); err != nil {
			return result{}, err
		}
		if there.DeletionTimestamp != nil && !what.dying {
			return result{}, refuse("metadata.name", event.RuleDeleting, c.key.String(), "is being deleted")
		}
		done, err := c.unexpected(there)
		if err != nil {
			return result{}, err
		}
		patch, err := what.patch(there)
		if err != nil {
			return result{}, err
		}
		if bad := provided(there, patch); len(bad) > 0 {
			return result{}, bad
		}
		if done || len(patch) == 0 {
			return s.accepted(ctx, t, c, there)
		}
		if c.expected != nil {
			annotate(patch, map[string]any{name.AnnotationCommand: c.id()})
		}
		if c.expected != nil || what.exact || what.uid != "" {
			within(patch, "metadata")["resourceVersion"] = there.ResourceVersion
		}
		var raw json.RawMessage
		err = s.admitted(ctx, t, c, func(ctx context.Context) error {
			return s.kube.MergePatch(ctx, c.kind.Resource, bare(c.key.Namespace), c.key.Name, patch, &raw)
		})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue
		}
		var after *object
		if err == nil {
			after, err = c.object(raw)
		}
		before, _ := parse(there.raw)
		return s.afterWrite(ctx, t, c, after, err, merge(any(before), any(patch)))
	}
	return result{}, errRaces
}
