package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestSettingsOfTheAPIServer has a tenant whose API server takes tokens of a real issuer, asks a webhook, and tells another what happens:
// switched on, changed, wrong, and switched off again.
func TestSettingsOfTheAPIServer(t *testing.T) {
	env.Long(t, "services/workload shows the settings in a Deployment, test/rules which of them are refused")
	e.Services(t)
	key := events.Tenant("default", "settings")
	out := newOutside(t)
	o := env.Tenant(key.Name, "v1.36.3")
	e.Apply(t, o)
	e.Ready(t, key)
	x := &set{key: key, out: out}
	x.config = x.clientConfig(t)
	jane := out.token(t, "jane", "ops")

	t.Run("a Secret that isn't meant for the tenant is waited for, and the pods there are go on", func(t *testing.T) {
		x.kubeconfigSecret(t, "")
		o.Spec.Kubernetes.APIServer = out.settings(t)
		e.Apply(t, o)
		says(t, key, name.ServiceWorkload, reason.SecretUnusable, "webhooks", name.LabelUsedBy)
		x.revision(t, "1")
		if _, err := x.client(t, "").CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("with the label, it is one rollout", func(t *testing.T) {
		x.kubeconfigSecret(t, key.Name)
		e.Ready(t, key)
		x.revision(t, "2")
	})
	t.Run("a token of the issuer is a user with groups, that of another is nobody", func(t *testing.T) {
		who := x.whoAmI(t, jane)
		if who.Username != "oidc:jane" || !slices.Contains(who.Groups, "oidc:ops") {
			t.Errorf("%+v", who)
		}
		stranger := newOutside(t).token(t, "jane", "ops")
		if _, err := x.client(t, stranger).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
			t.Error("another key was good enough")
		}
	})
	t.Run("who hasn't signed in is heard where probes and kubeadm join are, and nowhere else", func(t *testing.T) { x.nobody(t) })
	t.Run("the webhook is asked, and what it allows is allowed", func(t *testing.T) { x.asks(t, jane) })
	t.Run("audit events arrive at the webhook and in the log", func(t *testing.T) {
		env.Eventually(t, "an event at the webhook", func() error { return out.heardOf("oidc:jane", "configmaps") })
		env.Eventually(t, "an event in the log", func() error {
			log := e.Kubectl(t, e.Local.Kubeconfig("admin"), "-n", key.Namespace, "logs", podOf(t, key), "-c", name.ContainerAPIServer)
			if !strings.Contains(log, `"kind":"Event","apiVersion":"audit.k8s.io/v1"`) || !strings.Contains(log, `"username":"oidc:jane"`) {
				return errNotYet
			}
			return nil
		})
	})
	t.Run("a feature is off, and Events go after their time", func(t *testing.T) { x.featureAndEvents(t) })
	t.Run("another content of the Secret starts new pods", func(t *testing.T) {
		x.note = "changed"
		x.kubeconfigSecret(t, key.Name)
		env.Eventually(t, "a third revision", func() error { return x.isRevision(t, "3") })
		e.Ready(t, key)
	})
	t.Run("an expression that doesn't compile is refused, and nothing changes", func(t *testing.T) {
		wrong := o.DeepCopy()
		wrong.Spec.Kubernetes.APIServer.Authentication.JWT[0].ClaimMappings.Username = v1alpha1.PrefixedClaimOrExpression{Expression: "claims.sub +"}
		typ, no := ask(t, events.Encode(key.CommandSubject(), e.Portal.NewEvent(key, nats.NewInbox(), event.TenantApply, env.JSON(t, wrong), time.Now())))
		if typ != event.FactType(name.ServiceIntake, event.Rejected) || len(no.Errors) != 1 ||
			no.Errors[0].Field != "spec.kubernetes.apiServer.authentication.jwt[0].claimMappings.username.expression" ||
			no.Errors[0].Value != "claims.sub +" || !strings.Contains(no.Errors[0].Message, "Syntax error") {
			t.Errorf("%s %+v", typ, no)
		}
	})
	t.Run("a feature gate that there isn't is named", func(t *testing.T) {
		wrong := out.settings(t)
		wrong.FeatureGates = map[string]bool{"NoSuchGate": true}
		o.Spec.Kubernetes.APIServer = wrong
		e.Apply(t, o)
		says(t, key, name.ServiceWorkload, reason.CrashLoop, "NoSuchGate", "spec.kubernetes.apiServer.featureGates")
		if who := x.whoAmI(t, jane); who.Username != "oidc:jane" { // the pods there are go on
			t.Errorf("%+v", who)
		}
	})
	t.Run("switched off, nothing of it is left", func(t *testing.T) {
		o.Spec.Kubernetes.APIServer = nil
		e.Apply(t, o)
		e.Ready(t, key)
		var d appsv1.Deployment
		get(t, kube.Deployments, key.Namespace, name.Deployment(key.Name), &d)
		if text, _ := yaml.Marshal(d.Spec.Template); strings.Contains(string(text), "apiserver/") || strings.Contains(string(text), "webhooks") ||
			strings.Contains(string(text), "AuthenticationConfiguration") {
			t.Errorf("%s", text)
		}
		env.Eventually(t, "the token to be refused", func() error { // a pod of before serves for some seconds
			if _, err := x.client(t, jane).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err == nil {
				return errors.New("it is still good")
			}
			return nil
		})
	})
	e.Delete(t, key)
	e.Gone(t, key)
	_, err := e.Admin.Delete(t.Context(), kube.Secrets, key.Namespace, "webhooks", metav1.DeleteOptions{})
	must(t, err) // it is still there: somebody else's
	nothingLeft(t, key)
}

// set is the tenant.
type set struct {
	key    events.Key
	out    *outside
	config *rest.Config
	note   string // in the Secret
}

// clientConfig leads to the tenant's API, as its administrator.
func (x *set) clientConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig(t, x.key))
	must(t, err)
	return config
}

