package intake

// Commands that change an object there is: patch, pause, resume, sleep, wake. Each verb is a pure function from the object
// to a merge patch of it; one place reads, writes and tells.

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// change is what a command asks of an object.
type change struct {
	// uid the object must have, when given.
	uid string
	// patch is what is to be changed of an object, as a merge patch (RFC 7386) of it; empty when it is so already.
	patch func(there *object) (map[string]any, error)
	// exact is set when the patch depends on the object: it is then made of that very version.
	exact bool
	// dying is set when it makes sense for an object that is being deleted.
	dying bool
}

// asked reads what a command asks for.
func (o order) asked() (change, error) {
	data := o.event.Data()
	switch o.verb {
	case event.Patch:
		cmd, err := target[event.PatchCommand](data)
		if err != nil {
			return change{}, err
		}
		return o.patching(cmd)
	case event.Pause:
		cmd, err := target[event.PauseCommand](data)
		if err != nil {
			return change{}, err
		}
		if at := o.stored(); !cmd.Until.IsZero() && !cmd.Until.After(at) {
			return change{}, refuse("until", ruleInvalid, cmd.Until.Format(time.RFC3339), "must be after the command was sent ("+at.UTC().Format(time.RFC3339)+")")
		}
		return change{uid: cmd.UID, dying: true, patch: annotating(func(have map[string]string) map[string]any { return pausing(have, cmd.Until) })}, nil
	case event.Resume:
		cmd, err := target[event.ResumeCommand](data)
		return change{uid: cmd.UID, dying: true, patch: annotating(resuming)}, err
	case event.Sleep:
		cmd, err := target[event.SleepCommand](data)
		return change{uid: cmd.UID, exact: true, patch: scaling(sleeping)}, err
	}
	cmd, err := target[event.WakeCommand](data)
	return change{uid: cmd.UID, exact: true, patch: scaling(waking)}, err
}

// target decodes the data of a command that needs none. It never returns nil.
func target[T any](data []byte) (*T, error) {
	if len(data) == 0 || string(data) == "null" {
		return new(T), nil
	}
	cmd, err := decode[T](data)
	if err != nil {
		return new(T), err
	}
	return cmd, nil
}

// stored is when a command came to the stream: no redelivery changes it.
func (o order) stored() time.Time {
	meta, err := o.event.Raw.Metadata()
	if err != nil {
		return time.Time{}
	}
	return meta.Timestamp
}

func (o order) patching(cmd *event.PatchCommand) (change, error) {
	spec, ok := parse(cmd.Spec)
	switch {
	case len(cmd.Spec) == 0 || string(cmd.Spec) == "null":
		return change{}, refuse("spec", ruleRequired, "", "missing; must be a JSON merge patch of the spec (RFC 7386)")
	case !ok:
		return change{}, refuse("spec", ruleInvalid, string(cmd.Spec), "must be an object: a JSON merge patch of the spec (RFC 7386)")
	}
	part, err := json.Marshal(map[string]any{"spec": cmd.Spec}) // as it was sent, with what is in it twice
	if err != nil {
		return change{}, err
	}
	if _, err := o.kind.strict(part); err != nil {
		return change{}, err
	}
	return change{uid: cmd.UID, patch: func(*object) (map[string]any, error) { return map[string]any{"spec": spec}, nil }}, nil
}

// annotating makes a change of annotations a patch.
func annotating(want func(have map[string]string) map[string]any) func(*object) (map[string]any, error) {
	return func(there *object) (map[string]any, error) {
		patch := map[string]any{}
		annotate(patch, want(there.Annotations))
		return patch, nil
	}
}

// annotate adds annotations to a patch; nil removes one.
func annotate(patch, annotations map[string]any) {
	if len(annotations) == 0 {
		return
	}
	meta := within(patch, "metadata")
	of := within(meta, "annotations")
	for k, v := range annotations {
		of[k] = v
	}
}

func within(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}

