package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestNoSecretLeavesItsSecret searches all that the installation says, stores and logs for what the Secrets hold: of a tenant on
// etcd, one on PostgreSQL, a generated kubeconfig, a DataStore that can't be used, and the DataStores' own.
func TestNoSecretLeavesItsSecret(t *testing.T) {
	procs := e.Services(t)
	onEtcd, onPostgres := events.Tenant("default", "keys"), events.Tenant("default", "keys-sql")
	if err := e.Local.AddDataStore(t.Context(), local.DataStore{Name: "keys-sql", Driver: local.DriverPostgres}); err != nil {
		t.Fatal(err)
	}
	unusable(t, "keys-sql", "keys-wrong")
	admin := e.Local.Kubeconfig("admin")
	generator := filepath.Join(env.Root(), "examples", "kubeconfiggenerator.yaml")
	e.Kubectl(t, admin, "apply", "-f", generator)
	one, two := env.Tenant(onEtcd.Name, "v1.36.3"), env.Tenant(onPostgres.Name, "v1.36.3")
	one.Labels, two.Spec.DataStore = map[string]string{"tier": "demo"}, "keys-sql"
	e.Apply(t, one)
	e.Apply(t, two)
	e.Ready(t, onEtcd)
	e.Ready(t, onPostgres)
	e.Kubectl(t, admin, "wait", "--for=create", "secret/"+onEtcd.Name+"-viewer", "--timeout=300s")

	sensitive := inSecrets(t, "keys-viewer", name.CA(onEtcd.Name), name.AdminKubeconfig(onEtcd.Name), name.DatastoreConfig(onPostgres.Name), "keys-wrong")
	said := answers(t, onEtcd, one)
	for _, key := range []events.Key{onEtcd, onPostgres} {
		said["what is inside "+key.String()] = e.Kubectl(t, e.Kubeconfig(t, key), "get", "cm,secrets,deploy,ds,pods,events,sa,svc,clusterrolebindings", "-A", "-o", "json")
	}
	said["objects of the management cluster"] = e.Kubectl(t, admin, "get",
		"tcp,datastores,kc,cm,deploy,rs,pods,svc,events,leases,sa", "-A", "-o", "json", "--show-managed-fields")
	for _, p := range procs {
		metrics, err := p.Metrics(t.Context())
		readyz, notReady := p.Readyz(t.Context())
		if err := errors.Join(err, notReady); err != nil {
			t.Fatal(err)
		}
		said["metrics of "+p.Name], said["/readyz of "+p.Name] = metrics, readyz
	}
	dead(t, onEtcd)
	streams(t, said)
	logs(t, filepath.Dir(procs[name.ServiceCerts].Log()), said)
	for place, text := range said {
		if text == "" {
			t.Errorf("%s: nothing to search", place)
		}
		for _, what := range env.Search(sensitive, []byte(text)) {
			t.Errorf("%s is in %s", what, place)
		}
	}
	e.Kubectl(t, admin, "delete", "-f", generator)
	e.Kubectl(t, admin, "delete", "datastore", "keys-wrong")
	for _, key := range []events.Key{onEtcd, onPostgres} {
		e.Delete(t, key)
		e.Gone(t, key)
	}
}

// unusable makes a DataStore like another, with a password that is wrong and that whoever takes an address apart would print, and
// waits until its status says that it can't be used.
func unusable(t *testing.T, like, n string) {
	t.Helper()
	var o v1alpha1.DataStore
	get(t, kube.DataStores, "", like, &o)
	ref := *o.Spec.BasicAuth.Password.SecretReference
	ref.Name, ref.KeyPath = n, "password"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: n}, Data: map[string][]byte{"password": []byte("50%wrong:and@long/enough?#")}}
	if err := e.Admin.Create(t.Context(), kube.Secrets, secret); err != nil {
		t.Fatal(err)
	}
	o.ObjectMeta, o.Status = metav1.ObjectMeta{Name: n}, v1alpha1.DataStoreStatus{}
	o.TypeMeta = kube.DataStores.TypeMeta()
	o.Spec.BasicAuth.Password = v1alpha1.ContentRef{SecretReference: &ref}
	if err := e.Admin.Create(t.Context(), kube.DataStores, &o); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, n+" to be refused by the database", func() error {
		get(t, kube.DataStores, "", n, &o)
		if !meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.DataStoreConditionValid) {
			return errNotYet
		}
		return nil
	})
}

// public are the keys of Secrets that hold neither keys nor passwords.
var public = []string{name.KeyDBSchema, name.KeyDBUser, name.KeyDBReplicas, name.KeyDBConnectionString, "username", name.KeyServiceAccountPublic}

