package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// annotate sets an annotation of a tenant's object as kubectl would, or takes it away.
func annotate(t testing.TB, key events.Key, annotation string, value any) {
	t.Helper()
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}}
	if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil); err != nil {
		t.Fatal(err)
	}
}

// paused waits until the object's status says that it is paused, and every service has heard of it.
func paused(t testing.TB, key events.Key) *v1alpha1.TenantControlPlane {
	t.Helper()
	o := &v1alpha1.TenantControlPlane{}
	env.Eventually(t, key.String()+" to be Paused", func() error {
		if err := e.Admin.Get(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, o); err != nil {
			return err
		}
		s, err := e.Status(t.Context(), key)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, "Paused")
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != o.Generation || s.Phase != "Paused" || s.Generation != o.Generation || s.Message != c.Message {
			return fmt.Errorf("conditions %+v, portals hear %+v", o.Status.Conditions, s)
		}
		return nil
	})
	heard(t, key)
	return o
}

// pause pauses a tenant that is Ready, and checks that nothing but what status keeps of it is another after that.
func pause(t testing.TB, key events.Key) *v1alpha1.TenantControlPlane {
	t.Helper()
	e.Ready(t, key)
	heard(t, key)
	before := made(t, key)
	annotate(t, key, name.AnnotationPaused, "")
	o := paused(t, key)
	before["state/status"] = string(event.Marshal(e.State(t.Context(), key, "status")))
	after := made(t, key)
	// The datastore service measures by the clock, maybe before it hears of the pause.
	if !measuredAt(t, before).Equal(measuredAt(t, after)) {
		before["state/datastore"] = after["state/datastore"]
	}
	same(t, key, before, after)
	return o
}

// measuredAt returns the time of the last measurement, as the datastore service's state in a result of made has it.
func measuredAt(t testing.TB, all map[string]string) time.Time {
	t.Helper()
	var s state.State
	var d state.Datastore
	must(t, json.Unmarshal([]byte(all["state/datastore"]), &s))
	must(t, json.Unmarshal(s.Data, &d))
	return d.MeasuredAt
}

// heard waits until no service has a fact about the tenant's partition before it.
func heard(t testing.TB, key events.Key) {
	t.Helper()
	for _, service := range name.Services() {
		env.Eventually(t, service+" to have nothing before it", func() error {
			c, err := e.JetStream().Consumer(t.Context(), events.StreamFacts, fmt.Sprint(service, "-", key.Partition()))
			if err != nil {
				return err
			}
			if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
				return fmt.Errorf("%d pending, %d in work", i.NumPending, i.NumAckPending)
			}
			return nil
		})
	}
}

// made is all that the services have made for a tenant and keep of it, by version; what is inside it too, if its API answers.
func made(t testing.TB, key events.Key) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments} {
		var list metav1.PartialObjectMetadataList
		e.List(t, r, key.Namespace, name.LabelName+"="+key.Name, &list)
		for _, o := range list.Items {
			version := o.ResourceVersion
			if r.Plural == kube.Deployments.Plural { // its status is its controller's
				version = fmt.Sprint(o.UID, "/", o.Generation)
			}
			all[r.Plural+"/"+o.Name] = version
		}
	}
	for _, of := range []string{"certs", "datastore", "workload", "addons", "status"} {
		if s := e.State(t.Context(), key, of); s != nil {
			all["state/"+of] = string(event.Marshal(s))
		}
	}
	if inside, err := e.Inside(t.Context(), key); err == nil {
		maps.Copy(all, inside)
	}
	return all
}

// unchanged checks that nothing is made, changed or deleted for a paused tenant although something happens to it. happens takes
// from what there is what it deletes itself.
func unchanged(t testing.TB, key events.Key, happens func(before map[string]string)) {
	t.Helper()
	before := made(t, key)
	happens(before)
	// A change of the object's labels is told to every service, and is handled after what happened before.
	generation := e.State(t.Context(), key, events.KeySpec).UpdatedAt
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"poked": fmt.Sprint(time.Now().UnixNano())}}}
	if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "intake to have told it", func() error {
		if s := e.State(t.Context(), key, events.KeySpec); !s.UpdatedAt.After(generation) {
			return errNotYet
		}
		return nil
	})
	heard(t, key)
	after := made(t, key)
	same(t, key, before, after)
}

// same compares what there was of a paused tenant and what there is.
func same(t testing.TB, key events.Key, before, after map[string]string) {
	t.Helper()
	for what, version := range before {
		if now, there := after[what]; !there {
			t.Errorf("%s of the paused tenant %s was deleted", what, key)
		} else if now != version {
			t.Errorf("%s of the paused tenant %s was changed:\n%s\n%s", what, key, version, now)
		}
	}
	for what := range after {
		if _, ok := before[what]; !ok {
			t.Errorf("%s was made for the paused tenant %s", what, key)
		}
	}
}

