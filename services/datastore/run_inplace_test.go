package datastore_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/nats-io/nats.go"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// inPlace is a tenant that is set back to backups.
type inPlace struct {
	*tenant
	location string // Secret
	identity *age.X25519Identity
	url      string
	etcd     *clientv3.Client
	events   *clientv3.Client // of the etcd that an override keeps Events in
	prefix   string
	asked    time.Time
}

// backedUp makes a backup of keys, by an API server of a version, and gives the tenant what opens it. It returns a request to be set back to it.
func (x *inPlace) backedUp(version string, keys ...string) (request string) {
	x.installation.t.Helper()
	t := x.installation.t
	l, err := backup.OpenLocation(t.Context(), backup.Access{URL: x.url})
	x.must(err)
	defer l.Close()
	m, err := backup.Make(t.Context(), l, backup.Source{
		Manifest:   backup.Manifest{Tenant: backup.Tenant{Namespace: x.namespace, Name: x.key.Name}, Kubernetes: version},
		Recipients: []string{x.identity.Recipient().String()}, Export: iter.Seq2[driver.Change, error](func(yield func(driver.Change, error) bool) {
			for _, key := range keys {
				if !yield(driver.Change{Key: key, Value: []byte("of the backup")}, nil) {
					return
				}
			}
		}),
	})
	x.must(err)
	sealed, err := backup.KeysOf(t.Context(), l, m)
	x.must(err)
	opened, err := backup.OpenKeys(m, sealed, x.identity.String())
	x.must(err)
	secret := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: name.Restore(x.key.Name)},
		Data: map[string][]byte{name.KeyRestoreIdentity: []byte(opened.Identity)},
	}
	_, err = x.kube.Delete(t.Context(), kube.Secrets, x.namespace, secret.Name, metav1.DeleteOptions{})
	x.must(err)
	x.must(x.kube.Create(t.Context(), kube.Secrets, secret))
	x.asked = x.asked.Add(time.Second)
	return name.InPlace{Backup: strings.Join([]string{x.location, x.namespace, x.key.Name, m.ID}, "/"), At: x.asked}.String()
}

// asks is what intake writes when somebody asks for it, or nobody does any more.
func (x *inPlace) asks(request string) {
	x.installation.t.Helper()
	x.t.InPlace = state.InPlace{Request: request}
	x.t.Spec.ControlPlane.Deployment.Replicas = new(int32(1))
	x.accept()
}

// stops is what intake writes once the backup is whole.
func (x *inPlace) stops() {
	x.installation.t.Helper()
	x.t.InPlace.Stage, x.t.InPlace.StoppedAt = state.InPlaceStopped, time.Now().UTC().Truncate(time.Second)
	x.t.Spec.ControlPlane.Deployment.Replicas = new(int32)
	x.accept()
}

// at is the etcd that a key is to be in.
func (x *inPlace) at(key string) *clientv3.Client {
	if strings.HasPrefix(key, "events/") {
		return x.events
	}
	return x.etcd
}