// pausing pauses until a time, or without end when it is zero.
func pausing(have map[string]string, until time.Time) map[string]any {
	change := map[string]any{}
	_, forever := have[name.AnnotationPaused]
	said, limited := have[name.AnnotationPausedUntil]
	if until.IsZero() {
		if !forever {
			change[name.AnnotationPaused] = ""
		}
		if limited {
			change[name.AnnotationPausedUntil] = nil
		}
		return change
	}
	// Whole seconds, and not before its time.
	if end := until.UTC().Add(time.Second - 1).Format(time.RFC3339); end != said {
		change[name.AnnotationPausedUntil] = end
	}
	if forever {
		change[name.AnnotationPaused] = nil
	}
	return change
}

func resuming(have map[string]string) map[string]any {
	change := map[string]any{}
	for _, a := range []string{name.AnnotationPaused, name.AnnotationPausedUntil} {
		if _, ok := have[a]; ok {
			change[a] = nil
		}
	}
	return change
}

// scaling makes a change of replicas, and of the annotation that remembers how many there were, a patch.
func scaling(want func(replicas int32, remembered string) (to int32, note any)) func(*object) (map[string]any, error) {
	return func(there *object) (map[string]any, error) {
		replicas := v1alpha1.DefaultReplicas
		if r := there.tenant.Spec.ControlPlane.Deployment.Replicas; r != nil {
			replicas = *r
		}
		remembered, noted := there.Annotations[name.AnnotationAwakeReplicas]
		to, note := want(replicas, remembered)
		patch := map[string]any{}
		if to != replicas {
			patch["spec"] = map[string]any{"controlPlane": map[string]any{"deployment": map[string]any{"replicas": to}}}
		}
		if note != nil && note != remembered || note == nil && noted {
			annotate(patch, map[string]any{name.AnnotationAwakeReplicas: note})
		}
		return patch, nil
	}
}

// sleeping is no replicas; how many there were is noted, unless it sleeps already.
func sleeping(replicas int32, remembered string) (to int32, note any) {
	if replicas > 0 {
		return 0, strconv.Itoa(int(replicas))
	}
	if remembered == "" {
		return 0, nil
	}
	return 0, remembered
}

// waking is as many replicas as there were; the note has then done its service.
func waking(replicas int32, remembered string) (to int32, note any) {
	if replicas > 0 {
		return replicas, nil
	}
	if n, err := strconv.ParseInt(remembered, 10, 32); err == nil && n > 0 {
		return int32(n), nil
	}
	return v1alpha1.DefaultReplicas, nil
}

// change makes an object what a command asks of it.
func (s *intake) change(ctx context.Context, t *loop.Turn, o order) (string, any, error) {
	c, err := o.asked()
	if err != nil {
		return "", nil, err
	}
	for range maxRaces {
		there, err := s.read(ctx, o)
		if err != nil {
			return "", nil, err
		}
		if there == nil {
			return "", nil, o.missing()
		}
		if err := sameUID(o, c.uid, there); err != nil {
			return "", nil, err
		}
		if there.DeletionTimestamp != nil && !c.dying {
			return "", nil, refuse("metadata.name", ruleDeleting, o.key.String(), "is being deleted")
		}
		done, err := o.unexpected(there)
		if err != nil {
			return "", nil, err
		}
		patch, err := c.patch(there)
		if err != nil {
			return "", nil, err
		}
		if done || len(patch) == 0 {
			return s.accepted(ctx, t, o, there)
		}
		if o.expected != nil {
			annotate(patch, map[string]any{name.AnnotationCommand: o.mark()})
		}
		if o.expected != nil || c.exact || c.uid != "" {
			within(patch, "metadata")["resourceVersion"] = there.ResourceVersion
		}
		var raw json.RawMessage
		err = s.kube.MergePatch(ctx, o.kind.Resource, bare(o.key.Namespace), o.key.Name, patch, &raw)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue
		}
		var after *object
		if err == nil {
			after, err = o.object(raw)
		}
		whole, _ := parse(there.raw)
		return s.end(ctx, t, o, after, err, merge(any(whole), any(patch)))
	}
	return "", nil, errRaces
}
