package commands

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/test/env"
)

// An API server that has just started knows no roles and forbids everything; here, intake's is taken away.
func TestACommandWaitsWhileIntakeItselfMayNotCarryItOut(t *testing.T) {
	bindings := kube.Resource{
		GroupVersion: schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, Plural: "clusterrolebindings", Kind: "ClusterRoleBinding",
	}
	const binding = "stoker-" + name.ServiceIntake
	var role map[string]any
	if err := e.Admin.Get(t.Context(), bindings, "", binding, &role); err != nil {
		t.Fatal(err)
	}
	role["metadata"] = map[string]any{"name": binding}
	body := env.JSON(t, role)
	p := e.Service(t, name.ServiceIntake, "unpermitted")
	defer p.Remove(t)
	key, o := tenant(t, "unpermitted")
	accepts(t, command{key: key, verb: event.Apply, data: o})
	if _, err := e.Admin.Delete(t.Context(), bindings, "", binding, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := e.Admin.ApplyRaw(t.Context(), bindings, "", binding, event.Marshal(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, "intake to have lost its role", func() error {
		as, err := kube.Connect(e.Local.Kubeconfig(name.ServiceIntake), kube.Options{FieldManager: "test", Timeout: apiserver.Patience})
		if err != nil {
			return err
		}
		defer as.Close()
		if as.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &metav1.PartialObjectMetadata{}) == nil {
			return fmt.Errorf("it may read tenants")
		}
		return nil
	})
	inbox := key.NewAnswerSubject()
	sub, err := e.Portal.Conn().SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	c := command{key: key, verb: event.Patch, data: spec(`{"networkProfile":{"port":7443}}`)}
	env.Publish(t, e.Portal, c.encode(t, inbox))
	env.Eventually(t, "intake to have tried", func() error {
		if n, _, _ := sub.Pending(); n > 0 {
			return nil
		}
		text, err := p.Metrics(t.Context())
		if err == nil && !strings.Contains(text, `stoker_events_total{result="unavailable",service="intake",type="command"}`) {
			err = fmt.Errorf("no such metric")
		}
		return err
	})
	restore()
	m, err := sub.NextMsg(2 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if a := decode(t, m); a.what != event.Accepted {
		t.Errorf("%s: %+v", a.what, a.errors)
	}
}

// An API server that forbids a write is asked whether intake may make it, which it may forbid, too, while it knows no roles.
func TestACommandWhenTheAPIServerDoesNotSayWhetherIntakeMay(t *testing.T) {
	for what, c := range map[string]struct {
		code   int
		reason metav1.StatusReason
		ends   bool
		answer func(t *testing.T, c command)
	}{
		"as long as it forbids to ask, the command waits": {http.StatusForbidden, metav1.StatusReasonForbidden, true, func(t *testing.T, c command) {
			accepts(t, c)
			there(t, c.key)
		}},
		"when it fails at that alone, those behind the command don't wait for it": {http.StatusInternalServerError, metav1.StatusReasonInternalError, false, func(t *testing.T, c command) {
			if no := refuses(t, c, "object", event.RuleInternal); !strings.Contains(no.Message, "not now") {
				t.Errorf("%+v", no)
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			key, o := tenant(t, fmt.Sprintf("unasked-%d", c.code))
			var asked atomic.Int32
			stop := startIntake(t, "a", func(cfg *intake.Config) {
				cfg.Kubeconfig = env.Between(t, cfg.Kubeconfig, func(server http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						asks, over := strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"), c.ends && asked.Load() > 5 // more than a refusal takes
						code, reason := http.StatusForbidden, metav1.StatusReasonForbidden
						switch {
						case over || !asks && !strings.HasSuffix(r.URL.Path, "/"+key.Name):
							server.ServeHTTP(w, r)
							return
						case asks:
							asked.Add(1)
							code, reason = c.code, c.reason
						}
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(code)
						_ = json.NewEncoder(w).Encode(metav1.Status{
							TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
							Reason: reason, Message: "not now", Details: &metav1.StatusDetails{Kind: event.TenantControlPlanes},
						})
					})
				})
			})
			defer stop()
			c.answer(t, command{key: key, verb: event.Apply, data: o})
		})
	}
}

// A quota says no as an API server does that knows no roles; intake may make the object, so it is the command that is refused.
func TestAQuotaRefusesACommand(t *testing.T) {
	startIntake(t, "a")
	key, o := tenantOf(t, "full", "one-more")
	quotas := kube.Resource{
		GroupVersion: schema.GroupVersion{Version: "v1"}, Plural: "resourcequotas", Kind: "ResourceQuota", Namespaced: true,
	}
	const of = "count/tenantcontrolplanes.kamaji.clastix.io"
	none := map[string]any{of: "0"}
	quota := map[string]any{
		"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "none", "namespace": key.Namespace},
		"spec": map[string]any{"hard": none},
	}
	if err := e.Admin.ApplyRaw(t.Context(), quotas, key.Namespace, "none", event.Marshal(quota), nil); err != nil {
		t.Fatal(err)
	}
	// What its controller does.
	status := map[string]any{"hard": none, "used": none}
	if err := e.Admin.ApplyStatus(t.Context(), quotas, &metav1.ObjectMeta{Namespace: key.Namespace, Name: "none"}, status); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the quota to be looked at", func() error {
		err := e.Admin.Create(kube.DryRun(t.Context()), kube.TenantControlPlanes, o.DeepCopy())
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	no := refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "object", "Forbidden")
	if !strings.Contains(no.Message, "exceeded quota") {
		t.Errorf("%+v", no)
	}
}

// A sender that waits for an answer sends the command again and again. Copies that wait behind a refusal are refused, too, though by
// then the world is another: the sender was told that nothing changes.
func TestCopiesOfARefusedCommandChangeNothing(t *testing.T) {
	stop := startIntake(t, "a")
	stop()
	key, o := tenant(t, "copies")
	connected(t)
	inbox := key.NewAnswerSubject()
	answers, err := e.Portal.Conn().SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	patch := command{key: key, verb: event.Patch, data: spec(`{"networkProfile":{"port":7443}}`), id: "copies-1"}
	var all []*nats.Msg
	for _, c := range []command{patch, {key: key, verb: event.Apply, data: o}, patch} {
		all = append(all, c.encode(t, inbox))
	}
	for _, m := range all {
		env.Publish(t, e.Portal, m)
	}
	startIntake(t, "b")
	var said []string
	for range all {
		m, err := answers.NextMsg(2 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, decode(t, m).what)
	}
	if got, want := strings.Join(said, " "), "rejected accepted rejected"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if port := there(t, key).Spec["networkProfile"].(map[string]any)["port"]; port != float64(6443) {
		t.Errorf("the refused command set the port %v", port)
	}
	if a := accepts(t, patch); a.Generation < 2 {
		t.Errorf("sent again after the refusal, it is not looked at anew: %+v", a)
	}
}
