package intake

// The command apply: server-side apply of the whole object, to which intake adds its finalizer and the record of the DataStore.

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// versionOfNone is the resourceVersion of an object that must not be there: the API server then creates the object that is applied,
// and refuses it if it exists.
const versionOfNone = "0"

// exists reports whether the API server refused an object that was applied with versionOfNone, because it is there.
func exists(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.resourceVersion"
	})
}

// application is an object to be applied.
type application struct {
	command
	typed any            // as it was decoded
	body  map[string]any // as it is sent
}

// apply makes the object as the command says.
func (s *svc) apply(ctx context.Context, t *loop.Turn, c command) (result, error) {
	typed, body, err := whole(c.key, c.kind, c.event.Data(), s.watchFilter)
	if err != nil {
		return result{}, err
	}
	if c.expected != nil {
		annotate(body, map[string]any{name.AnnotationCommand: c.id()})
	}
	a := application{command: c, typed: typed, body: body}
	if c.key.IsTenant() && t.UID == "" && (c.expected == nil || *c.expected == 0) { // most likely new: one question less
		after, err := s.applyOnto(ctx, t, a, nil, versionOfNone)
		if !exists(err) {
			return s.afterWrite(ctx, t, c, after, err, body)
		}
	}
	for range maxRaces {
		there, err := s.read(ctx, c)
		if err != nil {
			return result{}, err
		}
		if there != nil && there.DeletionTimestamp != nil {
			return result{}, refuse("metadata.name", event.RuleDeleting, c.key.String(),
				"is being deleted; apply it again once it is gone (fact status.deleted)")
		}
		if bad := providedWhole(there); bad != nil {
			return result{}, bad
		}
		done, err := c.unexpected(there)
		if err != nil {
			return result{}, err
		}
		if done {
			return s.accepted(ctx, t, c, there)
		}
		version := ""
		switch {
		case c.expected != nil && there == nil:
			version = versionOfNone
		case c.expected != nil:
			version = there.ResourceVersion
		}
		after, err := s.applyOnto(ctx, t, a, there, version)
		if apierrors.IsConflict(err) || exists(err) {
			continue
		}
		return s.afterWrite(ctx, t, c, after, err, body)
	}
	return result{}, errRaces
}

// applyOnto applies an object on top of what was read, nil for nothing. version is the resourceVersion it must have, empty for any.
func (s *svc) applyOnto(ctx context.Context, t *loop.Turn, a application, there *object, version string) (*object, error) {
	meta := within(a.body, "metadata")
	if delete(meta, "resourceVersion"); version != "" {
		meta["resourceVersion"] = version
	}
	if asked, ok := a.typed.(*v1alpha1.TenantControlPlane); ok {
		dataStore, err := s.recordOf(a.key, asked, there.meta())
		if err != nil {
			return nil, err
		}
		withRecord(meta, dataStore)
	}
	data, err := json.Marshal(a.body)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	if err := s.admitted(ctx, t, a.command, func(ctx context.Context) error {
		return s.kube.ApplyRaw(ctx, a.kind.Resource, bare(a.key.Namespace), a.key.Name, data, &raw)
	}); err != nil {
		return nil, err
	}
	return a.object(raw)
}

// withRecord adds the record of a tenant's DataStore to metadata that is applied, which would take it away otherwise.
func withRecord(meta map[string]any, dataStore string) {
	within(meta, "annotations")[name.AnnotationDataStore] = dataStore
	labels := within(meta, "labels")
	if delete(labels, name.LabelDataStore); dataStore != "" {
		labels[name.LabelDataStore] = dataStore
	}
}
