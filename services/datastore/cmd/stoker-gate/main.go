// Command stoker-gate runs a gate (package gate) in the pod of a tenant that has a quota, or whose data move to another DataStore.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/stoker-k8s/stoker/services/datastore/gate"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stoker-gate:", err)
		os.Exit(1)
	}
}

func run() error {
	cfg := gate.Config{Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	var health string
	flag.StringVar(&cfg.Listen, "listen", "", "`path` of the socket that serves etcd's API")
	flag.StringVar(&cfg.Move, "move", "", "`ID` of the move; without one there is no other DataStore")
	flag.StringVar(&cfg.Name, "pod", "", "`name` of the pod, by which the gate signs what it says of itself")
	flag.Int64Var(&cfg.Quota.Bytes, "quota-bytes", 0, "how many `bytes` the tenant may keep, of keys and values; 0 for no bound")
	flag.Int64Var(&cfg.Quota.Objects, "quota-objects", 0, "how many objects the tenant may keep; 0 for no bound")
	flag.StringVar(&health, "health-bind-address", ":8082", "`address` that takes connections once the socket is served")
	flag.Func("through", "`path=URLs;…` of further sockets, and of the etcds that what is asked there goes to, which are reached as --from-endpoints is", func(value string) error {
		cfg.Through = map[string][]string{}
		for one := range strings.SplitSeq(value, ";") {
			socket, endpoints, _ := strings.Cut(one, "=")
			if socket == "" || endpoints == "" {
				return errors.New("must be path=URL,URL;path=URL,URL")
			}
			cfg.Through[socket] = strings.Split(endpoints, ",")
		}
		return nil
	})
	flag.StringVar(&cfg.Moving, "moving", "", "`path` of the one of --through whose etcd's data move; without it, those of --from-endpoints do")
	from, to := storeFlags("from", "that the data are in"), storeFlags("to", "that they move to")
	flag.Parse()
	for flag, value := range map[string]string{"listen": cfg.Listen, "pod": cfg.Name} {
		if value == "" || flag == "pod" && strings.Contains(value, "/") {
			return fmt.Errorf("--%s %q: must be given; the datastore and workload services start gates, nobody else", flag, value)
		}
	}
	var err error
	if cfg.From, err = from(); err != nil {
		return err
	}
	if cfg.Move != "" {
		if cfg.To, err = to(); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var listener net.Listener
	defer func() {
		if listener != nil {
			_ = listener.Close()
		}
	}()
	return gate.Run(ctx, cfg, func() error {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", health)
		return err
	})
}

// storeFlags defines the flags of one side; what it returns reads them.
func storeFlags(side, what string) func() (gate.Store, error) {
	var endpoints, prefix string
	var files transport.TLSInfo
	flag.StringVar(&endpoints, side+"-endpoints", "", "`URLs` of the store "+what+", with commas between them")
	flag.StringVar(&prefix, side+"-prefix", gate.Prefix, "`prefix` of the tenant's keys there")
	flag.StringVar(&files.TrustedCAFile, side+"-ca-file", "", "`file` with the authority of its servers")
	flag.StringVar(&files.CertFile, side+"-cert-file", "", "`file` with the tenant's certificate")
	flag.StringVar(&files.KeyFile, side+"-key-file", "", "`file` with its key")
	return func() (s gate.Store, err error) {
		if endpoints == "" {
			return s, fmt.Errorf("--%s-endpoints: must be given", side)
		}
		s.Endpoints, s.Prefix = strings.Split(endpoints, ","), prefix
		if files.TrustedCAFile != "" {
			if s.TLS, err = files.ClientConfig(); err != nil {
				return s, fmt.Errorf("the files of --%s-…-file: %w", side, err)
			}
		}
		return s, nil
	}
}
