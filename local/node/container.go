package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/process"
)

const (
	restartFirst = 500 * time.Millisecond // kubelet's is 10 s; a control plane's parts wait for each other by restarting
	restartMax   = 5 * time.Minute
	restartReset = 10 * time.Minute // after so long a run, the next restart is quick again
)

// shell is the machine's own, for containers that run a script, which most images have one for.
const shell = "/bin/sh"

// A container is one container of a pod. Its state is guarded by the pod's mutex.
type container struct {
	pod  *pod
	spec *corev1.Container
	init bool

	begun     chan struct{} // closed when it has started for the first time (after its startup probe)
	beginOnce sync.Once

	state    corev1.ContainerState
	last     corev1.ContainerState
	restarts int32
	started  bool
	ready    bool
	process  Process
}

// newContainer takes over what the pod's status says of a container that ran before this node was started.
func newContainer(p *pod, spec *corev1.Container, statuses []corev1.ContainerStatus, init bool) *container {
	c := &container{pod: p, spec: spec, init: init, begun: make(chan struct{})}
	for _, status := range statuses {
		if status.Name != spec.Name {
			continue
		}
		c.restarts, c.last = status.RestartCount, status.LastTerminationState
		switch {
		case status.State.Terminated != nil:
			c.state = status.State
		case status.State.Running != nil:
			c.state.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 137, Signal: int32(syscall.SIGKILL), Reason: "NodeStopped",
				Message:   "the node was stopped and started again",
				StartedAt: status.State.Running.StartedAt, FinishedAt: metav1.Now(), ContainerID: status.ContainerID,
			}
		}
	}
	return c
}

func (c *container) sidecar() bool {
	return c.init && c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// hasBegun tells whether the container has started once since the pod was taken up.
func (c *container) hasBegun() bool {
	select {
	case <-c.begun:
		return true
	default:
		return false
	}
}

// again tells whether a container that ended with a code is to run again.
func (c *container) again(code int32) bool {
	policy := c.pod.spec.RestartPolicy
	if c.sidecar() {
		policy = corev1.RestartPolicyAlways
	} else if c.init && policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

func (c *container) succeeded() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// change changes the container's state and has it told.
func (c *container) change(f func()) {
	c.pod.mu.Lock()
	f()
	c.pod.mu.Unlock()
	c.pod.changed()
}

func (c *container) wait(reason, message string) {
	c.change(func() {
		if t := c.state.Terminated; t != nil {
			c.last = corev1.ContainerState{Terminated: t}
		}
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		c.ready, c.started = false, false
	})
}

// run runs the container, again and again as the pod's restart policy says, until ctx ends.
func (c *container) run(ctx context.Context, m *mounts) {
	backoff := restartFirst
	if t := c.state.Terminated; t != nil { // of the time before this node was started
		if !c.again(t.ExitCode) {
			return
		}
		c.change(func() { c.restarts++ })
	}
	for {
		p, ok := c.start(ctx, m)
		if !ok {
			return
		}
		message := c.supervise(ctx, m, p)
		exit := p.Exit()
		terminated := &corev1.ContainerStateTerminated{
			ExitCode: int32(exit.Code), Signal: int32(exit.Signal), Reason: "Completed", Message: message,
			StartedAt: metav1.NewTime(p.Started()), FinishedAt: metav1.NewTime(exit.At), ContainerID: containerID(p),
		}
		if exit.Code != 0 {
			terminated.Reason = "Error"
			if terminated.Message == "" {
				terminated.Message = tail(c.log(), 20)
			}
		}
		c.change(func() {
			c.state = corev1.ContainerState{Terminated: terminated}
			c.ready, c.started, c.process = false, false, nil
		})
		if ctx.Err() != nil || !c.again(terminated.ExitCode) {
			return
		}
		if exit.At.Sub(p.Started()) >= restartReset {
			backoff = restartFirst
		}
		c.pod.log.Info("container ended, starting it again", "container", c.spec.Name, "code", exit.Code, "after", backoff)
		if backoff > 4*restartFirst {
			c.pod.warn("BackOff", fmt.Sprintf("container %s ended with code %d, starting it again in %s",
				c.spec.Name, exit.Code, backoff))
			c.wait("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container %s", backoff, c.spec.Name))
		}
		if !sleep(ctx, backoff) {
			return
		}
		c.change(func() { c.restarts++ })
		backoff = min(2*backoff, restartMax)
	}
}

// start gets the container's image and environment and starts it, trying until it succeeds or ctx ends.
func (c *container) start(ctx context.Context, m *mounts) (Process, bool) {
	pause := 250 * time.Millisecond
	for {
		p, reason, err := c.startOnce(ctx, m)
		if err == nil {
			return p, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		c.wait(reason, err.Error())
		c.pod.warn("Failed", fmt.Sprintf("container %s: %s", c.spec.Name, err))
		var unknown *images.UnknownError
		if errors.As(err, &unknown) {
			pause = max(pause, 10*time.Second)
		}
		if !sleep(ctx, pause) {
			return nil, false
		}
		pause = min(2*pause, time.Minute)
	}
}

func (c *container) startOnce(ctx context.Context, m *mounts) (Process, string, error) {
	building := false
	program, err := c.pod.node.cfg.Pull(ctx, c.spec.Image, func(line string, _ bool) {
		building = true
		c.wait("ContainerCreating", line)
	})
	if err != nil {
		return nil, "ErrImagePull", err
	}
	if building {
		c.wait("ContainerCreating", "")
	}
	spec, err := c.plan(ctx, m, program)
	if err != nil {
		return nil, "CreateContainerConfigError", err
	}
	p, err := c.pod.node.cfg.Start(spec)
	if err != nil {
		return nil, "RunContainerError", err
	}
	c.change(func() {
		if t := c.state.Terminated; t != nil {
			c.last = corev1.ContainerState{Terminated: t}
		}
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.Started())}}
		c.process = p
		c.started = c.spec.StartupProbe == nil
		c.ready = c.started && c.spec.ReadinessProbe == nil
	})
	if c.started {
		c.beginOnce.Do(func() { close(c.begun) })
	}
	return p, "", nil
}

