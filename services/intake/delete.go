package intake

// The command delete: the API server is asked to delete the object. What was made for it goes by the watch (remove.go).

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// deleting is the end of a command that had an object deleted. The fact is told with the spec, when the watch shows it.
func deleting(about event.About) result {
	return result{CommandOutcome: loop.CommandOutcome{What: event.Deleting, Data: event.IntakeDeleting{About: about}}}
}

// delete deletes the object.
func (s *svc) delete(ctx context.Context, t *loop.Turn, c command) (result, error) {
	cmd, err := target[event.DeleteCommand](c.event.Data())
	if err != nil {
		return result{}, err
	}
	for range maxRaces {
		there, err := s.read(ctx, c)
		switch {
		case err != nil:
			return result{}, err
		case there == nil && (deliveredBefore(c.event) || t.Attempt() > 0): // deleted by an earlier try of this very command
			return deleting(event.About{Namespace: bare(c.key.Namespace), Name: c.key.Name, UID: cmd.UID}), nil
		case there == nil:
			return result{}, c.missing()
		}
		if err := sameUID(c, cmd.UID, there); err != nil {
			return result{}, err
		}
		if there.DeletionTimestamp != nil {
			return deleting(c.about(there)), nil
		}
		if bad := providedWhole(there); bad != nil {
			return result{}, bad
		}
		if _, err := c.unexpected(there); err != nil {
			return result{}, err
		}
		only := &metav1.Preconditions{UID: &there.UID}
		if c.expected != nil {
			only.ResourceVersion = &there.ResourceVersion
		}
		err = s.admitted(ctx, t, c, func(ctx context.Context) error {
			_, err := s.kube.Delete(ctx, c.kind.Resource, bare(c.key.Namespace), c.key.Name, metav1.DeleteOptions{Preconditions: only})
			return err
		})
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return result{}, refused(err, nil)
		}
		return deleting(c.about(there)), nil
	}
	return result{}, errRaces
}

// deliveredBefore reports whether an event was delivered before.
func deliveredBefore(e loop.Event) bool {
	meta, err := e.Raw.Metadata()
	return err == nil && meta.NumDelivered > 1
}
