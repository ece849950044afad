//go:build !race

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// shell is a directory in which the commands of a page of the documents work, and what was defined there so far.
type shell struct {
	dir, defined string
}

// newShell has the NATS command line as bin/nats and this stack as .stoker.
func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(s.dir, "bin", "nats"), "github.com/nats-io/natscli/nats")
	build.Dir, build.Env = filepath.Join(env.Root(), "tools", "nats"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	if err := os.Symlink(e.Local.Dir(), filepath.Join(s.dir, ".stoker")); err != nil {
		t.Fatal(err)
	}
	for program, path := range map[string]string{"stoker": e.StokerBin(), "kubectl": e.Local.Kubectl()} {
		if err := os.Symlink(path, filepath.Join(s.dir, "bin", program)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run runs a command after all definitions of functions before it.
func (s *shell) run(t *testing.T, command string) (out string) {
	t.Helper()
	if strings.Contains(command, "() {") {
		s.defined += command + "\n"
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", s.defined+command)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "XDG_CONFIG_HOME="+s.dir)
	stdout, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		t.Errorf("%s: %v\n%s\n%s", command, err, stdout, failed.Stderr)
	}
	return string(stdout)
}

// commands are those in the sh blocks of a page, in order, one for each line that isn't the middle of one.
func commands(t *testing.T, page string) (all []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readFile(t, filepath.Join(env.Root(), "docs", page))), -1) {
		all = append(all, strings.Split(strings.ReplaceAll(strings.TrimSpace(block[1]), "\\\n", ""), "\n")...)
	}
	return all
}

// runbooks runs what is written in the runbooks, for a tenant demo that is Ready.
func (s *shell) runbooks(t *testing.T) {
	t.Helper()
	s.defined += "export KUBECONFIG=.stoker/kubeconfigs/admin.kubeconfig PATH=$PWD/bin:$PATH\n"
	pages, err := filepath.Glob(filepath.Join(env.Root(), "docs", "runbooks", "Stoker*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	tried := map[string]bool{}
	for _, page := range pages {
		text := string(readFile(t, page))
		for _, part := range []string{"# " + strings.TrimSuffix(filepath.Base(page), ".md"), "## How bad it is", "## Look", "## Mend", "## Over"} {
			if !strings.Contains("\n"+text, "\n"+part+"\n") {
				t.Errorf("%s has no %q", page, part)
			}
		}
		for _, command := range commands(t, filepath.Join("runbooks", filepath.Base(page))) {
			if !tried[command] {
				tried[command] = true
				s.run(t, command)
			}
		}
	}
}

// newestLetter waits for a dead letter of the tenant.
func newestLetter(t *testing.T, key events.Key) (d event.DeadLetter) {
	t.Helper()
	env.Eventually(t, "a dead letter of "+key.String(), func() error {
		letters, _, err := e.Operator.DeadLetters(t.Context(), event.DeadFilter{Namespace: key.Namespace, Name: key.Name}, 0, 1)
		if err == nil && len(letters) == 0 {
			err = errors.New("there is none")
		}
		if err == nil {
			d = letters[0].DeadLetter
		}
		return err
	})
	return d
}

// TestTheNATSPage runs docs/nats.md, and the runbooks. Of what is written there, just the number of a dead letter is another. It runs
// without the race detector: `stoker portal` has the NATS server read its configuration again, for which the server (2.15.2) compares
// accounts without their locks (nats-io/nats-server#8499), and the server is in this process.
func TestTheNATSPage(t *testing.T) {
	env.Long(t, "takes minutes, and shows that the commands in docs/nats.md are right, which change rarely")
	e.Services(t)
	key := events.Tenant("default", "demo")
	e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
	e.Ready(t, key)
	defer e.Gone(t, key)
	defer e.Delete(t, key)
	s := newShell(t)
	ran := map[string]string{}
	for _, command := range commands(t, "nats.md") {
		written := command
		switch {
		case strings.Contains(command, "stoker.dead."):
			d := newestLetter(t, key)
			command = strings.ReplaceAll(command, `"sequence":7`, fmt.Sprintf(`"sequence":%d`, d.Sequence))
		case strings.Contains(command, "stream get STOKER_DEAD"):
			newestLetter(t, key)
		}
		ran[written] = s.run(t, command)
	}
	if len(ran) < 20 {
		t.Errorf("only %d commands were found", len(ran))
	}
	says := func(command string, reply any) {
		t.Helper()
		out, ok := ran["operator req --raw "+command]
		if !ok {
			t.Errorf("%s is not on the page", command)
		} else if err := json.Unmarshal([]byte(out), reply); err != nil {
			t.Errorf("%s: %v in %q", command, err, out)
		}
	}
	var list event.DeadListReply
	if says(`stoker.dead.list '{"service":"intake","namespace":"default","name":"demo","limit":5}'`, &list); len(list.Letters) != 1 ||
		list.Letters[0].Reason != "Rejected" || !strings.Contains(list.Letters[0].Cause, "specversion") {
		t.Errorf("%+v", list)
	}
	var replayed event.DeadReplayReply
	if says(`stoker.dead.replay '{"sequence":7}'`, &replayed); len(replayed.Replayed) != 1 || len(replayed.Left) > 0 {
		t.Errorf("%+v", replayed)
	}
	var dropped event.DeadDropReply
	if says(`stoker.dead.drop '{"namespace":"default","name":"demo","all":true}'`, &dropped); len(dropped.Dropped) != 1 {
		t.Errorf("%+v", dropped)
	}
	var replicas event.ReplicasReply
	if says(`stoker.replicas.list '{}'`, &replicas); len(replicas.Replicas) < len(name.Services()) || len(replicas.Missing) > 0 {
		t.Errorf("%+v", replicas)
	}
	for _, r := range replicas.Replicas {
		if r.Silent || r.Version == "" || r.Heartbeat.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	var partitions event.PartitionsReply
	if says(`stoker.replicas.partitions '{"service":"certs"}'`, &partitions); len(partitions.Services) != 1 || len(partitions.Services[0].Held) != name.Partitions {
		t.Errorf("%+v", partitions)
	}
	var resync event.ResyncReply
	if says(`stoker.tenants.resync '{"namespace":"default","name":"demo"}'`, &resync); resync.Asked != 1 {
		t.Errorf("%+v", resync)
	}
	e.Fact(t, key, name.ServiceIntake, event.Asked)
	e.Fact(t, key, name.ServiceIntake, event.Checked)
	t.Run("what the runbooks have an operator look at", func(t *testing.T) { s.runbooks(t) })
	if services := ran["operator micro ls"]; !strings.Contains(services, event.IntakeService) || !strings.Contains(services, event.StatusService) {
		t.Errorf("services:\n%s", services)
	}
}
