package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

func TestTheService(t *testing.T) {
	admin, limited, server := cluster(t)
	ctx := t.Context()

	t.Run("ServiceAccount tokens are signed with the ECDSA key and accepted", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		if err := admin.Apply(ctx, kube.ServiceAccounts, account); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := clients.CoreV1().ServiceAccounts("default").CreateToken(ctx, "probe", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Spec:     authenticationv1.TokenReviewSpec{Token: request.Status.Token},
		}
		reviews := kube.Resource{GroupVersion: authenticationv1.SchemeGroupVersion, Plural: "tokenreviews", Kind: "TokenReview"}
		if err := admin.Create(ctx, reviews, review); err != nil || !review.Status.Authenticated {
			t.Errorf("%v %v", err, review.Status)
		}
	})

	changes := make(chan kube.Change, 1000)
	go func() {
		_ = admin.Watch(ctx, kube.Secrets, "default", name.LabelName+"=demo", func(c kube.Change) { changes <- c })
	}()
	appear := func(t *testing.T, count int) {
		t.Helper()
		for seen := 0; seen < count; {
			select {
			case c := <-changes:
				if c.Type == watch.Added {
					seen++
				}
			case <-time.After(3 * time.Minute): // on a machine that is busy
				t.Fatalf("%d of %d Secrets appeared", seen, count)
			}
		}
	}
	secrets := func() map[string]corev1.Secret {
		list := &corev1.SecretList{}
		if err := admin.List(ctx, kube.Secrets, "default", name.LabelName+"=demo", list); err != nil {
			t.Fatal(err)
		}
		all := map[string]corev1.Secret{}
		for _, s := range list.Items {
			all[s.Labels[name.LabelComponent]] = s
		}
		return all
	}
	unchanged := func(t *testing.T, before, after map[string]corev1.Secret, but ...string) {
		t.Helper()
		if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
			t.Errorf("Secrets %v, before %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
		}
		for component, s := range before {
			same := s.ResourceVersion == after[component].ResourceVersion
			if same == slices.Contains(but, component) {
				t.Errorf("%s: unchanged is %t", component, same)
			}
		}
	}

	r := newRig(t, limited)
	stopCerts := r.certs()
	var issued event.CertsIssued
	if ok := t.Run("what needs no endpoint is issued on acceptance, the rest when it is known", func(t *testing.T) {
		r.t = t
		begin := time.Now()
		r.accept(1, "one.example.org")
		appear(t, len(pki.Components("demo"))-2)
		t.Logf("from accepted to the last Secret of the first stage: %s", time.Since(begin))
		begin = time.Now()
		r.expose("192.0.2.7:6443")
		appear(t, 2)
		r.fact(event.Issued, &issued)
		t.Logf("from exposed to issued, as status hears it: %s", time.Since(begin))
		for component, s := range secrets() {
			if issued.Checksums[component] != name.Checksum(s.Data) {
				t.Errorf("%s: checksum differs", component)
			}
		}
		if len(issued.Checksums) != len(pki.Components("demo")) || issued.UID != uid || issued.NotAfter.IsZero() {
			t.Errorf("%+v", issued)
		}
	}); !ok {
		t.FailNow()
	}
	t.Run("a new generation without consequence for certificates is issued and changes nothing", func(t *testing.T) {
		r.t = t
		before := secrets()
		r.accept(2, "one.example.org")
		var again event.CertsIssued
		r.fact(event.Issued, &again)
		if again.Generation != 2 || !maps.Equal(again.Checksums, issued.Checksums) || len(again.Reasons) != 0 {
			t.Errorf("%+v", again)
		}
		unchanged(t, before, secrets())
	})
	t.Run("a new name replaces the API server's certificate alone", func(t *testing.T) {
		r.t = t
		before := secrets()
		r.accept(3, "one.example.org", "two.example.org")
		r.fact(event.Issued, &issued)
		unchanged(t, before, secrets(), name.ComponentAPIServerCertificate)
	})
	t.Run("a deleted Secret is back, of the same CA", func(t *testing.T) {
		r.t = t
		before := secrets()
		for len(changes) > 0 {
			<-changes
		}
		begin := time.Now()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.SchedulerKubeconfig("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		appear(t, 1)
		t.Logf("it took %s", time.Since(begin))
		r.fact(event.Rotated, &issued)
		unchanged(t, before, secrets(), name.ComponentSchedulerKubeconfig)
	})
	t.Run("an edited label comes back and no key changes", func(t *testing.T) {
		before := secrets()
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{name.LabelComponent: nil, name.LabelPartition: nil}}}
		if err := admin.MergePatch(ctx, kube.Secrets, "default", name.CA("demo"), patch, nil); err != nil {
			t.Fatal(err)
		}
		poll.True(t, "the CA has its labels", func() bool { return secrets()[name.ComponentCA].Labels[name.LabelPartition] != "" })
		if a, b := secrets()[name.ComponentCA], before[name.ComponentCA]; !maps.EqualFunc(a.Data, b.Data, bytes.Equal) || !maps.Equal(a.Labels, b.Labels) {
			t.Errorf("labels %v", a.Labels)
		}
	})
	t.Run("the rotate annotation on the CA replaces it and all it signed", func(t *testing.T) {
		r.t = t
		before := secrets()
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{name.AnnotationRotate: ""}}}
		if err := admin.MergePatch(ctx, kube.Secrets, "default", name.CA("demo"), patch, nil); err != nil {
			t.Fatal(err)
		}
		r.fact(event.Rotated, &issued)
		after := secrets()
		unchanged(t, before, after, append(pki.Konnectivity(), name.ComponentCA,
			name.ComponentAPIServerCertificate, name.ComponentAPIServerKubeletClientCertificate, name.ComponentAdminKubeconfig,
			name.ComponentControllerManagerKubeconfig, name.ComponentSchedulerKubeconfig)...)
		ca := after[name.ComponentCA]
		if _, err := time.Parse(time.RFC3339, ca.Annotations[name.AnnotationRotate]); err != nil || issued.Reasons[name.ComponentCA] == "" {
			t.Errorf("annotation %q, reasons %v", ca.Annotations[name.AnnotationRotate], issued.Reasons)
		}
	})
	t.Run("what was deleted while the service was away is back when it is", func(t *testing.T) {
		r.t = t
		stopCerts()
		before := secrets()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.FrontProxyClientCertificate("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stopCerts = r.certs()
		r.fact(event.Rotated, &issued)
		unchanged(t, before, secrets(), name.ComponentFrontProxyClientCertificate)
	})
	t.Run("a state of the version before is understood: what was issued isn't announced again", func(t *testing.T) {
		r.t = t
		stopCerts()
		r.writeOldState()
		before := secrets()
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.SchedulerKubeconfig("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stopCerts = r.certs()
		r.fact(event.Rotated, &issued) // and not issued
		unchanged(t, before, secrets(), name.ComponentSchedulerKubeconfig)
	})
	t.Run("and a new generation is, once", func(t *testing.T) {
		r.t = t
		stopCerts()
		r.writeOldState()
		before := secrets()
		stopCerts = r.certs()
		for range 2 {
			r.accept(4, "one.example.org", "two.example.org")
		}
		var again event.CertsIssued
		r.fact(event.Issued, &again)
		if c := r.state(); c.IssuedFor != 4 || again.Generation != 4 || len(again.Reasons) != 0 {
			t.Errorf("state of generation %d, fact %+v", c.IssuedFor, again)
		}
		unchanged(t, before, secrets())
		if _, err := admin.Delete(ctx, kube.Secrets, "default", name.SchedulerKubeconfig("demo"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.fact(event.Rotated, &issued)
	})
	t.Run("kubeconfigs lead to another endpoint once all pods have a certificate for it", func(t *testing.T) {
		r.t = t
		r.certs()
		const former, next = "192.0.2.7:6443", "next.example.org:443"
		leads := func(all map[string]corev1.Secret, to string) {
			t.Helper()
			config := all[name.ComponentAdminKubeconfig].Data[name.KeyAdminConf]
			if !bytes.Contains(config, []byte("server: https://"+to+"\n")) || r.state().Endpoint != to {
				t.Errorf("kubeconfigs don't lead to %s, by the state they lead to %s", to, r.state().Endpoint)
			}
		}
		before := secrets()
		leads(before, former)
		r.exposeServed(event.Exposed, next, name.Checksum(before[name.ComponentAPIServerCertificate].Data))
		r.fact(event.Rotated, &issued)
		held := secrets()
		unchanged(t, before, held, name.ComponentAPIServerCertificate)
		leads(held, former)
		block, _ := pem.Decode(held[name.ComponentAPIServerCertificate].Data[name.KeyAPIServerCert])
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || cert.VerifyHostname("192.0.2.7") != nil || cert.VerifyHostname("next.example.org") != nil {
			t.Errorf("who is led to either must be answered: %v %v, %v", cert.DNSNames, cert.IPAddresses, err)
		}
		if st, err := r.bus("certs").State(ctx, key, name.ServiceCerts); err != nil || st.Wait.Reason != reason.EndpointMoving {
			t.Errorf("it waits for %+v, %v", st.Wait, err)
		}
		r.exposeServed(event.Available, next, name.Checksum(held[name.ComponentAPIServerCertificate].Data))
		r.fact(event.Rotated, &issued)
		moved := secrets()
		unchanged(t, held, moved, name.ComponentAdminKubeconfig)
		leads(moved, next)
		// And back, as where no pod has served yet: at once.
		r.expose(former)
		r.fact(event.Rotated, &issued)
		leads(secrets(), former)
	})
	t.Run("no turn listed the Secrets of a namespace, which may have a thousand tenants", func(t *testing.T) {
		if n := listed.Load(); n != 0 {
			t.Errorf("%d turns did", n)
		}
	})
	t.Run("that a Secret is deleted again and again is noted as a failure", func(t *testing.T) {
		r.t = t
		r.certs()
		for range 20 {
			st, err := r.bus("certs").State(ctx, key, name.ServiceCerts)
			if err != nil {
				t.Fatal(err)
			}
			if f := st.Failure; f != nil {
				if f.Reason != reason.KeepsDrifting || !strings.Contains(f.Message, "Secret of "+name.ComponentSchedulerKubeconfig+" ") {
					t.Errorf("%+v", f)
				}
				return
			}
			if _, err := admin.Delete(ctx, kube.Secrets, "default", name.SchedulerKubeconfig("demo"), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.fact(event.Rotated, &issued)
		}
		t.Error("it is not")
	})
	t.Run("when NATS was lost, every service's work is found done", func(t *testing.T) {
		before := secrets()
		for _, stop := range r.stops {
			stop()
		}
		r.nats.Stop()
		r = newRig(t, limited)
		r.certs()
		r.accept(4, "one.example.org", "two.example.org")
		r.expose("192.0.2.7:6443")
		var again event.CertsIssued
		r.fact(event.Issued, &again)
		unchanged(t, before, secrets())
		if !maps.Equal(again.Checksums, issued.Checksums) || len(again.Reasons) != 0 {
			t.Errorf("%+v", again)
		}

		t.Run("and deletion takes all of it and nothing else, by its names", func(t *testing.T) {
			r.t = t
			lists := listed.Load()
			defer func() {
				if n := listed.Load() - lists; n != 0 {
					t.Errorf("it listed the Secrets of the namespace %d times", n)
				}
			}()
			own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-mine", Labels: map[string]string{name.LabelName: "demo"}}}
			if err := admin.Create(ctx, kube.Secrets, own); err != nil {
				t.Fatal(err)
			}
			r.do("intake", r.intake, loop.Outcome{
				Step: event.Deleting, Data: generation{5, state.Tenant{Namespace: key.Namespace, Name: key.Name, Deleting: true}},
				Facts: []loop.Tell{{What: event.Deleting}},
			})
			about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "another", Generation: 5}
			tell := func(id string) {
				gone := event.Removals{About: about, Removed: map[string]int{"workload/Deployment": 1}, Left: []string{"a prefix"}}
				if err := r.bus("datastore").Tell(ctx, key, 5, id, event.Removed, gone); err != nil {
					t.Fatal(err)
				}
			}
			tell("1")
			about.UID = uid
			tell("2")
			var gone event.Removals
			r.fact(event.Removed, &gone)
			if gone.Removed["certs/Secret"] != len(pki.Components("demo")) || gone.Removed["workload/Deployment"] != 1 || len(gone.Left) != 1 {
				t.Errorf("%+v", gone)
			}
			if left := secrets(); len(left) != 1 || left[""].Name != "demo-mine" {
				t.Errorf("left: %v", slices.Sorted(maps.Keys(left)))
			}
		})
	})
	t.Run("its rights are enough for its work and for nothing else", func(t *testing.T) {
		if err := limited.Get(ctx, kube.ConfigMaps, "default", "x", &corev1.ConfigMap{}); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no key is in a fact", func(t *testing.T) {
		data, err := json.Marshal(issued)
		if err != nil || bytes.Contains(data, []byte("PRIVATE")) {
			t.Errorf("%v %s", err, data)
		}
	})
}
