// Command stoker-node is what docker-compose.yaml runs beside the services: it makes keys, prepares the management cluster, and is its node.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stoker-k8s/stoker/local/compose"
)

const usage = `Usage: stoker-node COMMAND

What docker-compose.yaml runs beside the services; its directories are volumes.

  keys                     make keys, certificates and configuration below /volumes, and give the volumes below /data to who uses them;
                           $NODE_ADDRESS is the node's, $API_PORT the API server's port of 127.0.0.1, $PORTAL the portal's name, $NATS_SERVERS those of a NATS cluster, separated
                           by commas
  manifests                apply definitions, roles and policies to the management cluster
  datastore NAME           register a database as DataStore: default (on etcd), %s
  run                      be the node of the management cluster, at $NODE_ADDRESS; $LOG_LEVEL is debug, info, warn or error

Examples:
  docker compose run --rm manifests
  docker compose logs node
`

// Directories in the image and of its volumes.
const (
	keysDir    = "/keys"
	volumesDir = "/volumes"
	dataDir    = "/data"
	probeFile  = "/usr/bin/probe"
	shareDir   = "/usr/share/stoker"
	imagesDir  = "/usr/lib/stoker"
)

func main() {
	flag.Usage = func() { fmt.Fprintf(os.Stderr, usage, strings.Join(compose.DataStores(), ", ")) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	commands := map[string]struct {
		arguments int
		run       func(context.Context, []string) error
	}{"keys": {0, keys}, "manifests": {0, manifests}, "datastore": {1, datastore}, "run": {0, run}}
	c, ok := commands[flag.Arg(0)]
	if !ok || flag.NArg() != c.arguments+1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := c.run(ctx, flag.Args()[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "stoker-node %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// nodeAddress is that of the environment.
func nodeAddress() (netip.Addr, error) {
	a, err := netip.ParseAddr(os.Getenv("NODE_ADDRESS"))
	if err != nil {
		return a, fmt.Errorf("NODE_ADDRESS: %w", err)
	}
	return a, nil
}

func keys(context.Context, []string) error {
	address, err := nodeAddress()
	if err != nil {
		return err
	}
	k := compose.Keys{Dir: keysDir, Volumes: volumesDir, NodeAddress: address.String(), APIPort: os.Getenv("API_PORT"), Portal: os.Getenv("PORTAL"), Own: own}
	if servers := os.Getenv("NATS_SERVERS"); servers != "" {
		k.NATSServers = strings.Split(servers, ",")
	}
	if err := k.Make(); err != nil {
		return err
	}
	if err := copyProbe(filepath.Join(volumesDir, "probe", "probe")); err != nil {
		return err
	}
	return compose.OwnData(dataDir, own)
}

func own(path string, uid int) error { return os.Chown(path, uid, uid) }

// copyProbe puts the program of health checks where all containers have it.
func copyProbe(to string) error {
	from, err := os.Open(probeFile)
	if err != nil {
		return err
	}
	defer from.Close()
	next := to + ".new"
	file, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // everybody's program
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(next, to)
}

func manifests(ctx context.Context, _ []string) error {
	return compose.Admin{Dir: keysDir}.Manifests(ctx, shareDir)
}

func datastore(ctx context.Context, arguments []string) error {
	return compose.Admin{Dir: keysDir}.DataStore(ctx, arguments[0])
}

func run(ctx context.Context, _ []string) error {
	address, err := nodeAddress()
	if err != nil {
		return err
	}
	var level slog.Level
	if text := os.Getenv("LOG_LEVEL"); text != "" {
		if err := level.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("LOG_LEVEL %q: must be debug, info, warn or error", text)
		}
	}
	return compose.Node{
		Keys: keysDir, Address: address, Images: imagesDir, Dir: dataDir, Short: "/run/stoker", HTTP: "127.0.0.1:8080",
		Log: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}.Run(ctx)
}
