package commands

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/test/env"
)

var webhooks = kube.Resource{
	GroupVersion: schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"},
	Plural:       "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration",
}

// webhook judges what is written to tenants of a namespace.
type webhook struct {
	// calls are how often it was asked.
	calls atomic.Int32
	// say makes it answer from now on, and refuse all.
	say func()
}

// hang has a webhook judge what is written to tenants of a namespace and meets a condition, empty for none; it doesn't answer.
func hang(t *testing.T, ns string, seconds int32, condition string, operations ...admissionv1.OperationType) *webhook {
	t.Helper()
	said := make(chan struct{})
	h := &webhook{say: sync.OnceFunc(func() { close(said) })}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		var review struct{ Request struct{ UID string } }
		_ = json.NewDecoder(r.Body).Decode(&review)
		select {
		case <-r.Context().Done():
		case <-said:
			_, _ = fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"code":403,"reason":"Forbidden","message":"no"}}}`, review.Request.UID)
		}
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	none, tenants := admissionv1.SideEffectClassNone, kube.TenantControlPlanes
	o := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta: webhooks.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hangs.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, TimeoutSeconds: &seconds,
			ClientConfig: admissionv1.WebhookClientConfig{
				URL: &srv.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			Rules: []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
				APIGroups: []string{tenants.GroupVersion.Group}, APIVersions: []string{tenants.GroupVersion.Version}, Resources: []string{tenants.Plural},
			}}},
		}},
	}
	if condition != "" {
		o.Webhooks[0].MatchConditions = []admissionv1.MatchCondition{{Name: "who", Expression: condition}}
	}
	if err := e.Admin.Create(t.Context(), webhooks, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := e.Admin.Delete(context.WithoutCancel(t.Context()), webhooks, "", ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		h.say()
		srv.CloseClientConnections()
		srv.Close()
	})
	return h
}

// hangs waits until a webhook is asked about a write.
func hangs(t *testing.T, h *webhook, write func(context.Context) error) {
	t.Helper()
	env.Eventually(t, "the webhook to be asked", func() error {
		ctx, cancel := context.WithTimeout(kube.DryRun(t.Context()), time.Second)
		defer cancel()
		if err := write(ctx); h.calls.Load() == 0 {
			return fmt.Errorf("not asked: %w", err)
		}
		return nil
	})
}

// tenantOf is a tenant of another namespace than the default one, which is made for it.
func tenantOf(t *testing.T, ns, n string) (events.Key, *v1alpha1.TenantControlPlane) {
	t.Helper()
	if err := e.Admin.Create(t.Context(), kube.Namespaces, namespace(ns)); err != nil {
		t.Fatal(err)
	}
	o := env.Tenant(n, "v1.36.3")
	o.Namespace = ns
	return events.Tenant(ns, n), o
}

// neighbour is a tenant of another namespace in the same partition.
func neighbour(t *testing.T, of events.Key, prefix string) (events.Key, map[string]any) {
	t.Helper()
	for i := range 1000 {
		if key, o := tenant(t, fmt.Sprintf("%s-%d", prefix, i)); key.Partition() == of.Partition() {
			return key, o
		}
	}
	t.Fatal("no name in that partition")
	return events.Key{}, nil
}

// silentOnFailure is an API server that says nothing where it would say that it could not answer.
func silentOnFailure(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(&silence{w, r.Context()}, r)
	})
}

type silence struct {
	http.ResponseWriter
	asked context.Context
}

func (s *silence) WriteHeader(status int) {
	if status >= http.StatusInternalServerError {
		<-s.asked.Done()
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets watches be flushed.
func (s *silence) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func TestAWebhookThatHangsAndAnAPIServerThatIsTooBusyToSaySo(t *testing.T) {
	startIntake(t, "a", func(c *intake.Config) { c.Kubeconfig = env.Between(t, c.Kubeconfig, silentOnFailure) })
	key, o := tenantOf(t, "hanging-silent", "stuck")
	hook := hang(t, key.Namespace, 30, "", admissionv1.Create, admissionv1.Update)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) })
	asked := hook.calls.Load()
	refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "metadata.namespace", event.RuleAdmissionTimeout)
	if n := hook.calls.Load() - asked; n != 2 {
		t.Errorf("the webhook was asked %d times, by the write and the dry run it is 2", n)
	}
}

func TestAWebhookThatHangsHoldsUpNobodyElse(t *testing.T) {
	startIntake(t, "a")
	create := func(o *v1alpha1.TenantControlPlane) func(context.Context) error {
		return func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) }
	}
	t.Run("the command is refused and names the namespace; those behind it are carried out", func(t *testing.T) {
		key, o := tenantOf(t, "hanging", "stuck")
		hook := hang(t, key.Namespace, 30, "", admissionv1.Create, admissionv1.Update)
		hangs(t, hook, create(o))
		stuck := command{key: key, verb: event.Apply, data: env.JSON(t, o)}
		if _, err := e.Portal.JetStream().PublishMsg(t.Context(), stuck.encode(t, "")); err != nil {
			t.Fatal(err)
		}
		other, fine := neighbour(t, key, "beside-stuck")
		accepts(t, command{key: other, verb: event.Apply, data: fine})
		asked := hook.calls.Load()
		no := refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "metadata.namespace", event.RuleAdmissionTimeout)
		if no.Value != key.Namespace || !strings.Contains(no.Message, "validatingwebhookconfigurations") {
			t.Errorf("%+v", no)
		}
		if hook.calls.Load() != asked {
			t.Error("the webhook was asked again at once: each command for that namespace holds up the partition")
		}
	})
	t.Run("a webhook that has less time than the request is named", func(t *testing.T) {
		key, o := tenantOf(t, "hanging-named", "named")
		hangs(t, hang(t, key.Namespace, 2, "", admissionv1.Create), create(o))
		no := refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "metadata.namespace", event.RuleAdmissionTimeout)
		if !strings.Contains(no.Message, "hangs.example.com") {
			t.Errorf("%+v", no)
		}
	})
	t.Run("a tenant that can't be adopted because of it holds up no command either", func(t *testing.T) {
		key, o := tenantOf(t, "hanging-updates", "made-by-hand")
		probe := o.DeepCopy()
		probe.Name = "probe"
		if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, probe); err != nil {
			t.Fatal(err)
		}
		hangs(t, hang(t, key.Namespace, 30, "", admissionv1.Update), func(ctx context.Context) error {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"probe": ""}}}
			return e.Admin.MergePatch(ctx, kube.TenantControlPlanes, key.Namespace, probe.Name, patch, nil)
		})
		if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, o); err != nil {
			t.Fatal(err)
		}
		refuses(t, command{key: key, verb: event.Pause}, "metadata.namespace", event.RuleAdmissionTimeout)
		other, fine := neighbour(t, key, "beside-unadopted")
		accepts(t, command{key: other, verb: event.Apply, data: fine})
	})
}
