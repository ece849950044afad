package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// hanging is how many tenants hang at a time.
const hanging = 20

// Crowd is hundreds of tenants of a site with stand-ins: those of actors, and the stranger's, of which some hang and one is poisoned.
type Crowd struct {
	site    *Site
	history *History
	actors  []*Actor
	hung    *Actor
	poison  *Actor
	random  *rand.Rand
}

// NewCrowd has actors share a number of tenants, beside the stranger's.
func NewCrowd(s *Site, h *History, ways map[string]way, seed uint64, tenants int) *Crowd {
	admin := byKubectl{s.Admin}
	c := &Crowd{
		site: s, history: h, random: rand.New(rand.NewPCG(seed, 3)),
		hung: newActor(Stranger, admin, seed, hanging, h), poison: newActor(Stranger+"-poisoned", admin, seed, 1, h),
	}
	var names []string
	for n := range ways {
		names = append(names, n)
	}
	slices.Sort(names)
	for i, n := range names {
		c.actors = append(c.actors, newActor(n, ways[n], seed+uint64(i), (tenants+i)/len(names), h))
	}
	for _, a := range c.everybody() {
		a.seldomProbed = true
	}
	return c
}

// everybody are all actors, the one of the poisoned tenant last.
func (c *Crowd) everybody() []*Actor { return append(slices.Clone(c.actors), c.hung, c.poison) }

// Names of all tenants but the poisoned one.
func (c *Crowd) Names() (names []string) {
	for _, a := range append(slices.Clone(c.actors), c.hung) {
		for _, t := range a.tenants {
			names = append(names, t.name)
		}
	}
	return names
}

// Populate makes all tenants and waits until they are Ready.
func (c *Crowd) Populate(ctx context.Context) error {
	var making sync.WaitGroup
	for _, a := range c.everybody() {
		making.Go(func() {
			for _, t := range a.tenants {
				a.step(ctx, t, event.Apply)
			}
		})
	}
	making.Wait()
	return c.awaitReady(ctx, c.Names())
}

// awaitReady waits until tenants are Ready in their last generation.
func (c *Crowd) awaitReady(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+time.Duration(len(names))*3*time.Second)
	defer cancel()
	for {
		late, err := c.notReady(ctx, names)
		if err == nil && len(late) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			some := late[:min(3, len(late))]
			return fmt.Errorf("%d of %d tenants aren't Ready, such as %v: %w", len(late), len(names), some, errors.Join(ctx.Err(), err))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// notReady are those of the tenants that aren't Ready in their last generation.
func (c *Crowd) notReady(ctx context.Context, names []string) (late []string, err error) {
	var all v1alpha1.TenantControlPlaneList
	if err := c.site.Admin.List(ctx, kube.TenantControlPlanes, namespace, "", &all); err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, o := range all.Items {
		ready[o.Name] = slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "Ready" && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation
		})
	}
	for _, n := range names {
		if !ready[n] {
			late = append(late, n)
		}
	}
	return late, nil
}

// Compare has the same changes made in calm phases and in strained ones, by turns, so that what else the machine does is in both.
// It is an error when those that shall hang, or be poisoned, aren't.
func (c *Crowd) Compare(ctx context.Context, rounds, changes int, pause time.Duration) error {
	for range rounds {
		for _, phase := range []string{Calm, Strained} {
			end := c.strangers(ctx, phase == Strained)
			err := c.measure(ctx, phase, changes, pause)
			if err := errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure has actors change healthy tenants, one after the other, and waits for the end of the changes.
func (c *Crowd) measure(ctx context.Context, phase string, changes int, pause time.Duration) error {
	load, _ := os.ReadFile("/proc/loadavg")
	c.history.Add(Record{Kind: Phase, What: phase, Detail: strings.TrimSpace(string(load))})
	defer c.history.Add(Record{Kind: Phase})
	var names []string
	for i := range changes {
		a := c.actors[i%len(c.actors)]
		t := a.tenants[c.random.IntN(len(a.tenants))]
		a.step(ctx, t, verbAddons)
		names = append(names, t.name)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return c.awaitReady(ctx, names)
}

// strangers gives the stranger's tenants work again and again, as much in every phase, until the function that it returns is called,
// which waits until they are well. Under strain they hang meanwhile, and one is poisoned.
func (c *Crowd) strangers(ctx context.Context, strained bool) (end func() error) {
	var names []string
	for _, t := range c.hung.tenants {
		names = append(names, t.name)
		if strained {
			c.site.StandIns.Hang(namespace + "/" + t.name)
		}
	}
	for _, t := range c.hung.tenants {
		c.hung.step(ctx, t, verbAddons)
	}
	working, stop := context.WithCancel(ctx)
	var strangers sync.WaitGroup
	every := func(pause time.Duration, do func(i int)) {
		strangers.Go(func() {
			for i := 0; working.Err() == nil; i++ {
				do(i)
				select {
				case <-working.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	poisoned := c.poison.tenants[0]
	pick := rand.New(rand.NewPCG(1, 4))
	published, failed := 0, error(nil) // a busy machine may be late for some
	every(time.Second, func(i int) { c.hung.step(ctx, c.hung.tenants[i%hanging], verbAddons) })
	verb := map[bool]string{true: verbPoison, false: verbAddons}[strained]
	every(time.Second, func(int) { c.poison.step(ctx, poisoned, verb) })
	every(500*time.Millisecond, func(int) {
		if !strained {
			return
		}
		if err := publishPoison(ctx, c.site, pick, poisoned.name); err != nil {
			failed = err
			return
		}
		published++
	})
	return func() error {
		stop()
		strangers.Wait()
		if published > 0 || !strained {
			failed = nil
		}
		late, err := c.notReady(ctx, append(names, poisoned.name))
		if err == nil && strained && len(late) != hanging+1 {
			err = fmt.Errorf("of %d tenants that shall hang and one that is poisoned, %d have work left", hanging, len(late))
		}
		for _, n := range names {
			c.site.StandIns.Release(namespace + "/" + n)
		}
		c.poison.step(ctx, poisoned, verbCure)
		return errors.Join(failed, err, c.awaitReady(ctx, append(names, poisoned.name)))
	}
}

// Faults are those of every run, and those that tenants themselves are.
func (c *Crowd) Faults() []Fault {
	return append(Faults(),
		Fault{"twenty tenants hang", 4, time.Minute, c.hang},
		Fault{"poisoned tenant", 4, time.Minute, c.poisoned},
	)
}

func (c *Crowd) hang(_ context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	names := c.Names()
	pick.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:hanging]
	for _, n := range names {
		s.StandIns.Hang(namespace + "/" + n)
	}
	return fmt.Sprint(names), func(context.Context) error {
		for _, n := range names {
			s.StandIns.Release(namespace + "/" + n)
		}
		return nil
	}, nil
}

// poisoned has the stranger's one be asked for what can't be made, and publishes what is no event about it.
func (c *Crowd) poisoned(ctx context.Context, s *Site, pick *rand.Rand) (string, func(context.Context) error, error) {
	t := c.poison.tenants[0]
	c.poison.step(context.WithoutCancel(ctx), t, verbPoison)
	return t.name, func(ctx context.Context) error { c.poison.step(ctx, t, verbCure); return nil }, publishPoison(ctx, s, pick, t.name)
}
