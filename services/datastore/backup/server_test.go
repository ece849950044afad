package backup

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/stoker-k8s/stoker/internal/testing/built"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// server is an S3 server with TLS and a certificate that is its own CA.
type server struct {
	address string
	ca      []byte
	access  string
	secret  string
	command *exec.Cmd
	ended   chan struct{}
	dir     string
}

func TestMain(m *testing.M) {
	if os.Getenv(killedVariable) != "" {
		beKilled()
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.end()
	}
	os.Exit(code)
}

var shared struct {
	sync.Mutex
	server *server
}

// theServer is one for all tests, started by the first.
func theServer(t testing.TB) *server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = startServer(t)
	}
	return shared.server
}

func startServer(t testing.TB) *server {
	t.Helper()
	program := built.Program(t, "versitygw", "versitygw", "STOKER_TEST_VERSITYGW")
	dir, err := os.MkdirTemp("", "stoker-test-s3-")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"buckets", "known"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := certificate(t)
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{ca: cert, access: "stoker-access-" + rand.Text(), secret: "stoker-secret-" + rand.Text(), dir: dir}
	for range 10 { // ports, of which one may be taken
		s.address = fmt.Sprint("127.0.0.1:", 10000+mathrand.IntN(20000))
		if s.run(t, program) {
			return s
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	_ = os.RemoveAll(dir)
	t.Fatalf("the S3 server doesn't start:\n%s", log)
	return nil
}

// run returns false when the server has ended; another one at that address has another certificate.
func (s *server) run(t testing.TB, program string) bool {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	at := func(name string) string { return filepath.Join(s.dir, name) }
	s.command = exec.Command(program, "--port", s.address, "--cert", at("cert.pem"), "--key", at("key.pem"),
		"--sidecar", at("known"), at("buckets"))
	s.command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.access, "ROOT_SECRET_KEY="+s.secret)
	s.command.Stdout, s.command.Stderr = log, log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func() { _ = s.command.Wait(); close(s.ended) }()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if _, err := s.client(t).ListBuckets(t.Context()); err == nil {
			return true
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.kill()
	return false
}

func (s *server) end() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

func (s *server) kill() {
	_ = s.command.Process.Kill()
	<-s.ended
}

// client looks at the server beside what is tested.
func (s *server) client(t testing.TB) *minio.Client {
	t.Helper()
	transport, err := minio.DefaultTransport(true)
	if err != nil {
		t.Fatal(err)
	}
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(s.ca)
	transport.DisableKeepAlives = true
	c, err := minio.New(s.address, &minio.Options{
		Creds: credentials.NewStaticV4(s.access, s.secret, ""), Secure: true, Region: "us-east-1", Transport: transport, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bucket makes one.
func (s *server) bucket(t testing.TB) string {
	t.Helper()
	name := "backups-" + strings.ToLower(rand.Text())
	if err := s.client(t).MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func (s *server) accessTo(bucket string) Access {
	return Access{
		URL:         "s3://" + bucket + "/all/of-them?region=us-east-1&endpoint=https://" + s.address,
		AccessKeyID: s.access, SecretAccessKey: s.secret, CA: s.ca,
	}
}

// certificate is good for a day, and its own authority.
func certificate(t testing.TB) (cert, key []byte) {
	t.Helper()
	pair, err := pki.Issue(&x509.Certificate{
		IsCA: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Cert, pair.Key
}

// places are an empty location of each kind.
func places(t *testing.T, test func(t *testing.T, a Access)) {
	t.Run("in a directory", func(t *testing.T) { test(t, Access{URL: "file://" + t.TempDir()}) })
	t.Run("in a bucket", func(t *testing.T) {
		s := theServer(t)
		test(t, s.accessTo(s.bucket(t)))
	})
}

func open(t testing.TB, a Access) Location {
	t.Helper()
	l, err := OpenLocation(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// left is all that a location has, whole or not.
func left(t testing.TB, l Location) (names []string) {
	t.Helper()
	for o, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Name)
	}
	for o, err := range l.Partial(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, "part of "+o.Name)
	}
	return names
}

// limited is a directory that holds no more than so many bytes.
func limited(t testing.TB, path string, bytes int64) {
	t.Helper()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", bytes)); err != nil {
		t.Skipf("set-up: a file system of limited size can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// ended is a context that has.
func ended(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