// has reports whether the tenant keeps these keys, and no others, each where its override says.
func (x *inPlace) has(values string, keys ...string) error {
	all := map[string]string{}
	for _, etcd := range []*clientv3.Client{x.etcd, x.events} {
		have, err := etcd.Get(x.installation.t.Context(), x.prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range have.Kvs {
			key := strings.TrimPrefix(string(kv.Key), x.prefix)
			if !driver.IsRecord(key) && x.at(key) != etcd {
				return fmt.Errorf("%s is in the wrong etcd", key)
			}
			if !driver.IsRecord(key) {
				all[key] = string(kv.Value)
			}
		}
	}
	for _, key := range keys {
		if all[key] != values {
			return fmt.Errorf("%s is %q of %v", key, all[key], all)
		}
	}
	if len(all) != len(keys) {
		return fmt.Errorf("it keeps %v, and is to keep %v", all, keys)
	}
	return nil
}

func (x *inPlace) put(value string, keys ...string) {
	x.installation.t.Helper()
	for _, key := range keys {
		_, err := x.at(key).Put(x.installation.t.Context(), x.prefix+key, value)
		x.must(err)
	}
}

func TestRestoreInPlace(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	in.etcdStore("set-back", server)
	events := etcdserver.StartWith(t, server.CA, "127.0.0.1")
	in.etcdStore("set-back-events", events)
	system := &corev1.Namespace{TypeMeta: kube.Namespaces.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: name.SystemNamespace}}
	if err := in.kube.Create(t.Context(), kube.Namespaces, system); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	in.must(err)
	x := &inPlace{tenant: in.tenant("demo"), location: "set-back-" + in.namespace, identity: identity, url: "file://" + t.TempDir(), asked: time.Now()}
	in.must(in.kube.Create(t.Context(), kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: name.SystemNamespace, Name: x.location}, Type: name.BackupLocation,
		Data: map[string][]byte{name.KeyLocationURL: []byte(x.url), name.KeyLocationRecipients: []byte(identity.Recipient().String())},
	}))
	stop := in.run()
	defer func() { stop() }()
	x.t.Spec.DataStore, x.t.Spec.Kubernetes.Version = "set-back", "v1.36.3"
	x.t.Spec.DataStoreOverrides = []v1alpha1.DataStoreOverride{{Resource: "/events", DataStore: "set-back-events"}}
	x.accept()
	provisioned := next[event.DatastoreProvisioned](x.tenant, event.Provisioned)
	s, err := x.secret("demo-datastore-certificate")
	in.must(err)
	x.etcd, x.events, x.prefix = server.Connect(t, s.Data["server.crt"], s.Data["server.key"]), events.Root, "/"+provisioned.Schema+"/"
	x.put("of before", "a", "b", "events/a")

	t.Run("of another version it isn't, and the tenant goes on", func(t *testing.T) {
		request := x.backedUp("v1.37.0", "a")
		x.asks(request)
		if told := next[event.DatastoreNotRestored](x.tenant, event.NotRestored); told.InPlace != request || !strings.Contains(told.Message, "v1.37.0") {
			t.Errorf("%+v", told)
		}
		if err := x.has("of before", "a", "b", "events/a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("as long as it has pods, or nobody asks any more, its data stay", func(t *testing.T) {
		x.asks(x.backedUp("v1.36.3", "a"))
		next[event.DatastoreRestoring](x.tenant, event.Restoring)
		x.stops()
		x.workload(event.Slept, state.Workload{StoppedAt: x.t.InPlace.StoppedAt.Add(-time.Second)}) // it was stopped for another one
		x.asks("")
		x.workload(event.Available, state.Workload{Replicas: 1})
		drivertest.Eventually(t, func() error {
			if s, own := x.state(); own.InPlace != nil || own.Restoring != nil || s.Step != event.Provisioned {
				return fmt.Errorf("%+v %+v %+v", s, own.InPlace, own.Restoring)
			}
			return nil
		})
		if err := x.has("of before", "a", "b", "events/a"); err != nil {
			t.Error(err)
		}
	})
	request := x.backedUp("v1.35.0", "b", "c", "events/b")
	t.Run("its data are replaced while it has no pods", func(t *testing.T) {
		x.asks(request)
		next[event.DatastoreRestoring](x.tenant, event.Restoring)
		before, err := x.etcd.Get(t.Context(), x.prefix+"b")
		in.must(err)
		x.stops()
		x.workload(event.Slept, state.Workload{StoppedAt: x.t.InPlace.StoppedAt})
		if told := next[event.DatastoreRestored](x.tenant, event.Restored); told.InPlace != request || told.Keys != 3 {
			t.Errorf("%+v", told)
		}
		if err := x.has("of the backup", "b", "c", "events/b"); err != nil {
			t.Error(err)
		}
		after, err := x.etcd.Get(t.Context(), x.prefix+"b")
		in.must(err)
		if after.Kvs[0].ModRevision <= before.Header.Revision {
			t.Errorf("revision %d, after %d", after.Kvs[0].ModRevision, before.Header.Revision)
		}
		if s, own := x.state(); s.Step != event.Provisioned || own.Restoring != nil || !own.InPlace.Over {
			t.Errorf("%+v %+v", s, own)
		}
	})
	t.Run("once for each request, also when all that says so but the database is lost", func(t *testing.T) {
		x.put("of after", "b", "c", "events/b")
		stop()
		lost := nats.NewMsg("$KV." + x.key.Bucket() + ".datastore")
		lost.Header.Set("KV-Operation", "PURGE")
		_, err := in.bus[name.ServiceDatastore].JetStream().PublishMsg(t.Context(), lost)
		in.must(err)
		stop = in.run()
		x.asks(request)
		if told := next[event.DatastoreRestored](x.tenant, event.Restored); told.InPlace != request || told.Keys != 0 {
			t.Errorf("%+v", told)
		}
		if err := x.has("of after", "b", "c", "events/b"); err != nil {
			t.Error(err)
		}
	})
}
