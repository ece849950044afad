package datastore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// ask asks the service as an operator does.
func ask(in *installation, subject string, query, reply any) error {
	m, err := in.bus[events.UserOperator].Conn().Request(subject, event.Marshal(query), 30*time.Second)
	if err != nil {
		return err
	}
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return fmt.Errorf("%s: %s", code, m.Header.Get(micro.ErrorHeader))
	}
	return json.Unmarshal(m.Data, reply)
}

// writeToNATS puts a key into a bucket with what a Secret says.
func writeToNATS(ctx context.Context, s *corev1.Secret, bucket, value string) error {
	var c struct {
		URL   string `json:"url"`
		Token string `json:"user_jwt"`
		Seed  string `json:"user_seed"`
	}
	if err := json.Unmarshal(s.Data[name.KeyDatastoreContext], &c); err != nil {
		return fmt.Errorf("the context %q: %w", s.Data[name.KeyDatastoreContext], err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Data[name.KeyDatastoreCACert])
	conn, err := nats.Connect(c.URL, nats.UserJWTAndSeed(c.Token, c.Seed), nats.Timeout(time.Minute), nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err == nil {
		_, err = kv.Put(ctx, "key", []byte(value))
	}
	return err
}

func TestServiceOnNATS(t *testing.T) {
	t.Parallel()
	server := natsserver.Start(t, natsserver.Options{})
	in := install(t)
	stop := in.run()
	defer func() { stop() }()
	d := database{kind: v1alpha1.DriverNATS, config: server.Config(t)}
	in.object("nats", d)
	tenantOf := func(n string) *tenant {
		x := in.tenant(n)
		x.t.Spec.DataStore = "nats"
		return x
	}
	writeBy := func(ctx context.Context, s *corev1.Secret, bucket string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // who may not is not answered
		defer cancel()
		return writeToNATS(ctx, s, bucket, "value")
	}
	write := func(ctx context.Context, x *tenant, bucket string) error {
		s, err := x.secret(name.DatastoreCertificate(x.key.Name))
		if err != nil {
			return err
		}
		return writeBy(ctx, s, bucket)
	}
	demo, second := tenantOf("demo"), tenantOf("second")
	provisioned, removed := event.DatastoreProvisioned{}, event.Removals{}

	t.Run("tenants get what kine needs, and reach their own bucket with it", func(t *testing.T) {
		for _, x := range []*tenant{demo, second} {
			x.accept()
			x.await(event.Provisioned, &provisioned)
			data, _ := x.credentials()
			if keys := slices.Sorted(maps.Keys(data)); fmt.Sprint(keys) != "[DB_CONNECTION_STRING DB_PASSWORD DB_REPLICAS DB_SCHEMA DB_USER]" || string(data["DB_REPLICAS"]) != "1" {
				t.Errorf("the Secret holds %q", data)
			}
			drivertest.Eventually(t, func() error { return write(t.Context(), x, x.account().Schema) })
		}
		if write(t.Context(), demo, second.account().Schema) == nil {
			t.Error("and others'")
		}
	})
	t.Run("what the tenant holds is measured", func(t *testing.T) {
		measured := event.DatastoreMeasured{}
		if demo.await(event.Measured, &measured); measured.Bytes == 0 || measured.Keys == 0 {
			t.Errorf("%+v", measured)
		}
	})
	t.Run("the same event again, and a restart, change nothing", func(t *testing.T) {
		before, own := demo.state()
		stop()
		stop = in.run()
		demo.accept()
		third := tenantOf("third")
		third.accept()
		third.await(event.Provisioned, &provisioned)
		if after, still := demo.state(); own.Certificate.ResourceVersion != still.Certificate.ResourceVersion || !bytes.Equal(event.Marshal(before), event.Marshal(after)) {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
	})
	t.Run("a password that is deleted gives other credentials, which are told, and those of before last until pods have them", func(t *testing.T) {
		before, err := second.secret(name.DatastoreCertificate(second.key.Name))
		in.must(err)
		in.quiet()
		_, err = in.kube.Delete(t.Context(), kube.Secrets, in.namespace, name.DatastoreConfig(second.key.Name), metav1.DeleteOptions{})
		in.must(err)
		second.await(event.Provisioned, &provisioned)
		after, err := second.secret(name.DatastoreCertificate(second.key.Name))
		in.must(err)
		if bytes.Equal(before.Data[name.KeyDatastoreContext], after.Data[name.KeyDatastoreContext]) {
			t.Error("the credentials are the same")
		}
		drivertest.Eventually(t, func() error { return writeBy(t.Context(), after, second.account().Schema) })
		drivertest.Eventually(t, func() error { return writeBy(t.Context(), before, second.account().Schema) })
		// until reads the end of those of before.
		until := func() time.Time {
			t.Helper()
			all, err := os.ReadDir(server.Accounts)
			in.must(err)
			for _, file := range all {
				token, err := os.ReadFile(filepath.Join(server.Accounts, file.Name()))
				in.must(err)
				claims, err := jwt.DecodeAccountClaims(string(token))
				in.must(err)
				if _, end, found := strings.Cut(claims.Description, " until "); found && claims.Name == second.account().Schema {
					at, err := time.Parse(time.RFC3339, end)
					in.must(err)
					return at
				}
			}
			t.Fatal("they end at no time")
			return time.Time{}
		}
		_, own := second.state()
		if left := time.Until(until()); !own.Former || left < 50*time.Minute || left > time.Hour {
			t.Errorf("they end in %s, on record %t", left, own.Former)
		}
		second.workload(event.Available, state.Workload{Credentials: []string{own.Certificate.Checksum, "of before"}})
		second.workload(event.Available, state.Workload{Credentials: []string{own.Certificate.Checksum}})
		drivertest.Eventually(t, func() error {
			if _, own := second.state(); own.Former {
				return errors.New("they are on record")
			}
			return nil
		})
		if left := time.Until(until()); left > time.Minute {
			t.Errorf("when all pods have the new ones, they end in %s", left)
		}
		if again, err := second.secret(name.DatastoreCertificate(second.key.Name)); err != nil || again.ResourceVersion != after.ResourceVersion {
			t.Errorf("the Secret is another: %v", err)
		}
	})
	t.Run("while the server is away tenants wait, and go on when it is back", func(t *testing.T) {
		server.Stop()
		waits := tenantOf("waits")
		waits.accept()
		server.Run(t)
		waits.await(event.Provisioned, &provisioned)
		drivertest.Eventually(t, func() error { return write(t.Context(), waits, waits.account().Schema) })
	})
	t.Run("what is no tenant's is found and removed when somebody asks, and nothing else", func(t *testing.T) {
		var object metav1.PartialObjectMetadata
		patch := fmt.Sprintf("metadata: {name: kept, namespace: %s}\nspec: {dataStoreSchema: %s}", in.namespace, second.account().Schema)
		in.must(in.kube.ApplyRaw(t.Context(), kube.TenantControlPlanes, in.namespace, "kept",
			event.Marshal(ruletest.Object(v1alpha1.TenantControlPlaneKind, patch)), &object))
		kept := tenantOf("kept")
		kept.spec.UID = string(object.UID)
		kept.accept()
		kept.await(event.Provisioned, &provisioned)
		orphans := func(dataStore string) (reply event.OrphansReply, owners []string) {
			t.Helper()
			in.must(ask(in, event.QueryOrphans, event.OrphansQuery{DataStore: dataStore}, &reply))
			for _, o := range reply.Orphans {
				owners = append(owners, o.Owner)
			}
			slices.Sort(owners)
			return reply, owners
		}
		reply, owners := orphans("nats")
		if fmt.Sprint(owners) != "[uid-of-demo uid-of-third uid-of-waits]" || len(reply.Failed) > 0 || reply.Orphans[0].Bytes == 0 || reply.Orphans[0].Keys == 0 {
			t.Errorf("%+v", reply)
		}
		if _, all := orphans(""); !slices.Equal(all, owners) {
			t.Errorf("of all DataStores: %v", all)
		}
		if err := ask(in, event.QueryOrphans, event.OrphansQuery{DataStore: "nowhere"}, &reply); err == nil || !strings.HasPrefix(err.Error(), "404") {
			t.Error(err)
		}
		orphanOf := func(a driver.Account) event.Orphan {
			return event.Orphan{DataStore: "nats", Schema: a.Schema, User: a.User, Owner: a.Owner}
		}
		third, elsewhere := in.tenantOf("third").account(), in.tenantOf("elsewhere").account()
		var dropped event.DropReply
		in.must(ask(in, event.QueryDrop, event.DropQuery{DataStore: "nats", Orphans: []event.Orphan{orphanOf(kept.account()), orphanOf(third), orphanOf(elsewhere)}}, &dropped))
		if d := dropped.Dropped; len(d) != 3 || d[0].Error == "" || len(d[0].Removed) > 0 || d[1].Error != "" || d[1].Removed["Owner"] != 2 || d[2].Error == "" {
			t.Errorf("%+v", dropped)
		}
		if _, owners := orphans("nats"); slices.Contains(owners, third.Owner) {
			t.Errorf("after its removal: %v", owners)
		}
		drivertest.Eventually(t, func() error { return write(t.Context(), kept, kept.account().Schema) })
	})
	t.Run("a tenant that waits for a DataStore to exist is not forgotten at a restart", func(t *testing.T) {
		patient := in.tenant("patient")
		patient.t.Spec.DataStore = "late"
		var object metav1.PartialObjectMetadata
		labels := fmt.Sprintf("{%s: %q, %s: late, %s: %s}", name.LabelPartition, fmt.Sprint(patient.key.Partition()), name.LabelDataStore, name.LabelWatchFilter, in.namespace)
		in.must(in.kube.ApplyRaw(t.Context(), kube.TenantControlPlanes, in.namespace, "patient", event.Marshal(ruletest.Object(
			v1alpha1.TenantControlPlaneKind, fmt.Sprintf("metadata: {name: patient, namespace: %s, labels: %s}", in.namespace, labels))), &object))
		patient.accept()
		drivertest.Eventually(t, func() error {
			if st, _ := patient.state(); st.Wait.Reason != reason.DataStoreMissing {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		stop()
		stop = in.run()
		in.object("late", d)
		patient.await(event.Provisioned, &provisioned)
	})
	t.Run("deletion leaves nothing", func(t *testing.T) {
		demo.remove()
		demo.await(event.Removed, &removed)
		told := fmt.Sprint(removed.Removed)
		if len(removed.Left) > 0 || !strings.Contains(told, "datastore/Owner:2") || !strings.Contains(told, "datastore/Secret:2") {
			t.Errorf("%+v", removed)
		}
		t.Log(told)
	})
}
