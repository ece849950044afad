package main

// stoker join-command: what to run on a machine that becomes a node of a tenant.

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

const (
	// nodesGroup is whom kubeadm's roles inside a tenant allow to join.
	nodesGroup = "system:bootstrappers:kubeadm:default-node-token"
	// longestTokenLife is the longest --ttl: who has the token may join as any node.
	longestTokenLife = 365 * 24 * time.Hour
)

// joining is how a machine becomes a node.
type joining struct {
	// Command is all of it, for a shell.
	Command string `json:"command"`
	// Endpoint of the tenant's API, host:port.
	Endpoint string `json:"endpoint"`
	// Token is a credential.
	Token string `json:"token"`
	// CACertHashes are of the tenant's authorities, as kubeadm takes them.
	CACertHashes []string `json:"caCertHashes"`
	// Expires is when the token ends, UTC.
	Expires time.Time `json:"expires"`
}

func joinCommand(a *app) *cobra.Command {
	var ttl time.Duration
	var format string
	c := &cobra.Command{
		Use:   "join-command NAME",
		Short: "Print the command that makes a machine a node of a tenant",
		Long: `join-command makes a bootstrap token inside a tenant and prints the "kubeadm join" to run, as root, on a machine with a container runtime,
kubelet and kubeadm of the tenant's minor version or the one before. Whoever has the token can join nodes until it ends.`,
		Example: `  stoker join-command demo
  ssh root@worker-1 "$(stoker join-command demo --ttl 15m)"
  kubectl --kubeconfig demo.kubeconfig get nodes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.tenant(args[0])
			if err != nil {
				return err
			}
			switch format {
			case "", "json", "yaml":
			default:
				return usagef("-o %s: must be json or yaml", format)
			}
			if ttl < time.Minute || ttl > longestTokenLife {
				return usagef("--ttl %s: must be from 1m to %dh", ttl, longestTokenLife/time.Hour)
			}
			kubeconfig, err := a.kubeconfig(cmd.Context(), key, name.KeyAdminConf)
			if err != nil {
				return err
			}
			j, err := joiningOf(kubeconfig)
			if err != nil {
				return fmt.Errorf("kubeconfig of tenant %s: %w", key, err)
			}
			j.Expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
			if err := j.makeToken(cmd.Context(), kubeconfig); err != nil {
				return fmt.Errorf("bootstrap token in tenant %s: %w", key, err)
			}
			return write(a.out, format, j, nil, func(bool) [][]string { return [][]string{{j.Command}} })
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "how long the token is good for")
	c.Flags().StringVarP(&format, "output", "o", "", "json or yaml; without it, the command alone")
	return c
}

// joiningOf says where, and by which authorities, a tenant is joined.
func joiningOf(kubeconfig []byte) (*joining, error) {
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
	j := &joining{Endpoint: server.Host}
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

// makeToken makes a token inside the tenant, and the command with it.
func (j *joining) makeToken(ctx context.Context, kubeconfig []byte) error {
	k, err := kube.FromKubeconfig(kubeconfig, kube.Options{FieldManager: "stoker"})
	if err != nil {
		return err
	}
	defer k.Close()
	for {
		token, err := bootstraputil.GenerateBootstrapToken()
		if err != nil {
			return err
		}
		id, secret, _ := strings.Cut(token, ".")
		err = k.Create(ctx, kube.Secrets, tokenSecret(id, secret, j.Expires))
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
func tokenSecret(id, secret string, expires time.Time) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrapapi.BootstrapTokenIDKey:               []byte(id),
			bootstrapapi.BootstrapTokenSecretKey:           []byte(secret),
			bootstrapapi.BootstrapTokenExpirationKey:       []byte(expires.Format(time.RFC3339)),
			bootstrapapi.BootstrapTokenUsageSigningKey:     []byte("true"),
			bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(nodesGroup),
			bootstrapapi.BootstrapTokenDescriptionKey:      []byte("made by stoker join-command"),
		},
	}
}
