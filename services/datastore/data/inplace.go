package data

// A tenant that works is set back to a backup (name.AnnotationRestoreInPlace). While it works, the backup is read to its end: one that is
// broken stops nobody. Then the tenant has no pods, and the way on is that of a tenant that is made anew (restore.go). Its database stays the
// one it was, so that resource versions only grow: clients that come back list anew and see nothing older than what they have seen.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// replacing is what one turn does for a restore in place before the data are touched.
type replacing struct {
	keeper *Keeper
	t      *loop.Turn
	home   account.Home
	p      *account.Plan
	// wait is what the tenant waits for; facts are to be told.
	wait  state.Wait
	facts []loop.Tell
}

// Replace sees to it that the backup is read that a restore in place is of, and that the tenant's data are replaced once it has stopped. It
// changes the plan's state, and returns what the tenant waits for, what is to be told, and whether the state is another.
func (k *Keeper) Replace(ctx context.Context, t *loop.Turn, h account.Home, p *account.Plan) (wait state.Wait, changed bool, facts []loop.Tell, err error) {
	asked, was := t.Tenant.InPlace, p.Want.InPlace
	switch {
	case asked.Request == "":
		if was != nil {
			p.Want.InPlace = nil
		}
		return wait, was != nil, nil, nil
	case was != nil && was.Request == asked.Request && was.Over:
		if asked.Stage != state.InPlaceOver { // what was told of it is lost
			facts = []loop.Tell{over(t, was, 0, 0, 0)}
		}
		return wait, false, facts, nil
	case !p.Want.WantsInPlace(t.Tenant):
		return wait, false, nil, nil
	}
	r := &replacing{keeper: k, t: t, home: h, p: p}
	is := state.Replacing{Request: asked.Request, Since: k.now().UTC().Truncate(time.Second)}
	if was != nil && was.Request == asked.Request {
		is = *was
	}
	p.Want.InPlace = &is
	if is.Whole {
		err = r.begin(ctx)
	} else {
		r.check(ctx)
	}
	return r.wait, true, r.facts, err
}

// over is the fact that says what a restore in place has come to.
func over(t *loop.Turn, is *state.Replacing, keys, bytes int64, took time.Duration) loop.Tell {
	asked, _ := name.ParseInPlace(is.Request)
	if is.Failure != "" {
		return loop.Tell{What: event.NotRestored, Data: event.DatastoreNotRestored{
			About: t.About(), From: asked.Backup, InPlace: is.Request, Message: is.Failure,
		}}
	}
	return loop.Tell{What: event.Restored, Data: event.DatastoreRestored{
		About: t.About(), From: asked.Backup, InPlace: is.Request, Keys: keys, Bytes: bytes, Milliseconds: took.Milliseconds(),
	}}
}

// checkID begins the ID of a job that reads a backup to its end.
const checkID = "check "

// errReplaced says that the tenant's data are those of the backup already.
var errReplaced = errors.New("the data are replaced already")

// check starts the job that reads the backup, or notes what it has found.
func (r *replacing) check(ctx context.Context) {
	is, now := r.p.Want.InPlace, r.keeper.now().UTC()
	asked, _ := name.ParseInPlace(is.Request)
	say := func(what string) {
		r.wait = state.Wait{On: name.ServiceDatastore, Reason: reason.DataRestoring, Text: sourceText(asked.Backup) + ": " + what}
	}
	j := r.keeper.jobs.get(r.t.Key, checkID+is.Request)
	if j == nil && now.Before(is.Next) {
		say(fmt.Sprintf("%s; tried again at %s", is.Failure, is.Next.Format(time.TimeOnly)))
		r.t.Alarm(is.Next.Sub(now), loop.Wake{Kind: WakeJob})
		return
	}
	if j == nil {
		key, request, runs, a, st := r.t.Key, is.Request, r.t.Tenant.Spec.Kubernetes.Version, r.p.Account, r.home.Main
		j = r.keeper.jobs.start(ctx, key, &job{id: checkID + request}, func(ctx context.Context, j *job) error {
			return r.keeper.readBackup(ctx, key, request, runs, account.Side{Account: a, Store: st}, j)
		})
	}
	keys, _, of := j.progress()
	ended, err := j.outcome()
	if !ended {
		say(fmt.Sprintf("%d of %d keys are read, before the tenant is stopped", keys, of))
		r.t.Alarm(tellEvery, loop.Wake{Kind: WakeJob})
		return
	}
	r.keeper.jobs.end(r.t.Key)
	switch {
	case err == nil:
		is.Whole, is.Failure, is.Tries, is.Next = true, "", 0, time.Time{}
		r.facts = []loop.Tell{{What: event.Restoring, Data: event.DatastoreRestoring{About: r.t.About(), From: asked.Backup, InPlace: is.Request}}}
		say("the tenant to stop")
	case errors.Is(err, errReplaced):
		is.Over, is.Failure = true, ""
		r.facts = []loop.Tell{over(r.t, is, 0, 0, now.Sub(is.Since))}
	case isForGood(err):
		is.Over, is.Failure = true, state.ClipMessage(err.Error())
		r.keeper.log.Warn("data not replaced", "tenant", r.t.Key.String(), "from", sourceText(asked.Backup), "error", err)
		r.facts = []loop.Tell{over(r.t, is, 0, 0, now.Sub(is.Since))}
	default:
		is.Tries++
		is.Failure = state.ClipMessage(err.Error())
		pause := min(firstRestoreRetry<<min(is.Tries-1, 10), longestRestoreRetry)
		is.Next = now.Add(pause).Truncate(time.Second)
		say(fmt.Sprintf("%s; tried again at %s", is.Failure, is.Next.Format(time.TimeOnly)))
		r.t.Alarm(pause, loop.Wake{Kind: WakeJob})
	}
}

