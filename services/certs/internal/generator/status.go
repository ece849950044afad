// The status of a KubeconfigGenerator: written by the replica that holds the partition of its name, woken when the object changes and
// by certs.generated, from any replica, about a kubeconfig of it. It counts from scratch, once for all that came in a while. What
// went wrong is in the states of the tenants.

package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

const (
	// maxErrors bounds the errors in a status.
	maxErrors = 100
	// recount is when it is counted once more: a fact is told before the state that it speaks of is written.
	recount = 10 * time.Second
	// recountWaiting is when a status that isn't good is counted again, should that have been too early.
	recountWaiting = 10 * time.Minute
	// recountDaily is when any status is counted again, or up to a fifth later: a fact may be lost.
	recountDaily = 19 * time.Hour
	// readSideBySide bounds the states read at once for a count.
	readSideBySide = 16
)

// Conditions of a KubeconfigGenerator, and their reasons.
const (
	conditionReady  = "Ready"
	conditionPaused = "Paused"

	reasonReady     = "Ready"
	reasonNone      = "NoTenants"
	reasonInvalid   = "InvalidGenerator"
	reasonFailed    = "Failed"
	reasonWaiting   = "Waiting"
	reasonPaused    = "Paused"
	reasonAnnotated = "Annotated"
)

// Kinds of wakes of a generator.
const (
	wakeGenerator = "Generator" // the object changed
	wakeCount     = "Count"     // it is time to count
	wakeRecount   = "Recount"   // it is time to count once more
)

// Status brings the status of the KubeconfigGenerator of a turn up to date, some time after something changed.
func (s *Generators) Status(ctx context.Context, t *loop.Turn) error {
	known, complete := s.find(t.Key.Name)
	if complete && known == nil {
		t.NoAlarm()
		return nil // gone, or another installation's
	}
	if !complete || !t.Woken(wakeCount) && !t.Woken(wakeRecount) {
		t.Alarm(s.pace(t.Key.Name), loop.Wake{Kind: wakeCount})
		return nil
	}
	o := &v1alpha1.KubeconfigGenerator{}
	switch err := s.kube.Get(ctx, kube.KubeconfigGenerators, "", t.Key.Name, o); {
	case apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil:
		return nil
	case err != nil:
		return fmt.Errorf("KubeconfigGenerator %s: %w", t.Key.Name, err)
	}
	g := newGenerator(o)
	c, err := s.count(ctx, g)
	if err != nil {
		return err
	}
	s.counted(g.name, c.selected)
	next := statusOf(g, c, o.Status, s.now())
	if !equality.Semantic.DeepEqual(next, o.Status) {
		err := s.kube.ApplyStatus(ctx, kube.KubeconfigGenerators, &o.ObjectMeta, next)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("status of KubeconfigGenerator %s: %w", g.name, err)
		}
	}
	t.Alarm(c.again(t.Woken(wakeCount)), loop.Wake{Kind: wakeRecount})
	return nil
}

// count is where the tenants of a generator stand.
type count struct {
	selected, available int
	failures            []v1alpha1.KubeconfigGeneratorStatusError
}

// again is after how long it is counted again; news is true when something has changed, and not only the time has come.
func (c count) again(news bool) time.Duration {
	switch {
	case news:
		return recount
	case c.available < c.selected:
		return recountWaiting
	}
	return wait.Jitter(recountDaily, 0.2)
}

// count goes through all tenants that a generator selects.
func (s *Generators) count(ctx context.Context, g *generator) (count, error) {
	if g.problem != "" {
		return count{}, nil
	}
	tenants, err := s.selected(ctx, g)
	if err != nil {
		return count{}, err
	}
	secrets, err := s.kube.Metadata(ctx, kube.Secrets, name.LabelManagedBy+"="+g.name)
	if err != nil {
		return count{}, fmt.Errorf("list Secrets of KubeconfigGenerator %s: %w", g.name, err)
	}
	there := map[events.Key]bool{}
	for i := range secrets {
		if tenant := pki.TenantOf(&secrets[i]); pki.GeneratorOf(tenant, &secrets[i]) == g.name {
			there[events.Tenant(secrets[i].Namespace, tenant)] = true
		}
	}
	c := count{selected: len(tenants)}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readSideBySide)
	for _, o := range tenants {
		group.Go(func() error {
			key := events.Tenant(o.Namespace, o.Name)
			is, err := s.generatedOf(ctx, key, string(o.UID), g.name)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case is != nil && is.Error != "":
				c.failures = append(c.failures, v1alpha1.KubeconfigGeneratorStatusError{Resource: key.String(), Message: is.Error})
			case there[key] && (is == nil || g.madeFor(is)):
				c.available++
			}
			return nil
		})
	}
	return c, group.Wait()
}

