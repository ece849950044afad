// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-intake runs the intake service.
package main

import (
	"context"

	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/intake"
)

func main() {
	var cfg intake.Config
	service.Main("intake", "Turns commands into objects of the management cluster, and objects into desired state.",
		func(ctx context.Context, common service.Config) error {
			cfg.Config = common
			return intake.Run(ctx, cfg)
		},
		func(flag service.Flag) {
			flag(&cfg.DataStore, "datastore", "", "`name` of the DataStore for tenants that name none")
			flag(&cfg.ForbiddenNamespaces, "forbidden-namespaces", "",
				"`names` of namespaces, separated by commas, in which nothing is commanded, or beginnings of names with *; kube-* and stoker-system always are")
			flag(&cfg.Events.Address, "events-http", "", "`address` on which CloudEvents are taken by HTTP (POST /events); empty for none")
			flag(&cfg.Events.Certificate, "events-cert", "", "`file` with the TLS certificate of --events-http; only a loopback address needs none")
			flag(&cfg.Events.Key, "events-key", "", "`file` with the key of --events-cert")
			flag(&cfg.Events.Tokens, "events-token", "", "`file` of the bearer tokens that clients of --events-http must send, as `stoker token add` writes it")
			flag(&cfg.Events.ClientCA, "events-client-ca", "", "`file` with the authorities of certificates that clients must show, too")
			remote(flag, &cfg.Remote)
		})
}

// remote declares where objects come from that are made here.
func remote(flag service.Flag, r *intake.Remote) {
	flag(&r.Kubeconfig, "remote-kubeconfig", "", "`file` with the kubeconfig of a remote management API whose objects are made here; empty for none")
	flag(&r.Kinds, "remote-kinds", "", "`kinds` that are mirrored, as Kind.version.group, separated by commas; empty: TenantControlPlanes, and "+
		"KamajiControlPlanes if there are such")
	flag(&r.Source, "remote-source", "", "`name` of the remote in records on objects made here (remote)")
	flag(&r.Suffix, "remote-suffix", "", "`ending` of the names of remote objects that are mirrored; it isn't in the names here")
	flag(&r.NamespaceSuffix, "remote-namespace-suffix", "", "`ending` that namespaces here have beside the remote name")
	flag(&r.NamespacePrefix, "remote-namespace-prefix", "", "`beginning` of the remote namespaces that are looked at")
	flag(&r.Namespaces, "remote-namespaces", "false", "`true` to have namespaces made here, and deleted when nothing is left in them")
	flag(&r.Secrets, "remote-secrets", "", "`names` of Secrets that go up when the object is their controller, separated by commas; {name} is the object's")
	flag(&r.SecretRights, "remote-secret-rights", "", "`rights` on remote Secrets beside updates, separated by commas: create, watch")
	flag(&r.Propagation, "remote-propagation", "", "`policy` of deletions here: Foreground (the default), Background or Orphan")
	flag(&r.Grace, "remote-grace", "", "`duration` for which a remote object must be missing without having been deleted, before the one here is (10m)")
	flag(&r.Domain, "remote-domain", "", "`domain` of annotations and finalizer (stoker.dev); that of a program that did the same has its objects taken over")
}
