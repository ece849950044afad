// Package join makes what a machine needs to become a node of a tenant: the tenant's endpoint, the hashes of its authorities, and a bootstrap
// token (https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/).
package join

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// nodesGroup is whom kubeadm's roles inside a tenant allow to join.
const nodesGroup = "system:bootstrappers:kubeadm:default-node-token"

// From says where, and by which authorities, a tenant is joined: at the server of a kubeconfig. There is no token in it yet.
func From(kubeconfig []byte) (*event.Join, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(cfg.Host)
	if err != nil || server.Port() == "" {
		return nil, fmt.Errorf("server %q is no https://host:port", cfg.Host)
	}
	authorities, err := cert.ParseCertsPEM(cfg.CAData)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	j := &event.Join{Endpoint: server.Host}
	for _, authority := range authorities {
		j.CACertHashes = append(j.CACertHashes, pin(authority))
	}
	return j, nil
}

// pin is the hash of a certificate's public key, as kubeadm takes it.
func pin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// MakeToken makes a token inside the tenant that ends at a time, and completes j with it. The description tells whoever lists the tenant's
// tokens where it is from.
func MakeToken(ctx context.Context, tenant *kube.Client, j *event.Join, expires time.Time, description string) error {
	j.Expires = expires.UTC().Truncate(time.Second)
	for {
		token, err := bootstraputil.GenerateBootstrapToken()
		if err != nil {
			return err
		}
		id, secret, _ := strings.Cut(token, ".")
		err = tenant.Create(ctx, kube.Secrets, tokenSecret(id, secret, j.Expires, description))
		if apierrors.IsAlreadyExists(err) { // of two thousand million
			continue
		}
		if err != nil {
			return err
		}
		j.Token = token
		j.Command = fmt.Sprintf("kubeadm join %s --token %s", j.Endpoint, token)
		for _, hash := range j.CACertHashes {
			j.Command += " --discovery-token-ca-cert-hash " + hash
		}
		return nil
	}
}

// tokenSecret is a token as kubeadm would store it: it shows who signs cluster-info, and lets a kubelet ask for a certificate.
func tokenSecret(id, secret string, expires time.Time, description string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id), Labels: map[string]string{name.LabelJoinToken: "true"},
		},
		Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrapapi.BootstrapTokenIDKey:               []byte(id),
			bootstrapapi.BootstrapTokenSecretKey:           []byte(secret),
			bootstrapapi.BootstrapTokenExpirationKey:       []byte(expires.Format(time.RFC3339)),
			bootstrapapi.BootstrapTokenUsageSigningKey:     []byte("true"),
			bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(nodesGroup),
			bootstrapapi.BootstrapTokenDescriptionKey:      []byte(description),
		},
	}
}
