package testserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Contained says that the server runs in a container. Path is then the URL of who runs containers of the server's image (test/containers),
// because the libraries that do so need other versions of shared dependencies.
func (p Program) Contained() bool { return strings.HasPrefix(p.Path, "http://") }

// container is a server in a container of the engine that the command docker speaks to.
type container struct{ id string }

// contain has a container run: by the same flags, as the same user and in the same network as a process would, with the directory at its
// own path.
func (d *Dir) contain(t testing.TB, p Program, args []string) container {
	t.Helper()
	uid, gid := os.Getuid(), os.Getgid()
	if d.credential != nil {
		uid, gid = int(d.credential.Uid), int(d.credential.Gid)
	}
	body, err := json.Marshal(map[string]any{"dir": d.Path, "user": fmt.Sprintf("%d:%d", uid, gid), "env": p.Env, "args": args})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", p.Path, response.Status, err, answer)
	}
	return container{string(answer)}
}

// docker has the engine do something with the container, and returns what that said.
func (c container) docker(args ...string) ([]byte, error) {
	out, err := exec.CommandContext(context.Background(), "docker", append(args, c.id)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("docker %s %s: %w: %s", strings.Join(args, " "), c.id, err, out)
	}
	return out, err
}

func (c container) signal(sig syscall.Signal) error {
	_, err := c.docker("kill", "--signal", strconv.Itoa(int(sig)))
	return err
}

func (c container) kill(done <-chan struct{}) {
	_ = c.signal(syscall.SIGKILL)
	<-done
	c.remove()
}

func (c container) wait() error { _, err := c.docker("wait"); return err }
func (c container) pause()      { _, _ = c.docker("pause") }
func (c container) resume()     { _, _ = c.docker("unpause") }
func (c container) remove()     { _, _ = c.docker("rm", "--force", "--volumes") }
func (c container) log() []byte { log, _ := c.docker("logs", "--tail", "50"); return log }
