package datastore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestService(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t)
	in := install(t)
	stop := in.run()
	defer func() { stop() }()
	ctx := t.Context()
	keys := func(t *testing.T) []string { t.Helper(); return etcdHolds(t, server) }
	demo := in.tenant("demo")
	provisioned := event.DatastoreProvisioned{}
	schema, user := demo.account().Schema, demo.account().User

	t.Run("a tenant waits for its DataStore and is provisioned when there is one", func(t *testing.T) {
		demo.accept()
		drivertest.Eventually(t, func() error {
			if s, _ := demo.state(); s.Wait.Reason != reason.DataStoreMissing || s.Wait.Text != "DataStore main to exist" {
				return fmt.Errorf("waits for %+v", s.Wait)
			}
			return nil
		})
		spec := v1alpha1.DataStoreSpec{Driver: v1alpha1.DriverEtcd, Endpoints: []string{server.Endpoint}}
		keyPEM := server.CA.KeyPEM(t)
		root := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "etcd-root"},
			Data: map[string][]byte{"tls.crt": server.RootCert, "tls.key": server.RootKey}}
		in.must(in.kube.Create(ctx, kube.Secrets, root))
		ref := func(key string) v1alpha1.ContentRef {
			return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{SecretReference: corev1.SecretReference{Namespace: in.namespace, Name: "etcd-root"}, KeyPath: key}}
		}
		spec.TLSConfig = &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: v1alpha1.ContentRef{Content: server.CA.PEM}, PrivateKey: &v1alpha1.ContentRef{Content: keyPEM}},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: ref("tls.crt"), PrivateKey: ref("tls.key")},
		}
		began := time.Now()
		in.dataStore("main", spec)
		demo.await(event.Provisioned, &provisioned)
		t.Logf("DataStore made to provisioned: %s", time.Since(began).Round(time.Millisecond))
		if provisioned.Schema != schema || provisioned.User != user || provisioned.DataStore != "main" {
			t.Errorf("%+v", provisioned)
		}
	})
	t.Run("with its certificate the tenant reaches its own keys", func(t *testing.T) {
		s, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		c := server.Connect(t, s.Data["server.crt"], s.Data["server.key"])
		_, err = c.Put(ctx, "/"+schema+"/registry/a", "1")
		in.must(err)
		if _, err := c.Put(ctx, "/"+schema+"2/registry/a", "1"); err == nil {
			t.Error("and others")
		}
	})
	t.Run("what the tenant holds is measured once it has had time to write it, told, and in its state; so is what all hold", func(t *testing.T) {
		measured, of := event.DatastoreMeasured{}, event.DatastoreMeasured{}
		demo.await(event.Measured, &measured)
		if _, own := demo.state(); measured.Keys != 1 || measured.Bytes == 0 || own.Keys != 1 || own.Bytes != measured.Bytes || !own.MeasuredAt.Equal(measured.MeasuredAt) {
			t.Errorf("told %+v, state %+v", measured, own)
		}
		drivertest.Eventually(t, func() error {
			msg, err := in.bus[events.UserOperator].Conn().Request("$JS.API.DIRECT.GET."+events.StreamFacts+"."+events.DataStore("main").FactSubject("datastore", event.Measured), nil, time.Second)
			if err != nil {
				return err
			}
			return json.Unmarshal(msg.Data, &of)
		})
		if of.DataStore != "main" || of.LatencyMilliseconds == 0 || of.MeasuredAt.IsZero() {
			t.Errorf("%+v", of)
		}
	})
	t.Run("the DataStore was found ready", func(t *testing.T) {
		drivertest.Eventually(t, func() error {
			checked, err := in.checked("main")
			if err == nil && !checked.Ready {
				err = fmt.Errorf("%+v", checked)
			}
			return err
		})
	})
	t.Run("what was told of it and is in no status is told again at its daily look", func(t *testing.T) {
		in.quiet()
		about := event.About{Name: "main"}
		in.must(in.bus[name.ServiceIntake].Tell(ctx, events.DataStore("main"), 0, "look of "+in.namespace, event.Checked, event.IntakeChecked{About: about}))
		again := event.DatastoreChecked{}
		in.await("-/main", event.Checked, &again)
		if !again.Ready {
			t.Errorf("%+v", again)
		}
	})
	t.Run("a DataStore that names a Secret of a foreign namespace is refused, and its endpoint is sent nothing", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		in.must(err)
		defer l.Close()
		asked := make(chan struct{}, 100)
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				asked <- struct{}{}
				_ = c.Close()
			}
		}()
		foreign := v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{
			SecretReference: corev1.SecretReference{Namespace: "default", Name: "of-somebody-else-" + in.namespace}, KeyPath: "password",
		}}
		secret := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), Data: map[string][]byte{"password": []byte("somebody's")}}
		secret.Namespace, secret.Name = "default", foreign.SecretReference.Name
		in.must(in.kube.Create(ctx, kube.Secrets, secret))
		in.dataStore("curious", v1alpha1.DataStoreSpec{
			Driver: v1alpha1.DriverPostgreSQL, Endpoints: []string{l.Addr().String()},
			BasicAuth: &v1alpha1.BasicAuth{Username: v1alpha1.ContentRef{Content: []byte("admin")}, Password: foreign},
		})
		drivertest.Eventually(t, func() error {
			checked, err := in.checked("curious")
			if err == nil && (checked.Ready || checked.Reason != reason.ForeignSecret || !strings.Contains(checked.Message, "default/"+secret.Name)) {
				err = fmt.Errorf("%+v", checked)
			}
			return err
		})
		if len(asked) > 0 {
			t.Error("its endpoint was connected to")
		}
	})
	t.Run("the same event again, and a restart, change nothing", func(t *testing.T) {
		before, own := demo.state()
		demo.accept()
		stop()
		stop = in.run()
		second := in.tenant("second")
		began := time.Now()
		second.accept() // done after demo's in the worst case
		second.await(event.Provisioned, &provisioned)
		t.Logf("restart, accepted to provisioned: %s", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		third := in.tenant("third")
		third.accept()
		third.await(event.Provisioned, &provisioned)
		t.Logf("accepted to provisioned: %s", time.Since(began).Round(time.Millisecond))
		after, still := demo.state()
		if !bytes.Equal(event.Marshal(before), event.Marshal(after)) || own.Config.ResourceVersion != still.Config.ResourceVersion {
			t.Errorf("before %+v\nafter %+v", before, after)
		}
	})
	t.Run("a new generation is told, and costs no Secret", func(t *testing.T) {
		_, own := demo.state()
		demo.spec.Generation = 2
		demo.accept()
		demo.await(event.Provisioned, &provisioned)
		s, still := demo.state()
		own.Bytes, own.Keys = still.Bytes, still.Keys
		if provisioned.Generation != 2 || s.Generation != 2 || !bytes.Equal(event.Marshal(own), event.Marshal(still)) {
			t.Errorf("%+v, %+v", provisioned, still)
		}
	})
	t.Run("an edited and a deleted Secret come back", func(t *testing.T) {
		before, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		began := time.Now()
		in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, before.Name, map[string]any{"data": map[string]any{"server.key": []byte("x")}}, nil))
		drivertest.Eventually(t, func() error {
			s, err := demo.secret(before.Name)
			if err == nil && (string(s.Data["server.key"]) == "x" || s.Annotations[name.AnnotationChecksum] != name.Checksum(s.Data)) {
				err = fmt.Errorf("not yet")
			}
			return err
		})
		t.Logf("edited, back in %s", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		_, err = in.kube.Delete(ctx, kube.Secrets, in.namespace, "demo-datastore-config", metav1.DeleteOptions{})
		in.must(err)
		drivertest.Eventually(t, func() error { _, err := demo.secret("demo-datastore-config"); return err })
		t.Logf("deleted, back in %s", time.Since(began).Round(time.Millisecond))
		drivertest.Eventually(t, func() error {
			s, err := demo.secret("demo-datastore-config")
			if _, own := demo.state(); err == nil && own.Config.ResourceVersion != s.ResourceVersion {
				err = fmt.Errorf("state not written yet")
			}
			return err
		})
	})
	t.Run("a rotation that is asked for makes another certificate once, is told, and the tenant's user stays", func(t *testing.T) {
		before, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		in.quiet()
		ask := map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}}
		in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, before.Name, ask, nil))
		var after *corev1.Secret
		for told := 0; ; told++ { // the repair before may be told now, too
			demo.await(event.Provisioned, &provisioned)
			after, err = demo.secret(before.Name)
			in.must(err)
			if after.Annotations[name.AnnotationRotate] != "" || told > 0 {
				break
			}
		}
		if bytes.Equal(before.Data["server.key"], after.Data["server.key"]) || !bytes.Equal(before.Data["ca.crt"], after.Data["ca.crt"]) {
			t.Error("the key is the same, or the authority another")
		}
		if _, err := time.Parse(time.RFC3339, after.Annotations[name.AnnotationRotate]); err != nil {
			t.Errorf("when it was done isn't noted: %v", err)
		}
		c := server.Connect(t, after.Data["server.crt"], after.Data["server.key"])
		_, err = c.Get(ctx, "/"+schema+"/registry/a")
		in.must(err)
		if _, own := demo.state(); own.Certificate.Checksum != name.Checksum(after.Data) || own.Certificate.ResourceVersion != after.ResourceVersion {
			t.Errorf("the state has %+v", own.Certificate)
		}
		// Paused, an edited one is put right, and not made anew.
		pause := map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{name.AnnotationPaused: "", name.AnnotationRotate: nil}}, "data": map[string]any{"more": []byte("x")},
		}
		in.must(in.kube.MergePatch(ctx, kube.Secrets, in.namespace, before.Name, pause, nil))
		drivertest.Eventually(t, func() error {
			s, err := demo.secret(before.Name)
			if _, own := demo.state(); err == nil && (len(s.Data["more"]) > 0 || own.Certificate.ResourceVersion != s.ResourceVersion) {
				err = fmt.Errorf("not yet")
			}
			return err
		})
		if s, err := demo.secret(before.Name); err != nil || !maps.EqualFunc(s.Data, after.Data, bytes.Equal) {
			t.Errorf("it is another: %v", err)
		}
	})
	t.Run("when the state is lost, the Secrets stay as they are", func(t *testing.T) {
		before, err := demo.secret("demo-datastore-config")
		in.must(err)
		cert, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		stop()
		in.quiet()
		in.must(in.bus[name.ServiceIntake].Forget(ctx, demo.key))
		in.must(in.bus[name.ServiceIntake].CreateBucket(ctx, demo.key))
		stop = in.run()
		demo.accept()
		demo.await(event.Provisioned, &provisioned)
		after, err := demo.secret("demo-datastore-config")
		in.must(err)
		certAfter, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		if before.ResourceVersion != after.ResourceVersion || cert.ResourceVersion != certAfter.ResourceVersion {
			t.Error("they were written")
		}
	})
	t.Run("a tenant with a hostile name is refused, and others are not", func(t *testing.T) {
		bad := in.tenant("bad")
		bad.t.Spec.DataStoreSchema = schema + "/registry"
		bad.accept()
		failed := event.StepFailed{}
		bad.await(event.Failed, &failed)
		if failed.Retrying || failed.Reason != "InvalidName" || !strings.Contains(failed.Message, "dataStoreSchema") {
			t.Errorf("%+v", failed)
		}
	})
	t.Run("a tenant that has another's schema or user is refused, gets no certificate, and its deletion takes nothing", func(t *testing.T) {
		before := keys(t)
		for reason, thief := range map[string]*tenant{"SchemaTaken": in.tenant("thief-of-schema"), "UserTaken": in.tenant("thief-of-user")} {
			if reason == "SchemaTaken" {
				thief.t.Spec.DataStoreSchema = schema
			} else {
				thief.t.Setup = state.Account{Schema: "thief", User: user} // no other's spec leads to it
			}
			thief.accept()
			failed := event.StepFailed{}
			thief.await(event.Failed, &failed)
			if failed.Retrying || failed.Reason != reason || !strings.Contains(failed.Message, `"`+user+`" is taken`) {
				t.Errorf("%+v", failed)
			}
			if _, err := thief.secret(name.DatastoreCertificate(thief.key.Name)); !apierrors.IsNotFound(err) {
				t.Errorf("its certificate: %v", err)
			}
			thief.remove()
			removed := event.Removals{}
			thief.await(event.Removed, &removed)
			for kind, n := range removed.Removed {
				if strings.HasPrefix(kind, "datastore/") {
					t.Errorf("%d of %s removed", n, kind)
				}
			}
			if len(removed.Left) > 0 {
				t.Errorf("left: %q", removed.Left)
			}
		}
		if after := keys(t); !slices.Equal(before, after) {
			t.Errorf("etcd held %q, holds %q", before, after)
		}
	})
	t.Run("what was made before owners were on record gets them when the service starts", func(t *testing.T) {
		stop()
		before := keys(t)
		for _, key := range []string{"stoker.dev/owner/schema/" + schema, "stoker.dev/owner/user/" + user} {
			_, err := server.Root.Delete(ctx, key)
			in.must(err)
		}
		s, _ := demo.state()
		s.Inputs = "of the version before"
		msg := nats.NewMsg("$KV." + demo.key.Bucket() + ".datastore")
		msg.Data = event.Marshal(s)
		_, err := in.bus[name.ServiceDatastore].JetStream().PublishMsg(ctx, msg)
		in.must(err)
		stop = in.run()
		drivertest.Eventually(t, func() error {
			if after := keys(t); !slices.Equal(before, after) {
				return fmt.Errorf("etcd held %q, holds %q", before, after)
			}
			return nil
		})
	})
	t.Run("deletion leaves nothing of the tenant and everything of the others", func(t *testing.T) {
		began := time.Now()
		demo.remove()
		removed := event.Removals{}
		demo.await(event.Removed, &removed)
		t.Logf("removed in %s: %v", time.Since(began).Round(time.Millisecond), removed.Removed)
		want := map[string]int{"workload/Deployment": 1, "datastore/Key": 1, "datastore/Role": 1, "datastore/User": 1, "datastore/Owner": 2, "datastore/Secret": 2}
		if fmt.Sprint(removed.Removed) != fmt.Sprint(want) || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
		if held := strings.Join(keys(t), " "); strings.Contains(held, schema) || !strings.Contains(held, in.tenantOf("second").account().Schema) {
			t.Errorf("etcd holds %s", held)
		}
		if _, err := demo.secret("demo-datastore-config"); err == nil {
			t.Error("its Secret is left")
		}
	})
	t.Run("while the DataStore is away tenants wait, a deletion does not, and says what it left", func(t *testing.T) {
		server.Kill(t)
		waits, leaves := in.tenant("waits"), in.tenant("second")
		waits.accept()
		began := time.Now()
		leaves.remove()
		checked := event.DatastoreChecked{Ready: true}
		for checked.Ready { // the fact after the restart may come first
			checked = event.DatastoreChecked{}
			in.await("-/main", event.Checked, &checked)
		}
		if checked.Reason != "Unreachable" {
			t.Errorf("%+v", checked)
		}
		removed := event.Removals{}
		leaves.await(event.Removed, &removed)
		t.Logf("gave up after %s: %q", time.Since(began).Round(time.Second), removed.Left)
		if len(removed.Left) != 1 || !strings.Contains(removed.Left[0], "/"+leaves.account().Schema+"/") || removed.Removed["datastore/Secret"] != 2 {
			t.Errorf("%+v", removed)
		}
		began = time.Now()
		server.Run(t)
		waits.await(event.Provisioned, &provisioned)
		t.Logf("provisioned %s after it came back", time.Since(began).Round(100*time.Millisecond))
	})
	t.Run("a DataStore that is gone holds no deletion up", func(t *testing.T) {
		_, err := in.kube.Delete(ctx, kube.DataStores, "", "main", metav1.DeleteOptions{})
		in.must(err)
		third := in.tenant("third")
		third.remove()
		removed := event.Removals{}
		third.await(event.Removed, &removed)
		// Who is quick enough still removes it by the connection there was.
		if len(removed.Left) != 1 && strings.Contains(strings.Join(keys(t), " "), third.account().Schema) {
			t.Errorf("%+v", removed)
		}
	})
}
