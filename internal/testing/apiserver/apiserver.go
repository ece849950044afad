// Package apiserver starts real API servers for tests: kube-apiserver and its etcd, as child processes, from the images of the local stack.
package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/checkout"
	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/local/progress"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Options are the choices of a test. The zero value is an API server with an etcd and a PKI of its own.
type Options struct {
	// Etcd is the URL of a running etcd. With an empty URL [Start] starts one.
	Etcd string
	// Flags are flags of kube-apiserver by name, without dashes. A flag here replaces the default of this package.
	Flags map[string]string
	// Credentials replaces the PKI. It may write files to dir. It returns flags that name the files, and the administrator's kubeconfig for
	// the API server at address (host:port).
	Credentials func(dir, address string) (flags map[string]string, kubeconfig []byte, err error)
}

// Server is an API server. Its fields don't change. Its methods are not safe for concurrent use.
type Server struct {
	// Address is the API server's host:port, Etcd the URL of its etcd.
	Address, Etcd string
	// CA is the certificate authority of the API server in PEM. It is empty with [Options.Credentials].
	CA []byte
	// Kubeconfig is an administrator's: the user "admin" in the group system:masters, unless [Options.Credentials] returned another one.
	Kubeconfig []byte

	dir       string
	authority *pki.Authority
	api       process.Spec
	running   map[string]*process.Process // by program
	release   []func()                    // ports
}

const (
	etcd          = "etcd"
	kubeAPIServer = "kube-apiserver"
)

