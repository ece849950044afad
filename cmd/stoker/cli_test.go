package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cli runs a command line.
func cli(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, streams{in: strings.NewReader(in), out: &o, err: &e})
	return code, o.String(), e.String()
}

const tenantYAML = `apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: demo}
spec: {kubernetes: {version: v1.36.3}, unknown: field}
`

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		in   string
		says string
	}{
		"an unknown command":         {args: []string{"aply"}, says: "unknown command"},
		"an unknown flag":            {args: []string{"get", "--wide"}, says: "unknown flag"},
		"apply without a file":       {args: []string{"apply"}, says: "-f FILE"},
		"apply of a missing file":    {args: []string{"apply", "-f", "/does/not/exist.yaml"}, says: "no such file"},
		"apply of a URL":             {args: []string{"apply", "-f", "https://example.com/t.yaml"}, says: "URLs are not read"},
		"apply of no YAML":           {args: []string{"apply", "-f", "-"}, in: "a: [", says: "document 1"},
		"apply of nothing":           {args: []string{"apply", "-f", "-"}, in: "# nothing\n---\n", says: "no object found"},
		"apply of a key given twice": {args: []string{"apply", "-f", "-"}, in: tenantYAML + "kind: DataStore\n", says: "already set"},
		"apply of another's kind":    {args: []string{"apply", "-f", "-"}, in: "apiVersion: v1\nkind: Pod\n", says: "apply it with kubectl"},
		"apply of a tenant with no name": {
			args: []string{"apply", "-f", "-"}, in: "apiVersion: kamaji.clastix.io/v1alpha1\nkind: TenantControlPlane\n", says: "metadata.name",
		},
		"delete of nothing":               {args: []string{"delete"}, says: "KIND/NAME"},
		"delete of an unknown kind":       {args: []string{"delete", "pod/x"}, says: "tcp"},
		"two objects and one generation":  {args: []string{"apply", "-f", "-", "--expected-generation", "1"}, in: tenantYAML + "---\n" + tenantYAML, says: "for one object"},
		"a pause of nothing":              {args: []string{"pause"}, says: "at least 1 arg"},
		"a pause of an unknown kind":      {args: []string{"pause", "pod/x"}, says: "datastore"},
		"a pause with two ends":           {args: []string{"pause", "demo", "--for", "1h", "--until", "2027-01-31T18:00:00Z"}, says: "one of them"},
		"a pause until some day":          {args: []string{"pause", "demo", "--until", "tomorrow"}, says: "RFC 3339"},
		"a pause until yesterday":         {args: []string{"pause", "demo", "--until", "2020-01-31T18:00:00Z"}, says: "is past"},
		"a pause for less than nothing":   {args: []string{"pause", "demo", "--for", "-1h"}, says: "negative"},
		"a DataStore's sleep":             {args: []string{"sleep", "datastore/main"}, says: "is no tenant"},
		"a patch of nothing":              {args: []string{"patch", "demo"}, says: "-p"},
		"a patch that is none":            {args: []string{"patch", "demo", "-p", "x"}, says: "RFC 7386"},
		"a patch of the metadata":         {args: []string{"patch", "demo", "-p", `{"metadata":{"labels":{"a":"b"}}}`}, says: "changes the spec"},
		"a patch of more than the spec":   {args: []string{"patch", "demo", "-p", `{"spec":{},"status":{}}`}, says: "changes the spec"},
		"a generation for two patches":    {args: []string{"patch", "a", "b", "-p", `{"spec":{}}`, "--expected-generation", "1"}, says: "for one object"},
		"watch without a name":            {args: []string{"watch"}, says: "accepts 1 arg"},
		"watch of a name that can't be":   {args: []string{"watch", "a.>"}, says: "can't be the name"},
		"watch of the future":             {args: []string{"watch", "demo", "--since", "-1h"}, says: "negative"},
		"an unknown format":               {args: []string{"get", "-o", "xml"}, says: "must be table"},
		"an unknown format of watch":      {args: []string{"watch", "demo", "-o", "yaml"}, says: "must be json"},
		"an unknown format of why":        {args: []string{"why", "demo", "-o", "yaml"}, says: "must be json"},
		"a token for no time":             {args: []string{"join-command", "demo", "--ttl", "0s"}, says: "must be from 1m"},
		"a token for ever":                {args: []string{"join-command", "demo", "--ttl", "87600h"}, says: "must be from 1m"},
		"an unknown format of a join":     {args: []string{"join-command", "demo", "-o", "table"}, says: "must be json or yaml"},
		"a removal of all orphans":        {args: []string{"datastores", "orphans", "--remove", "--yes"}, says: "name it"},
		"a removal that nobody confirms":  {args: []string{"datastores", "orphans", "etcd-1", "--remove"}, says: "--yes"},
		"a yes to nothing":                {args: []string{"datastores", "orphans", "--yes"}, says: "is for --remove"},
		"orphans of two DataStores":       {args: []string{"datastores", "orphans", "a", "b"}, says: "at most 1 arg"},
		"an unknown format of datastores": {args: []string{"datastores", "-o", "xml"}, says: "must be table"},
		"more arguments than one to get":  {args: []string{"get", "a", "b"}, says: "at most 1 arg"},
	}
	for sentence, test := range tests {
		t.Run(sentence+" is wrong usage, says what is wrong and where help is", func(t *testing.T) {
			t.Parallel()
			code, out, errs := cli(t, test.in, test.args...)
			if code != exitUsage || out != "" || !strings.Contains(errs, test.says) || !strings.Contains(errs, "--help") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		})
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	a := &app{}
	for _, c := range commands(a) {
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or description", c.Name())
		}
		code, out, errs := cli(t, "", c.Name(), "--help")
		if code != exitOK || !strings.Contains(out, "Examples:") || errs != "" {
			t.Errorf("%s --help: exit %d %s", c.Name(), code, errs)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	code, _, errs := cli(t, tenantYAML, "apply", "-f", "-", "--nats", "nats://127.0.0.1:1")
	if code != exitFailed || !strings.Contains(errs, "does not answer") || !strings.Contains(errs, "stoker up") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

// installation is a NATS server and an intake that accepts, and makes Ready, every tenant but those named "bad" and
// "slow".
type installation struct {
	flags    []string
	commands chan loop.Event
	// connect is to NATS, as a user.
	connect func(user string) *events.Bus
}

func install(t *testing.T) installation {
	t.Helper()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	connect := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{
			URL: srv.URL(), User: user, SeedFile: srv.SeedFile(user), Replica: "test", StreamReplicas: 1,
			RequestTimeout: 30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	intake, status := connect(name.ServiceIntake), connect(name.ServiceStatus)
	inst := installation{
		flags:    []string{"--nats", srv.URL(), "--nkey", srv.SeedFile(events.UserOperator)},
		commands: make(chan loop.Event, 64), connect: connect,
	}
	loop := &loop.Loop{Bus: intake, Service: name.ServiceIntake, Commands: true, Ensure: intake.Provision, Handle: func(ctx context.Context, turn *loop.Turn) error {
		for _, e := range turn.Events {
			if e.IsCommand() {
				inst.commands <- e
				if err := obey(ctx, intake, status, turn.Key, e); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := intake.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return inst
}

func obey(ctx context.Context, intake, status *events.Bus, key events.Key, e loop.Event) error {
	inbox, _ := e.Extensions()[events.ExtReplyTo].(string)
	about := event.About{Namespace: key.Namespace, Name: key.Name, UID: "u-" + key.Name, Generation: 1}
	switch {
	case key.Name == "bad":
		return intake.Answer(inbox, key, e.ID()+"-answer", event.Rejected, event.IntakeRejected{
			About: about, Kind: key.Kind, Command: e.ID(),
			Errors: []event.FieldError{{Field: "spec.kubernetes.version", Rule: "Invalid", Value: "v9", Message: "must be a version"}},
		})
	case e.Type() == event.CommandType(event.TenantControlPlanes, event.Pause):
		if err := intake.Answer(inbox, key, e.ID()+"-answer", event.Accepted, event.IntakeAccepted{About: about, Paused: true}); err != nil {
			return err
		}
		return status.Tell(ctx, key, 1, e.ID()+"-paused", event.Changed, event.StatusChanged{About: about, Phase: "Paused", Ready: true})
	case !key.IsTenant():
		return intake.Answer(inbox, key, e.ID()+"-answer", event.Accepted, event.IntakeAccepted{About: about})
	case e.Type() == event.TenantDelete:
		if err := intake.Answer(inbox, key, e.ID()+"-answer", event.Deleting, event.IntakeDeleting{About: about}); err != nil {
			return err
		}
		return status.Tell(ctx, key, 1, e.ID()+"-deleted", event.Deleted, event.StatusChanged{
			About: about, Phase: "Deleted", Message: "gone", Removed: map[string]int{"workload/Deployment": 1}, Left: []string{"prefix /u-demo/"},
		})
	}
	data := event.IntakeAccepted{About: about, Version: "v1.36.3", DataStore: "default", Command: e.ID()}
	if err := intake.Tell(ctx, key, 1, e.ID()+"-accepted", event.Accepted, data); err != nil {
		return err
	}
	if err := intake.Answer(inbox, key, e.ID()+"-answer", event.Accepted, data); err != nil || key.Name == "slow" {
		return err
	}
	changed := event.StatusChanged{About: about, Phase: "Ready", Ready: true, Reason: "Ready", Message: "it answers", SecondsToReady: 2.5}
	if key.Name == "broken" {
		changed = event.StatusChanged{About: about, Phase: "Failed", Reason: "QuotaExceeded", Message: "etcd is full"}
	}
	return status.Tell(ctx, key, 1, e.ID()+"-changed", event.Changed, changed)
}

func named(object string) string { return strings.Replace(tenantYAML, "demo", object, 1) }

func TestCommandsByEvent(t *testing.T) {
	t.Parallel()
	inst := install(t)
	tests := []struct {
		sentence  string
		in        string
		args      []string
		code      int
		out, errs []string
	}{
		{
			sentence: "an accepted tenant is said to be, with its generation",
			in:       tenantYAML, args: []string{"apply", "-f", "-"}, code: exitOK,
			out: []string{"tenantcontrolplane/demo accepted (generation 1)"},
		},
		{
			sentence: "--wait prints facts with seconds until Ready",
			in:       tenantYAML, args: []string{"apply", "-f", "-", "--wait", "-n", "other"}, code: exitOK,
			out: []string{"+0.000s  intake.accepted", "generation 1, v1.36.3, on default", "s  status.changed", "Ready: it answers (2.5 s)"},
		},
		{
			sentence: "a rejection names field, rule and value, and doesn't keep the next object from being sent",
			in:       named("bad") + "---\n" + tenantYAML, args: []string{"apply", "-f", "-"}, code: exitFailed,
			out:  []string{"tenantcontrolplane/demo accepted"},
			errs: []string{"error: tenantcontrolplane/bad was rejected:", `spec.kubernetes.version: Invalid: must be a version (is "v9")`},
		},
		{
			sentence: "a tenant that failed ends the wait",
			in:       named("broken"), args: []string{"apply", "-f", "-", "--wait"}, code: exitFailed,
			errs: []string{"default/broken is Failed: QuotaExceeded: etcd is full"},
		},
		{
			sentence: "patience ends with its own exit code and says how to go on",
			in:       named("slow"), args: []string{"apply", "-f", "-", "--wait", "--timeout", "300ms"}, code: exitTimeout,
			errs: []string{"not Ready after 300ms", "stoker why slow"},
		},
		{
			sentence: "delete waits for the last word and says what is left behind",
			args:     []string{"delete", "tcp/demo", "--wait"}, code: exitOK,
			out: []string{"tenantcontrolplane/demo deleting", "status.deleted", "1 workload/Deployment"}, errs: []string{"prefix /u-demo/"},
		},
		{
			sentence: "pause says until when, and waits until it is so",
			args:     []string{"pause", "demo", "datastore/main", "--until", "2097-01-31T18:00:00+01:00", "--wait"}, code: exitOK,
			out: []string{"tenantcontrolplane/demo paused until 2097-01-31T18:00:00+01:00 (generation 1)", "datastore/main paused until", "Paused"},
		},
		{sentence: "resume", args: []string{"resume", "demo", "kc/ops", "--wait"}, code: exitOK, out: []string{"tenantcontrolplane/demo resumed", "kubeconfiggenerator/ops resumed", "Ready"}},
		{sentence: "sleep", args: []string{"sleep", "demo"}, code: exitOK, out: []string{"tenantcontrolplane/demo put to sleep"}},
		{sentence: "wake", args: []string{"wake", "tcp/demo", "--wait"}, code: exitOK, out: []string{"tenantcontrolplane/demo woken", "Ready"}},
		{
			sentence: "patch in YAML, for an expected generation",
			args:     []string{"patch", "demo", "-p", "spec: {kubernetes: {version: v1.36.3}}", "--expected-generation", "7"}, code: exitOK,
			out: []string{"tenantcontrolplane/demo patched (generation 1)"},
		},
		{
			sentence: "a refused change is said like any other",
			args:     []string{"wake", "bad"}, code: exitFailed, errs: []string{"error: tenantcontrolplane/bad was rejected:"},
		},
	}
	for _, test := range tests {
		t.Run(test.sentence, func(t *testing.T) {
			code, out, errs := cli(t, test.in, append(test.args, inst.flags...)...)
			if code != test.code {
				t.Errorf("exit %d, want %d", code, test.code)
			}
			for _, want := range test.out {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in the output", want)
				}
			}
			for _, want := range test.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("%q is not in the errors", want)
				}
			}
			if t.Failed() {
				t.Logf("\n%s%s", out, errs)
			}
		})
	}
	t.Run("the command is the CloudEvent a portal would send, with the object as it was written", func(t *testing.T) {
		e := <-inst.commands
		if e.Type() != event.TenantApply || e.Subject() != "default/demo" || e.DataContentType() != "application/json" || e.ID() == "" {
			t.Errorf("%+v", e.Event)
		}
		want := `{"apiVersion":"kamaji.clastix.io/v1alpha1","kind":"TenantControlPlane","metadata":{"name":"demo","namespace":"default"},` +
			`"spec":{"kubernetes":{"version":"v1.36.3"},"unknown":"field"}}`
		if string(e.Data()) != want {
			t.Errorf("%s", e.Data())
		}
		if _, ok := e.Extensions()[events.ExtExpectedGeneration]; ok {
			t.Error("a generation is expected that nobody asked for")
		}
	})
	t.Run("so are changes", func(t *testing.T) {
		cli(t, "", append([]string{"delete", "tcp/last", "--expected-generation", "0"}, inst.flags...)...)
		got := map[string]loop.Event{}
		for {
			e := <-inst.commands
			if e.Subject() == "default/last" {
				got["last"] = e
				break
			}
			got[e.Type()+" "+e.Subject()] = e
		}
		for command, data := range map[string]string{
			"dev.stoker.tenantcontrolplane.pause.v1 default/demo": `{"until":"2097-01-31T18:00:00+01:00"}`, "dev.stoker.datastore.pause.v1 main": `{"until":"2097-01-31T18:00:00+01:00"}`,
			"dev.stoker.kubeconfiggenerator.resume.v1 ops": `{}`, "dev.stoker.tenantcontrolplane.sleep.v1 default/demo": `{}`,
			"dev.stoker.tenantcontrolplane.patch.v1 default/demo": `{"spec":{"kubernetes":{"version":"v1.36.3"}}}`,
		} {
			if e, ok := got[command]; !ok || string(e.Data()) != data {
				t.Errorf("%s: %s", command, e.Data())
			}
		}
		for command, generation := range map[string]string{"dev.stoker.tenantcontrolplane.patch.v1 default/demo": "7", "last": "0"} {
			e := got[command]
			if g := e.Extensions()[events.ExtExpectedGeneration]; g != generation {
				t.Errorf("%s expects generation %v", command, g)
			}
		}
	})
	t.Run("watch shows history, and as CloudEvents when asked", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan int, 1)
		go func() {
			done <- run(ctx, append([]string{"watch", "demo", "--since", "1h", "-o", "json"}, inst.flags...), streams{out: w, err: os.Stderr})
			_ = w.Close()
		}()
		var first map[string]any
		if err := json.NewDecoder(r).Decode(&first); err != nil {
			t.Fatal(err)
		}
		cancel()
		if first["type"] != event.FactType(name.ServiceIntake, event.Accepted) {
			t.Errorf("%v", first)
		}
		if code := <-done; code != exitOK {
			t.Errorf("exit %d", code)
		}
	})
}

var clock = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func TestTable(t *testing.T) {
	t.Parallel()
	condition := func(typ, status, reason, message string) metav1.Condition {
		return metav1.Condition{Type: typ, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
	}
	tenant := func(object, word string, conditions ...metav1.Condition) v1alpha1.TenantControlPlane {
		o := v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: object, CreationTimestamp: metav1.NewTime(clock.Add(-90 * time.Minute)),
		}}
		o.Spec.Kubernetes.Version, o.Spec.DataStore = "v1.36.3", "etcd-1"
		status := v1alpha1.KubernetesVersionStatus(word)
		if word != "" {
			o.Status.Kubernetes.Version.Status = &status
		}
		o.Status.Conditions = conditions
		return o
	}
	ready := tenant("ready", "Ready", condition("Ready", "True", "Ready", "it answers"))
	ready.Status.Kubernetes.Version.Version, ready.Status.ControlPlaneEndpoint = "v1.35.4", "10.0.0.1:6443"
	ready.Status.Kubernetes.Deployment = &v1alpha1.KubernetesDeploymentStatus{}
	ready.Status.Kubernetes.Deployment.Replicas, ready.Status.Kubernetes.Deployment.ReadyReplicas = 2, 1
	gone := tenant("going", "Ready", condition("Ready", "False", "Deleting", "workload removes what it made"))
	gone.DeletionTimestamp = &metav1.Time{Time: clock}
	tenants := []v1alpha1.TenantControlPlane{
		ready, tenant("new", ""), gone,
		tenant("stuck", "Provisioning", condition("Ready", "False", "QuotaExceeded", "etcd is full"), condition("Stalled", "True", "QuotaExceeded", "etcd is full")),
		tenant("paused", "Ready", condition("Ready", "True", "Ready", "it answers"), condition("Paused", "True", "Annotated", "")),
		tenant("changing", "Unknown", condition("Ready", "False", "WorkloadRollingOut", "")),
	}
	for format, file := range map[string]string{"": "table.txt", "wide": "wide.txt", "name": "name.txt", "yaml": "list.yaml"} {
		var b bytes.Buffer
		list := tenants
		if format == "yaml" {
			list = tenants[:1]
		}
		if err := show(&b, list, format, false, clock); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}

// TestWhatOthersWroteDoesNotSteerTheTerminal shows a tenant whose status has an escape sequence in a message, and complains with one.
func TestWhatOthersWroteDoesNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	const escape = "it \x1b]52;c;cm0gLXJmIH4=\x07answers\r\nNAME   \u009b31m"
	o := v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "a\x1b[2J", Message: escape}}
	for _, format := range formats {
		var b bytes.Buffer
		if err := show(&b, []v1alpha1.TenantControlPlane{o}, format, true, clock); err != nil {
			t.Fatal(err)
		}
		steersNothing(t, format, b.String())
		if lines := strings.Count(b.String(), "\n"); format == "wide" && lines != 2 {
			t.Errorf("a message makes lines of its own:\n%s", b.String())
		}
	}
	var b bytes.Buffer
	a := &app{streams: streams{err: &b}}
	a.complain(errors.New(escape))
	a.sayf(&b, "%s\n", escape)
	steersNothing(t, "a complaint", b.String())
}

func steersNothing(t *testing.T, what, out string) {
	t.Helper()
	if i := strings.IndexFunc(out, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
		t.Errorf("%s has %q", what, out[i:])
	}
}

func TestAKubeconfigIsWrittenForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "demo.kubeconfig")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(file, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -update and read the diff\n%s", file, got)
	}
}
