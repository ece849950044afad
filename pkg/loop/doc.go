// Package loop is the one loop that every service runs. A service is a function from an object to what must be so ([Handler]);
// the loop calls it when a command, a fact, a watch or a timer says that something may have changed, for the partitions that
// this replica holds.
//
// Read the files in this order, which is an event's way: loop.go (what runs), lease.go and share.go (which partitions are this
// replica's), consume.go (from the stream to a lane, and back as an acknowledgement), lane.go (one object's events in order),
// turn.go (what a handler gets), behind.go (whether what it reads is the last), due.go (when it looks at everything), retry.go (what
// becomes of an error), again.go (and of what was given up), drift.go (and of what somebody else changes again and again), outcome.go
// (what a turn writes), owed.go (facts that a crash kept from being published), command.go (the end of a command), deadletter.go,
// timer.go, alarm.go, wake.go, pause.go, deletion.go, handover.go, metrics.go.
// docs/design/0003-engine.md has a drawing.
package loop
