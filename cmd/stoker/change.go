package main

// stoker patch, pause, resume, sleep, wake: change what is there, by event.

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// changing is a command that changes objects by name.
type changing struct {
	a        *app
	wait     bool
	timeout  time.Duration
	expected int64
	// tenants is set when the verb is for no other kind.
	tenants bool
	// data of the command, for each of the objects; made when the command line is read.
	data func() (any, error)
	commanding
}

// command makes the command line of a verb.
func (c *changing) command(verb, short, long, example, waitsFor string) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " (NAME | KIND/NAME)...", Short: short, Long: long, Example: example,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.a.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, err := c.a.named(args)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if c.tenants && !o.Key.IsTenant() {
					return usagef("%s is no tenant; `stoker %s` is for tenants", o, verb)
				}
			}
			if c.expected != anyGeneration && len(objects) != 1 {
				return usagef("--expected-generation is for one object, and here are %d", len(objects))
			}
			data := any(event.Target{})
			if c.data != nil {
				if data, err = c.data(); err != nil {
					return err
				}
			}
			c.commanding.command = func(manifest.Object) command { return command{verb: verb, data: data, expected: c.expected} }
			return c.a.commandAll(cmd.Context(), objects, c.wait, c.timeout, c.commanding)
		},
	}
	cmd.Flags().BoolVar(&c.wait, "wait", false, "follow tenants until they are "+waitsFor)
	cmd.Flags().DurationVar(&c.timeout, "timeout", defaultTimeout, "how long to --wait")
	expecting(cmd, &c.expected)
	return cmd
}

// kindsHelp ends the help of commands for all kinds.
const kindsHelp = " A bare name is a tenant's; datastore/NAME and kc/NAME (KubeconfigGenerator) name the other kinds."

func patchCommand(a *app) *cobra.Command {
	var patch string
	c := &changing{a: a, commanding: commanding{wait: untilReady, done: func(event.IntakeAccepted) string { return "patched" }}}
	c.data = func() (any, error) {
		if patch == "" {
			return nil, usagef("say what to change with -p")
		}
		spec, err := yaml.YAMLToJSONStrict([]byte(patch))
		var object map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(spec, &object)
		}
		if err != nil || object == nil {
			return nil, usagef("-p %s: must be an object in JSON or YAML: a merge patch (RFC 7386)", patch)
		}
		if len(object) != 1 || object["spec"] == nil {
			return nil, usagef("-p %s: must be {\"spec\": …}: a merge patch changes the spec and nothing else", patch)
		}
		return event.PatchCommand{Spec: object["spec"]}, nil
	}
	cmd := c.command(event.Patch, "Change parts of the spec of tenants, DataStores or KubeconfigGenerators",
		`patch changes the parts of the spec that a JSON merge patch (RFC 7386) mentions; null removes, lists are replaced whole.`+kindsHelp,
		`  # Another Kubernetes version, and wait for the upgrade
  stoker patch demo -p '{"spec":{"kubernetes":{"version":"v1.36.3"}}}' --wait

  # Only if nobody changed it since generation 3
  stoker patch demo -p '{"spec":{"controlPlane":{"deployment":{"replicas":3}}}}' --expected-generation 3`, "Ready")
	cmd.Flags().StringVarP(&patch, "patch", "p", "", "`patch` in JSON or YAML: {\"spec\": …}")
	return cmd
}

func pauseCommand(a *app) *cobra.Command {
	var until string
	var lasts time.Duration
	c := &changing{a: a}
	var end time.Time
	c.data = func() (any, error) {
		switch {
		case until != "" && lasts != 0:
			return nil, usagef("--until and --for say the same; give one of them")
		case lasts < 0:
			return nil, usagef("--for %s: must not be negative", lasts)
		case lasts > 0:
			end = time.Now().Add(lasts)
		case until != "":
			var err error
			if end, err = time.Parse(time.RFC3339, until); err != nil {
				return nil, usagef("--until %s: must be an RFC 3339 time, like 2027-01-31T18:00:00Z", until)
			}
			if !end.After(time.Now()) {
				return nil, usagef("--until %s: is past", until)
			}
		}
		return event.PauseCommand{Until: end}, nil
	}
	c.done = func(event.IntakeAccepted) string {
		if end.IsZero() {
			return "paused"
		}
		return "paused until " + end.Round(time.Second).Format(time.RFC3339)
	}
	c.commanding.wait = func(ctx context.Context, f following, out func(follow.Line)) error {
		_, err := follow.UntilPaused(ctx, f.feed, out)
		return f.late(ctx, err, "not Paused")
	}
	cmd := c.command(event.Pause, "Leave objects alone: no change, no repair, no deletion",
		`pause stops all services for an object, its deletion included, until `+"`stoker resume`"+` or a given time. Pods go on running; what
is changed meanwhile is done when the pause ends.`+kindsHelp,
		`  stoker pause demo
  stoker pause demo --for 2h
  stoker pause datastore/main --until 2027-01-31T18:00:00Z`, "Paused")
	cmd.Flags().StringVar(&until, "until", "", "`time` at which the pause ends by itself (RFC 3339)")
	cmd.Flags().DurationVar(&lasts, "for", 0, "`duration` after which the pause ends by itself (1h30m)")
	return cmd
}

func resumeCommand(a *app) *cobra.Command {
	c := &changing{a: a, commanding: commanding{wait: untilReady, done: func(event.IntakeAccepted) string { return "resumed" }}}
	return c.command(event.Resume, "End the pause of objects", `resume ends a pause; what was changed meanwhile is done now.`+kindsHelp,
		`  stoker resume demo --wait
  stoker resume datastore/main`, "Ready")
}

func sleepCommand(a *app) *cobra.Command {
	c := &changing{a: a, tenants: true, commanding: commanding{wait: untilReady, done: func(event.IntakeAccepted) string { return "put to sleep" }}}
	return c.command(event.Sleep, "Stop the pods of tenants; data and keys stay",
		`sleep sets a tenant's replicas to 0 and remembers how many there were. One that sleeps by annotations (stoker.dev/sleep-at, wake-on) does
so until these wake it. Data and keys stay.`,
		`  stoker sleep demo --wait
  stoker sleep demo test staging -n team-a`, "asleep")
}

func wakeCommand(a *app) *cobra.Command {
	c := &changing{a: a, tenants: true, commanding: commanding{wait: untilReady, done: func(event.IntakeAccepted) string { return "woken" }}}
	return c.command(event.Wake, "Start the pods of sleeping tenants",
		`wake brings back as many replicas as a tenant had before it was put to sleep. One that sleeps by annotations is awake until the next time
to sleep.`,
		`  stoker wake demo --wait`, "Ready")
}

// named are the objects that arguments name.
func (a *app) named(args []string) ([]manifest.Object, error) {
	var objects []manifest.Object
	for _, arg := range args {
		o, err := manifest.Named(arg, a.ns())
		if err != nil {
			return nil, &usageError{err}
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// complete offers the names of tenants to a shell; without a management cluster at hand, none.
func (a *app) complete(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	k, err := a.kube()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer k.Close()
	var list metav1.PartialObjectMetadataList
	if err := k.List(cmd.Context(), kube.TenantControlPlanes, a.ns(), "", &list); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
