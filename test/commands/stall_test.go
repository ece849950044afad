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
	// calls are how often it was asked; writes and dryRuns, how often about those of intake, beside which there are the test's own, that may
	// come late.
	calls, writes, dryRuns atomic.Int32
	// say makes it answer from now on, and refuse all.
	say func()
	// fails makes it fail at once.
	fails atomic.Bool
}

// hang has a webhook judge what is written to tenants of a namespace and meets a condition, empty for none; it doesn't answer.
func hang(t *testing.T, ns string, seconds int32, condition string, operations ...admissionv1.OperationType) *webhook {
	t.Helper()
	said := make(chan struct{})
	h := &webhook{say: sync.OnceFunc(func() { close(said) })}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID      string
				DryRun   bool
				UserInfo struct{ Username string }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		h.calls.Add(1)
		switch {
		case review.Request.UserInfo.Username != env.IntakeUser:
		case review.Request.DryRun:
			h.dryRuns.Add(1)
		default:
			h.writes.Add(1)
		}
		if h.fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
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

// asked is how often the webhook was asked about intake's writes and dry runs.
func (h *webhook) asked() (writes, dryRuns int32) { return h.writes.Load(), h.dryRuns.Load() }

// failing has intake refuse a command because of a webhook that fails at once, and says how often it asked about the command. On a machine
// that is so busy that a failure takes longer than a webhook has at least, intake takes it for silence; then the command is sent again, as
// its sender would.
func failing(t *testing.T, h *webhook, c command) (no event.FieldError, writes, dryRuns int32) {
	t.Helper()
	env.Eventually(t, "a webhook's failure to come in time", func() error {
		before, beforeDry := h.asked()
		a := ask(t, c)
		if len(a.errors) == 1 && a.errors[0].Rule == event.RuleAdmissionTimeout {
			return fmt.Errorf("%+v", a.errors)
		}
		if a.what != event.Rejected || len(a.errors) != 1 || a.errors[0].Field != "object" || a.errors[0].Rule != event.RuleInternal {
			t.Fatalf("%s %s: %s %+v", c.verb, c.key, a.what, a.errors)
		}
		no = a.errors[0]
		writes, dryRuns = h.asked()
		writes, dryRuns = writes-before, dryRuns-beforeDry
		return nil
	})
	return no, writes, dryRuns
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

// busy is an API server that comes too late with the answer that it could not answer: its caller has given up on a write by then, and
// of a dry run the answer had begun and is broken off.
func busy(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(&late{w, r}, r)
	})
}

type late struct {
	http.ResponseWriter
	asked *http.Request
}

func (l *late) WriteHeader(status int) {
	switch {
	case status < http.StatusInternalServerError:
	case l.asked.URL.Query().Has("dryRun"):
		panic(http.ErrAbortHandler)
	default:
		<-l.asked.Context().Done()
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap lets watches be flushed.
func (l *late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func TestAWebhookThatHangsAndAnAPIServerThatIsTooBusyToSaySo(t *testing.T) {
	startIntake(t, "a", func(c *intake.Config) { c.Kubeconfig = env.Between(t, c.Kubeconfig, busy) })
	key, o := tenantOf(t, "hanging-silent", "stuck")
	hook := hang(t, key.Namespace, 30, "", admissionv1.Create, admissionv1.Update)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) })
	refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "metadata.namespace", event.RuleAdmissionTimeout)
	if writes, dryRuns := hook.asked(); writes != 1 || dryRuns != 1 {
		t.Errorf("the webhook was asked about %d writes and %d dry runs, not one of each", writes, dryRuns)
	}
}

func TestAWebhookThatFailsAtOnceIsNamedAfterSomeTries(t *testing.T) {
	startIntake(t, "a")
	key, o := tenantOf(t, "failing", "stuck")
	there := o.DeepCopy()
	there.Name = "there"
	if err := e.Admin.Create(t.Context(), kube.TenantControlPlanes, there); err != nil {
		t.Fatal(err)
	}
	hook := hang(t, key.Namespace, 30, "", admissionv1.Create, admissionv1.Delete)
	hook.fails.Store(true)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) })
	for _, c := range []command{
		{key: key, verb: event.Apply, data: env.JSON(t, o)},
		{key: key, verb: event.Apply, data: env.JSON(t, o)}, // tried, too: a webhook that fails holds up nobody
		{key: events.Tenant(key.Namespace, there.Name), verb: event.Delete},
	} {
		no, writes, dryRuns := failing(t, hook, c)
		if !strings.Contains(no.Message, "hangs.example.com") {
			t.Errorf("%+v", no)
		}
		// A dry run follows the last write, and each that a busy machine makes slow.
		if writes != 4 || dryRuns < 1 || dryRuns > 4 {
			t.Errorf("the webhook was asked about %d writes and %d dry runs, not four and one", writes, dryRuns)
		}
	}
}

