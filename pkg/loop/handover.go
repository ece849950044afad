package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// stopGrace is how long turns may go on after their partition is given up.
const stopGrace = 5 * time.Second

// handOver stops consuming partitions, lets their turns finish, hands every other event back to the server, and releases the partitions.
func (l *Loop) handOver(gone []*partitionConsumer) {
	partitions := map[int]bool{}
	for _, w := range gone {
		w.cancel()
		partitions[w.partition] = true
	}
	for _, w := range gone {
		<-w.done
	}
	var leaving []*lane
	l.mu.Lock()
	for key, ln := range l.lanes {
		if partitions[key.Partition()] {
			leaving = append(leaving, ln)
			ln.close()
		}
	}
	for key := range l.published {
		if partitions[key.Partition()] {
			delete(l.published, key)
		}
	}
	for key := range l.drifts {
		if partitions[key.Partition()] {
			l.forgetDrift(key)
		}
	}
	l.mu.Unlock()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for _, ln := range leaving {
		select {
		case <-ln.done:
		case <-grace.C:
			grace.Reset(0)
			ln.cancel()
			<-ln.done
		}
	}
	l.mu.Lock()
	maps.DeleteFunc(l.owing, func(key events.Key, _ struct{}) bool { return partitions[key.Partition()] })
	l.mu.Unlock()
	l.alarms.stop(func(key events.Key) bool { return partitions[key.Partition()] })
	l.lease.release(slices.Collect(maps.Keys(partitions)))
}
