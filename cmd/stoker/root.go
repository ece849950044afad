package main

// The root command: flags that all commands share, errors and exit codes.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/printable"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/target"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailed  = 1 // rejected, failed, not found
	exitUsage   = 2
	exitTimeout = 3
	exitBlocked = 4 // something is against what is planned
)

// streams are the command's standard streams.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what all commands share.
type app struct {
	streams
	flags     target.Target
	namespace string
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error { return &usageError{fmt.Errorf(format, a...)} }

// timeoutError says what did not happen in time.
type timeoutError struct{ message string }

func (e *timeoutError) Error() string { return e.message }

// errReported and errTimedOut end a command that has said already what is wrong.
var (
	errReported = errors.New("reported")
	errTimedOut = errors.New("reported: not in time")
	errBlocked  = errors.New("reported: something is against it")
)

// run runs a command line and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := newRoot(a) //nolint:contextcheck // commands take the context of ExecuteContextC
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	var late *timeoutError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case errors.Is(err, errTimedOut):
		return exitTimeout
	case errors.Is(err, errBlocked):
		return exitBlocked
	case errors.As(err, &usage):
		a.complain(err)
		a.sayf(s.err, "See `%s --help`.\n", cmd.CommandPath())
		return exitUsage
	case errors.As(err, &late):
		a.complain(err)
		return exitTimeout
	case ctx.Err() != nil:
		return exitFailed // the person ended it and knows
	}
	a.complain(err)
	return exitFailed
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "stoker",
		Short: "Managed Kubernetes control planes, by event",
		Long: `stoker works with an installation of Stoker: it creates, changes, pauses and deletes tenants (Kubernetes control planes)
by the same events a portal would send, follows what happens to them and explains what they wait for.

The installation is found in this order:
  1. the flags --nats, --nkey, --nats-ca, --kubeconfig
  2. the local stack of ` + "`stoker up`" + `: the nearest .stoker directory, here or above, unless $NATS_URL is set
  3. $NATS_URL, $STOKER_NATS_SEED (a file with the operator's nkey seed), $STOKER_NATS_CA, $KUBECONFIG

Exit codes: 0 done, 1 rejected or failed, 2 wrong usage, 3 not done in time, 4 something is against what is planned.`,
		Example: `  stoker apply -f tenant.yaml --wait
  stoker get
  stoker why demo
  stoker kubeconfig demo > demo.kubeconfig`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				hint = "; did you mean " + strings.Join(like, " or ") + "?"
			}
			return usagef("unknown command %q%s", args[0], hint)
		},
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&a.flags.NATS, "nats", "", "`URL` of the NATS servers, comma-separated")
	f.StringVar(&a.flags.Seed, "nkey", "", "`file` with the nkey seed of the NATS user operator")
	f.StringVar(&a.flags.CA, "nats-ca", "", "`file` with the CA of the NATS servers' certificates")
	f.StringVar(&a.flags.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster")
	f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the tenant (default \"default\")")
	root.AddCommand(commands(a)...)
	for _, c := range root.Commands() {
		usageArgs(c)
		for _, under := range c.Commands() {
			usageArgs(under)
		}
	}
	return root
}

// commands are all commands but cobra's own.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		applyCommand(a), patchCommand(a), deleteCommand(a), pauseCommand(a), resumeCommand(a), sleepCommand(a), wakeCommand(a),
		backupCommand(a), backupsCommand(a), restoreCommand(a), backupLocationCommand(a), cloneCommand(a),
		getCommand(a), watchCommand(a), whyCommand(a), planCommand(a), rolloutCommand(a), migrateCommand(a), drainCommand(a), adoptCommand(a),
		kubeconfigCommand(a), joinCommand(a),
		dataStoresCommand(a), portalCommand(a), tokenCommand(a), deadCommand(a), replicasCommand(a), resyncCommand(a),
		upCommand(a), downCommand(a), bootstrapCommand(a), natsReloadCommand(a), natsMetricsCommand(a), versionCommand(a),
	}
}

// usageArgs makes wrong arguments a mistake in the command line.
func usageArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		return
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// sayf writes to a person, but nothing that steers the terminal. One that is gone is no error of the command.
func (a *app) sayf(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, printable.Text(fmt.Sprintf(format, args...)))
}

// complain writes an error to a person.
func (a *app) complain(err error) {
	word := "error:"
	if colour(a.err) {
		word = "\x1b[31m" + word + "\x1b[0m"
	}
	_, _ = io.WriteString(a.err, word+" "+printable.Text(err.Error())+"\n")
}

// colour reports whether a stream is a terminal whose user wants colours (https://no-color.org).
func colour(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// ns is the namespace for commands that need one.
func (a *app) ns() string {
	if a.namespace == "" {
		return "default"
	}
	return a.namespace
}

// tenant is the key of the tenant that an argument names.
func (a *app) tenant(arg string) (events.Key, error) {
	key := events.Tenant(a.ns(), arg)
	if !key.Valid() {
		return key, usagef("%q in namespace %q can't be the name of a tenant", arg, a.ns())
	}
	return key, nil
}

// target is the installation to talk to.
func (a *app) target() target.Target {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	return target.Find(a.flags, dir, os.Getenv)
}

func (a *app) bus(ctx context.Context) (*events.Bus, error) { return a.target().Bus(ctx) }

func (a *app) kube() (*kube.Client, error) { return a.target().Kube() }

func (a *app) printer(prefix string) follow.Printer {
	return follow.Printer{Out: a.out, Colour: colour(a.out), Prefix: prefix}
}
