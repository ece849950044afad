// Package inside is what tests run in pods: an admission webhook and an aggregated API, which a tenant's API server reaches through the tunnel
// alone, and a client of tenants.
package inside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Name of the Service, in the namespace default, whose certificate the server shows; Says is what the aggregated API answers; Label the one
// that the webhook adds to a ConfigMap with the label ask=me, and Came its value.
const (
	Name  = "inside"
	Says  = "through the tunnel"
	Label = "came"
	Came  = "through-the-tunnel"
	// Answer is the path of the aggregated API's answer.
	Answer = "/apis/tunnel.example.org/v1/answer"
)

// Handler serves the webhook and the aggregated API.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/mutate":
			mutate(w, r)
		case strings.HasSuffix(r.URL.Path, "/answer"):
			_, _ = io.WriteString(w, `{"says":"`+Says+`"}`)
		default: // discovery
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"tunnel.example.org/v1","resources":[]}`)
		}
	})
}

// mutate adds a label to what it is asked about.
func mutate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	patch := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, PatchType: &patch,
		Patch: []byte(`[{"op":"add","path":"/metadata/labels/` + Label + `","value":"` + Came + `"}]`),
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// Registration are the objects that have a tenant ask the server at a port of the Service, which isn't among them. authority is the PEM of
// the server's certificate.
func Registration(port string, authority []byte) string {
	return fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.tunnel.example.org}
spec:
  group: tunnel.example.org
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  caBundle: %[2]s
  service: {name: %[3]s, namespace: default, port: %[1]s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %[3]s}
webhooks:
- name: inside.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 3
  clientConfig: {caBundle: %[2]s, service: {name: %[3]s, namespace: default, path: /mutate, port: %[1]s}}
  objectSelector: {matchLabels: {ask: me}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`, port, base64.StdEncoding.EncodeToString(authority), Name)
}

// Get asks for a path of a server, on a connection of its own, whose certificate an authority must have signed, and which must answer 200.
func Get(ctx context.Context, url string, authority []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("the authority is no certificate")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Asked is what has come of requests.
type Asked struct {
	Answered int `json:"answered"`
	// Failed says of the first ten that failed why; Failures counts all.
	Failures int      `json:"failures"`
	Failed   []string `json:"failed,omitempty"`
}

// Ask does what [Get] does ten times a second until ctx ends, and tells once a second what has come of it.
func Ask(ctx context.Context, url string, authority []byte, tell func(Asked)) {
	var mu sync.Mutex
	var all Asked
	var asking sync.WaitGroup
	defer asking.Wait()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			err := Get(ctx, url, authority)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				all.Answered++
				return
			}
			if all.Failures++; all.Failures <= 10 {
				all.Failed = append(all.Failed, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
			}
		})
		if n%10 == 0 {
			mu.Lock()
			tell(all)
			mu.Unlock()
		}
	}
}

// SelfSigned makes the server's certificate and its key as PEM; the certificate is its own authority.
func SelfSigned() (certificate, key []byte, err error) {
	host := Name + ".default.svc"
	pair, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, nil)
	return pair.Cert, pair.Key, err
}