// client is one that signs in by a token; without one, the administrator's.
func (x *set) client(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.CopyConfig(x.config)
	if token != "" {
		config = rest.AnonymousClientConfig(x.config)
		config.BearerToken = token
	}
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	return clients
}

func (x *set) whoAmI(t *testing.T, token string) authenticationv1.UserInfo {
	t.Helper()
	var who authenticationv1.UserInfo
	env.Eventually(t, "the token to be taken", func() error { // the issuer's keys are read in the background
		r, err := x.client(t, token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			who = r.Status.UserInfo
		}
		return err
	})
	return who
}

// clusterInfo is where kubeadm join reads what it trusts.
const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// nobody asks without signing in.
func (x *set) nobody(t *testing.T) {
	t.Helper()
	client, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(x.config))
	must(t, err)
	for path, open := range map[string]bool{"/livez": true, "/readyz": true, "/healthz": true, clusterInfo: true, "/version": false, "/livez/etcd": false} {
		err := client.RESTClient().Get().AbsPath(path).Do(t.Context()).Error()
		if open && err != nil || !open && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// asks has the webhook asked, which allows some.
func (x *set) asks(t *testing.T, token string) {
	t.Helper()
	if _, err := x.client(t, token).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := x.client(t, token).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("Secrets were listed, which neither RBAC nor the webhook allows")
	}
	if !x.out.wasAsked("oidc:jane", "secrets") {
		t.Error("the webhook wasn't asked about secrets")
	}
}

func (x *set) featureAndEvents(t *testing.T) {
	t.Helper()
	kubeconfig := e.Kubeconfig(t, x.key)
	if metrics := e.Kubectl(t, kubeconfig, "get", "--raw", "/metrics"); !strings.Contains(metrics, `kubernetes_feature_enabled{name="APIResponseCompression",stage="BETA"} 0`) {
		t.Error("the feature isn't off")
	}
	events := x.client(t, "").CoreV1().Events("default")
	_, err := events.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "passing"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}, metav1.CreateOptions{})
	must(t, err)
	env.Eventually(t, "the Event to go", func() error {
		if _, err := events.Get(t.Context(), "passing", metav1.GetOptions{}); err == nil {
			return errNotYet
		}
		return nil
	})
}

func (x *set) isRevision(t *testing.T, want string) error {
	t.Helper()
	var d appsv1.Deployment
	get(t, kube.Deployments, x.key.Namespace, name.Deployment(x.key.Name), &d)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != want {
		return fmt.Errorf("revision %s of the Deployment, not %s", got, want)
	}
	return nil
}

func (x *set) revision(t *testing.T, want string) {
	t.Helper()
	if err := x.isRevision(t, want); err != nil {
		t.Error(err)
	}
}

// kubeconfigSecret writes the Secret by which the webhooks are reached, for a tenant or for none.
func (x *set) kubeconfigSecret(t *testing.T, usedBy string) {
	t.Helper()
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","preferences":{"note":%q},
"clusters":[{"name":"c","cluster":{"server":"%s/hooks","certificate-authority-data":%q}}],
"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`,
		x.note, x.out.url, base64.StdEncoding.EncodeToString(x.out.ca))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: x.key.Namespace, Name: "webhooks"}, Data: map[string][]byte{name.KeySettingsKubeconfig: []byte(config)},
	}
	if usedBy != "" {
		secret.Labels = map[string]string{name.LabelUsedBy: usedBy}
	}
	must(t, e.Admin.Apply(t.Context(), kube.Secrets, secret))
}

