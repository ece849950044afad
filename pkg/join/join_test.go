package join_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/stoker-k8s/stoker/pkg/join"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// TestFrom is about what is read from the kubeconfig; test/e2e has kubeadm join by the whole command.
func TestFrom(t *testing.T) {
	t.Parallel()
	authority := func() (certificate []byte, hash string) {
		pair, err := pki.Issue(&x509.Certificate{NotAfter: time.Now().Add(time.Hour), IsCA: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := pair.Signer()
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(signer.Key.Public())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(public)
		return pair.Cert, "sha256:" + hex.EncodeToString(sum[:])
	}
	kubeconfig := func(server string, ca []byte) []byte {
		data, err := clientcmd.Write(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server, CertificateAuthorityData: ca}},
			Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c"}},
			CurrentContext: "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before, one := authority()
	after, two := authority()
	t.Run("while the authority rotates, both are told", func(t *testing.T) {
		t.Parallel()
		j, err := join.From(kubeconfig("https://[fd00::1]:6443", slices.Concat(before, after)))
		if err != nil || j.Endpoint != "[fd00::1]:6443" || !slices.Equal(j.CACertHashes, []string{one, two}) {
			t.Error(j, err)
		}
	})
	for says, data := range map[string][]byte{
		"no https://host:port":  kubeconfig("https://demo.example.org", before),
		"certificate authority": kubeconfig("https://demo.example.org:6443", nil),
	} {
		t.Run("without it, the error says: "+says, func(t *testing.T) {
			t.Parallel()
			if j, err := join.From(data); err == nil || !strings.Contains(err.Error(), says) {
				t.Error(j, err)
			}
		})
	}
}
