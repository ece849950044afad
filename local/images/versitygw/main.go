// Command versitygw is an S3 server that keeps its buckets in a directory, for tests. It takes the flags of versitygw's own command that
// they need, and like it the root account from ROOT_ACCESS_KEY and ROOT_SECRET_KEY.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// At once; versitygw's own default for many clients is 250,000.
const connections = 1000

func main() {
	cfg := &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		MaxConnections: connections, MaxRequests: connections, MultipartMaxParts: 10_000, KeepAlive: true, Quiet: true,
	}
	port := flag.String("port", "127.0.0.1:7070", "`address` to listen at")
	sidecar := flag.String("sidecar", "", "`directory` for what is known of objects, beside the one that has them")
	flag.StringVar(&cfg.CertFile, "cert", "", "`file` of the TLS certificate; http without it")
	flag.StringVar(&cfg.KeyFile, "key", "", "`file` of the certificate's key")
	flag.StringVar(&cfg.Region, "region", "us-east-1", "`name` of the region")
	flag.StringVar(&cfg.IAMDir, "iam-dir", "", "`directory` of further accounts")
	flag.Parse()
	cfg.Ports = []string{*port}
	if err := run(cfg, flag.Arg(0), *sidecar); err != nil {
		log.Fatal(err)
	}
}

// run serves the directories in one directory as buckets.
func run(cfg *embedgw.Config, dir, sidecar string) error {
	if dir == "" || sidecar == "" {
		return fmt.Errorf("usage: versitygw --sidecar <directory> [flags] <directory>")
	}
	known, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	store, err := posix.New(dir, known, posix.PosixOpts{SideCarDir: sidecar, Concurrency: connections})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, store, cfg)
}
