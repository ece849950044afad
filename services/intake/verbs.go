package intake

// The verbs of commands. Those that change an object there is are pure functions from the object to a merge patch of it; change.go
// reads and writes.

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// verb says what commands of a verb do; one of the fields is set.
type verb struct {
	// do carries a command out.
	do func(s *svc, ctx context.Context, t *loop.Turn, c command) (result, error)
	// change says what is to be changed of the object there is. Its error is a refusal.
	change func(c command) (change, error)
}

// verbs are all there are. Which kinds of objects each is for is in the catalogue (event.Catalogue).
var verbs = map[string]verb{
	event.Apply:   {do: (*svc).apply},
	event.Delete:  {do: (*svc).delete},
	event.Patch:   {change: patch},
	event.Pause:   {change: pause},
	event.Resume:  {change: resume},
	event.Sleep:   {change: sleep},
	event.Wake:    {change: wake},
	event.Backup:  {change: backup},
	event.Restore: {change: restore},
}

// commands are the catalogue's commands whose verbs are known, by type; all others are refused.
var commands = knownCommands(event.Catalogue())

func knownCommands(catalogue []event.Entry) map[string]event.Entry {
	known := map[string]event.Entry{}
	for _, e := range catalogue {
		if _, ok := verbs[e.What]; ok && e.Command {
			known[e.Type] = e
		}
	}
	return known
}

// typesOf lists the types of commands for kinds of objects, sorted by kind.
func typesOf(kinds ...string) []string {
	var types []string
	for _, kind := range kinds {
		var some []string
		for t, e := range commands {
			if e.Kind == kind {
				some = append(some, t)
			}
		}
		slices.Sort(some)
		types = append(types, some...)
	}
	return types
}

// carryOut does what a command asks for. Its error may be a refusal.
func (s *svc) carryOut(ctx context.Context, t *loop.Turn, c command) (result, error) {
	v, known := verbs[c.verb]
	switch {
	case !known:
		return result{}, refuseType(c.event.Type(), typesOf(c.key.Kind))
	case v.do != nil:
		return v.do(s, ctx, t, c)
	}
	what, err := v.change(c)
	if err != nil {
		return result{}, err
	}
	return s.change(ctx, t, c, what)
}

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

// patch changes parts of the spec.
func patch(c command) (change, error) {
	cmd, err := target[event.PatchCommand](c.event.Data())
	if err != nil {
		return change{}, err
	}
	return c.patching(cmd)
}

func (c command) patching(cmd *event.PatchCommand) (change, error) {
	spec, ok := parse(cmd.Spec)
	switch {
	case len(cmd.Spec) == 0 || string(cmd.Spec) == "null":
		return change{}, refuse("spec", event.RuleRequired, "", "missing; must be a JSON merge patch of the spec (RFC 7386)")
	case !ok:
		return change{}, refuse("spec", event.RuleInvalid, string(cmd.Spec), "must be an object: a JSON merge patch of the spec (RFC 7386)")
	}
	part, err := json.Marshal(map[string]any{"spec": cmd.Spec}) // as it was sent, with what is in it twice
	if err != nil {
		return change{}, err
	}
	if _, err := c.kind.strict(part); err != nil {
		return change{}, err
	}
	return change{uid: cmd.UID, patch: func(there *object) (map[string]any, error) {
		patch := map[string]any{"spec": spec}
		if bad := patched(there, patch); len(bad) > 0 {
			return nil, bad
		}
		return patch, nil
	}}, nil
}

// pause pauses, until a time or without end.
func pause(c command) (change, error) {
	cmd, err := target[event.PauseCommand](c.event.Data())
	if err != nil {
		return change{}, err
	}
	if at := c.stored(); !cmd.Until.IsZero() && !cmd.Until.After(at) {
		return change{}, refuse("until", event.RuleInvalid, cmd.Until.Format(time.RFC3339),
			"must be after the command was sent ("+at.UTC().Format(time.RFC3339)+")")
	}
	annotations := func(have map[string]string) map[string]any { return pausing(have, cmd.Until) }
	return change{uid: cmd.UID, dying: true, patch: annotating(annotations)}, nil
}

