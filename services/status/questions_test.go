package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

func TestQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := events.Tenant("default", "demo")
	if err := s.intake.CreateBucket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	keep := func(b *events.Bus, of string, st state.State) {
		t.Helper()
		msg := nats.NewMsg("$KV." + key.Bucket() + "." + of)
		msg.Data = encode(t, st)
		if _, err := b.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	tenant := demo()
	tenant.Spec.DataStore = "main"
	tenant.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "gone"}, {Resource: "/leases", DataStore: "main"}}
	keep(s.intake, events.KeySpec, state.State{UID: "u1", Generation: 2, Step: event.Accepted, Data: encode(t, tenant)})
	_, own := Compute(demo(), complete(), clock)
	keep(s.status, name.ServiceStatus, state.State{UID: "u1", Generation: 2, Step: event.Changed, Data: encode(t, own)})

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/datastores/main") {
			_ = json.NewEncoder(w).Encode(v1alpha1.DataStore{Status: v1alpha1.DataStoreStatus{Ready: true, Conditions: []metav1.Condition{
				{Type: v1alpha1.DataStoreConditionValid, Status: metav1.ConditionTrue, Reason: reason.EtcdFull, Message: "no room"},
			}}})
			return
		}
		if !strings.HasSuffix(r.URL.Path, "/kamajis") {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		_ = json.NewEncoder(w).Encode(v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{name.FinalizerTenant}}})
	}))
	t.Cleanup(server.Close)
	k, err := kube.New(&rest.Config{Host: server.URL}, kube.Options{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	svc := &svc{bus: s.status, kube: k, metrics: newMetrics(&metric.Catalogue{}, &metric.Catalogue{}, false)}
	stop, err := s.status.AnswerQuestions(t.Context(), svc.questions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := s.status.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	ask := func(subject, question string) *nats.Msg {
		t.Helper()
		m, err := s.operator.Conn().Request(subject, []byte(question), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return m
	}
	t.Run("get tells the status and its conditions", func(t *testing.T) {
		var r event.StatusReply
		if err := json.Unmarshal(ask(event.QueryStatus, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Ready || r.UID != "u1" || r.Generation != 2 || len(r.Conditions) == 0 || r.Kubeconfig == "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("why lists every service that each tenant has, also those that have not come to the tenant", func(t *testing.T) {
		var r event.WhyReply
		if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Services) != len(slices.DeleteFunc(name.Services(), name.Optional)) || r.Services[0].Step != event.Accepted || r.Services[1].Step != "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("and capi, if Cluster API made the tenant", func(t *testing.T) {
		keep(s.capi, name.ServiceCAPI, state.State{UID: "u1", Generation: 2, Step: event.Initialized})
		var r event.WhyReply
		if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		if n := len(slices.DeleteFunc(name.Services(), name.Optional)); len(r.Services) != n+1 || r.Services[n].Step != event.Initialized {
			t.Errorf("%+v", r)
		}
	})
	t.Run("and tenantaddons, if TenantAddons are for the tenant, with those that aren't as they must be", func(t *testing.T) {
		keep(s.tenantAddons, name.ServiceTenantAddons, state.State{UID: "u1", Generation: 2, Step: event.Installed, Data: encode(t, state.TenantAddons{
			Addons: map[string]state.TenantAddon{
				"fleet/metrics": {Reason: tenantaddon.ReasonTimedOut}, "default/policies": {Reason: tenantaddon.ReasonTaken},
				"fleet/cni": {Reason: tenantaddon.ReasonSucceeded}, "fleet/new": {},
			},
		})})
		var r event.WhyReply
		if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		want := []event.TenantAddonState{
			{Namespace: "default", Name: "policies", Reason: tenantaddon.ReasonTaken}, {Namespace: "fleet", Name: "metrics", Reason: tenantaddon.ReasonTimedOut},
		}
		if len(r.Services) != len(name.Services()) || r.Services[len(r.Services)-1].Step != event.Installed || !slices.Equal(r.TenantAddons, want) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("why says why Argo CD doesn't know the tenant", func(t *testing.T) {
		for _, is := range []state.ArgoCD{{Reason: reason.ArgoCDOff, Message: "off"}, {Server: "https://192.0.2.1"}} {
			keep(s.certs, name.ServiceCerts, state.State{UID: "u1", Generation: 2, Data: encode(t, state.Certs{ArgoCD: &is})})
			var r event.WhyReply
			if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
				t.Fatal(err)
			}
			if (r.ArgoCD != nil) != (is.Reason != "") || r.ArgoCD != nil && *r.ArgoCD != (event.ArgoCDState{Reason: is.Reason, Message: is.Message}) {
				t.Errorf("%+v of %+v", r.ArgoCD, is)
			}
		}
	})
	t.Run("why says what should be put right about the tenant's DataStores", func(t *testing.T) {
		var r event.WhyReply
		if err := json.Unmarshal(ask(event.QueryWhy, `{"namespace":"default","name":"demo"}`).Data, &r); err != nil {
			t.Fatal(err)
		}
		want := []event.DataStoreState{{Name: "main", Ready: true, Reason: reason.EtcdFull, Message: "no room"}, {Name: "gone", Reason: reason.DataStoreMissing}}
		if !slices.Equal(r.DataStores, want) {
			t.Errorf("%+v", r.DataStores)
		}
	})
	for sentence, test := range map[string]struct{ question, code string }{
		"a tenant that does not exist is 404":       {`{"namespace":"default","name":"nobody"}`, "404"},
		"one that Kamaji made, not adopted, is 409": {`{"namespace":"default","name":"kamajis"}`, "409"},
		"a question without a name is 400":          {`{"namespace":"default"}`, "400"},
		"what is no question is 400":                {`?`, "400"},
		"a name that can't be is 400":               {`{"namespace":"a.>","name":"*"}`, "400"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := ask(event.QueryWhy, test.question).Header.Get("Nats-Service-Error-Code"); got != test.code {
				t.Errorf("got %q", got)
			}
		})
	}
}
