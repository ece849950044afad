// Command konnectivity is the server and the agent of konnectivity in one file. It runs as the program it is called by, or as the
// one its first argument names:
//
//	./konnectivity proxy-server --help
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	agent "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	server "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
)

var programs = map[string]func() *cobra.Command{
	"proxy-server": func() *cobra.Command {
		o := serveroptions.NewProxyRunOptions()
		c := server.NewProxyCommand(&server.Proxy{}, o)
		c.Flags().AddFlagSet(o.Flags())
		return c
	},
	"proxy-agent": func() *cobra.Command {
		o := agentoptions.NewGrpcProxyAgentOptions()
		c := agent.NewAgentCommand(&agent.Agent{}, o)
		c.Flags().AddFlagSet(o.Flags())
		return c
	},
}

func main() {
	run, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if run, ok = programs[filepath.Base(os.Args[1])]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: konnectivity PROGRAM [ARGUMENT...]\nprograms: proxy-agent, proxy-server")
		os.Exit(2)
	}
	command := run()
	logging := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	klog.InitFlags(logging)
	logging.VisitAll(func(f *flag.Flag) {
		f.Name = strings.ReplaceAll(f.Name, "_", "-") // as in their own images
		command.Flags().AddGoFlag(f)
	})
	err := command.Execute()
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