// A busy API server is late with the webhook's failure as well; that the same isn't so of a dry run tells it from a webhook that hangs.
func TestAWebhookThatFailsAtOnceDoesNotHangForABusyAPIServer(t *testing.T) {
	key, o := tenantOf(t, "failing-late", "stuck")
	startIntake(t, "a", func(c *intake.Config) {
		c.Kubeconfig = env.Between(t, c.Kubeconfig, func(server http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/"+key.Name) && r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") {
					<-time.After(1100 * time.Millisecond) // longer than a webhook has at least
				}
				server.ServeHTTP(w, r)
			})
		})
	})
	hook := hang(t, key.Namespace, 30, "", admissionv1.Create)
	hook.fails.Store(true)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) })
	if _, writes, dryRuns := failing(t, hook, command{key: key, verb: event.Apply, data: env.JSON(t, o)}); writes != 4 || dryRuns != 4 {
		t.Errorf("the webhook was asked about %d writes and %d dry runs, not four of each", writes, dryRuns)
	}
}

// A busy API server that gives up on writes at once, and is late with the webhook's failure, is neither away nor does the webhook hang.
func TestAWebhookThatFailsIsNamedThoughNoWriteIsAnsweredInTime(t *testing.T) {
	key, o := tenantOf(t, "failing-unanswered", "stuck")
	startIntake(t, "a", func(c *intake.Config) {
		c.Kubeconfig = env.Between(t, c.Kubeconfig, func(server http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				of := strings.HasSuffix(r.URL.Path, "/"+key.Name) && r.Method == http.MethodPatch
				dry := r.URL.Query().Has("dryRun")
				if of && dry {
					<-time.After(1100 * time.Millisecond) // longer than a webhook has at least
				}
				if !of || dry {
					server.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGatewayTimeout)
				_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"request did not complete","reason":"Timeout","code":504}`))
			})
		})
	})
	hook := hang(t, key.Namespace, 30, "", admissionv1.Create)
	hook.fails.Store(true)
	hangs(t, hook, func(ctx context.Context) error { return e.Admin.Create(ctx, kube.TenantControlPlanes, o.DeepCopy()) })
	no, writes, dryRuns := failing(t, hook, command{key: key, verb: event.Apply, data: env.JSON(t, o)})
	if !strings.Contains(no.Message, "hangs.example.com") {
		t.Errorf("%+v", no)
	}
	if writes != 0 || dryRuns != 1 {
		t.Errorf("the webhook was asked about %d writes and %d dry runs, not by the last try's dry run alone", writes, dryRuns)
	}
}

// An etcd that fails is told from a webhook that fails by a read, or by a dry run, which stores nothing.
func TestACommandWaitsForAnAPIServerThatCannotStore(t *testing.T) {
	stores := func(r *http.Request) bool { return r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") }
	for what, c := range map[string]struct {
		fails func(*http.Request) bool
		verbs []string
	}{
		"nor read":                           {func(*http.Request) bool { return true }, []string{event.Apply}},
		"although it judges what is written": {stores, []string{event.Apply, event.Delete}},
	} {
		t.Run(what, func(t *testing.T) {
			key, o := tenant(t, "unstored-"+strings.ReplaceAll(what, " ", "-"))
			var left atomic.Int32
			stop := startIntake(t, "a", func(cfg *intake.Config) {
				cfg.Kubeconfig = env.Between(t, cfg.Kubeconfig, func(server http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if !strings.HasSuffix(r.URL.Path, "/"+key.Name) || !c.fails(r) || left.Load() <= 0 {
							server.ServeHTTP(w, r)
							return
						}
						if stores(r) {
							left.Add(-1)
						}
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusInternalServerError)
						_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}`))
					})
				})
			})
			defer stop()
			for _, verb := range c.verbs {
				left.Store(5) // more than a refusal takes
				sent := command{key: key, verb: verb}
				if verb == event.Apply {
					sent.data = o
				}
				accepts(t, sent)
				if n := left.Load(); n > 0 {
					t.Errorf("%s is accepted, and %d writes were to fail yet", verb, n)
				}
			}
		})
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
		env.Publish(t, e.Portal, stuck.encode(t, ""))
		other, fine := neighbour(t, key, "beside-stuck")
		accepts(t, command{key: other, verb: event.Apply, data: fine})
		writes, dryRuns := hook.asked()
		no := refuses(t, command{key: key, verb: event.Apply, data: env.JSON(t, o)}, "metadata.namespace", event.RuleAdmissionTimeout)
		if no.Value != key.Namespace || !strings.Contains(no.Message, "validatingwebhookconfigurations") {
			t.Errorf("%+v", no)
		}
		if nowWrites, nowDry := hook.asked(); nowWrites != writes || nowDry != dryRuns {
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
