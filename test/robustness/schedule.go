package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Strike is one entry of a schedule.
type Strike struct {
	// After the strike before.
	After time.Duration
	Fault Fault
	// For how long.
	For time.Duration
	// Seed chooses the target.
	Seed uint64
	// Of leaves it only replicas whose names begin so to choose from; all if empty.
	Of string
}

// Schedule draws what strikes within a time. Equal seeds give equal schedules.
func Schedule(seed uint64, whole, pause time.Duration, faults []Fault) []Strike {
	random := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, f := range faults {
		total += f.Weight
	}
	if total == 0 {
		return nil
	}
	var all []Strike
	for at := time.Duration(0); ; {
		s := Strike{After: time.Duration(random.Int64N(int64(2 * pause))), Seed: random.Uint64()}
		if at += s.After; at > whole {
			return all
		}
		n := random.IntN(total)
		i := slices.IndexFunc(faults, func(f Fault) bool { n -= f.Weight; return n < 0 })
		s.Fault = faults[i]
		if s.Fault.Longest > 0 {
			s.For = time.Duration(random.Int64N(int64(s.Fault.Longest)))
		}
		all = append(all, s)
	}
}

// striking bounds how long a strike takes to begin: a request of it whose answer is lost would hold up all strikes after it.
const striking = time.Minute

// Run strikes at a site by a schedule, notes it, and returns when all is healed. Faults overlap. It returns early when ctx ends.
func Run(ctx context.Context, s *Site, schedule []Strike, h *History) error {
	var healing sync.WaitGroup
	var mu sync.Mutex
	var failed error
	busy := map[string]bool{} // targets that are struck; a second fault of such a target is left out
	for _, strike := range schedule {
		select {
		case <-ctx.Done():
		case <-time.After(strike.After):
		}
		if ctx.Err() != nil {
			break
		}
		class := strike.Fault.Name + strike.Of
		mu.Lock()
		taken := busy[class]
		busy[class] = true
		mu.Unlock()
		if taken {
			continue
		}
		beginning, end := context.WithTimeout(ctx, striking)
		target, heal, err := strike.Fault.strike(beginning, s.only(strike.Of), rand.New(rand.NewPCG(strike.Seed, 2)))
		end()
		record := Record{Kind: Struck, By: target, What: strike.Fault.Name}
		if err != nil {
			record.Detail = err.Error() // as when the leader of a cluster without quorum is to be struck
		}
		h.Add(record)
		healing.Go(func() {
			defer func() { mu.Lock(); delete(busy, class); mu.Unlock() }()
			if heal == nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(strike.For):
			}
			if err := heal(context.WithoutCancel(ctx)); err != nil {
				mu.Lock()
				failed = fmt.Errorf("heal %s of %s: %w", strike.Fault.Name, target, err)
				mu.Unlock()
			}
			h.Add(Record{Kind: Healed, By: target, What: strike.Fault.Name})
		})
	}
	healing.Wait()
	return failed
}