// readBackup reads a backup to its end, and whether the account holds its data already.
func (k *Keeper) readBackup(ctx context.Context, key events.Key, request, runs string, at account.Side, j *job) error {
	there, err := k.accounts.Reach(ctx, key, at.Store, at.Account)
	if err != nil {
		return err
	}
	done := false
	err = there.Store.Do(ctx, func(d driver.Driver) error {
		value, err := driver.RecordOf(ctx, d, there.Account, there.Access, driver.RestoredKey)
		done = string(value) == request
		return err
	})
	if err != nil {
		return err
	}
	if done {
		return errReplaced
	}
	asked, _ := name.ParseInPlace(request)
	b, err := k.openBackup(ctx, key, asked.Backup)
	if err != nil {
		return err
	}
	defer func() { _ = b.location.Close() }()
	if why := unfitVersion(b.manifest.Kubernetes, runs); why != "" {
		return &unfitError{why}
	}
	j.expect(b.manifest.Keys)
	var keys, bytes int64
	for c, err := range backup.Data(ctx, b.location, b.manifest, b.identity) {
		if err != nil {
			return err
		}
		keys, bytes = keys+1, bytes+int64(len(c.Key)+len(c.Value))
		j.note(keys, bytes)
	}
	return nil
}

// unfitVersion says why an API server of one version can't take over what one of another has stored; empty for nothing. It may be of the next
// minor version (https://kubernetes.io/releases/version-skew-policy/).
func unfitVersion(stored, runs string) string {
	of, err1 := version.ParseGeneric(stored)
	is, err2 := version.ParseGeneric(runs)
	if err1 != nil || err2 != nil || of.Major() == is.Major() && (of.Minor() == is.Minor() || of.Minor()+1 == is.Minor()) {
		return ""
	}
	return fmt.Sprintf("it is of Kubernetes %s, and the tenant runs %s: it has to run the same minor version, or the next", stored, runs)
}

// begin notes that the data are being replaced, once no pod is left. They are touched in a later turn (mayReplace).
func (r *replacing) begin(ctx context.Context) error {
	is := r.p.Want.InPlace
	asked, _ := name.ParseInPlace(is.Request)
	r.wait = state.Wait{On: name.ServiceWorkload, Reason: reason.DataRestoring, Text: sourceText(asked.Backup) + ": the tenant's pods to end"}
	if r.t.Tenant.InPlace.Stage != state.InPlaceStopped {
		return nil
	}
	workload := state.Workload{}
	pods, err := r.t.Read(ctx, name.ServiceWorkload, &workload)
	if err != nil || pods == nil || !workload.StoppedAt.Equal(r.t.Tenant.InPlace.StoppedAt) {
		return err
	}
	r.p.Want.Restoring = &state.Restoring{From: asked.Backup, InPlace: is.Request, Since: r.keeper.now().UTC().Truncate(time.Second)}
	return nil
}

// mayReplace reports whether the data of a tenant may be touched: after it was noted that they are, its spec still asks for no pods. Whoever starts
// some for a later spec reads the note first, and waits.
func mayReplace(ctx context.Context, t *loop.Turn, r state.Restoring) (bool, error) {
	tenant := state.Tenant{}
	spec, err := t.ReadLatest(ctx, name.ServiceIntake, &tenant)
	is := tenant.InPlace
	return spec != nil && is.Request == r.InPlace && is.Stage == state.InPlaceStopped && tenant.Sleeps() && !tenant.LeftAlone(), err
}