// Start starts an API server and, unless the options name one, its etcd. It returns when the API server is ready, with its default namespaces and
// roles. Files go to dir. The processes run until [Server.Close], or until this process ends; ctx limits the start alone.
//
// It builds programs that the local stack's cache doesn't have, which takes minutes. It returns an error that wraps [os/exec.ErrNotFound] when
// this machine has no Go. Several goroutines may call it at once.
func Start(ctx context.Context, dir string, o Options) (*Server, error) {
	s := &Server{dir: dir, Etcd: o.Etcd, running: map[string]*process.Process{}}
	if err := s.start(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	store, err := images.Open(checkout.Root())
	if err != nil {
		return err
	}
	say := progress.Lines(os.Stderr, progress.Terminal(os.Stderr), func() string { return "" })
	var addresses [3]string
	for i := range addresses {
		address, release, err := port.Reserve("127.0.0.1")
		if err != nil {
			return err
		}
		addresses[i], s.release = address, append(s.release, release)
	}
	if s.Address = addresses[0]; s.Etcd == "" {
		bin, err := store.Build(ctx, images.Etcd, say)
		if err != nil {
			return err
		}
		s.Etcd = "http://" + addresses[1]
		peer := "http://" + addresses[2]
		if err := s.run(s.spec(bin, etcd, "--data-dir="+filepath.Join(s.dir, "data"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls="+s.Etcd, "--advertise-client-urls="+s.Etcd,
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)); err != nil {
			return err
		}
	}
	bin, err := store.Build(ctx, images.Default, say)
	if err != nil {
		return err
	}
	flags, err := s.flags(o)
	if err != nil {
		return err
	}
	s.api = s.spec(bin, kubeAPIServer, flags...)
	return s.Restart(ctx)
}

// flags makes the credentials, too.
func (s *Server) flags(o Options) (all []string, err error) {
	credentials := o.Credentials
	if credentials == nil {
		credentials = s.credentials
	}
	files, kubeconfig, err := credentials(s.dir, s.Address)
	if err != nil {
		return nil, err
	}
	s.Kubeconfig = kubeconfig
	host, port, err := net.SplitHostPort(s.Address)
	flags := map[string]string{
		"bind-address": host, "secure-port": port, "etcd-servers": s.Etcd, "authorization-mode": "RBAC",
		"advertise-address": "192.0.2.1", "service-cluster-ip-range": "10.96.0.0/16", "allow-privileged": "true",
		"service-account-issuer": "https://kubernetes.default.svc.cluster.local", "disable-admission-plugins": "ServiceAccount", "shutdown-delay-duration": "0s",
	}
	maps.Copy(flags, files)
	maps.Copy(flags, o.Flags)
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		all = append(all, "--"+name+"="+flags[name])
	}
	return all, err
}

// credentials makes a PKI.
func (s *Server) credentials(dir, _ string) (flags map[string]string, kubeconfig []byte, err error) {
	dir = filepath.Join(dir, "pki")
	if s.authority, err = pki.OpenAuthority(dir, "ca"); err != nil {
		return nil, nil, err
	}
	s.CA = s.authority.Cert
	serving, err := s.authority.Issue(pki.Leaf{File: kubeAPIServer, Name: kubeAPIServer, Hosts: []string{
		"127.0.0.1", "demo.default.svc", // the Service of a tenant default/demo
	}})
	if err != nil {
		return nil, nil, err
	}
	private, public, err := pki.SigningKey(dir)
	if err != nil {
		return nil, nil, err
	}
	kubeconfig, err = s.User("admin", "system:masters")
	return map[string]string{
		"client-ca-file": s.authority.CertFile, "tls-cert-file": serving.CertFile, "tls-private-key-file": serving.KeyFile,
		"service-account-key-file": public, "service-account-signing-key-file": private,
	}, kubeconfig, err
}

// User returns a kubeconfig for a user of groups. It panics with [Options.Credentials], whose authority this package doesn't have.
func (s *Server) User(name string, groups ...string) ([]byte, error) {
	pair, err := s.authority.Issue(pki.Leaf{File: "user-" + name, Name: name, Organization: groups})
	if err != nil {
		return nil, err
	}
	return kube.Kubeconfig{Server: "https://" + s.Address, CA: s.CA, Cluster: "demo", User: name, Certificate: pair.Cert, Key: pair.Key}.Marshal()
}

// Signal sends a signal to the API server. After SIGSTOP it returns when the API server has stopped.
func (s *Server) Signal(signal syscall.Signal) error { return s.running[kubeAPIServer].Signal(signal) }

// Stop ends the API server by a signal, SIGKILL or SIGTERM, and waits for its end. Etcd runs on.
func (s *Server) Stop(signal syscall.Signal) { s.stop(kubeAPIServer, signal) }

func (s *Server) stop(program string, signal syscall.Signal) {
	if p := s.running[program]; p != nil {
		_ = p.Signal(signal) // which fails for no child of this process
		<-p.Done()
	}
}

// Restart starts the API server again after [Server.Stop], with the same flags, and returns when it is ready. An API server that ends is an error
// with the end of its log.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.run(s.api); err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.NegotiatedSerializer = -1, scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func(ended <-chan struct{}) {
		select {
		case <-ended:
			end()
		case <-ctx.Done():
		}
	}(s.running[kubeAPIServer].Done())
	// The namespaces and roles may come after the API server says that it is ready.
	for _, path := range []string{"/readyz", kube.Namespaces.Path("", "default"), kube.ClusterRoles.Path("", "cluster-admin")} {
		if err := poll.Retry(ctx, func() error { return client.Get().AbsPath(path).Do(ctx).Error() }); err != nil {
			return fmt.Errorf("the API server isn't ready: %s: %w\n%s", path, err, s.Log())
		}
	}
	return nil
}

func (s *Server) spec(bin, program string, flags ...string) process.Spec {
	return process.Spec{
		Path: filepath.Join(bin, program), Args: append([]string{program}, flags...), Env: os.Environ(), Dir: s.dir,
		Log: filepath.Join(s.dir, program+".log"),
	}
}

func (s *Server) run(spec process.Spec) error {
	p, err := process.Start(spec)
	if err == nil {
		s.running[filepath.Base(spec.Path)] = p
	}
	return err
}

// Log returns the ends of the logs of etcd and the API server.
func (s *Server) Log() (text string) {
	for program := range s.running {
		log, _ := os.ReadFile(filepath.Join(s.dir, program+".log"))
		text += fmt.Sprintf("%s: %s\n", program, log[max(0, len(log)-2000):])
	}
	return text
}

// Close kills the API server and the etcd that [Start] started. The files stay.
func (s *Server) Close() {
	s.stop(kubeAPIServer, syscall.SIGKILL)
	s.stop(etcd, syscall.SIGKILL)
	for _, release := range s.release {
		release()
	}
	s.release = nil
}
