package addons

// What is inside a tenant that bears on its version: kubelets, and deprecated APIs that are used. intake asks for it when somebody wants
// a plan (stoker.addons.inside). Any replica answers, over a connection of its own: the tenant's partition may be another's.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// questions are the endpoints.
func (s *svc) questions() events.Questions {
	return events.Questions{
		Service: event.AddonsService, Version: "1.0.0", Description: "what is inside a tenant that bears on its version, and how machines join it",
		Endpoints: map[string]events.Question{
			"inside": {Subject: event.QueryInside, Timeout: insideTimeout, Answer: s.answerInside},
			"join":   {Subject: events.JoinSubjects, Timeout: insideTimeout, AnswerOn: s.answerJoin},
		},
	}
}

// answerInside looks inside a tenant.
func (s *svc) answerInside(ctx context.Context, question []byte) (any, error) {
	var q event.Query
	if err := json.Unmarshal(question, &q); err != nil || !events.Tenant(q.Namespace, q.Name).Valid() {
		return nil, &events.Refusal{Code: "400", Message: `send {"namespace":"…","name":"…"}`}
	}
	key := events.Tenant(q.Namespace, q.Name)
	cluster, err := s.visit(ctx, key)
	if errors.Is(err, errAsleep) {
		return event.InsideReply{Asleep: true}, nil
	}
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	var inside event.InsideReply
	if inside.Kubelets, err = cluster.kubelets(ctx); err != nil {
		return nil, fmt.Errorf("nodes of %s: %w", key, err)
	}
	if inside.APIs, err = cluster.deprecatedAPIs(ctx); err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", key, err)
	}
	return inside, nil
}

// errAsleep means that the tenant is to have no pods.
var errAsleep = errors.New("the tenant sleeps")

// visit makes a connection to a tenant, beside the one of whichever replica works on it. Close it. errAsleep when there is nobody to visit, a
// *[events.Refusal] when there is no such tenant.
func (s *svc) visit(ctx context.Context, key events.Key) (*Cluster, error) {
	var tenant state.Tenant
	if err := s.stateOf(ctx, key, name.ServiceIntake, &tenant); err != nil {
		if errors.Is(err, events.ErrNotFound) {
			err = &events.Refusal{Code: "404", Message: "there is no tenant " + key.String()}
		}
		return nil, err
	}
	if tenant.Sleeps() {
		return nil, errAsleep
	}
	var workload state.Workload
	var own state.Addons
	for service, data := range map[string]any{name.ServiceWorkload: &workload, name.ServiceAddons: &own} {
		if err := s.stateOf(ctx, key, service, data); err != nil && !errors.Is(err, events.ErrNotFound) {
			return nil, err
		}
	}
	wanted := kube.WantedWay(tenant.Annotations[name.AnnotationKubeconfigSecretKey])
	return s.dial(ctx, key, kubeconfigField(&tenant), kube.NewRoute(kube.WaysTo(&tenant, workload), wanted, own.Way, nil))
}

// stateOf reads what a service knows of a tenant, or [events.ErrNotFound].
func (s *svc) stateOf(ctx context.Context, key events.Key, service string, data any) error {
	read, err := s.clients.Bus.State(ctx, key, service)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(read.Data, data); err != nil {
		return fmt.Errorf("%s's state of %s: %w", service, key, err)
	}
	return nil
}

// member is what of a node says how old its kubelet is.
type member struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		NodeInfo struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// kubelets counts those of the tenant's nodes by version, those that most nodes have first.
func (c *Cluster) kubelets(ctx context.Context) ([]event.Kubelets, error) {
	versions := map[string]*event.Kubelets{}
	err := kube.Each(ctx, c.kube, kube.Nodes, "", func(n *member) {
		version := events.Clip(n.Status.NodeInfo.KubeletVersion)
		k := versions[version]
		if k == nil {
			if len(versions) == event.MaxKubelets {
				return
			}
			k = &event.Kubelets{Version: version}
			versions[version] = k
		}
		if k.Nodes++; len(k.Names) < event.MaxKubeletNames {
			k.Names = append(k.Names, n.Name)
		}
	})
	var all []event.Kubelets
	for _, k := range versions {
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b event.Kubelets) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Version, b.Version))
	})
	return all, err
}

// deprecatedRequests is the metric of an API server that has a series for each deprecated API that was requested since it was started.
const deprecatedRequests = "apiserver_requested_deprecated_apis"

// deprecatedAPIs are those that were used, as the API server that answers has seen it.
func (c *Cluster) deprecatedAPIs(ctx context.Context) ([]event.DeprecatedAPI, error) {
	var series bytes.Buffer
	n := 0
	err := c.kube.Lines(ctx, "/metrics", func(line []byte) {
		if bytes.HasPrefix(line, []byte(deprecatedRequests+"{")) && n < 10*event.MaxDeprecatedAPIs {
			n++
			series.Write(line)
			series.WriteByte('\n')
		}
	})
	if err != nil {
		return nil, err
	}
	return deprecatedIn(&series)
}

// deprecatedIn reads the series of deprecatedRequests; those come first that are removed first.
func deprecatedIn(series *bytes.Buffer) ([]event.DeprecatedAPI, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(series)
	if err != nil {
		return nil, err
	}
	var all []event.DeprecatedAPI
	for _, m := range families[deprecatedRequests].GetMetric() {
		if m.GetUntyped().GetValue() > 0 {
			var a event.DeprecatedAPI
			fields := map[string]*string{
				"group": &a.Group, "version": &a.Version, "resource": &a.Resource, "subresource": &a.Subresource, "removed_release": &a.RemovedIn,
			}
			for _, l := range m.GetLabel() {
				if field := fields[l.GetName()]; field != nil {
					*field = events.Clip(l.GetValue())
				}
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b event.DeprecatedAPI) int {
		return cmp.Or(cmp.Compare(removal(a), removal(b)), strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Subresource, b.Subresource))
	})
	return all[:min(len(all), event.MaxDeprecatedAPIs)], nil
}

// removal orders APIs by the minor version that removes them; what none removes is last.
func removal(a event.DeprecatedAPI) int {
	if minor, ok := v1alpha1.Minor(a.RemovedIn); ok {
		return minor
	}
	return math.MaxInt
}
