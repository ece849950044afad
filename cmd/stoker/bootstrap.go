package main

// stoker bootstrap, stoker nats-reload and stoker nats-metrics: what an installation on a cluster runs beside the services.

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/bootstrap"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/natsmetrics"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/reload"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func bootstrapCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the keys and certificates of an installation on a cluster",
		Long: `bootstrap makes what NATS and etcd servers of an installation on a cluster need before they start: keys and certificates, as
Secrets of the installation's namespace. What is there stays; certificates are renewed 90 days before they end, and the authority of NATS
servers is replaced two years before its end. The Helm charts run it before
each installation and upgrade, and every day.`,
		Example: `  stoker bootstrap nats --config bootstrap.yaml
  stoker bootstrap etcd --config bootstrap.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(bootstrapNATSCommand(a), bootstrapEtcdCommand(a), etcdAuthenticationCommand(a), etcdSnapshotCommand(a))
	return c
}

func bootstrapNATSCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "nats --config FILE",
		Short: "For NATS servers: the users' nkeys, an authority, a certificate, accounts",
		Long: `nats makes the nkeys of all NATS users, an authority, the servers' certificate, and the accounts that the servers' configuration
includes. The file has these fields:

  namespace: stoker-system        # where the Secrets and ConfigMaps are
  name: stoker-nats               # what their names begin with
  hosts: [stoker-nats, …]         # what the servers' certificate is for
  portals:                        # who orders tenants; others are removed, with their credentials
    - {name: shop, namespaces: [acme]}
  podSecurity: restricted         # the Pod Security level of the namespace
  keys: "1"                       # another value: users have other nkeys
  authority: "1"                  # another value: the authority is replaced, in three steps, each by a later run`,
		Example: `  stoker bootstrap nats --config bootstrap.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.bootstrap(cmd.Context(), file, bootstrap.NATS) },
	}
	c.Flags().StringVar(&file, "config", "", "`file` that says what to make")
	return c
}

func bootstrapEtcdCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "etcd --config FILE",
		Short: "For etcd servers: an authority, the members' certificate, that of user root",
		Long: `etcd makes an authority, a certificate of all members, which they show to clients and to each other, that of the user root, and the claim
of a volume for snapshots. The file has these fields:

  namespace: stoker-system        # where the Secrets, the ConfigMap and the claim are
  name: stoker-etcd               # what their names begin with
  hosts: [stoker-etcd-0.…, …]     # what the members' certificate is for
  authority: "1"                  # another value: the authority is replaced, in three steps
  step: 1                         # which of them may be taken
  backup: {size: 20Gi}            # a volume for snapshots to claim, unless it is there; it may have a storageClass`,
		Example: `  stoker bootstrap etcd --config bootstrap.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.bootstrap(cmd.Context(), file, bootstrap.Etcd) },
	}
	c.Flags().StringVar(&file, "config", "", "`file` that says what to make")
	return c
}

func etcdAuthenticationCommand(a *app) *cobra.Command {
	var e bootstrap.EtcdClient
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "etcd-authentication --endpoints URL,…",
		Short: "Have an etcd tell its clients apart by their certificates",
		Long: `etcd-authentication waits until an etcd answers, makes its user and role root, and turns authentication on. Without it, every tenant
could read every other's keys, so that such an etcd does not count as a DataStore that is ready.`,
		Example: `  stoker bootstrap etcd-authentication --endpoints https://etcd-0:2379 --cacert ca.crt --cert root.crt --key root.key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(e.Endpoints) == 0 {
				return usagef("--endpoints: name the URLs of etcd")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return bootstrap.EnableEtcdAuthentication(ctx, e, func(line string) { a.sayf(a.err, "%s\n", line) })
		},
	}
	etcdFlags(c, &e)
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return c
}

func etcdSnapshotCommand(a *app) *cobra.Command {
	var e bootstrap.EtcdClient
	var dir string
	var keep int
	c := &cobra.Command{
		Use:   "etcd-snapshot --endpoints URL,… --directory DIRECTORY",
		Short: "Write a snapshot of an etcd's data, and remove old ones",
		Long: `etcd-snapshot writes all data of an etcd, of the first member named, to the file etcd-<time>.db of a directory, and removes the oldest of
