package compose

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/address"
	"github.com/stoker-k8s/stoker/local/balancer"
	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/node"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// Node is the process node in a container: pods run as processes of it, with the programs of its own image. Node ports are those of the
// container; Services of type LoadBalancer get no address.
type Node struct {
	// Keys is the volume [NodeName] of [Keys.Volumes].
	Keys string
	// Address is the container's IP address.
	Address netip.Addr
	// Images has a directory of programs for each of images.Names.
	Images string
	// Dir keeps the pods' logs and volumes; Short, with a path as short as can be, their emptyDir volumes.
	Dir, Short string
	// HTTP is the address of /readyz.
	HTTP string
	Log  *slog.Logger
}

// Run runs pods until ctx ends or something fails for good.
func (n Node) Run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.Keys, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server has its own fair queues
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	kubelet, err := n.tls()
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	logs, err := listen.Listen(ctx, "tcp", fmt.Sprintf(":%d", address.ClaimPort))
	if err != nil {
		return err
	}
	defer logs.Close()
	health, err := listen.Listen(ctx, "tcp", n.HTTP)
	if err != nil {
		return err
	}
	runs := node.New(node.Config{
		Name: NodeName, Version: strings.TrimPrefix(images.Default, "kubernetes-"), Client: client, Dir: n.Dir, ShortDir: n.Short,
		Address: n.Address, Pods: address.Block(address.First).Pods(), Listener: logs, TLS: kubelet,
		Pull: images.At(n.Images).Pull, Start: node.StartProcess, Log: n.Log.With("component", "node"),
	})
	ports := balancer.New(balancer.Config{
		Client: client, Pods: runs.Lister(), Node: n.Address, Log: n.Log.With("component", "balancer"),
	})
	return together(ctx, runs.Run, ports.Run, func(ctx context.Context) error { return serve(ctx, health, client) })
}

// together runs all until ctx ends or one fails, and waits for them.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, run := range all {
		wg.Go(func() {
			errs[i] = run(ctx)
			cancel()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tls admits the API server to the pods' logs.
func (n Node) tls() (*tls.Config, error) {
	var own, ca pki.Pair
	var err error
	for name, to := range map[string]*[]byte{"kubelet.crt": &own.Cert, "kubelet.key": &own.Key, "ca.crt": &ca.Cert} {
		if *to, err = os.ReadFile(filepath.Join(n.Keys, name)); err != nil {
			return nil, err
		}
	}
	pool, err := ca.Pool()
	if err != nil {
		return nil, err
	}
	return local.KubeletTLS(own, pool)
}

// serve answers /readyz: whether the API server has the node as ready.
func serve(ctx context.Context, listener net.Listener, client kubernetes.Interface) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		object, err := client.CoreV1().Nodes().Get(r.Context(), NodeName, metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				fmt.Fprintln(w, "ok")
				return
			}
		}
		http.Error(w, "the node isn't ready", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
