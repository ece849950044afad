package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/test/env"
)

// complaint is why a writer was refused: as the API server says it, or as intake does.
type complaint struct {
	cause metav1.StatusCause
	event event.FieldError
}

func (c complaint) String() string {
	if c.event != (event.FieldError{}) {
		return fmt.Sprintf("%+v", c.event)
	}
	return string(c.cause.Type) + " " + c.cause.Field + ": " + c.cause.Message
}

// writer is a way to write an object; nil when it was accepted.
type writer func(t testing.TB, kind string, o map[string]any) []complaint

func TestEveryRule(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	e.PrivilegedFields(t, env.IntakeUser, true)
	writers := map[string]writer{"kubectl": clientWriter(asAuthor(t)), "event": eventWriter(t)}
	started, written := time.Now(), 0
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for way, write := range writers {
			for i, rule := range ruletest.Rules() {
				t.Run(way+"/"+rule.Kind+"/"+rule.Name, func(t *testing.T) {
					t.Parallel()
					n := 0
					try := func(patch string) []complaint {
						n++
						id := fmt.Sprintf("%c%d-%d", way[0], i, n)
						if rule.From != "" {
							if no := write(t, rule.Kind, named(rule, rule.From, id)); no != nil {
								t.Fatalf("%s\nrefused: %v", rule.From, no)
							}
						}
						no := write(t, rule.Kind, named(rule, patch, id))
						mu.Lock()
						defer mu.Unlock()
						written++
						return no
					}
					for _, passes := range rule.Passes {
						if no := try(passes); no != nil {
							t.Errorf("%s\nrefused: %v", passes, no)
						}
					}
					for _, fails := range rule.Fails {
						no := try(fails.Object)
						if !slices.ContainsFunc(no, func(c complaint) bool { return c.is(fails) }) {
							t.Errorf("%s\nwant  %s\ngot   %v", fails.Object, fails, no)
						}
					}
				})
			}
		}
	})
	t.Logf("%d objects in %.1f s", written, time.Since(started).Seconds())
}

// TestNullIsNothing: kubectl sends a null of a manifest as it is, and of a server-side apply it stands in what the policies' expressions are
// given.
func TestNullIsNothing(t *testing.T) {
	e.Service(t, name.ServiceIntake, "a")
	cluster(t)
	d := asAuthor(t)
	apply := func(t testing.TB, kind string, o map[string]any) []complaint {
		if err := applies(d, kind, o)(t.Context()); err != nil {
			return []complaint{{cause: metav1.StatusCause{Message: err.Error()}}}
		}
		return nil
	}
	for way, write := range map[string]writer{"kubectl": clientWriter(d), "apply": apply, "event": eventWriter(t)} {
		for _, kind := range []string{v1alpha1.TenantControlPlaneKind, v1alpha1.DataStoreKind, v1alpha1.KubeconfigGeneratorKind} {
			t.Run(way+"/"+kind, func(t *testing.T) {
				for _, annotations := range nulls {
					if no := write(t, kind, nullified(kind, way+"-null", annotations)); no != nil {
						t.Errorf("annotations %v: %v", annotations, no)
					}
				}
			})
		}
	}
}

// nulls are annotations that an object has one after the other.
var nulls = []any{
	nil,
	map[string]any{"stoker.dev/awake-replicas": "2"}, // changes what was stored with null
	map[string]any{"example.com/a": nil},
	nil,
}

// nullified is an object without labels and with some annotations.
func nullified(kind, id string, annotations any) map[string]any {
	o := ruletest.Smallest(kind)
	meta := o["metadata"].(map[string]any)
	meta["name"], meta["annotations"], meta["labels"] = id, annotations, nil
	return o
}

// named is an object of a rule, under a name of its own unless its name is what the rule is about.
func named(rule ruletest.Rule, patch, id string) map[string]any {
	o := ruletest.Object(rule.Kind, patch)
	meta := o["metadata"].(map[string]any)
	if !strings.Contains(patch, "metadata: {name") {
		meta["name"] = id
	}
	return o
}

