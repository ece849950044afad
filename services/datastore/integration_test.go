package datastore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	natsserver "github.com/stoker-k8s/stoker/pkg/events/server"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore"
	"github.com/stoker-k8s/stoker/services/datastore/driver/drivertest"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd/etcdserver"
	"github.com/stoker-k8s/stoker/services/datastore/internal/built"
)

// installation is NATS, a management API server and the datastore service, with a bus for the services around it.
type installation struct {
	t        *testing.T
	kube     *kube.Client
	kubeFile string
	nats     *natsserver.Server
	dir      string
	bus      map[string]*events.Bus
	facts    chan fact
}

type fact struct {
	key, what string
	data      []byte
}

func install(t *testing.T) *installation {
	t.Helper()
	in := &installation{t: t, dir: t.TempDir(), bus: map[string]*events.Bus{}, facts: make(chan fact, 1000)}
	in.apiServer()
	var err error
	in.nats, err = natsserver.Start(t.Context(), filepath.Join(in.dir, "nats"), "127.0.0.1:0", nil)
	in.must(err)
	for _, user := range []string{name.ServiceIntake, name.ServiceWorkload, name.ServiceDatastore, events.UserOperator} {
		in.bus[user], err = events.Connect(events.Config{URL: in.nats.URL(), User: user, SeedFile: in.nats.SeedFile(user)})
		in.must(err)
		t.Cleanup(in.bus[user].Close)
	}
	in.must(in.bus[name.ServiceIntake].Provision(t.Context()))
	_, err = in.bus[events.UserOperator].Conn().Subscribe("stoker.fact.*.*.*.datastore.*", func(m *nats.Msg) {
		p := strings.Split(m.Subject, ".")
		in.facts <- fact{p[3] + "/" + p[4], p[6], m.Data}
	})
	in.must(err)
	return in
}

func (in *installation) must(err error) {
	in.t.Helper()
	if err != nil {
		in.t.Fatal(err)
	}
}

