package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/intake"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestEveryVerbForEveryKind(t *testing.T) {
	startIntake(t, "a")
	for _, kind := range []struct {
		make   func(string) (events.Key, map[string]any)
		change string // of the spec
		wrong  string
		field  string
	}{
		{func(n string) (events.Key, map[string]any) { return tenant(t, n) }, `{"controlPlane":{"deployment":{"replicas":3}}}`, `{"networkProfile":{"serviceCidr":"10.0.0.0/99"}}`, "spec.networkProfile.serviceCidr"},
		{dataStore, `{"endpoints":["127.0.0.1:2379","127.0.0.2:2379"]}`, `{"driver":"oracle"}`, "spec.driver"},
		{generator, `{"groups":[{"stringValue":"admins"}]}`, `{"user":{"fromDefinition":"metadata.name"}}`, "spec.user"},
	} {
		key, o := kind.make("verbs")
		t.Run(key.Kind, func(t *testing.T) {
			first := accepts(t, command{key: key, verb: event.Apply, data: o})
			if first.Generation != 1 || first.UID != there(t, key).Metadata.UID || first.Command == "" {
				t.Errorf("%s", first.data)
			}
			if again := accepts(t, command{key: key, verb: event.Apply, data: o}); again.Generation != 1 {
				t.Errorf("applied twice: %s", again.data)
			}
			t.Run("patch changes a part", func(t *testing.T) {
				if a := accepts(t, command{key: key, verb: event.Patch, data: spec(kind.change)}); a.Generation != 2 {
					t.Errorf("%s", a.data)
				}
				if a := accepts(t, command{key: key, verb: event.Patch, data: spec(kind.change)}); a.Generation != 2 {
					t.Errorf("a patch that changes nothing: %s", a.data)
				}
			})
			t.Run("what breaks a rule changes nothing and names field and value", func(t *testing.T) {
				a := ask(t, command{key: key, verb: event.Patch, data: spec(kind.wrong)})
				if len(a.errors) == 0 || !strings.HasPrefix(a.errors[0].Field, kind.field) || a.errors[0].Value == "" || a.errors[0].Message == "" {
					t.Errorf("%+v", a.errors)
				}
				refuses(t, command{key: key, verb: event.Patch, data: spec(`{"colour":"red"}`)}, "spec.colour", "Unknown")
				if g := there(t, key).Metadata.Generation; g != 2 {
					t.Errorf("generation %d", g)
				}
			})
			t.Run("pause and resume", func(t *testing.T) {
				if a := accepts(t, command{key: key, verb: event.Pause}); !a.Paused {
					t.Errorf("%s", a.data)
				}
				if _, ok := there(t, key).Metadata.Annotations[name.AnnotationPaused]; !ok {
					t.Error("the annotation is missing")
				}
				until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
				accepts(t, command{key: key, verb: event.Pause, data: event.PauseCommand{Until: until}})
				annotations := there(t, key).Metadata.Annotations
				if _, forever := annotations[name.AnnotationPaused]; forever || annotations[name.AnnotationPausedUntil] != until.Format(time.RFC3339) {
					t.Errorf("%v", annotations)
				}
				if a := accepts(t, command{key: key, verb: event.Resume}); a.Paused {
					t.Errorf("%s", a.data)
				}
				if annotations := there(t, key).Metadata.Annotations; len(besideRecord(annotations)) > 0 {
					t.Errorf("%v", annotations)
				}
				refuses(t, command{key: key, verb: event.Pause, data: event.PauseCommand{Until: time.Now().Add(-time.Hour)}}, "until", "Invalid")
			})
			if key.IsTenant() {
				t.Run("sleep and wake", func(t *testing.T) {
					for range 2 {
						if a := accepts(t, command{key: key, verb: event.Sleep}); a.Generation != 3 || a.Replicas == nil || *a.Replicas != 0 {
							t.Errorf("%s", a.data)
						}
					}
					if n := there(t, key).Metadata.Annotations[name.AnnotationAwakeReplicas]; n != "3" {
						t.Errorf("%q is remembered", n)
					}
					for range 2 {
						if a := accepts(t, command{key: key, verb: event.Wake}); a.Generation != 4 || a.Replicas == nil || *a.Replicas != 3 {
							t.Errorf("%s", a.data)
						}
					}
					if a := there(t, key).Metadata.Annotations; len(besideRecord(a)) > 0 {
						t.Errorf("%v", a)
					}
				})
			} else {
				refuses(t, command{key: key, verb: event.Sleep}, "event.type", "Unknown")
			}
			t.Run("a uid must be the object's", func(t *testing.T) {
				refuses(t, command{key: key, verb: event.Pause, data: event.PauseCommand{Target: event.Target{UID: "other"}}}, "uid", "Invalid")
				refuses(t, command{key: key, verb: event.Delete, data: event.DeleteCommand{Target: event.Target{UID: "other"}}}, "uid", "Invalid")
				accepts(t, command{key: key, verb: event.Resume, data: event.ResumeCommand{Target: event.Target{UID: first.UID}}})
			})
			t.Run("of an object that is being deleted only the pause can be changed", func(t *testing.T) {
				hold(t, key, "test.stoker.dev/hold")
				if a := accepts(t, command{key: key, verb: event.Delete}); a.what != event.Deleting || a.UID != first.UID {
					t.Errorf("%s %s", a.what, a.data)
				}
				refuses(t, command{key: key, verb: event.Apply, data: o}, "metadata.name", "Deleting")
				refuses(t, command{key: key, verb: event.Patch, data: spec(kind.change)}, "metadata.name", "Deleting")
				accepts(t, command{key: key, verb: event.Pause})
				accepts(t, command{key: key, verb: event.Resume})
				accepts(t, command{key: key, verb: event.Delete})
				hold(t, key)
			})
			t.Run("what isn't there is not found", func(t *testing.T) {
				gone, _ := kind.make("nobody")
				for _, verb := range []string{event.Delete, event.Pause, event.Resume} {
					refuses(t, command{key: gone, verb: verb}, "metadata.name", "NotFound")
				}
				refuses(t, command{key: gone, verb: event.Patch, data: spec(kind.change)}, "metadata.name", "NotFound")
			})
		})
	}
}

