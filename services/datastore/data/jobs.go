package data

import (
	"context"
	"sync"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
)

// job is work for a tenant that takes longer than a turn: a backup, or the way back. It goes on beside the tenant's turns, which ask how far
// it is, until it is done, is told to end, or this replica loses the tenant's partition.
type job struct {
	// id says what it works on: that of another one is another.
	id     string
	cancel context.CancelFunc
	done   chan struct{}

	mu          sync.Mutex
	keys, bytes int64
	of          int64 // keys in all, 0 while that isn't known
	ended       bool
	err         error
	// What follows belongs to the job until it has ended. Of one that brings a backup back, kept says that the account had data of its own.
	backup backupJob
	kept   bool
}

// progress is how far a job is.
func (j *job) progress() (keys, bytes, of int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keys, j.bytes, j.of
}

// outcome is what a job has ended with; ended is false while it works.
func (j *job) outcome() (ended bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended, j.err
}

// note notes how far it is, and expect of how much.
func (j *job) note(keys, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keys, j.bytes = keys, bytes
}

func (j *job) expect(keys int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.of = keys
}

// jobs are those of this replica. It is safe for concurrent use.
type jobs struct {
	room    chan struct{}
	wake    func(events.Key)
	running sync.WaitGroup

	mu  sync.Mutex
	all map[events.Key]*job
}

func newJobs(wake func(events.Key)) *jobs {
	return &jobs{room: make(chan struct{}, maxJobs), wake: wake, all: map[events.Key]*job{}}
}

// get is a tenant's job of an ID, nil when it has none. One of another ID is ended.
func (js *jobs) get(key events.Key, id string) *job {
	js.mu.Lock()
	j := js.all[key]
	js.mu.Unlock()
	if j != nil && j.id != id {
		js.end(key)
		return nil
	}
	return j
}

// start starts a tenant's job, which has its ID and what it was told. ctx says whether this replica may write; that it ends, as a turn's does,
// ends nothing. The tenant is woken when the job has ended.
func (js *jobs) start(ctx context.Context, key events.Key, j *job, run func(context.Context, *job) error) *job {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j.cancel, j.done = cancel, make(chan struct{})
	js.mu.Lock()
	js.all[key] = j
	js.mu.Unlock()
	js.running.Go(func() {
		defer close(j.done)
		defer cancel()
		var watching sync.WaitGroup
		watching.Go(func() { watchFence(working, cancel) })
		var err error
		select {
		case js.room <- struct{}{}:
			err = run(working, j)
			<-js.room
		case <-working.Done():
			err = working.Err()
		}
		cancel()
		watching.Wait()
		j.mu.Lock()
		j.err, j.ended = err, true
		j.mu.Unlock()
		if fence.Check(ctx) != nil { // the tenant is another replica's
			js.forget(key, j)
		}
		js.wake(key)
	})
	return j
}

// watchFence ends work under ctx when this replica may do it no more.
func watchFence(ctx context.Context, end func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if fence.Check(ctx) != nil {
				end()
				return
			}
		}
	}
}

func (js *jobs) forget(key events.Key, j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.all[key] == j {
		delete(js.all, key)
	}
}

// end ends a tenant's job, if it has one, waits until it has, and forgets it.
func (js *jobs) end(key events.Key) {
	js.mu.Lock()
	j := js.all[key]
	delete(js.all, key)
	js.mu.Unlock()
	if j != nil {
		j.cancel()
		<-j.done
	}
}

// stop ends all.
func (js *jobs) stop() {
	js.mu.Lock()
	for _, j := range js.all {
		j.cancel()
	}
	js.mu.Unlock()
	js.running.Wait()
}
