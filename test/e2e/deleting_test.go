package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// finalizer is somebody's who isn't Stoker.
const finalizer = "example.com/hold"

// TestADeletionThatSomebodyHoldsUp takes half a minute: pods are asked when they have had the time to end.
func TestADeletionThatSomebodyHoldsUp(t *testing.T) {
	env.Long(t, "takes half a minute until pods have had their time to end; TestWhyPodsDoNotEnd in services/workload shows the message")
	e.Services(t)
	key := events.Tenant("default", "held")
	e.Apply(t, env.Tenant("held", "v1.36.3"))
	e.Ready(t, key)
	pod := podOf(t, key)
	keep(t, kube.Pods, pod, finalizer)
	keep(t, kube.Services, name.Service("held"), finalizer)
	keep(t, kube.Secrets, name.CA("held"), finalizer)
	e.Delete(t, key)

	_, since, _ := strings.Cut(says(t, key, name.ServiceWorkload, reason.PodsHeld, "pod "+pod+" on node ", finalizer), "asked to end at ")
	since, _, _ = strings.Cut(since, ": ")
	if at, err := time.Parse(time.RFC3339, since); err != nil || time.Since(at) < 0 || time.Since(at) > 10*time.Minute {
		t.Errorf("since %q: %v", since, err)
	}
	env.Eventually(t, "the status to say it too", func() error {
		s, err := e.Status(t.Context(), key)
		if err == nil && (s.Phase != "Deleting" || s.Ready || !strings.Contains(s.Message, pod) || !strings.Contains(s.Message, finalizer)) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	if s := read(t, key).Status.Kubernetes.Version.Status; s == nil || *s != v1alpha1.VersionNotReady {
		t.Errorf("its status is %v", s)
	}
	keep(t, kube.Pods, pod)

	// The watches tell when each object is gone: nobody waits for the next look.
	says(t, key, name.ServiceWorkload, reason.ObjectHeld, "Service default/"+name.Service("held"), finalizer)
	keep(t, kube.Services, name.Service("held"))
	says(t, key, name.ServiceCerts, reason.ObjectHeld, "Secret default/"+name.CA("held"), finalizer)
	keep(t, kube.Secrets, name.CA("held"))
	s := e.Gone(t, key)
	if len(s.Left) > 0 || s.Removed["workload/Deployment"] != 1 || s.Removed["workload/Service"] != 1 {
		t.Errorf("%+v", s)
	}
	nothingLeft(t, key)
}

// keep gives an object of namespace default these finalizers and no other.
func keep(t *testing.T, r kube.Resource, n string, finalizers ...string) {
	t.Helper()
	must(t, e.Admin.MergePatch(t.Context(), r, "default", n, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, nil))
}

// says waits until the answer to why has a reason and words of a service, and returns what it says.
func says(t *testing.T, key events.Key, service, why string, words ...string) (text string) {
	t.Helper()
	env.Eventually(t, service+" to say "+why, func() error {
		m, err := e.Operator.Conn().Request(event.QueryWhy, event.Marshal(event.Query{Namespace: key.Namespace, Name: key.Name}), time.Minute)
		if err != nil {
			return err
		}
		var r event.WhyReply
		if err := json.Unmarshal(m.Data, &r); err != nil {
			return err
		}
		for _, s := range r.Services {
			text = s.Wait.Text
			if s.Service == service && s.Wait.Reason == why && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
				return nil
			}
		}
		return fmt.Errorf("%s", m.Data)
	})
	return text
}