// is reports whether a complaint is the failure that a rule says.
func (c complaint) is(f ruletest.Failure) bool {
	if c.event == (event.FieldError{}) {
		field, body := c.cause.Field, c.cause.Message
		if m := denied.FindStringSubmatch(body); m != nil {
			return m[1] == f.Field && f.Is(m[2])
		}
		return field == f.Field && strings.TrimPrefix(string(c.cause.Type), "FieldValue") == f.Rule && f.Is(body)
	}
	switch e := c.event; {
	case f.Field == "metadata.name" && e.Field == "event.subject":
		return true // not even a subject can hold it
	case f.Rule == ruletest.Duplicate:
		// Server-side apply sees it before the schema is looked at.
		return e.Rule == f.Rule && strings.HasPrefix(f.Field, e.Field)
	case e.Field != f.Field || e.Rule != f.Rule:
		return false
	case strings.HasPrefix(e.Message, "must be a whole number"):
		return true // more than its Go type holds
	default:
		// What intake adds: the value, where the API server doesn't name it, and a message where there is none.
		value := f.Value == "" || e.Value == f.Value || strings.HasSuffix(e.Value, "…") && strings.HasPrefix(f.Value, strings.TrimSuffix(e.Value, "…"))
		return value && (e.Message == f.Message || f.Message == "" && e.Message == "is required")
	}
}

// denied takes field and error out of a policy's denial.
var denied = regexp.MustCompile(`(?s)^ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: ([^ ]+): (.*)$`)

// clientWriter creates and updates, as kubectl create and kubectl replace do.
func clientWriter(d dynamic.Interface) writer {
	return func(t testing.TB, kind string, o map[string]any) []complaint {
		t.Helper()
		ctx, cancel := short(t)
		defer cancel()
		u := &unstructured.Unstructured{Object: o}
		strictly := metav1.FieldValidationStrict
		_, err := resource(d, kind).Create(ctx, u, metav1.CreateOptions{FieldValidation: strictly})
		for apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			there, getErr := resource(d, kind).Get(ctx, u.GetName(), metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			// As kubectl replace: the whole object, but for what others put into its metadata.
			u.SetResourceVersion(there.GetResourceVersion())
			u.SetFinalizers(there.GetFinalizers())
			_, err = resource(d, kind).Update(ctx, u, metav1.UpdateOptions{FieldValidation: strictly})
		}
		if err == nil {
			return nil
		}
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Details == nil {
			return []complaint{{cause: metav1.StatusCause{Message: err.Error()}}}
		}
		var all []complaint
		for _, c := range status.Status().Details.Causes {
			all = append(all, complaint{cause: c})
		}
		return all
	}
}

// eventWriter sends the command apply, with a portal's rights, and waits for the answer.
// referring is an object whose passwords and private keys are all in Secrets: commands must not hold any, objects may.
func referring(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	changed := map[string]any{}
	for k, v := range fields {
		changed[k] = referring(v)
		inner, _ := changed[k].(map[string]any)
		if k != "password" && k != "privateKey" || inner["content"] == nil {
			continue
		}
		delete(inner, "content")
		if inner["secretReference"] == nil {
			inner["secretReference"] = map[string]any{"name": "a", "namespace": "b", "keyPath": "c"}
		}
	}
	return changed
}

func eventWriter(t testing.TB) writer {
	conn := e.Portal.Conn()
	var mu sync.Mutex
	waiting := map[string]chan event.IntakeRejected{}
	sub, err := conn.Subscribe(events.AnswerSubjects, func(m *nats.Msg) {
		a, err := events.Decode(m.Header, m.Data)
		if err != nil {
			return // nobody will get an answer, which the test sees
		}
		var no event.IntakeRejected
		if a.Type() == event.FactType(name.ServiceIntake, event.Rejected) {
			_ = json.Unmarshal(m.Data, &no)
		}
		mu.Lock()
		defer mu.Unlock()
		select {
		case waiting[m.Subject] <- no:
		default: // nobody asked, or it was answered before
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return func(t testing.TB, kind string, o map[string]any) []complaint {
		t.Helper()
		u := unstructured.Unstructured{Object: o}
		key := events.Key{Kind: plurals[kind], Namespace: u.GetNamespace(), Name: u.GetName()}
		if kind != v1alpha1.TenantControlPlaneKind {
			key.Namespace = events.ClusterScoped
		}
		id := nuid.Next()
		inbox := key.AnswerSubject(id)
		answer := make(chan event.IntakeRejected, 1)
		mu.Lock()
		waiting[inbox] = answer
		mu.Unlock()
		ev := e.Portal.NewEvent(key, id, event.CommandType(key.Kind, event.Apply), referring(o), time.Now())
		ev.SetExtension(events.ExtReplyTo, inbox)
		ctx, cancel := short(t)
		defer cancel()
		if _, err := e.Portal.JetStream().PublishMsg(ctx, events.Encode(key.CommandSubject(), ev)); err != nil {
			t.Fatal(err)
		}
		select {
		case no := <-answer:
			var all []complaint
			for _, e := range no.Errors {
				all = append(all, complaint{event: e})
			}
			return all
		case <-ctx.Done():
			t.Fatalf("no answer to %s", key)
			return nil
		}
	}
}