// outside is what there is beside a tenant: an issuer of tokens, and a server of webhooks that authorizes and hears audit events.
type outside struct {
	url string
	ca  []byte
	key *ecdsa.PrivateKey

	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReview
	heard []auditv1.Event
}

// newOutside starts it at an address that isn't a pod's own loopback address.
func newOutside(t *testing.T) *outside {
	t.Helper()
	at := net.IPv4(127, 0, 0, 2)
	pair, err := pki.Issue(&x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{at},
		IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, nil)
	must(t, err)
	certificate, err := pair.TLS()
	must(t, err)
	out := &outside{key: certificate.PrivateKey.(*ecdsa.PrivateKey), ca: pair.Cert}
	listener, err := net.Listen("tcp", at.String()+":0")
	must(t, err)
	server := httptest.NewUnstartedServer(out.routes())
	server.Listener.Close()
	server.Listener = listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	out.url = "https://" + listener.Addr().String()
	return out
}

func (out *outside) routes() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(event.Marshal(body)) // whoever asked sees that it ends early
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": out.url, "jwks_uri": out.url + "/keys", "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := out.key.PublicKey.Bytes() // 4, x, y
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": encode(point[1:33]), "y": encode(point[33:]),
		}}})
	})
	mux.HandleFunc("POST /hooks", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			metav1.TypeMeta
			Items []auditv1.Event                         `json:"items"`
			Spec  authorizationv1.SubjectAccessReviewSpec `json:"spec"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		if body.Kind == "EventList" {
			out.heard = append(out.heard, body.Items...)
			return
		}
		review := authorizationv1.SubjectAccessReview{TypeMeta: body.TypeMeta, Spec: body.Spec}
		about := body.Spec.ResourceAttributes
		review.Status.Allowed = body.Spec.User == "oidc:jane" && about != nil && about.Resource == "configmaps"
		out.asked = append(out.asked, review)
		answer(w, review)
	})
	return mux
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// token is one of the issuer, signed as RFC 7515 says.
func (out *outside) token(t *testing.T, subject string, groups ...string) string {
	t.Helper()
	payload := event.Marshal(map[string]any{
		"iss": out.url, "sub": subject, "aud": "kubernetes", "groups": groups, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	})
	signed := encode([]byte(`{"alg":"ES256","kid":"one","typ":"JWT"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, out.key, digest[:])
	must(t, err)
	return signed + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// settings are those of a tenant that uses all of it.
func (out *outside) settings(t *testing.T) *v1alpha1.APIServerSpec {
	t.Helper()
	settings := &v1alpha1.APIServerSpec{}
	must(t, yaml.UnmarshalStrict([]byte(`
authentication:
  anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}, {path: `+clusterInfo+`}]}
  jwt:
    - issuer: {url: "`+out.url+`", audiences: [kubernetes], certificateAuthority: "`+strings.ReplaceAll(string(out.ca), "\n", `\n`)+`"}
      claimMappings: {username: {claim: sub, prefix: "oidc:"}, groups: {claim: groups, prefix: "oidc:"}}
authorization:
  authorizers:
    - {type: Node, name: node}
    - {type: RBAC, name: rbac}
    - type: Webhook
      name: entitlements
      webhook:
        kubeconfigSecret: {name: webhooks}
        failurePolicy: NoOpinion
        matchConditions: [{expression: "request.user.startsWith('oidc:')"}]
audit:
  policy: {omitStages: [RequestReceived], rules: [{level: Metadata, resources: [{resources: [configmaps, secrets]}]}]}
  log: {}
  webhook: {kubeconfigSecret: {name: webhooks}}
featureGates: {APIResponseCompression: false}
eventTTL: 2s
maxRequestsInFlight: 300
`), settings))
	return settings
}

func (out *outside) wasAsked(user, resource string) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	return slices.ContainsFunc(out.asked, func(r authorizationv1.SubjectAccessReview) bool {
		return r.Spec.User == user && r.Spec.ResourceAttributes != nil && r.Spec.ResourceAttributes.Resource == resource
	})
}

func (out *outside) heardOf(user, resource string) error {
	out.mu.Lock()
	defer out.mu.Unlock()
	if !slices.ContainsFunc(out.heard, func(e auditv1.Event) bool {
		return e.User.Username == user && e.ObjectRef != nil && e.ObjectRef.Resource == resource
	}) {
		return errors.New("not heard of yet")
	}
	return nil
}
