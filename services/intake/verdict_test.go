package intake

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// upgrade is a proposal against which nothing is: a tenant of two pods from v1.35.4 to v1.36.3, on a DataStore that is ready.
func upgrade() *proposal {
	spec := func(version string) *v1alpha1.TenantControlPlaneSpec {
		o := &v1alpha1.TenantControlPlane{}
		o.Spec.Kubernetes.Version, o.Spec.DataStore = version, "etcd"
		v1alpha1.Default(o)
		return &o.Spec
	}
	there := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 3}, Spec: *spec("v1.35.4")}
	return &proposal{
		there: &object{ObjectMeta: there.ObjectMeta, tenant: there}, now: spec("v1.35.4"), spec: spec("v1.36.3"),
		stores: map[string]*v1alpha1.DataStore{"etcd": dataStoreThat(true, v1alpha1.DataStoreReasonValid)},
		pods:   &event.PodsReply{Pods: event.PodsRestart, Version: "v1.35.4", Complete: true, Replicas: 2},
		inside: &event.InsideReply{},
	}
}

func dataStoreThat(ready bool, why string) *v1alpha1.DataStore {
	o := &v1alpha1.DataStore{}
	o.Status.Ready = ready
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DataStoreConditionValid, Reason: why, Message: "says " + why}}
	return o
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	zero := new(int32)
	kubelets := func(versions ...string) func(*proposal) {
		return func(p *proposal) {
			for _, v := range versions {
				p.inside.Kubelets = append(p.inside.Kubelets, event.Kubelets{Version: v, Nodes: 3, Names: []string{"a", "b"}})
			}
		}
	}
	apis := func(removed ...string) func(*proposal) {
		return func(p *proposal) {
			for _, in := range removed {
				p.inside.APIs = append(p.inside.APIs, event.DeprecatedAPI{Group: "x.io", Version: "v1beta1", Resource: "things", RemovedIn: in})
			}
		}
	}
	strategy := func(s appsv1.DeploymentStrategy) func(*proposal) {
		return func(p *proposal) { p.spec.ControlPlane.Deployment.Strategy = s }
	}
	unavailable := func(n intstr.IntOrString) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &n}}
	}
	asleep := func(p *proposal) {
		p.now.ControlPlane.Deployment.Replicas, p.spec.ControlPlane.Deployment.Replicas = zero, zero
		p.inside, p.pods.Pods = &event.InsideReply{Asleep: true}, event.PodsRestart
	}
	store := func(ready bool, why string) func(*proposal) {
		return func(p *proposal) { p.stores["etcd"] = dataStoreThat(ready, why) }
	}
	const passes, warns, blocks, unknown = event.VerdictPasses, event.VerdictWarns, event.VerdictBlocks, event.VerdictUnknown
	for sentence, c := range map[string]struct {
		change  func(*proposal)
		check   string
		verdict string // and reason
		says    string
	}{
		"nothing is against it":    {func(*proposal) {}, "", "", ""},
		"a tenant that is deleted": {func(p *proposal) { p.there.DeletionTimestamp = &metav1.Time{} }, event.CheckTenant, blocks + " " + reason.Deleting, ""},
		"a tenant that is paused":  {func(p *proposal) { p.there.Annotations = map[string]string{name.AnnotationPaused: ""} }, event.CheckTenant, warns + " " + reason.Annotated, ""},
		"a rollout is under way":   {func(p *proposal) { p.pods.Complete = false }, event.CheckTenant, warns + " " + reason.RolloutUnderWay, ""},
		"several minor versions with a way between": {
			func(p *proposal) { p.pods.Version, p.pods.Steps = "v1.34.4", []string{"v1.35.4", "v1.36.3"} }, event.CheckTenant, passes, "nothing else",
		},
		"and one that is missing there": {
			func(p *proposal) { p.pods.Version, p.pods.Steps = "v1.33.4", []string{"v1.35.4", "v1.36.3"} }, event.CheckTenant, blocks + " " + reason.VersionNotReached, "v1.33.4 still runs",
		},
		"the upgrade before hasn't ended":               {func(p *proposal) { p.pods.Version, p.pods.Complete = "v1.34.4", false }, event.CheckTenant, blocks + " " + reason.VersionNotReached, "v1.34.4 still runs"},
		"workload doesn't answer":                       {func(p *proposal) { p.pods, p.podsFailed = nil, "it is away" }, event.CheckPods, unknown + " " + reason.Unavailable, "it is away"},
		"pods stay":                                     {func(p *proposal) { p.pods.Pods = event.PodsStay }, event.CheckPods, passes, "no pod is replaced"},
		"pods may be replaced":                          {func(p *proposal) { p.pods.Pods = event.PodsMayRestart }, event.CheckPods, unknown + " " + reason.PodsMayRestart, ""},
		"pods are replaced, all at once":                {strategy(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}), event.CheckPods, warns + " " + reason.APIAway, ""},
		"pods are replaced, all may be unavailable":     {strategy(unavailable(intstr.FromString("100%"))), event.CheckPods, warns + " " + reason.APIAway, ""},
		"pods are replaced, one of two after the other": {strategy(unavailable(intstr.FromInt32(1))), event.CheckPods, passes, "all 2 pods are replaced"},
		"a tenant is put to sleep":                      {func(p *proposal) { p.spec.ControlPlane.Deployment.Replicas = zero }, event.CheckPods, passes, "put to sleep"},
		"a tenant is woken":                             {func(p *proposal) { p.now.ControlPlane.Deployment.Replicas = zero }, event.CheckPods, passes, "woken: 2 pods"},
		"no pod was started yet":                        {func(p *proposal) { p.pods = &event.PodsReply{Pods: event.PodsStay} }, event.CheckPods, passes, "no pod has been started"},
		"the DataStore is away":                         {store(false, reason.Unreachable), event.CheckDataStore, blocks + " " + reason.DataStoreNotReady, "etcd: says Unreachable"},
		"the DataStore is away, and no pod starts": {
			func(p *proposal) { store(false, reason.Unreachable)(p); p.pods.Pods = event.PodsStay }, event.CheckDataStore, warns + " " + reason.DataStoreNotReady, "",
		},
		"the DataStore is well but for something":  {store(true, reason.EtcdDeniesStatus), event.CheckDataStore, warns + " " + reason.DataStoreWarns, "says EtcdDeniesStatus"},
		"there is no such DataStore":               {func(p *proposal) { p.stores["gone"] = nil }, event.CheckDataStore, blocks + " " + reason.DataStoreNotReady, "gone: there is no such"},
		"kubelets three minors older are fine":     {kubelets("v1.33.0", "v1.36.9"), event.CheckKubelets, passes, "all of 6 nodes"},
		"kubelets four minors older are too old":   {kubelets("v1.36.3", "v1.32.9"), event.CheckKubelets, blocks + " " + reason.KubeletTooOld, "v1.32.9 on a, b, and 1 more"},
		"kubelets of the next minor are too new":   {kubelets("v1.37.0"), event.CheckKubelets, blocks + " " + reason.KubeletTooNew, "v1.37.0 on a"},
		"a kubelet without a version says nothing": {kubelets("", "unknown"), event.CheckKubelets, passes, ""},
		"an API that is removed":                   {apis("1.40", "1.36", ""), event.CheckAPIs, blocks + " " + reason.APIRemoved, "things.x.io v1beta1 (until v1.36)"},
		"an API that is removed later":             {apis("1.37", ""), event.CheckAPIs, warns + " " + reason.APIDeprecated, "(until v1.37)"},
		"an API whose removal isn't decided":       {apis(""), event.CheckAPIs, passes, ""},
		"a tenant that sleeps: nodes":              {asleep, event.CheckKubelets, unknown + " " + reason.Asleep, ""},
		"a tenant that sleeps: APIs":               {asleep, event.CheckAPIs, unknown + " " + reason.Asleep, ""},
		"a tenant that sleeps: pods":               {asleep, event.CheckPods, passes, "sleeps"},
		"the tenant's API doesn't answer":          {func(p *proposal) { p.inside, p.insideFailed = nil, "it is away" }, event.CheckKubelets, unknown + " " + reason.Unavailable, "it is away"},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := upgrade()
			c.change(p)
			r := p.reply(events.Tenant("default", "demo"))
			found := c.check == ""
			for _, got := range r.Checks {
				if got.Check != c.check {
					if c.check == "" && got.Verdict != passes {
						t.Errorf("%+v", got)
					}
					continue
				}
				found = true
				if strings.TrimSpace(got.Verdict+" "+got.Reason) != c.verdict || !strings.Contains(got.Message, c.says) {
					t.Errorf("%+v", got)
				}
			}
			if !found || r.Blocked != strings.HasPrefix(c.verdict, blocks) || r.From != "v1.35.4" || r.To != "v1.36.3" || r.UID != "u" || r.Generation != 3 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestWhatIsRefusedIsLookedAtNoFurther(t *testing.T) {
	t.Parallel()
	p := upgrade()
	p.refused = refuse("spec.kubernetes.version", event.RuleInvalid, "v1.20.0", "too low")
	r := p.reply(events.Tenant("default", "demo"))
	if !r.Blocked || len(r.Checks) != 1 || r.Checks[0].Reason != reason.ChangeRefused || len(r.Errors) != 1 || r.To != "" {
		t.Errorf("%+v", r)
	}
}

func TestInsideIsLookedAtForAnotherMinorVersionAlone(t *testing.T) {
	t.Parallel()
	p := upgrade()
	p.spec.Kubernetes.Version = "v1.35.1"
	if r := p.reply(events.Tenant("default", "demo")); len(r.Checks) != 4 || r.Blocked {
		t.Errorf("another patch: %+v", r)
	}
	p = upgrade()
	p.there, p.now, p.pods, p.inside = nil, nil, nil, nil
	if r := p.reply(events.Tenant("default", "demo")); len(r.Checks) != 2 || r.Blocked || r.UID != "" || r.From != "" {
		t.Errorf("a new tenant: %+v", r)
	}
}
