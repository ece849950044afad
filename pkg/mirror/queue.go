package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	firstRetry = 50 * time.Millisecond
	// lastRetry bounds the pauses between attempts. An API that is back ends them all.
	lastRetry = time.Minute
	// briefly is what a pause of the brake must exceed to count.
	briefly = 100 * time.Millisecond
)

// queue has the pairs that are to be looked at, each once. A pair that is written to look after look, because somebody else writes the
// opposite, is looked at ever less often, down to once in lastRetry. It is safe for concurrent use.
type queue struct {
	workqueue.TypedRateLimitingInterface[item]
	brake workqueue.TypedRateLimiter[item]

	mu      sync.Mutex
	braked  map[item]time.Time // until when
	waiting map[item]struct{}  // what failed
}

func newQueue() *queue {
	return &queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, lastRetry)),
		brake:   workqueue.NewTypedItemExponentialFailureRateLimiter[item](5*time.Millisecond, lastRetry),
		braked:  map[item]time.Time{},
		waiting: map[item]struct{}{},
	}
}

// news has a pair looked at.
func (q *queue) news(i item) {
	q.mu.Lock()
	until := q.braked[i]
	q.mu.Unlock()
	if rest := time.Until(until); rest > 0 {
		q.AddAfter(i, rest)
		return
	}
	q.Add(i)
}

// looked notes the end of a look: whether it wrote something, and its error.
func (q *queue) looked(i item, wrote bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, i)
	delete(q.braked, i)
	if wrote && !stale(err) {
		if pause := q.brake.When(i); pause > briefly {
			q.braked[i] = time.Now().Add(pause)
		}
	}
	switch {
	case err != nil:
		q.waiting[i] = struct{}{}
		q.AddRateLimited(i)
		return
	case !wrote:
		q.brake.Forget(i)
	}
	q.Forget(i)
}

// retry has all that failed looked at now.
func (q *queue) retry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.waiting {
		q.Forget(i)
		q.Add(i)
	}
}