func TestPause(t *testing.T) {
	procs := e.Services(t)
	key := events.Tenant("default", "pause")
	admin := e.Local.Kubeconfig("admin")

	t.Run("a tenant that is made paused is begun when the time comes, by itself", func(t *testing.T) {
		o := env.Tenant(key.Name, "v1.35.4")
		o.Annotations = map[string]string{name.AnnotationPaused: ""}
		e.Apply(t, o)
		o = paused(t, key)
		if n := len(made(t, key)); n != 1 { // the state of status
			t.Errorf("%d things were made", n)
		}
		if ready := meta.FindStatusCondition(o.Status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionFalse {
			t.Errorf("Ready: %+v", ready)
		}
		if out := e.Kubectl(t, admin, "wait", "--for=condition=Paused", "tcp/"+key.Name, "--timeout=60s"); !strings.Contains(out, "condition met") {
			t.Error(out)
		}
		until := time.Now().Add(2 * time.Second).UTC().Truncate(time.Second)
		annotate(t, key, name.AnnotationPausedUntil, until.Format(time.RFC3339))
		annotate(t, key, name.AnnotationPaused, nil)
		o = e.Ready(t, key)
		if at := meta.FindStatusCondition(o.Status.Conditions, "Ready").LastTransitionTime; at.Time.Before(until) {
			t.Errorf("Ready at %s, paused until %s", at, until)
		}
		if meta.FindStatusCondition(o.Status.Conditions, "Paused") != nil {
			t.Error("it still says that it is paused")
		}
	})

	t.Run("what is asked and what drifts during a pause is done and put right at its end, also when services restarted", func(t *testing.T) {
		kubeconfig := e.Kubeconfig(t, key)
		var ca corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &ca)
		before := e.Ready(t, key)
		pause(t, key)
		patch := map[string]any{"spec": map[string]any{"kubernetes": map[string]any{"version": "v1.36.3"}}}
		if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, patch, nil); err != nil {
			t.Fatal(err)
		}
		o := paused(t, key)
		was, is := meta.FindStatusCondition(before.Status.Conditions, "Ready"), meta.FindStatusCondition(o.Status.Conditions, "Ready")
		if *was != *is || o.Status.ObservedGeneration != before.Status.ObservedGeneration {
			t.Errorf("Ready was %+v, is %+v", was, is)
		}
		unchanged(t, key, func(before map[string]string) {
			procs["certs"].Kill()
			for _, secret := range []string{name.SchedulerKubeconfig(key.Name), name.DatastoreConfig(key.Name)} {
				if _, err := e.Admin.Delete(t.Context(), kube.Secrets, key.Namespace, secret, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				delete(before, "secrets/"+secret)
			}
			if _, err := e.Admin.Delete(t.Context(), kube.Services, key.Namespace, name.Service(key.Name), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			delete(before, "services/"+name.Service(key.Name)) // without it nobody reaches what is inside
			maps.DeleteFunc(before, func(what, _ string) bool { return strings.HasPrefix(what, "inside/") })
			procs["certs"].Restart(t)
			if err := procs["workload"].Stop(); err != nil {
				t.Error(err)
			}
			procs["workload"].Restart(t)
		})
		annotate(t, key, name.AnnotationPaused, nil)
		o = e.Ready(t, key)
		if v := o.Status.Kubernetes.Version; v.Version != "v1.36.3" || *v.Status != v1alpha1.VersionReady {
			t.Errorf("%+v", v)
		}
		for _, secret := range []string{name.SchedulerKubeconfig(key.Name), name.DatastoreConfig(key.Name)} {
			get(t, kube.Secrets, key.Namespace, secret, &corev1.Secret{})
		}
		var now corev1.Secret
		if get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &now); now.ResourceVersion != ca.ResourceVersion {
			t.Error("the CA was written")
		}

		pause(t, key)
		unchanged(t, key, func(before map[string]string) {
			e.Kubectl(t, kubeconfig, "delete", "cm", "-n", "kube-system", "coredns")
			e.Kubectl(t, kubeconfig, "label", "cm", "-n", "kube-system", "kube-proxy", name.LabelProject+"-")
			delete(before, "inside/configmaps/kube-system/coredns")
			delete(before, "inside/configmaps/kube-system/kube-proxy") // has no label any more
		})
		if out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "cm", "-n", "kube-system", "coredns"); err == nil || !strings.Contains(out, "(NotFound)") {
			t.Errorf("it is there again: %v: %s", err, out)
		}
		annotate(t, key, name.AnnotationPaused, nil)
		env.Eventually(t, "what is inside the tenant to be put right", func() error {
			out, err := e.TryKubectl(t.Context(), kubeconfig, nil, "get", "cm", "-n", "kube-system", "-l", name.LabelProject+"="+name.Project, "-o", "name")
			if err != nil || !strings.Contains(out, "/coredns") || !strings.Contains(out, "/kube-proxy") {
				return fmt.Errorf("%w: %s", errNotYet, out)
			}
			return nil
		})
		e.Ready(t, key)
	})

	t.Run("a deletion that is paused between any two services goes on at the end", func(t *testing.T) {
		stop := func(service string) {
			t.Helper()
			if err := procs[service].Stop(); err != nil {
				t.Error(err)
			}
		}
		told, err := e.Operator.Conn().SubscribeSync(key.FactSubject("*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = told.Unsubscribe() }()
		wait := func(fact string) {
			t.Helper()
			for {
				m, err := told.NextMsg(3 * time.Minute)
				if err != nil {
					e.Explain(t, key)
					t.Fatalf("%s: %v", fact, err)
				}
				if strings.HasSuffix(m.Subject, "."+fact) {
					return
				}
			}
		}
		pause(t, key)
		e.Kubectl(t, admin, "delete", "tcp", key.Name, "--wait=false")
		wait("intake.deleting")
		o := paused(t, key)
		unchanged(t, key, func(map[string]string) {})
		if !strings.Contains(meta.FindStatusCondition(o.Status.Conditions, "Paused").Message, "deletion waits") {
			t.Errorf("%+v", o.Status.Conditions)
		}
		// At each stage the service whose turn it is hears of it during the pause only.
		for _, stage := range []struct{ done, next string }{
			{"intake.deleting", "addons"}, {"addons.removed", "workload"}, {"workload.removed", "datastore"}, {"datastore.removed", "certs"},
		} {
			stop(stage.next)
			annotate(t, key, name.AnnotationPaused, nil)
			wait(stage.done)
			annotate(t, key, name.AnnotationPaused, "")
			env.Eventually(t, "intake to know of the pause", func() error {
				var spec state.Tenant
				if s := e.State(t.Context(), key, events.KeySpec); s == nil || json.Unmarshal(s.Data, &spec) != nil || !spec.Paused {
					return errNotYet
				}
				return nil
			})
			procs[stage.next].Restart(t)
			paused(t, key)
			unchanged(t, key, func(map[string]string) {})
			if s := e.State(t.Context(), key, stage.next); s.Step == event.Removed {
				t.Errorf("%s has removed what it made for a paused tenant", stage.next)
			}
		}
		// The last stage is intake's own, who learns of the pause together with the last fact.
		stop("certs")
		if err := e.Operator.Conn().FlushTimeout(time.Minute); err != nil { // what was told before has come then
			t.Fatal(err)
		}
		for n, _, err := told.Pending(); n > 0 && err == nil; n-- { // the pauses were told, too
			if _, err := told.NextMsg(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		annotate(t, key, name.AnnotationPaused, nil)
		wait("intake.deleting")
		stop("intake")
		procs["certs"].Restart(t)
		wait("certs.removed")
		annotate(t, key, name.AnnotationPaused, "")
		procs["intake"].Restart(t)
		paused(t, key)
		if e.State(t.Context(), key, events.KeySpec) == nil {
			t.Error("the bucket of a paused tenant is gone")
		}
		annotate(t, key, name.AnnotationPaused, nil)
		e.Gone(t, key)
		nothingLeft(t, key)
	})

	t.Run("a creation that is paused at any step ends in Ready", func(t *testing.T) {
		env.Long(t, "the pauses above stop and resume a tenant that exists; this part has a tenant for each step of a creation")
		steps := []string{"workload.exposed", "certs.issued", "workload.available"}
		keys := map[string]events.Key{}
		done := make(chan string, len(steps))
		for i, step := range steps {
			key := events.Tenant("default", fmt.Sprint("pause-", i))
			keys[step] = key
			service, what, _ := strings.Cut(step, ".")
			told, err := e.Operator.Conn().SubscribeSync(key.FactSubject(service, what))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer func() { _ = told.Unsubscribe() }()
				if _, err := told.NextMsg(3 * time.Minute); err != nil {
					t.Errorf("%s: %v", step, err)
				}
				done <- step
			}()
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
		}
		for range steps {
			annotate(t, keys[<-done], name.AnnotationPaused, "")
		}
		for _, step := range slices.Sorted(maps.Keys(keys)) {
			paused(t, keys[step])
			unchanged(t, keys[step], func(map[string]string) {})
			annotate(t, keys[step], name.AnnotationPaused, nil)
		}
		for _, step := range slices.Sorted(maps.Keys(keys)) {
			e.Ready(t, keys[step])
			e.Delete(t, keys[step])
		}
		for _, key := range keys {
			e.Gone(t, key)
		}
	})
}
