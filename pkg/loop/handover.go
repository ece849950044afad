package loop

import (
	"context"
	"time"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// stopGrace is how long turns may go on after their partition is given up.
const stopGrace = 5 * time.Second

// handOver stops consuming partitions, lets their turns finish and hands every other event back to the server.
func (l *Loop) handOver(gone []*partitionConsumer) {
	if len(gone) == 0 {
		return
	}
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
	l.alarms.stop(func(key events.Key) bool { return partitions[key.Partition()] })
	l.liftPins(gone)
}

// liftPins lifts the pins of this replica's consumers, so that the next holder needn't wait for their time-out.
func (l *Loop) liftPins(gone []*partitionConsumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if !l.Bus.Conn().IsConnected() {
		return
	}
	for _, stream := range gone[0].streams {
		s, err := l.Bus.JetStream().Stream(ctx, stream)
		if err != nil {
			return
		}
		for _, w := range gone {
			_ = s.UnpinConsumer(ctx, events.Consumer(l.Service, w.partition), events.PriorityGroup)
		}
	}
}