// plan turns the container's specification into what to run.
func (c *container) plan(ctx context.Context, m *mounts, program images.Program) (process.Spec, error) {
	if err := c.supported(); err != nil {
		return process.Spec{}, err
	}
	t := translation{address: m.address, paths: m.paths(c.spec)}
	env, err := c.environment(ctx, m)
	if err != nil {
		return process.Spec{}, err
	}
	command := append(append([]string{}, c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) == 0 {
		command = append([]string{program.Name}, command...)
	}
	for i := range command {
		command[i] = expand(command[i], env.get)
	}
	path := filepath.Join(filepath.Dir(program.Path), filepath.Base(command[0]))
	if command[0] == "sh" {
		path = shell
	}
	if _, err := os.Stat(path); err != nil {
		return process.Spec{}, fmt.Errorf("image %s has no program %q", c.spec.Image, command[0])
	}
	home := filepath.Join(c.pod.dir, "home", c.spec.Name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return process.Spec{}, err
	}
	dir := home
	if c.spec.WorkingDir != "" {
		if translated := t.path(c.spec.WorkingDir); translated != c.spec.WorkingDir {
			dir = translated
		}
	}
	env.preset("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env.preset("HOME", home)
	for _, name := range []string{"GOGC", "GOMAXPROCS"} { // most that runs here is written in Go
		if value, ok := os.LookupEnv(name); ok {
			env.preset(name, value)
		}
	}
	return process.Spec{
		Path: path, Args: t.command(filepath.Base(path), command), Env: env.list(t.path), Dir: dir, Log: c.log(),
	}, nil
}

// supported names what would be silently wrong if it were ignored.
func (c *container) supported() error {
	for name, probe := range map[string]*corev1.Probe{
		"startupProbe": c.spec.StartupProbe, "livenessProbe": c.spec.LivenessProbe, "readinessProbe": c.spec.ReadinessProbe,
	} {
		if probe != nil && probe.HTTPGet == nil && probe.TCPSocket == nil {
			return fmt.Errorf("%s: the process node knows httpGet and tcpSocket only", name)
		}
	}
	return nil
}

// supervise waits for the container to end, and makes it end when its probes or ctx say so. It returns why it did.
func (c *container) supervise(ctx context.Context, m *mounts, p Process) string {
	watch, stop := context.WithCancel(ctx)
	var probes sync.WaitGroup
	unhealthy := make(chan string, 1)
	probes.Go(func() { c.probe(watch, m, unhealthy) })
	defer probes.Wait()
	defer stop()
	select {
	case <-p.Done():
		return ""
	case why := <-unhealthy:
		stop()
		c.pod.log.Info("container is unhealthy, stopping it", "container", c.spec.Name, "cause", why)
		c.change(func() { c.ready = false })
		p.Stop(ctx, c.pod.grace(false))
		return why
	case <-ctx.Done():
		stop()
		object, gone := c.pod.latest()
		c.change(func() { c.ready = false })
		p.Stop(context.WithoutCancel(ctx), c.pod.grace(!gone && object.DeletionTimestamp == nil))
		return ""
	}
}

func (c *container) log() string { return filepath.Join(c.pod.dir, c.spec.Name+".log") }

func containerID(p Process) string {
	return fmt.Sprintf("process://%d-%d", p.PID(), p.Started().UnixNano())
}
