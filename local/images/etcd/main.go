// Command etcd is the etcd server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	args := os.Args
	// Run as "etcd etcd --flags" too, the way the other images are.
	if len(args) > 1 && args[1] == "etcd" {
		args = args[1:]
	}
	etcdmain.Main(args)
}
