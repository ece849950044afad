package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// controllers are those that a cluster of one node, without volumes and with pods on loopback addresses, has use for.
// Missing on purpose: endpoints and endpointslice, which can't hold loopback addresses; node-lifecycle and
// taint-eviction, which would evict every pod after a laptop's sleep; validatingadmissionpolicy-status, which checks the types in
// policies, and takes a quarter of the CPU time of a start for Stoker's.
var controllers = []string{
	"clusterrole-aggregation-controller", "cronjob-controller", "daemonset-controller", "deployment-controller",
	"disruption-controller", "garbage-collector-controller", "job-controller", "namespace-controller",
	"pod-garbage-collector-controller", "replicaset-controller", "resourcequota-controller",
	"root-ca-certificate-publisher-controller", "serviceaccount-controller", "statefulset-controller",
	"ttl-after-finished-controller",
}

// startControlPlane starts etcd and the API server, and when that answers, what exits if it doesn't.
func (s *Stack) startControlPlane(ctx context.Context) error {
	etcd, err := s.etcdComponent("etcd-management", s.block.Management(), s.keys.etcdCA.Pair, s.keys.etcdServer)
	if err != nil {
		return err
	}
	s.add(etcd)
	audit, err := s.auditFlags()
	if err != nil {
		return err
	}
	apiServer := s.kubernetes("kube-apiserver", append(s.apiServerFlags(), audit...), 10*time.Second)
	s.add(apiServer)
	if err := s.waitAPI(ctx, etcd, apiServer); err != nil {
		return err
	}
	if s.cfg.APIOnly {
		return nil
	}
	self := s.block.Management().String()
	s.add(s.kubernetes("kube-controller-manager", []string{
		"--kubeconfig=" + s.internalConfig("kube-controller-manager"),
		"--authentication-kubeconfig=" + s.internalConfig("kube-controller-manager"),
		"--authorization-kubeconfig=" + s.internalConfig("kube-controller-manager"),
		"--bind-address=" + self, "--leader-elect=false", "--profiling=false",
		"--controllers=" + strings.Join(controllers, ","),
		"--root-ca-file=" + s.keys.ca.CertFile,
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, 5*time.Second))
	s.add(s.kubernetes("kube-scheduler", []string{
		"--kubeconfig=" + s.internalConfig("kube-scheduler"),
		"--authentication-kubeconfig=" + s.internalConfig("kube-scheduler"),
		"--authorization-kubeconfig=" + s.internalConfig("kube-scheduler"),
		"--bind-address=" + self, "--leader-elect=false", "--profiling=false",
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, 5*time.Second))
	return nil
}

func (s *Stack) apiServerFlags() []string {
	self := s.block.Management().String()
	return []string{
		"--bind-address=" + self, "--secure-port=6443",
		// Loopback can't be advertised; nothing uses what is (RFC 5737), and without a reconciler nobody writes it.
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--etcd-servers=https://" + net.JoinHostPort(self, "2379"),
		"--etcd-cafile=" + s.keys.etcdCA.CertFile,
		"--etcd-certfile=" + s.keys.etcdClient.CertFile, "--etcd-keyfile=" + s.keys.etcdClient.KeyFile,
		"--tls-cert-file=" + s.keys.apiServer.CertFile, "--tls-private-key-file=" + s.keys.apiServer.KeyFile,
		"--client-ca-file=" + s.keys.ca.CertFile,
		"--kubelet-certificate-authority=" + s.keys.ca.CertFile,
		"--kubelet-client-certificate=" + s.keys.apiServerKubeletClient.CertFile,
		"--kubelet-client-key=" + s.keys.apiServerKubeletClient.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + s.keys.serviceAccountPublic,
		"--service-account-signing-key-file=" + s.keys.serviceAccountPrivate,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// It marks new nodes not ready until the node-lifecycle controller, which doesn't run, takes the mark away.
		"--disable-admission-plugins=TaintNodesByCondition",
		"--allow-privileged=true", "--profiling=false", "--event-ttl=1h",
		// Otherwise a stop waits a minute for watches to end, and none ends.
		"--shutdown-watch-termination-grace-period=1s",
	}
}

// auditPolicy has the API server log writes that it has answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [events]}, {group: coordination.k8s.io}, {group: authentication.k8s.io}, {group: authorization.k8s.io}]
- level: Metadata
  resources: [{group: "", resources: [secrets, serviceaccounts/token]}]
- level: RequestResponse
`

// auditFlags are the API server's flags for the audit log that is asked for.
func (s *Stack) auditFlags() ([]string, error) {
	if s.cfg.Audit == "" {
		return nil, nil
	}
	policy := filepath.Join(s.cfg.Dir, "audit-policy.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + s.cfg.Audit, "--audit-log-maxsize=0"}, writeFile(policy, []byte(auditPolicy))
}

// kubernetes is a component that one of Kubernetes' programs runs.
func (s *Stack) kubernetes(name string, flags []string, grace time.Duration) *Component {
	return newComponent(name, process.Spec{
		Path: filepath.Join(s.bins, name), Args: append([]string{name}, flags...),
		Env: hostEnv(), Dir: s.cfg.Dir, Log: s.logFile(name),
	}, grace, s.log)
}

// etcdComponent is an etcd that talks TLS only, to clients with a certificate of its CA only.
func (s *Stack) etcdComponent(name string, at netip.Addr, ca, server pki.Pair) (*Component, error) {
	data := filepath.Join(s.cfg.Dir, "etcd", name)
	for _, dir := range []string{data, filepath.Join(s.cfg.Dir, "logs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	client, peer := "https://"+net.JoinHostPort(at.String(), "2379"), "https://"+net.JoinHostPort(at.String(), "2380")
	return newComponent(name, process.Spec{
		Path: s.etcd, Dir: s.cfg.Dir, Env: hostEnv(), Log: s.logFile(name),
		Args: []string{
			"etcd", "--name=" + name, "--data-dir=" + data,
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + name + "=" + peer, "--initial-cluster-state=new",
			"--trusted-ca-file=" + ca.CertFile, "--cert-file=" + server.CertFile, "--key-file=" + server.KeyFile,
			"--client-cert-auth=true",
			"--peer-trusted-ca-file=" + ca.CertFile, "--peer-cert-file=" + server.CertFile,
			"--peer-key-file=" + server.KeyFile, "--peer-client-cert-auth=true",
			"--log-level=warn", "--quota-backend-bytes=8589934592",
			// Tenants' API servers don't compact what they share.
			"--auto-compaction-mode=periodic", "--auto-compaction-retention=4m30s",
			// It would act with the server's own certificate, and so as another user.
			"--enable-grpc-gateway=false",
		},
	}, 5*time.Second, s.log), nil
}

func (s *Stack) logFile(component string) string {
	return filepath.Join(s.cfg.Dir, "logs", component+".log")
}

// hostEnv is the little of this process's environment that its children get.
func hostEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOMAXPROCS", "GOGC"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// waitAPI waits until the API server is ready, or one of the components it takes has failed for good.
func (s *Stack) waitAPI(ctx context.Context, takes ...*Component) error {
	return wait(ctx, 100*time.Millisecond, "the API server at "+s.API(), func(ctx context.Context) error {
		for _, c := range takes {
			if err := c.giveUp(); err != nil {
				return stopWaiting{err}
			}
		}
		return s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// waitNode waits until the node is registered and ready.
func (s *Stack) waitNode(ctx context.Context) error {
	return wait(ctx, 50*time.Millisecond, "node "+NodeName, func(ctx context.Context) error {
		if err := s.Err(); err != nil {
			return stopWaiting{err}
		}
		node, err := s.client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("node %s isn't ready", NodeName)
	})
}

// stopWaiting marks an error that waiting doesn't mend.
type stopWaiting struct{ error } //nolint:errname // a mark on an error

// wait tries at an interval until there is no error. One try takes at most five seconds.
func wait(ctx context.Context, interval time.Duration, what string, try func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		var stop stopWaiting
		if errors.As(err, &stop) {
			return stop.error
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("wait for %s: %w (last: %w)", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