// apiServer starts a kube-apiserver with the CRDs.
func (in *installation) apiServer() {
	t := in.t
	program := built.Program(t, "kubernetes-v1.36.3", "kube-apiserver", "STOKER_TEST_KUBERNETES")
	server := etcdserver.Start(t)
	for file, data := range map[string][]byte{"etcd-ca.crt": server.CA.PEM, "root.crt": server.RootCert, "root.key": server.RootKey} {
		in.must(os.WriteFile(filepath.Join(in.dir, file), data, 0o600))
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	in.must(err)
	in.must(os.WriteFile(filepath.Join(in.dir, "sa.key"), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	in.must(os.WriteFile(filepath.Join(in.dir, "tokens"), []byte("admin,admin,admin,system:masters\n"), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	in.must(err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	at := func(file string) string { return filepath.Join(in.dir, file) }
	cmd := exec.Command(program, "--secure-port="+port, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none", "--etcd-servers=https://"+server.Endpoint, "--etcd-cafile="+at("etcd-ca.crt"), "--etcd-certfile="+at("root.crt"),
		"--etcd-keyfile="+at("root.key"), "--cert-dir="+at("pki"), "--service-account-key-file="+at("sa.key"), "--service-account-signing-key-file="+at("sa.key"),
		"--service-account-issuer=https://localhost", "--token-auth-file="+at("tokens"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount", "-v=0")
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	in.must(cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() && testing.Verbose() {
			t.Log(out.String()[max(0, out.Len()-2000):])
		}
	})
	in.kubeFile = at("kubeconfig")
	in.must(os.WriteFile(in.kubeFile, []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"admin"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, port)), 0o600))
	in.kube, err = kube.New(&rest.Config{Host: "https://127.0.0.1:" + port, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		kube.Options{FieldManager: name.FieldManagerIntake})
	in.must(err)
	crds := kube.Resource{GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
	files, err := filepath.Glob("../../deployments/crds/*.yaml")
	in.must(err)
	drivertest.Eventually(t, time.Minute, func() error {
		return in.kube.Get(t.Context(), kube.Namespaces, "", "default", &corev1.Namespace{})
	})
	for _, file := range files {
		data, err := os.ReadFile(file)
		in.must(err)
		crd := strings.TrimSuffix(filepath.Base(file), ".yaml")
		_, plural, _ := strings.Cut(crd, "_")
		in.must(in.kube.ApplyRaw(t.Context(), crds, "", plural+".kamaji.clastix.io", data, nil))
	}
	drivertest.Eventually(t, 20*time.Second, func() error {
		return in.kube.List(t.Context(), kube.DataStores, "", "", &v1alpha1.DataStoreList{})
	})
}

// run starts the service; the returned function stops it.
func (in *installation) run() (stop func()) {
	ctx, cancel := context.WithCancel(in.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := datastore.Run(ctx, service.Config{
			Name: name.ServiceDatastore, NATS: in.nats.URL(), NATSSeed: in.nats.SeedFile(name.ServiceDatastore), Kubeconfig: in.kubeFile,
			Replica: "test", Log: slog.New(slog.NewTextHandler(in.t.Output(), nil)),
		}); err != nil {
			in.t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// await returns the next fact of a kind about an object.
func (in *installation) await(key, what string, v any) {
	in.t.Helper()
	late := time.After(45 * time.Second)
	for {
		select {
		case f := <-in.facts:
			if f.key != key || f.what != what {
				continue
			}
			in.must(json.Unmarshal(f.data, v))
			return
		case <-late:
			in.t.Fatalf("no %s of %s", what, key)
		}
	}
}

// quiet drops the facts told so far.
func (in *installation) quiet() {
	for len(in.facts) > 0 {
		<-in.facts
	}
}

// tenant is what intake and workload do for one tenant.
type tenant struct {
	*installation
	key  events.Key
	spec state.State
	t    state.Tenant
	ids  int
}

func (in *installation) tenant(n string) *tenant {
	x := &tenant{installation: in, key: events.Tenant("default", n), spec: state.State{UID: "uid-of-" + n, Generation: 1}}
	x.t = state.Tenant{Namespace: "default", Name: n, Spec: v1alpha1.TenantControlPlaneSpec{DataStore: "main"}}
	in.must(in.bus[name.ServiceIntake].CreateBucket(in.t.Context(), x.key))
	return x
}

func (x *tenant) tell(service, what string, payload any) {
	x.installation.t.Helper()
	x.spec.Data = event.Marshal(x.t)
	ctx := x.installation.t.Context()
	if service == name.ServiceIntake {
		msg := nats.NewMsg("$KV." + x.key.Bucket() + ".spec")
		msg.Data = event.Marshal(x.spec)
		_, err := x.bus[name.ServiceIntake].JetStream().PublishMsg(ctx, msg)
		x.must(err)
	}
	x.ids++
	x.must(x.bus[service].Tell(ctx, x.key, x.spec.Generation, fmt.Sprint(x.key, service, what, x.ids), what, payload))
}

func (x *tenant) about() event.About {
	return event.About{Namespace: "default", Name: x.key.Name, UID: x.spec.UID, Generation: x.spec.Generation}
}

func (x *tenant) accept() {
	x.installation.t.Helper()
	x.tell(name.ServiceIntake, event.Accepted, event.IntakeAccepted{About: x.about()})
}

func (x *tenant) remove() {
	x.installation.t.Helper()
	x.t.Deleting = true
	x.tell(name.ServiceIntake, event.Deleting, event.IntakeDeleting{About: x.about()})
	x.tell(name.ServiceWorkload, event.Removed, event.Removals{About: x.about(), Removed: map[string]int{"workload/Deployment": 1}})
}

func (x *tenant) secret(n string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	return s, x.kube.Get(x.installation.t.Context(), kube.Secrets, "default", n, s)
}

func (x *tenant) state() (s state.State, d state.Datastore) {
	x.installation.t.Helper()
	msg, err := x.bus[events.UserOperator].Conn().Request("$JS.API.DIRECT.GET.KV_"+x.key.Bucket()+".$KV."+x.key.Bucket()+".datastore", nil, 5*time.Second)
	x.must(err)
	if len(msg.Data) > 0 {
		x.must(json.Unmarshal(msg.Data, &s))
		if len(s.Data) > 0 {
			x.must(json.Unmarshal(s.Data, &d))
		}
	}
	return s, d
}

func TestService(t *testing.T) {
	server := etcdserver.Start(t)
	in := install(t)
	stop := in.run()
	defer func() { stop() }()
	ctx := t.Context()
	keys := func(t *testing.T) (held []string) {
		t.Helper()
		users, err := server.Root.UserList(ctx)
		in.must(err)
		roles, err := server.Root.RoleList(ctx)
		in.must(err)
		held = append(held, fmt.Sprint("users ", users.Users, " roles ", roles.Roles))
		all, err := server.Root.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		in.must(err)
		for _, kv := range all.Kvs {
			held = append(held, string(kv.Key))
		}
		return held
	}
	demo := in.tenant("demo")
	provisioned := event.DatastoreProvisioned{}

	t.Run("a tenant waits for its DataStore and is provisioned when there is one", func(t *testing.T) {
		demo.accept()
		drivertest.Eventually(t, 20*time.Second, func() error {
			if s, _ := demo.state(); s.Waiting != "DataStore main to exist" {
				return fmt.Errorf("waits for %q", s.Waiting)
			}
			return nil
		})
		ds := &v1alpha1.DataStore{TypeMeta: kube.DataStores.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: "main"}}
		ds.Spec.Driver, ds.Spec.Endpoints = v1alpha1.DriverEtcd, []string{server.Endpoint}
		keyPEM := server.CA.KeyPEM(t)
		root := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "etcd-root"},
			Data: map[string][]byte{"tls.crt": server.RootCert, "tls.key": server.RootKey}}
		in.must(in.kube.Create(ctx, kube.Secrets, root))
		ref := func(key string) v1alpha1.ContentRef {
			return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{SecretReference: corev1.SecretReference{Namespace: "default", Name: "etcd-root"}, KeyPath: key}}
		}
		ds.Spec.TLSConfig = &v1alpha1.TLSConfig{
			CertificateAuthority: v1alpha1.CertKeyPair{Certificate: v1alpha1.ContentRef{Content: server.CA.PEM}, PrivateKey: &v1alpha1.ContentRef{Content: keyPEM}},
			ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: ref("tls.crt"), PrivateKey: ref("tls.key")},
		}
		began := time.Now()
		in.must(in.kube.Create(ctx, kube.DataStores, ds))
		in.await("default/demo", event.Provisioned, &provisioned)
		t.Logf("DataStore made to provisioned: %s", time.Since(began).Round(time.Millisecond))
		if provisioned.Schema != "uid-of-demo" || provisioned.User != "uid-of-demo" || provisioned.DataStore != "main" {
			t.Errorf("%+v", provisioned)
		}
	})
	t.Run("the DataStore was found ready", func(t *testing.T) {
		drivertest.Eventually(t, 10*time.Second, func() error {
			msg, err := in.bus[events.UserOperator].Conn().Request("$JS.API.DIRECT.GET."+events.StreamFacts+"."+events.DataStore("main").FactSubject("datastore", event.Checked), nil, time.Second)
			if err != nil {
				return err
			}
			checked := event.DatastoreChecked{}
			if err := json.Unmarshal(msg.Data, &checked); err != nil {
				return fmt.Errorf("checked %s: %w", msg.Data, err)
			}
			if !checked.Ready {
				return fmt.Errorf("checked %s", msg.Data)
			}
			return nil
		})
	})
	t.Run("with its certificate the tenant reaches its own keys", func(t *testing.T) {
		s, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		c := server.Connect(t, s.Data["server.crt"], s.Data["server.key"])
		_, err = c.Put(ctx, "/uid-of-demo/registry/a", "1")
		in.must(err)
		if _, err := c.Put(ctx, "/uid-of-demo2/registry/a", "1"); err == nil {
			t.Error("and others")
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
		in.await("default/second", event.Provisioned, &provisioned)
		t.Logf("restart, accepted to provisioned: %s", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		third := in.tenant("third")
		third.accept()
		in.await("default/third", event.Provisioned, &provisioned)
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
		in.await("default/demo", event.Provisioned, &provisioned)
		s, still := demo.state()
		if provisioned.Generation != 2 || s.Generation != 2 || !bytes.Equal(event.Marshal(own), event.Marshal(still)) {
			t.Errorf("%+v, %+v", provisioned, still)
		}
	})
	t.Run("an edited and a deleted Secret come back", func(t *testing.T) {
		before, err := demo.secret("demo-datastore-certificate")
		in.must(err)
		began := time.Now()
		in.must(in.kube.MergePatch(ctx, kube.Secrets, "default", before.Name, map[string]any{"data": map[string]any{"server.key": []byte("x")}}, nil))
		drivertest.Eventually(t, 10*time.Second, func() error {
			s, err := demo.secret(before.Name)
			if err == nil && (string(s.Data["server.key"]) == "x" || s.Annotations[name.AnnotationChecksum] != name.Checksum(s.Data)) {
				err = fmt.Errorf("not yet")
			}
			return err
		})
		t.Logf("edited, back in %s", time.Since(began).Round(time.Millisecond))
		began = time.Now()
		_, err = in.kube.Delete(ctx, kube.Secrets, "default", "demo-datastore-config", metav1.DeleteOptions{})
		in.must(err)
		drivertest.Eventually(t, 10*time.Second, func() error { _, err := demo.secret("demo-datastore-config"); return err })
		t.Logf("deleted, back in %s", time.Since(began).Round(time.Millisecond))
		drivertest.Eventually(t, 10*time.Second, func() error {
			s, err := demo.secret("demo-datastore-config")
			if _, own := demo.state(); err == nil && own.Config.ResourceVersion != s.ResourceVersion {
				err = fmt.Errorf("state not written yet")
			}
			return err
		})
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
		in.await("default/demo", event.Provisioned, &provisioned)
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
		bad.t.Spec.DataStoreSchema = "uid-of-demo/registry"
		bad.accept()
		failed := event.StepFailed{}
		in.await("default/bad", event.Failed, &failed)
		if failed.Retrying || failed.Reason != "InvalidName" || !strings.Contains(failed.Message, "dataStoreSchema") {
			t.Errorf("%+v", failed)
		}
	})
	t.Run("a tenant that names another's schema or user is refused, gets no certificate, and its deletion takes nothing", func(t *testing.T) {
		before := keys(t)
		for reason, thief := range map[string]*tenant{"SchemaTaken": in.tenant("thief-of-schema"), "UserTaken": in.tenant("thief-of-user")} {
			if reason == "SchemaTaken" {
				thief.t.Spec.DataStoreSchema = "uid-of-demo"
			} else {
				thief.t.Spec.DataStoreUsername = "uid-of-demo"
			}
			thief.accept()
			failed := event.StepFailed{}
			in.await("default/"+thief.key.Name, event.Failed, &failed)
			if failed.Retrying || failed.Reason != reason || !strings.Contains(failed.Message, `"uid-of-demo" is taken`) {
				t.Errorf("%+v", failed)
			}
			if _, err := thief.secret(name.DatastoreCertificate(thief.key.Name)); !apierrors.IsNotFound(err) {
				t.Errorf("its certificate: %v", err)
			}
			thief.remove()
			removed := event.Removals{}
			in.await("default/"+thief.key.Name, event.Removed, &removed)
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
		for _, key := range []string{"stoker.dev/owner/schema/uid-of-demo", "stoker.dev/owner/user/uid-of-demo"} {
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
		drivertest.Eventually(t, 20*time.Second, func() error {
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
		in.await("default/demo", event.Removed, &removed)
		t.Logf("removed in %s: %v", time.Since(began).Round(time.Millisecond), removed.Removed)
		want := map[string]int{"workload/Deployment": 1, "datastore/Key": 1, "datastore/Role": 1, "datastore/User": 1, "datastore/Owner": 2, "datastore/Secret": 2}
		if fmt.Sprint(removed.Removed) != fmt.Sprint(want) || len(removed.Left) > 0 {
			t.Errorf("%+v", removed)
		}
		if held := strings.Join(keys(t), " "); strings.Contains(held, "uid-of-demo") || !strings.Contains(held, "uid-of-second") {
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
		checked := event.DatastoreChecked{}
		in.await("-/main", event.Checked, &checked)
		if checked.Ready || checked.Reason != "Unreachable" {
			t.Errorf("%+v", checked)
		}
		removed := event.Removals{}
		in.await("default/second", event.Removed, &removed)
		t.Logf("gave up after %s: %q", time.Since(began).Round(time.Second), removed.Left)
		if len(removed.Left) != 1 || !strings.Contains(removed.Left[0], "/uid-of-second/") || removed.Removed["datastore/Secret"] != 2 {
			t.Errorf("%+v", removed)
		}
		began = time.Now()
		server.Run(t)
		in.await("default/waits", event.Provisioned, &provisioned)
		t.Logf("provisioned %s after it came back", time.Since(began).Round(100*time.Millisecond))
	})
	t.Run("a DataStore that is gone holds no deletion up", func(t *testing.T) {
		_, err := in.kube.Delete(ctx, kube.DataStores, "", "main", metav1.DeleteOptions{})
		in.must(err)
		third := in.tenant("third")
		third.remove()
		removed := event.Removals{}
		in.await("default/third", event.Removed, &removed)
		// Who is quick enough still removes it by the connection there was.
		if len(removed.Left) != 1 && strings.Contains(strings.Join(keys(t), " "), "uid-of-third") {
			t.Errorf("%+v", removed)
		}
	})
}
