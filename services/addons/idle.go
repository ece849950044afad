package addons

// Whether a tenant is used, where idleness puts it to sleep. Each of its API servers counts the requests that are use (what these are,
// workload says in the audit policy); they are asked at the end of each time that may pass without use, and no more often. What they have
// counted is in the own state, so that a restart loses nothing. Whatever can't be read is use.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

// looksAtUseIn is how long after now a tenant's API servers are asked next, 0 or less for now. Clocks of replicas may differ.
func looksAtUseIn(before *state.Use, idle time.Duration, now time.Time) time.Duration {
	if before == nil {
		return 0
	}
	return min(before.Since.Add(idle).Sub(now), idle)
}

// useAfter is what is known of a tenant's use after the API servers were asked, and whether it was idle since before. seen stands for what
// they have counted, "" for what isn't known, or is use by itself.
func useAfter(before *state.Use, seen string, now time.Time) (after *state.Use, idle bool) {
	return &state.Use{Seen: seen, Since: now.UTC().Truncate(time.Second)}, before != nil && seen != "" && seen == before.Seen
}

// used asks whether the tenant was used, if it is time to, and returns what is known then; with the fact that it was idle, if it was.
func (s *svc) used(
	ctx context.Context, t *loop.Turn, w *connection, workload *state.Workload, before *state.Use,
) (*state.Use, []loop.Tell) {
	idle := name.IdleTime(t.Tenant.Annotations)
	if idle == 0 {
		return nil, nil
	}
	now := time.Now()
	if left := looksAtUseIn(before, idle, now); left > 0 {
		t.Alarm(left, loop.Wake{Kind: counting})
		return before, nil
	}
	seen, err := s.seen(ctx, t.Key, w.field, workload)
	if err != nil && ctx.Err() == nil {
		s.clients.Log.Warn("a tenant counts as used, for its API servers don't say", "tenant", t.Key.String(), "error", err)
	}
	after, unused := useAfter(before, seen, now)
	t.Alarm(idle, loop.Wake{Kind: counting})
	if !unused {
		return after, nil
	}
	return after, []loop.Tell{{What: event.Idle, Data: event.AddonsIdle{About: t.About(), Since: before.Since}}}
}

// looksAtUse has the tenant's API servers asked in another turn, when it is time to.
func looksAtUse(t *loop.Turn, before *state.Use) {
	if idle := name.IdleTime(t.Tenant.Annotations); idle > 0 {
		t.Alarm(max(looksAtUseIn(before, idle, time.Now()), 0), loop.Wake{Kind: counting})
	}
}

// seen stands for what all API servers of the tenant have counted, "" while one has a session open.
func (s *svc) seen(ctx context.Context, key events.Key, field string, workload *state.Workload) (string, error) {
	if len(workload.Pods) == 0 || len(workload.Pods) != int(workload.ReadyReplicas) {
		return "", fmt.Errorf("%d of %d ready pods are known", len(workload.Pods), workload.ReadyReplicas)
	}
	ctx, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	var all []string
	for _, pod := range workload.Pods {
		way := kube.Way{Name: pod, Address: pod, ServerName: name.ServiceHost(key.Name, key.Namespace)}
		cluster, err := s.dial(ctx, key, field, kube.NewRoute([]kube.Way{way}, "", "", nil))
		if err != nil {
			return "", err
		}
		count, err := cluster.countedUse(ctx)
		cluster.Close()
		if err != nil || count == "" {
			return "", err
		}
		all = append(all, pod, count)
	}
	return events.ID(all...), nil
}

// Metrics of an API server: how many requests its audit policy has recorded, when it was started, and which requests it is answering
// that last.
const (
	recordedRequests = "apiserver_audit_event_total"
	startTime        = "process_start_time_seconds"
	lastingRequests  = "apiserver_longrunning_requests"
)

// countedUse stands for what one API server has counted since it was started, "" while it has a session open.
func (c *Cluster) countedUse(ctx context.Context) (string, error) {
	var series bytes.Buffer
	err := c.kube.Lines(ctx, "/metrics", func(line []byte) {
		of, _, _ := bytes.Cut(line, []byte("{"))
		of, _, _ = bytes.Cut(of, []byte(" "))
		if bytes.Contains(line, []byte(`subresource=""`)) {
			return // no session; a tenant may have thousands of resources that are watched
		}
		if slices.Contains([]string{recordedRequests, startTime, lastingRequests}, string(of)) {
			series.Write(line)
			series.WriteByte('\n')
		}
	})
	if err != nil {
		return "", err
	}
	return useIn(&series)
}

// useIn reads the series of countedUse.
func useIn(series *bytes.Buffer) (string, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(series)
	if err != nil {
		return "", err
	}
	for _, m := range families[lastingRequests].GetMetric() {
		if m.GetUntyped().GetValue() > 0 && slices.ContainsFunc(m.GetLabel(), isSession) {
			return "", nil
		}
	}
	count, since := families[recordedRequests].GetMetric(), families[startTime].GetMetric()
	if len(count) != 1 || len(since) != 1 {
		return "", errors.New("an API server doesn't count requests (" + recordedRequests + ")")
	}
	number := func(m *dto.Metric) string { return strconv.FormatFloat(m.GetUntyped().GetValue(), 'f', -1, 64) }
	return number(since[0]) + " " + number(count[0]), nil
}

// isSession tells requests that somebody may be using for as long as they last, from watches, which are begun anew from time to time.
func isSession(l *dto.LabelPair) bool {
	return l.GetName() == "subresource" && slices.Contains([]string{"exec", "attach", "portforward", "log", "proxy"}, l.GetValue())
}
