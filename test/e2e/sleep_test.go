package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// falls waits until a tenant sleeps, by the word of its status and its object, and returns the message.
func falls(t testing.TB, key events.Key) string {
	t.Helper()
	var message string
	env.Eventually(t, key.String()+" to sleep", func() error {
		s, err := e.Status(t.Context(), key)
		if err != nil {
			return err
		}
		o := read(t, key)
		shown := o.Status.Kubernetes.Version.Status
		if s.Phase != "Sleeping" || strings.Contains(s.Message, "going to") || shown == nil || string(*shown) != "Sleeping" {
			return fmt.Errorf("%s: %s; the object %v", s.Phase, s.Message, shown)
		}
		message = s.Message
		return nil
	})
	return message
}

// A tenant is put to sleep and woken by times, which nobody has to wait for whole minutes to see: those of the commands' annotations are
// exact.
func TestSleepBySchedule(t *testing.T) {
	env.Long(t, "services/intake shows schedules (TestScheduleOf), TestWakeByConnection a tenant that sleeps and wakes")
	key := events.Tenant("default", "scheduled")
	e.Services(t)
	o := env.Tenant(key.Name, "v1.36.3")
	o.Annotations = map[string]string{name.AnnotationSleepAt: "0 0 1 1 *", name.AnnotationWakeAt: "1 0 1 1 *", name.AnnotationTimeZone: "Europe/Berlin"}
	e.Apply(t, o)
	before := e.Ready(t, key)

	t.Run("a command's annotations are looked at more closely than rules can", func(t *testing.T) {
		bad := o.DeepCopy()
		bad.Annotations = map[string]string{name.AnnotationSleepAt: "0 20 30 2 *", name.AnnotationTimeZone: "Europe/Atlantis"}
		e.Apply(t, bad)
		e.Fact(t, key, "intake", event.Rejected)
	})
	t.Run("it sleeps when it is time, and nothing of its object changes", func(t *testing.T) {
		at := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
		annotate(t, key, name.AnnotationSleptAt, at)
		if m := falls(t, key); !strings.Contains(m, "by stoker.dev/slept-at, until 20") {
			t.Error(m)
		}
		if now := read(t, key); now.Generation != before.Generation || *now.Spec.ControlPlane.Deployment.Replicas != 1 {
			t.Errorf("generation %d, replicas %d", now.Generation, *now.Spec.ControlPlane.Deployment.Replicas)
		}
		if code, out := stoker(t, "why", key.Name); !strings.Contains(out, "asleep since") {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	t.Run("it sleeps on when intake comes back, and wakes by a time that came while it was away", func(t *testing.T) {
		annotate(t, key, name.AnnotationWokenAt, time.Now().Add(4*time.Second).UTC().Format(time.RFC3339Nano))
		env.Eventually(t, "intake to know when it wakes", func() error {
			if spec := e.State(t.Context(), key, "spec"); spec == nil || strings.Contains(string(spec.Data), `-01-01T`) {
				return errNotYet
			}
			return nil
		})
		intake := e.Service(t, "intake", "a")
		if err := intake.Stop(); err != nil {
			t.Fatal(err)
		}
		intake.Restart(t)
		e.Ready(t, key)
	})
	t.Run("stoker sleep and wake wait for what they ask for", func(t *testing.T) {
		if code, out := stoker(t, "sleep", key.Name, "--wait"); code != 0 {
			t.Errorf("exit %d:\n%s", code, out)
		}
		if m := falls(t, key); !strings.Contains(m, "by stoker.dev/slept-at") {
			t.Error(m)
		}
		if code, out := stoker(t, "wake", key.Name, "--wait"); code != 0 {
			t.Errorf("exit %d:\n%s", code, out)
		}
		now := e.Ready(t, key)
		if _, said := now.Annotations[name.AnnotationSleptAt]; said || now.Annotations[name.AnnotationWokenAt] == "" || now.Generation != before.Generation {
			t.Errorf("generation %d, %v", now.Generation, now.Annotations)
		}
	})
	t.Run("a schedule that can't be read puts nothing to sleep, and is said", func(t *testing.T) {
		annotate(t, key, name.AnnotationTimeZone, "Europe/Atlantis")
		env.Eventually(t, "why to say so", func() error {
			if _, out := stoker(t, "why", key.Name); !strings.Contains(out, "Europe/Atlantis") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	})
	e.Delete(t, key)
	e.Gone(t, key)
}

// calls counts how often somebody has connected to a tenant that slept.
func calls(t testing.TB, key events.Key) (n int) {
	t.Helper()
	for _, f := range e.Facts(t, key) {
		if f == "workload."+event.Called {
			n++
		}
	}
	return n
}

// dozes puts a tenant to sleep by command and waits until a connection would wake it.
func dozes(t testing.TB, key events.Key) {
	t.Helper()
	e.Command(t, key, event.CommandType(key.Kind, event.Sleep), map[string]any{})
	if m := falls(t, key); !strings.Contains(m, "the first connection wakes it") {
		t.Error(m)
	}
	heard(t, key)
}

// toActivator are the EndpointSlices of a tenant's Service that lead to the activator.
func toActivator(t testing.TB, key events.Key) []discoveryv1.EndpointSlice {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	selector := discoveryv1.LabelManagedBy + "=" + name.ManagerActivator + "," + discoveryv1.LabelServiceName + "=" + key.Name
	e.List(t, kube.EndpointSlices, key.Namespace, selector, &list)
	return list.Items
}

// TestWakeByConnection has clients wake a tenant that sleeps, none of which sees an error for it.
func TestWakeByConnection(t *testing.T) {
	key := events.Tenant("default", "dozing")
	e.Services(t)
	o := env.Tenant(key.Name, "v1.36.3")
	o.Annotations = map[string]string{name.AnnotationWakeOn: name.WakeOnConnection}
	e.Apply(t, o)
	before := e.Ready(t, key)
	endpoint, kubeconfig := before.Status.ControlPlaneEndpoint, e.Kubeconfig(t, key)
	client := func() *http.Client { // one that connects anew; whose certificate it is shown is kubectl's to check
		return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		}}
	}
	get := func() error {
		response, err := client().Get("https://" + endpoint + "/version")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", response.Status)
		}
		return nil
	}
	dozes(t, key)
	if n := len(toActivator(t, key)); n != 1 {
		t.Errorf("%d EndpointSlices lead to the activator", n)
	}

	t.Run("what connects without TLS wakes nothing", func(t *testing.T) {
		for _, says := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x00\x05\x02"} {
			c, err := net.Dial("tcp", endpoint)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, says)
			_ = c.(*net.TCPConn).CloseWrite()
			if got, _ := io.ReadAll(c); len(got) > 0 {
				t.Errorf("%q is answered %q", says, got)
			}
			c.Close()
		}
		heard(t, key)
		if n := calls(t, key); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("a client is answered by a tenant that slept, and nothing of its spec has changed", func(t *testing.T) {
		began := time.Now()
		if err := get(); err != nil {
			t.Error(err)
		}
		t.Logf("answered after %.1f s", time.Since(began).Seconds())
		e.Kubectl(t, kubeconfig, "get", "namespaces")
		now := e.Ready(t, key)
		if now.Generation != before.Generation || now.Annotations[name.AnnotationWokenAt] == "" || calls(t, key) != 1 {
			t.Errorf("generation %d, annotations %v, %d calls", now.Generation, now.Annotations, calls(t, key))
		}
		env.Eventually(t, "nothing to lead to the activator", func() error {
			if n := len(toActivator(t, key)); n != 0 {
				return fmt.Errorf("%d EndpointSlices", n)
			}
			return nil
		})
	})
	t.Run("fifty connections at once wake it once, and all are answered", func(t *testing.T) {
		dozes(t, key)
		var all errgroup.Group
		for range 50 {
			all.Go(get)
		}
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
		e.Ready(t, key)
		if n := calls(t, key); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("a replica that is killed while it holds connections is no loss: the next one is answered", func(t *testing.T) {
		dozes(t, key)
		workload := e.Service(t, "workload", "a")
		lost := make(chan error, 1)
		go func() { lost <- get() }()
		env.Eventually(t, "the connection to be held", func() error {
			page, err := workload.Metrics(t.Context())
			if err == nil && !strings.Contains(page, `stoker_workload_activator_connections{service="workload",state="held"} 1`) {
				err = errNotYet
			}
			return err
		})
		workload.Kill()
		if err := <-lost; err == nil {
			t.Error("it was not held")
		}
		workload.Restart(t)
		env.Eventually(t, "an answer", get)
		e.Ready(t, key)
	})
	t.Run("replicas that its object doesn't ask for are brought back, too", func(t *testing.T) {
		e.Kubectl(t, e.Local.Kubeconfig("admin"), "scale", "tcp", key.Name, "--replicas=0")
		falls(t, key)
		if err := get(); err != nil {
			t.Error(err)
		}
		if now := e.Ready(t, key); *now.Spec.ControlPlane.Deployment.Replicas != v1alpha1.DefaultReplicas {
			t.Errorf("%d replicas", *now.Spec.ControlPlane.Deployment.Replicas)
		}
	})
	t.Run("deleted asleep, nothing is left", func(t *testing.T) {
		dozes(t, key)
		e.Delete(t, key)
		e.Gone(t, key)
		if n := len(toActivator(t, key)); n != 0 {
			t.Errorf("%d EndpointSlices", n)
		}
	})
}