// inSecrets is what is sensitive in all Secrets of the management cluster, and in the files of NATS users and of HTTP. Those named
// must have something.
func inSecrets(t *testing.T, named ...string) []env.Sensitive {
	t.Helper()
	var all []env.Sensitive
	var secrets corev1.SecretList
	e.List(t, kube.Secrets, "", "", &secrets)
	for _, s := range secrets.Items {
		for k, v := range s.Data {
			if slices.Contains(public, k) || strings.HasSuffix(k, ".crt") {
				continue
			}
			found := env.SensitiveIn(s.Namespace+"/"+s.Name+" "+k, v)
			if len(found) > 0 {
				named = slices.DeleteFunc(named, func(n string) bool { return n == s.Name })
			}
			all = append(all, found...)
		}
	}
	if len(named) > 0 {
		t.Fatalf("nothing sensitive in the Secrets %v", named)
	}
	for _, user := range events.Users() {
		all = append(all, env.SensitiveIn("the seed of NATS user "+user, readFile(t, e.NATS.SeedFile(user)))...)
	}
	return append(all, env.SensitiveIn("the token of HTTP", readFile(t, filepath.Join(filepath.Dir(e.HTTP().Tokens), "token")))...)
}

// answers are those to a command that is accepted, to one that is refused, and to questions.
func answers(t *testing.T, key events.Key, o *v1alpha1.TenantControlPlane) map[string]string {
	t.Helper()
	said := map[string]string{}
	ask := func(what, typ string, data any) {
		t.Helper()
		inbox := key.NewAnswerSubject()
		sub, err := e.Portal.Conn().SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		ev := e.Portal.NewEvent(key, inbox, typ, data, time.Now())
		ev.SetExtension(events.ExtReplyTo, inbox)
		env.Publish(t, e.Portal, events.Encode(key.CommandSubject(), ev))
		m, err := sub.NextMsg(3 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		header, _ := json.Marshal(m.Header)
		said[what] = string(header) + string(m.Data)
	}
	ask("the answer to a command", event.TenantApply, env.JSON(t, o))
	ask("a refusal", event.CommandType(event.TenantControlPlanes, event.Patch), map[string]any{"spec": map[string]any{"kubernetes": map[string]any{"version": "none"}}})
	for _, question := range []string{event.QueryStatus, event.QueryWhy} {
		m, err := e.Operator.Conn().Request(question, event.Marshal(event.Query{Namespace: key.Namespace, Name: key.Name}), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		said["the answer to "+question] = string(m.Data)
	}
	return said
}

// dead has intake bury what isn't an event.
func dead(t *testing.T, key events.Key) {
	t.Helper()
	env.Publish(t, e.Portal, &nats.Msg{Subject: key.CommandSubject(), Data: []byte("garbage")})
	env.Eventually(t, "a dead letter", func() error {
		s, err := e.JetStream().Stream(t.Context(), events.StreamDead)
		if err == nil {
			_, err = s.GetLastMsgForSubject(t.Context(), key.DeadSubject(name.ServiceIntake))
		}
		return err
	})
}

// streams adds all that NATS keeps, buckets too.
func streams(t *testing.T, said map[string]string) {
	t.Helper()
	names := e.JetStream().StreamNames(t.Context())
	var all []string
	for n := range names.Name() {
		all = append(all, n)
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
	for _, n := range all {
		var text strings.Builder
		for _, m := range history(t, n, ">") {
			header, _ := json.Marshal(m.Header)
			text.WriteString(m.Subject + " " + string(header) + " " + string(m.Data) + "\n")
		}
		s, err := e.JetStream().Stream(t.Context(), n)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if text.Len() > 0 || s.CachedInfo().State.Msgs > 0 {
			said["stream "+n] = text.String()
		}
	}
	// What was carried out is gone from the stream of commands; here are those that came.
	for i, m := range e.Commands() {
		header, _ := json.Marshal(m.Header)
		said[fmt.Sprint("command ", i)] = string(header) + string(m.Data)
	}
	for _, n := range []string{events.StreamFacts, events.StreamStatus, events.StreamDead, "KV_" + events.BucketCommands, "KV_" + events.BucketLeases} {
		if said["stream "+n] == "" {
			t.Errorf("stream %s has nothing, of %v", n, all)
		}
	}
}

// logs adds the logs of the services, of the servers and of the tenants' pods, all below a directory.
func logs(t *testing.T, dir string, said map[string]string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") {
			return nil //nolint:nilerr // files go meanwhile
		}
		if data := readFile(t, path); len(data) > 0 {
			said["the log "+strings.TrimPrefix(path, dir)] = string(data)
			found++
		}
		return nil
	})
	if err != nil || found < len(name.Services()) {
		t.Errorf("%d logs in %s: %v", found, dir, err)
	}
}
