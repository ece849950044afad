package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// waiter waits for the Jobs and Pods of hooks to end, and for hooks that are deleted to be gone: Helm makes the next one of the same name then.
// Of anything else it waits for nothing: whether a release works is watched afterwards.
type waiter struct {
	hook, gone func(*kube.Resource, *unstructured.Unstructured, time.Duration) error
}

// Wait waits for nothing.
func (w *waiter) Wait(helmkube.ResourceList, time.Duration) error { return nil }

// WaitWithJobs waits for nothing.
func (w *waiter) WaitWithJobs(helmkube.ResourceList, time.Duration) error { return nil }

// WaitForDelete waits until hooks are gone.
func (w *waiter) WaitForDelete(list helmkube.ResourceList, timeout time.Duration) error {
	return each(list, timeout, func(u *unstructured.Unstructured) bool { return u.GetAnnotations()[release.HookAnnotation] != "" }, w.gone)
}

// WatchUntilReady waits until hooks have ended.
func (w *waiter) WatchUntilReady(list helmkube.ResourceList, timeout time.Duration) error {
	return each(list, timeout, func(u *unstructured.Unstructured) bool {
		gk := u.GroupVersionKind().GroupKind().String()
		return gk == "Job.batch" || gk == "Pod"
	}, w.hook)
}

func each(
	list helmkube.ResourceList, timeout time.Duration, which func(*unstructured.Unstructured) bool,
	do func(*kube.Resource, *unstructured.Unstructured, time.Duration) error,
) error {
	for _, info := range list {
		if u, ok := info.Object.(*unstructured.Unstructured); ok && which(u) {
			if err := do(resourceOf(info), u, timeout); err != nil {
				return err
			}
		}
	}
	return nil
}

// errGone means that an object that is waited for isn't there.
var errGone = errors.New("it is gone")

// await watches an object until done says so, with the error that it returns; errGone when it isn't there, and the cause of ctx's end.
func (c *Cluster) await(
	ctx context.Context, r *kube.Resource, namespace, name string, done func(*unstructured.Unstructured) (bool, error),
) error {
	if ended, err := c.look(ctx, r, namespace, name, done); ended || err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	changed, watched := make(chan struct{}, 1), make(chan error, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	go func() {
		watched <- c.kube.WatchNamedListed(ctx, *r, namespace, name, func(kube.Change) { tell() }, tell)
	}()
	var err error
	for ended := false; !ended && err == nil; {
		select {
		case <-changed:
			ended, err = c.look(ctx, r, namespace, name, done)
		case err = <-watched:
			end()
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	end()
	<-watched
	return err
}

// look asks done about an object. That the API doesn't answer is no error: the watch tells when it does.
func (c *Cluster) look(
	ctx context.Context, r *kube.Resource, namespace, name string, done func(*unstructured.Unstructured) (bool, error),
) (bool, error) {
	u, err := c.get(ctx, r, namespace, name)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err == nil:
		return done(u)
	case apierrors.IsNotFound(err):
		return false, errGone
	case kube.IsAway(err):
		return false, nil
	}
	return false, err
}

// errInTime is the end of the time that something may take.
var errInTime = errors.New("it didn't end in time")

// awaitGone waits until an object is gone that is being deleted. After the timeout it returns an [*Error] of a reason, which calls the object what
// and names the finalizers that hold it up.
func (o *operation) awaitGone(
	ctx context.Context, r *kube.Resource, u metav1.Object, timeout time.Duration, reason, what string,
) error {
	ctx, end := context.WithTimeoutCause(ctx, timeout, errInTime)
	defer end()
	uid, held := u.GetUID(), ""
	err := o.cluster.await(ctx, r, u.GetNamespace(), u.GetName(), func(is *unstructured.Unstructured) (bool, error) {
		if held = ""; len(is.GetFinalizers()) > 0 {
			held = ": it waits for finalizers " + strings.Join(is.GetFinalizers(), ", ")
		}
		return uid != "" && is.GetUID() != uid, nil
	})
	switch {
	case errors.Is(err, errGone):
		return nil
	case errors.Is(err, errInTime):
		return newError(reason, err, "%s is being deleted, and isn't gone after %s%s", what, timeout, held)
	}
	return err
}

// awaitHook waits until the Job or Pod of a hook has ended well.
func (o *operation) awaitHook(ctx context.Context, r *kube.Resource, u *unstructured.Unstructured, timeout time.Duration) error {
	limited, end := context.WithTimeoutCause(ctx, timeout, errInTime)
	defer end()
	ended := jobEnded
	if r.Kind == "Pod" {
		ended = podEnded
	}
	err := o.cluster.await(limited, r, u.GetNamespace(), u.GetName(), ended)
	if err == nil || ctx.Err() != nil {
		return err
	}
	var failed *hookError
	why := ""
	switch {
	case errors.As(err, &failed):
		why = failed.Error()
	case errors.Is(err, errGone):
		why = "somebody has deleted it"
	case errors.Is(err, errInTime):
		why = fmt.Sprintf("it didn't end within %s", timeout)
	default:
		return err
	}
	if detail := o.podsOf(ctx, r, u); detail != "" {
		why += "; " + detail
	}
	return newError(tenantaddon.ReasonHookFailed, err, "hook %s: %s", refOf(u), why)
}

// hookError is how a hook has failed.
type hookError struct{ why string }

func (e *hookError) Error() string { return e.why }

func jobEnded(u *unstructured.Unstructured) (bool, error) {
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, job); err != nil {
		return false, err
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return true, nil
		case c.Type == batchv1.JobFailed:
			return true, &hookError{"it has failed: " + c.Reason + ": " + c.Message}
		}
	}
	return false, nil
}

func podEnded(u *unstructured.Unstructured) (bool, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return false, err
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return true, nil
	case corev1.PodFailed:
		return true, &hookError{strings.TrimSuffix("it has failed: "+pod.Status.Reason+" "+pod.Status.Message, ": ")}
	}
	return false, nil
}

// podsOf says what is wrong with the first pod of a hook that something is wrong with, as far as that can be found out.
func (o *operation) podsOf(ctx context.Context, r *kube.Resource, u *unstructured.Unstructured) string {
	var pods corev1.PodList
	if r.Kind == "Pod" {
		pods.Items = make([]corev1.Pod, 1)
		_ = o.cluster.kube.Get(ctx, kube.Pods, u.GetNamespace(), u.GetName(), &pods.Items[0])
	} else {
		_ = o.cluster.kube.List(ctx, kube.Pods, u.GetNamespace(), batchv1.JobNameLabel+"="+u.GetName(), &pods)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return fmt.Sprintf("Pod %s: %s: %s", pod.Name, c.Reason, c.Message)
			}
		}
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			switch {
			case c.State.Waiting != nil && c.State.Waiting.Reason != "PodInitializing":
				return fmt.Sprintf("Pod %s, container %s: %s: %s", pod.Name, c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
			case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
				return fmt.Sprintf("Pod %s, container %s: exit code %d, %s", pod.Name, c.Name, c.State.Terminated.ExitCode, c.State.Terminated.Reason)
			}
		}
	}
	return ""
}