// hold keeps an object with these finalizers.
func hold(t testing.TB, key events.Key, finalizers ...string) {
	t.Helper()
	if finalizers == nil {
		finalizers = []string{}
	}
	patch := map[string]any{"metadata": map[string]any{"finalizers": finalizers}}
	if err := e.Admin.MergePatch(t.Context(), resources[key.Kind], bare(key), key.Name, patch, nil); err != nil {
		t.Fatal(err)
	}
}

func TestExpectedGeneration(t *testing.T) {
	startIntake(t, "a")
	const expected = "event." + events.ExtExpectedGeneration
	key, o := tenant(t, "expected")
	t.Run("0 makes an object that isn't there, and only that", func(t *testing.T) {
		refuses(t, command{key: key, verb: event.Apply, data: o, expected: 3}, expected, "Conflict")
		if a := accepts(t, command{key: key, verb: event.Apply, data: o, expected: 0}); a.Generation != 1 {
			t.Errorf("%s", a.data)
		}
		no := refuses(t, command{key: key, verb: event.Apply, data: o, expected: 0}, expected, "Conflict")
		if no.Value != "0" || !strings.Contains(no.Message, "generation 1") {
			t.Errorf("%+v", no)
		}
	})
	t.Run("a command for another generation changes nothing", func(t *testing.T) {
		for _, c := range []command{
			{verb: event.Apply, data: o}, {verb: event.Patch, data: spec(`{"networkProfile":{"port":6444}}`)}, {verb: event.Pause}, {verb: event.Sleep}, {verb: event.Delete},
		} {
			c.key, c.expected = key, 7
			refuses(t, c, expected, "Conflict")
		}
		if m := there(t, key).Metadata; m.Generation != 1 || m.DeletionTimestamp != "" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("a command that was carried out, and whose answer was lost, is not refused when it comes again", func(t *testing.T) {
		c := command{key: key, verb: event.Patch, data: spec(`{"networkProfile":{"port":6445}}`), expected: 1, id: "lost"}
		if a := accepts(t, c); a.Generation != 2 {
			t.Errorf("%s", a.data)
		}
		forget(t)
		if a := accepts(t, c); a.Generation != 2 {
			t.Errorf("%s", a.data)
		}
		create, made := tenant(t, "expected-lost")
		c = command{key: create, verb: event.Apply, data: made, expected: 0, id: "lost-create"}
		accepts(t, c)
		forget(t)
		if a := accepts(t, c); a.Generation != 1 {
			t.Errorf("%s", a.data)
		}
	})
	t.Run("of writers that race for a generation one wins, and nobody's change is lost", func(t *testing.T) {
		key, o := tenant(t, "race")
		accepts(t, command{key: key, verb: event.Apply, data: o})
		const rounds = 15
		add := func(who string) {
			for i := range rounds {
				for {
					now := there(t, key)
					profile := now.Spec["networkProfile"].(map[string]any)
					sans, _ := profile["certSANs"].([]any)
					all, _ := json.Marshal(append(slices.Clone(sans), fmt.Sprintf("%s-%d.example", who, i)))
					a := ask(t, command{key: key, verb: event.Patch, expected: now.Metadata.Generation, data: spec(`{"networkProfile":{"certSANs":` + string(all) + `}}`)})
					if a.what == event.Accepted {
						break
					}
					if a.errors[0].Rule != "Conflict" {
						t.Errorf("%+v", a.errors)
						return
					}
				}
			}
		}
		var wg sync.WaitGroup
		for _, who := range []string{"a", "b"} {
			wg.Go(func() { add(who) })
		}
		wg.Go(func() { // and kubectl, and a controller that writes the status
			for i := range rounds {
				now := there(t, key)
				_ = e.Admin.ApplyStatus(t.Context(), kube.TenantControlPlanes, &metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, map[string]any{"controlPlaneEndpoint": fmt.Sprintf("127.0.0.1:%d", i)})
				profile := now.Spec["networkProfile"].(map[string]any)
				sans, _ := profile["certSANs"].([]any)
				_ = e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, map[string]any{
					"metadata": map[string]any{"resourceVersion": now.Metadata.ResourceVersion},
					"spec":     map[string]any{"networkProfile": map[string]any{"certSANs": append(slices.Clone(sans), fmt.Sprintf("kubectl-%d.example", i))}},
				}, nil)
			}
		})
		wg.Wait()
		sans := fmt.Sprint(there(t, key).Spec["networkProfile"].(map[string]any)["certSANs"])
		for _, who := range []string{"a", "b"} {
			for i := range rounds {
				if !strings.Contains(sans, fmt.Sprintf("%s-%d.example", who, i)) {
					t.Errorf("%s-%d is lost in %s", who, i, sans)
				}
			}
		}
	})
	t.Run("of two that make the same object one wins", func(t *testing.T) {
		for i := range 10 {
			key, o := tenant(t, fmt.Sprintf("twins-%d", i))
			byHand := make(chan error, 1)
			go func() {
				o := env.Tenant(key.Name, "v1.35.4")
				byHand <- e.Admin.Create(t.Context(), kube.TenantControlPlanes, o)
			}()
			a := ask(t, command{key: key, verb: event.Apply, data: o, expected: 0})
			created := <-byHand == nil
			version := there(t, key).Spec["kubernetes"].(map[string]any)["version"]
			if won := a.what == event.Accepted; won == created || won != (version == "v1.36.3") {
				t.Errorf("%s, by hand %t, version %v: %+v", a.what, created, version, a.errors)
			}
		}
	})
}

// forget removes all noted answers.
func forget(t testing.TB) {
	t.Helper()
	admin, err := e.Bus(name.ServiceIntake)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := admin.JetStream().DeleteKeyValue(ctx, events.BucketCommands); err != nil {
		t.Fatal(err)
	}
}

// acceptedIDs lists the ids of the commands that were accepted for an object, by the facts.
func acceptedIDs(t testing.TB, key events.Key) []string {
	t.Helper()
	var ids []string
	for _, m := range e.Messages(t, events.StreamFacts, key.FactSubject(name.ServiceIntake, "*")) {
		var data event.IntakeAccepted
		_ = json.Unmarshal(m.Data(), &data)
		ids = append(ids, data.Command)
	}
	return ids
}

func TestTheSameIdTwiceIsOneChange(t *testing.T) {
	stop := startIntake(t, "a")
	key, o := tenant(t, "twice")
	first := accepts(t, command{key: key, verb: event.Apply, data: o, id: "twice-1"})
	t.Run("a repeat gets the same answer, changes nothing and tells nothing, whatever happened since", func(t *testing.T) {
		accepts(t, command{key: key, verb: event.Patch, data: spec(`{"networkProfile":{"port":7443}}`)})
		facts, version := acceptedIDs(t, key), there(t, key).Metadata.ResourceVersion
		again := accepts(t, command{key: key, verb: event.Apply, data: o, id: "twice-1"})
		if again.data != first.data {
			t.Errorf("%s, and then %s", first.data, again.data)
		}
		if now := there(t, key); now.Metadata.ResourceVersion != version || !slices.Equal(acceptedIDs(t, key), facts) {
			t.Errorf("it changed %+v", now.Metadata)
		}
	})
	stop()
	startIntake(t, "b")
	t.Run("also when another replica hears it", func(t *testing.T) {
		if again := accepts(t, command{key: key, verb: event.Apply, data: o, id: "twice-1"}); again.data != first.data {
			t.Errorf("%s, and then %s", first.data, again.data)
		}
	})
	t.Run("the same id for something else is refused", func(t *testing.T) {
		other, another := tenant(t, "twice-other")
		for _, c := range []command{
			{key: key, verb: event.Delete}, {key: key, verb: event.Apply, data: o, expected: 1}, {key: other, verb: event.Apply, data: another},
		} {
			c.id = "twice-1"
			if no := refuses(t, c, "event.id", "Duplicate"); no.Value != "twice-1" {
				t.Errorf("%+v", no)
			}
		}
		if there(t, key).Metadata.DeletionTimestamp != "" {
			t.Error("it was deleted all the same")
		}
	})
	t.Run("what was refused may be sent again", func(t *testing.T) {
		lost := events.Tenant("later", "twice")
		data := env.JSON(t, env.Tenant("twice", "v1.36.3"))
		data["metadata"] = map[string]any{"name": "twice", "namespace": "later"}
		c := command{key: lost, verb: event.Apply, data: data, id: "twice-3"}
		if no := refuses(t, c, "metadata.namespace", "NotFound"); no.Value != "later" {
			t.Errorf("%+v", no)
		}
		if err := e.Admin.Apply(t.Context(), kube.Namespaces, namespace("later")); err != nil {
			t.Fatal(err)
		}
		accepts(t, c)
	})
}

func TestOrderIsKept(t *testing.T) {
	stop := startIntake(t, "a")
	startIntake(t, "b")
	keys := make([]events.Key, 4)
	for i := range keys {
		key, o := tenant(t, fmt.Sprintf("order-%d", i))
		keys[i] = key
		accepts(t, command{key: key, verb: event.Apply, data: o})
	}
	const n = 100
	sent := map[events.Key][]string{}
	for i := range n {
		for _, key := range keys {
			c := command{key: key, id: fmt.Sprintf("%s-%03d", key.Name, i)}
			switch i % 3 {
			case 0:
				c.verb = event.Sleep
			case 1:
				c.verb = event.Wake
			default:
				c.verb, c.data = event.Patch, spec(fmt.Sprintf(`{"networkProfile":{"port":%d}}`, 7000+i))
			}
			env.Publish(t, e.Portal, c.encode(t, ""))
			sent[key] = append(sent[key], c.id)
		}
		if i == n/2 {
			stop() // its partitions move to the other replica
		}
	}
	for _, key := range keys {
		last := accepts(t, command{key: key, verb: event.Wake})
		ids := acceptedIDs(t, key)[1:] // but for the first apply
		if i := slices.Index(ids, last.Command); i >= 0 {
			ids = ids[:i]
		}
		if !slices.Equal(ids, sent[key]) {
			t.Errorf("%s: told\n%v, sent\n%v", key, ids, sent[key])
		}
		if port := there(t, key).Spec["networkProfile"].(map[string]any)["port"]; port != float64(7000+n-2) {
			t.Errorf("%s: port %v", key, port)
		}
	}
}

func TestAnInstallationKeepsToItsOwnObjects(t *testing.T) {
	if err := e.Admin.Apply(t.Context(), kube.Namespaces, namespace("blue")); err != nil {
		t.Fatal(err)
	}
	startIntake(t, "a", func(c *intake.Config) { c.Namespace, c.WatchFilter = "blue", "blue" })
	const label = "metadata.labels[" + name.LabelWatchFilter + "]"
	key, o := tenant(t, "others")
	if no := refuses(t, command{key: key, verb: event.Apply, data: o}, "metadata.namespace", "Forbidden"); no.Value != "default" {
		t.Errorf("%+v", no)
	}
	key = events.Tenant("blue", "mine")
	o["metadata"] = map[string]any{"name": "mine", "namespace": "blue"}
	accepts(t, command{key: key, verb: event.Apply, data: o})
	if there(t, key).Metadata.Labels[name.LabelWatchFilter] != "blue" {
		t.Error("the label is missing")
	}
	accepts(t, command{key: key, verb: event.Sleep})
	store, ds := dataStore("blue")
	accepts(t, command{key: store, verb: event.Apply, data: ds})
	relabel := map[string]any{"metadata": map[string]any{"labels": map[string]any{name.LabelWatchFilter: "green"}}}
	for _, key := range []events.Key{key, store} {
		if err := e.Admin.MergePatch(t.Context(), resources[key.Kind], bare(key), key.Name, relabel, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []command{
		{key: key, verb: event.Apply, data: o}, {key: key, verb: event.Pause}, {key: key, verb: event.Delete}, {key: store, verb: event.Delete},
		{key: store, verb: event.Apply, data: ds},
	} {
		if no := refuses(t, c, label, "Forbidden"); no.Value != "green" {
			t.Errorf("%+v", no)
		}
	}
	o["metadata"] = map[string]any{"name": "mine", "namespace": "blue", "labels": map[string]any{name.LabelWatchFilter: "green"}}
	refuses(t, command{key: key, verb: event.Apply, data: o}, label, "Invalid")
}

func TestATenantMayNameADataStoreThatWasMadeAMomentAgo(t *testing.T) {
	startIntake(t, "a")
	tries := 0
	env.Eventually(t, "the policies to know of DataStores", func() error {
		tries++
		key, o := tenant(t, fmt.Sprintf("probe-%d", tries))
		o["spec"].(map[string]any)["dataStore"] = "nowhere"
		if a := ask(t, command{key: key, verb: event.Apply, data: o}); a.what != event.Rejected {
			return fmt.Errorf("%s %s", a.what, a.data)
		}
		return nil
	})
	for i := range 5 {
		store, ds := dataStore(fmt.Sprintf("fresh-%d", i))
		key, o := tenant(t, store.Name)
		o["spec"].(map[string]any)["dataStore"] = store.Name
		if no := refuses(t, command{key: key, verb: event.Apply, data: o}, "spec.dataStore", "Invalid"); no.Value != store.Name {
			t.Errorf("%+v", no)
		}
		accepts(t, command{key: store, verb: event.Apply, data: ds})
		if a := accepts(t, command{key: key, verb: event.Apply, data: o}); a.DataStore != store.Name {
			t.Errorf("%s", a.data)
		}
	}
}

func TestAnswersToNobodyAndToASubjectOfOthers(t *testing.T) {
	startIntake(t, "a")
	key, o := tenant(t, "silent")
	c := command{key: key, verb: event.Apply, data: o}
	env.Publish(t, e.Portal, c.encode(t, ""))
	e.Fact(t, key, name.ServiceIntake, event.Accepted)
	spy, err := e.Operator.Conn().SubscribeSync("stoker.status.default.silent")
	if err != nil {
		t.Fatal(err)
	}
	c = command{key: key, verb: event.Delete}
	env.Publish(t, e.Portal, c.encode(t, "stoker.status.default.silent"))
	e.Fact(t, key, name.ServiceIntake, event.Rejected)
	if _, err := spy.NextMsg(100 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Error("intake answered on a subject that is none for answers")
	}
}

// A spec that can't be read is written anew once a service says so, and the tenant's next command is carried out.
func TestASpecThatCanNotBeReadIsWrittenAnew(t *testing.T) {
	startIntake(t, "a")
	key, o := tenant(t, "unreadable")
	accepts(t, command{key: key, verb: event.Apply, data: o})
	spec := func() (*state.State, error) { return e.Operator.State(t.Context(), key, name.ServiceIntake) }
	before, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.Bus(name.ServiceIntake)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	certs, err := e.Bus(name.ServiceCerts)
	if err != nil {
		t.Fatal(err)
	}
	defer certs.Close()
	for i, data := range []string{`{"stream":"STOKER_STATUS","seq":1}`, "\xff", ""} {
		m := nats.NewMsg("$KV." + key.Bucket() + ".spec")
		m.Data = []byte(data)
		if _, err := in.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if err := certs.Tell(t.Context(), key, 0, fmt.Sprint("unreadable-", i), event.Failed, event.StepFailed{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the spec is as before", func() error {
			now, err := spec()
			if err == nil && (now.UID != before.UID || now.Inputs != before.Inputs) {
				err = fmt.Errorf("it is %+v", now)
			}
			return err
		})
	}
	accepts(t, command{key: key, verb: event.Sleep})
	if now, err := spec(); err != nil || now.Generation != before.Generation+1 {
		t.Errorf("%+v, %v", now, err)
	}
}

// besideRecord are the annotations of a tenant without the record of its DataStore.
func besideRecord(annotations map[string]string) map[string]string {
	others := maps.Clone(annotations)
	delete(others, name.AnnotationDataStore)
	return others
}

func TestCommandsForWhatAProviderMakes(t *testing.T) {
	startIntake(t, "a")
	key, o := tenant(t, "provided")
	accepts(t, command{key: key, verb: event.Apply, data: o})
	owned := map[string]any{"metadata": map[string]any{"ownerReferences": []map[string]any{{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1alpha2", "kind": "KamajiControlPlane", "name": "kcp", "uid": "u", "controller": true,
	}}}}
	if err := e.Admin.MergePatch(t.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, owned, nil); err != nil {
		t.Fatal(err)
	}
	const replicas = "spec.controlPlane.deployment.replicas"
	if no := refuses(t, command{key: key, verb: event.Sleep}, replicas, event.RuleForbidden); !strings.Contains(no.Message, "KamajiControlPlane kcp") || no.Value != "0" {
		t.Errorf("%+v", no)
	}
	refuses(t, command{key: key, verb: event.Patch, data: spec(`{"controlPlane":{"deployment":{"replicas":3}}}`)}, replicas, event.RuleForbidden)
	refuses(t, command{key: key, verb: event.Apply, data: o}, "metadata.ownerReferences", event.RuleForbidden)
	refuses(t, command{key: key, verb: event.Delete}, "metadata.ownerReferences", event.RuleForbidden)
	accepts(t, command{key: key, verb: event.Patch, data: spec(`{"writePermissions":{"blockCreation":true}}`)})
	accepts(t, command{key: key, verb: event.Pause})
	accepts(t, command{key: key, verb: event.Resume})
}
