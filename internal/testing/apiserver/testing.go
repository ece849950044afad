package apiserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Patience is the time that an API server has for a request of a test: the Timeout of the test's own client. A client of a service has 10 s, and
// the service tries again; a machine that starts many API servers at once may need longer.
const Patience = time.Minute

// Run starts an API server for the time of a test, as [Start] does. A test that fails logs what the server logged last. Run skips the test when
// this machine has no Go.
func Run(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), t.TempDir(), o)
	check(t, err)
	t.Cleanup(s.Close)
	logFailure(t, s)
	return s
}

// Shared is an API server that tests of a package use one after another. The first of them starts it. The zero value is ready for use.
// Its methods are safe for concurrent use.
type Shared struct {
	mu     sync.Mutex
	dir    string
	server *Server
}

// Server returns the API server. The options of the first call count. It ends or skips the test as [Run] does.
func (s *Shared) Server(t testing.TB, o Options) *Server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		dir, err := os.MkdirTemp(s.dir, "")
		check(t, err)
		s.server, err = Start(t.Context(), dir, o)
		check(t, err)
	}
	logFailure(t, s.server)
	return s.server
}

// Main runs the tests of a package and closes the API server. It returns the exit code for TestMain.
func (s *Shared) Main(m *testing.M) (code int) {
	var err error
	if s.dir, err = os.MkdirTemp("", "stoker-test-apiserver-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(s.dir)
	defer func() {
		if s.server != nil {
			s.server.Close()
		}
	}()
	return m.Run()
}

// Purge deletes the objects that a label selector matches in all namespaces, with or without finalizers. It returns when lists from the API
// server's memory no longer have them. A shared server needs it where a test must find none of an earlier test's objects.
func (s *Server) Purge(t testing.TB, selector string, kinds ...kube.Resource) {
	t.Helper()
	client, err := kube.FromKubeconfig(s.Kubeconfig, kube.Options{FieldManager: "test", Timeout: Patience})
	check(t, err)
	defer client.Close()
	for _, kind := range kinds {
		poll.Nil(t, "no "+kind.Plural+" are left", func() error {
			objects, err := client.Metadata(t.Context(), kind, selector)
			for _, o := range objects {
				patch := map[string]any{"metadata": map[string]any{"finalizers": nil}}
				patched := client.MergePatch(t.Context(), kind, o.Namespace, o.Name, patch, nil)
				_, deleted := client.Delete(t.Context(), kind, o.Namespace, o.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
				err = errors.Join(err, fmt.Errorf("%s is left", o.Name), patched, deleted)
			}
			return err
		})
	}
}

// UnknownAdministrator returns a certificate authority that no API server trusts, and an administrator's certificate and key of that authority,
// in PEM.
func UnknownAdministrator(t testing.TB) (ca, certificate, key []byte) {
	t.Helper()
	authority, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "pki"), "unknown")
	check(t, err)
	pair, err := authority.Issue(pki.Leaf{File: "admin", Name: "admin", Organization: []string{"system:masters"}})
	check(t, err)
	return authority.Cert, pair.Cert, pair.Key
}

func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		t.Skip("set-up: there is no Go to build etcd and kube-apiserver with")
	case err != nil:
		t.Fatal(err)
	}
}

func logFailure(t testing.TB, s *Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
	})
}