// selected lists the tenants that a generator selects and that aren't on their way out.
func (s *Generators) selected(ctx context.Context, g *generator) ([]metav1.PartialObjectMetadata, error) {
	namespaces := map[string]bool{}
	if g.namespaces != nil {
		list, err := s.kube.Metadata(ctx, kube.Namespaces, g.namespaces.String())
		if err != nil {
			return nil, fmt.Errorf("list Namespaces of KubeconfigGenerator %s: %w", g.name, err)
		}
		for i := range list {
			namespaces[list[i].Name] = true
		}
	}
	tenants, err := s.kube.Metadata(ctx, kube.TenantControlPlanes, g.tenants.String())
	if err != nil {
		return nil, fmt.Errorf("list tenants of KubeconfigGenerator %s: %w", g.name, err)
	}
	return slices.DeleteFunc(tenants, func(o metav1.PartialObjectMetadata) bool {
		return o.DeletionTimestamp != nil || g.namespaces != nil && !namespaces[o.Namespace]
	}), nil
}

// generatedOf reads what a tenant's state says of a generator's kubeconfig. nil: there is no state, since NATS was lost.
func (s *Generators) generatedOf(ctx context.Context, key events.Key, uid, generator string) (*state.Generated, error) {
	st, err := s.bus.State(ctx, key, name.ServiceCerts)
	if errors.Is(err, events.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state of %s: %w", key, err)
	}
	var c state.Certs
	if err := json.Unmarshal(st.Data, &c); err != nil {
		return nil, fmt.Errorf("state of %s: %w", key, err)
	}
	is := c.Generated[generator]
	if st.UID != uid {
		is = state.Generated{}
	}
	return &is, nil
}

// statusOf is the status of a generator.
func statusOf(g *generator, c count, previous v1alpha1.KubeconfigGeneratorStatus, now time.Time) v1alpha1.KubeconfigGeneratorStatus {
	slices.SortFunc(c.failures, func(a, b v1alpha1.KubeconfigGeneratorStatusError) int { return strings.Compare(a.Resource, b.Resource) })
	paused, until := g.paused(now)
	conditions := []metav1.Condition{readyCondition(g, c, paused)}
	if paused {
		conditions = append(conditions, pausedCondition(until))
	}
	for i := range conditions {
		x := &conditions[i]
		x.ObservedGeneration, x.LastTransitionTime = g.generation, metav1.NewTime(now.UTC().Truncate(time.Second))
		if was := meta.FindStatusCondition(previous.Conditions, x.Type); was != nil && was.Status == x.Status {
			x.LastTransitionTime = was.LastTransitionTime
		}
		x.Message = strings.ToValidUTF8(x.Message, "")
	}
	return v1alpha1.KubeconfigGeneratorStatus{
		Resources: c.selected, AvailableResources: c.available, Errors: c.failures[:min(len(c.failures), maxErrors)],
		ObservedGeneration: g.generation, Conditions: conditions,
	}
}

// readyCondition says whether every tenant that is selected has its kubeconfig, and if not, why. The failures are sorted.
func readyCondition(g *generator, c count, paused bool) metav1.Condition {
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse}
	switch {
	case g.problem != "":
		ready.Reason, ready.Message = reasonInvalid, g.problem
	case len(c.failures) > 0:
		ready.Reason = reasonFailed
		ready.Message = fmt.Sprintf("%d of %d tenants: no kubeconfig could be made as asked; the first is %s: %s", len(c.failures), c.selected,
			c.failures[0].Resource, c.failures[0].Message)
	case c.available < c.selected && paused:
		ready.Reason = reasonPaused
		ready.Message = fmt.Sprintf("%d of %d tenants wait for the end of the pause", c.selected-c.available, c.selected)
	case c.available < c.selected:
		ready.Reason = reasonWaiting
		ready.Message = fmt.Sprintf("%d of %d tenants have no kubeconfig as asked yet: they have no endpoint, are paused, or are being worked on",
			c.selected-c.available, c.selected)
	case c.selected == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonNone, "no tenant is selected"
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, reasonReady
		ready.Message = fmt.Sprintf("all %d tenants have their kubeconfig", c.selected)
	}
	return ready
}

// pausedCondition says that a generator is paused, and until when; until is zero when the pause doesn't end by itself.
func pausedCondition(until time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: conditionPaused, Status: metav1.ConditionTrue, Reason: reasonAnnotated,
		Message: "annotation " + name.AnnotationPaused + ": its kubeconfigs are left alone",
	}
	if !until.IsZero() {
		c.Message = "annotation " + name.AnnotationPausedUntil + ": until " + until.Format(time.RFC3339) + " its kubeconfigs are left alone"
	}
	return c
}