such files. etcdutl snapshot restore makes an etcd of it.`,
		Example: `  stoker bootstrap etcd-snapshot --endpoints https://etcd-0:2379 --cacert ca.crt --cert root.crt --key root.key \
    --directory /backup --keep 7`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(e.Endpoints) == 0 || dir == "" || keep < 1 {
				return usagef("--endpoints, --directory and --keep: name the URLs of etcd, a directory, and how many snapshots are kept, 1 at least")
			}
			file, err := bootstrap.SnapshotEtcd(cmd.Context(), e, dir, keep, time.Now())
			if err == nil {
				a.sayf(a.out, "%s\n", file)
			}
			return err
		},
	}
	etcdFlags(c, &e)
	c.Flags().StringVar(&dir, "directory", "", "`directory` of the snapshots")
	c.Flags().IntVar(&keep, "keep", 7, "how many snapshots are kept")
	return c
}

// etcdFlags say how an etcd is reached.
func etcdFlags(c *cobra.Command, e *bootstrap.EtcdClient) {
	f := c.Flags()
	f.StringSliceVar(&e.Endpoints, "endpoints", nil, "`URLs` of the members, comma-separated")
	f.StringVar(&e.CAFile, "cacert", "", "`file` with the authority of the members' certificates")
	f.StringVar(&e.CertFile, "cert", "", "`file` with the certificate of the user root")
	f.StringVar(&e.KeyFile, "key", "", "`file` with its key")
}

// bootstrap makes what a file says.
func (a *app) bootstrap(
	ctx context.Context, file string, run func(context.Context, *kube.Client, bootstrap.Config, string, func(string)) error,
) error {
	cfg, err := bootstrapConfig(file)
	if err != nil {
		return err
	}
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	dir, err := os.MkdirTemp("", "stoker-bootstrap-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return run(ctx, k, cfg, dir, func(line string) { a.sayf(a.out, "%s\n", line) })
}

// bootstrapConfig reads the file.
func bootstrapConfig(file string) (cfg bootstrap.Config, err error) {
	if file == "" {
		return cfg, usagef("--config: name the file that says what to make; --help shows its fields")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return cfg, err
	}
	if err := yaml.UnmarshalStrict(text, &cfg); err != nil {
		return cfg, fmt.Errorf("%s: %w", file, err)
	}
	for field, missing := range map[string]bool{"namespace": cfg.Namespace == "", "name": cfg.Name == "", "hosts": len(cfg.Hosts) == 0} {
		if missing {
			return cfg, fmt.Errorf("%s: field %s is missing", file, field)
		}
	}
	return cfg, nil
}

func natsReloadCommand(a *app) *cobra.Command {
	var r reload.Reloader
	c := &cobra.Command{
		Use:   "nats-reload --watch DIRECTORY…",
		Short: "Have a NATS server read its configuration again when it changes",
		Long: `nats-reload runs beside a NATS server, whose configuration, accounts and certificates are in the directories. When
files there change it has the server read them again, as the NATS user system: portals come and go, and certificates
are renewed, without a restart.`,
		Example: `  stoker nats-reload --watch /etc/nats --watch /etc/nats-tls \
    --nats tls://localhost:4222 --nats-ca /etc/nats-tls/ca.crt --nkey /var/run/system.nk`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(r.Directories) == 0 {
				return usagef("--watch: name the directories of the server's configuration")
			}
			r.URL, r.SeedFile, r.CAFile = a.flags.NATS, a.flags.Seed, a.flags.CA
			r.Say = func(line string) { a.sayf(a.err, "%s\n", line) }
			return r.Run(cmd.Context())
		},
	}
	c.Flags().StringArrayVar(&r.Directories, "watch", nil, "`directory` of the server's configuration; can be repeated")
	return c
}

func natsMetricsCommand(a *app) *cobra.Command {
	var address, monitor string
	c := &cobra.Command{
		Use:   "nats-metrics --monitor URL",
		Short: "Show to Prometheus what a NATS server says of itself",
		Long: `nats-metrics runs beside a NATS server and serves /metrics for Prometheus from what the server says on its monitoring port: connections,
messages, storage, Stoker's streams, and what waits there for each service. Tenants' buckets are counted, not listed.`,
		Example: `  stoker nats-metrics --monitor http://localhost:8222 --http :7777`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return natsmetrics.Serve(cmd.Context(), address, monitor, func(err error) { a.sayf(a.err, "the server doesn't answer: %v\n", err) })
		},
	}
	c.Flags().StringVar(&monitor, "monitor", "http://localhost:8222", "`URL` of the server's monitoring port")
	c.Flags().StringVar(&address, "http", ":7777", "`address` to serve /metrics at")
	return c
}