// resume ends a pause.
func resume(c command) (change, error) {
	cmd, err := target[event.ResumeCommand](c.event.Data())
	return change{uid: cmd.UID, dying: true, patch: annotating(resuming)}, err
}

// sleep puts a tenant to sleep: one with a schedule until that wakes it, else by bringing its replicas to 0.
func sleep(c command) (change, error) {
	cmd, err := target[event.SleepCommand](c.event.Data())
	return change{uid: cmd.UID, exact: true, patch: func(there *object) (map[string]any, error) {
		if scheduled(there.Annotations) {
			return besideSchedule(map[string]any{}, &there.ObjectMeta, true, nil, c.stored()), nil
		}
		return scaling(sleeping)(there)
	}}, err
}

// wake brings a sleeping tenant's replicas back to what they were, and keeps one with a schedule awake until that puts it to sleep next.
func wake(c command) (change, error) {
	cmd, err := target[event.WakeCommand](c.event.Data())
	return change{uid: cmd.UID, exact: true, patch: waker(c.stored())}, err
}

// waker makes the patch that wakes a tenant at a time.
func waker(at time.Time) func(*object) (map[string]any, error) {
	return func(there *object) (map[string]any, error) {
		patch, err := scaling(waking)(there)
		if err != nil {
			return nil, err
		}
		return besideSchedule(patch, &there.ObjectMeta, false, nil, at), nil
	}
}

// backup asks for a backup of a tenant.
func backup(c command) (change, error) {
	cmd, err := target[event.BackupCommand](c.event.Data())
	if must := locationMust(cmd.Location); err == nil && cmd.Location != "" && must != "" {
		err = refuse("location", event.RuleInvalid, cmd.Location, must)
	}
	return change{uid: cmd.UID, exact: true, patch: func(there *object) (map[string]any, error) {
		patch := map[string]any{}
		at, err := time.Parse(time.RFC3339, there.Annotations[name.AnnotationBackupAt])
		if err == nil && !at.Before(c.stored()) {
			return patch, nil // it comes again after a later one
		}
		if cmd.Location != "" {
			annotate(patch, map[string]any{name.AnnotationBackupLocation: cmd.Location})
		} else if there.Annotations[name.AnnotationBackupLocation] == "" {
			return nil, refuse("location", event.RuleRequired, "", "missing: the tenant has no annotation "+name.AnnotationBackupLocation)
		}
		annotate(patch, map[string]any{name.AnnotationBackupAt: c.stored().UTC().Format(time.RFC3339Nano)})
		return patch, nil
	}}, err
}

// restore asks for a restore in place.
func restore(c command) (change, error) {
	cmd, err := target[event.RestoreCommand](c.event.Data())
	asked := name.InPlace{Backup: cmd.Backup, At: c.stored()}.String()
	if _, ok := name.ParseInPlace(asked); err == nil && !ok {
		err = refuse("backup", event.RuleInvalid, cmd.Backup, "must be location/namespace/name/ID, as `stoker backups` shows it")
	}
	return change{uid: cmd.UID, exact: true, patch: func(there *object) (map[string]any, error) {
		patch := map[string]any{}
		before, ok := name.ParseInPlace(there.Annotations[name.AnnotationRestoreInPlace])
		if ok && !before.At.Before(c.stored()) {
			return patch, nil // it comes again, or after a later one
		}
		wanted := there.tenant.DeepCopy()
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, name.AnnotationRestoreInPlace, asked)
		if _, bad := inPlaceOf(wanted, nil); bad != nil {
			bad[0].Field, bad[0].Value = "backup", cmd.Backup
			return nil, bad
		}
		annotate(patch, map[string]any{name.AnnotationRestoreInPlace: asked})
		return patch, nil
	}}, err
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
func (c command) stored() time.Time {
	meta, err := c.event.Raw.Metadata()
	if err != nil {
		return time.Time{}
	}
	return meta.Timestamp
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
