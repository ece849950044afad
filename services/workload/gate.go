// The container of a gate, which stands between the API server and its data while there is a quota, or these move to another DataStore; and
// which pods have one.

package workload

import (
	"context"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// defaultGateImage is the image of the gate unless the service says otherwise: of the same build as the service.
func defaultGateImage() string { return "ghcr.io/stoker-k8s/stoker-gate:" + version.Get().Version }

// Where the gate's things are in its container and the API server's.
const (
	gateSocket  = "unix://" + dirKineSocket + "/gate"
	dirGateFrom = "/etc/stoker/from"
	dirGateTo   = "/etc/stoker/to"
	// portGate is where the gate listens, by itself, once it serves the socket.
	portGate = 8082
	// envPod has the pod's name.
	envPod = "POD_NAME"
)

// gateID is the ID of the move that pods have a gate for; empty for none.
func (in Input) gateID() string {
	if m := in.Datastore.Move; m.Gated() {
		return m.ID
	}
	return ""
}

// hasGate reports whether pods have a gate: for a move, or a quota.
func (in Input) hasGate() bool {
	return in.Datastore.Move.Gated() || in.Tenant.Quota != (state.Quota{})
}

// gateAnnotations roll pods out anew when what their gates connect by is another.
func (in Input) gateAnnotations() map[string]string {
	m := in.Datastore.Move
	if !m.Gated() {
		return nil
	}
	return map[string]string{name.AnnotationStorageMoving: m.Config.Checksum + "-" + m.Certificate.Checksum}
}

// gate returns the container. Like kine, it is an init container that goes on running: the API server begins after it and ends before.
func (in Input) gate() corev1.Container {
	m, spec := in.Datastore.Move, &in.Tenant.Spec.ControlPlane.Deployment
	c := corev1.Container{
		Name: name.ContainerGate, Image: in.GateImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:       []string{"/usr/bin/stoker-gate"},
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Env: []corev1.EnvVar{{Name: envPod, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
		}}},
		VolumeMounts: []corev1.VolumeMount{{Name: name.VolumeKineUDS, MountPath: dirKineSocket}},
		StartupProbe: probeOf(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(portGate)}}, startup),
	}
	managed := flags{"listen": path.Join(dirKineSocket, "gate"), "pod": variable(envPod)}
	if q := in.Tenant.Quota; q != (state.Quota{}) {
		managed["quota-bytes"], managed["quota-objects"] = strconv.FormatInt(q.Bytes, 10), strconv.FormatInt(q.Objects, 10)
	}
	side := func(which, driver, schema string, endpoints []string, kine, dir, volume string) {
		if needsKine(driver) {
			managed[which+"-endpoints"] = kine
			return
		}
		managed[which+"-endpoints"] = urls(endpoints, ",")
		managed[which+"-prefix"] = "/" + schema + "/"
		managed[which+"-ca-file"] = path.Join(dir, name.KeyDatastoreCACert)
		managed[which+"-cert-file"] = path.Join(dir, name.KeyDatastoreCert)
		managed[which+"-key-file"] = path.Join(dir, name.KeyDatastoreKey)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: true})
	}
	d := &in.Datastore
	side("from", d.Driver, d.Schema, d.Endpoints, kineSocket, dirGateFrom, name.VolumeGateFrom)
	if through := in.through(); through != "" {
		managed["through"] = through
	}
	if m.Gated() {
		managed["move"] = m.ID
		if len(m.Resources) > 0 {
			managed["moving"] = movingSocket
		}
		side("to", m.Driver, m.Schema, m.Endpoints, kineMovingSocket, dirGateTo, name.VolumeGateTo)
	}
	c.Args = layer(managed, nil, nil)
	in.customize(&c, customization{
		resources: value(spec.Resources).Kine, security: value(spec.ContainerSecurityContexts).Kine,
	})
	return c
}

// gateVolumes are what the gate connects to etcds by.
func (in Input) gateVolumes() (volumes []corev1.Volume) {
	m, tenant := in.Datastore.Move, in.Tenant.Name
	if !in.hasGate() {
		return nil
	}
	keys := []string{name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey}
	if !needsKine(in.Datastore.Driver) {
		volumes = append(volumes, secretVolume(name.VolumeGateFrom, name.DatastoreCertificate(tenant), keys...))
	}
	if m.Gated() && !needsKine(m.Driver) {
		volumes = append(volumes, secretVolume(name.VolumeGateTo, name.MovingDatastoreCertificate(tenant), keys...))
	}
	return volumes
}

// haveGates notes which gates all pods have, once none is left that has others or none: one that ends serves requests until it has. The
// move waits to hear of it.
func (t *turn) haveGates(ctx context.Context, in Input) {
	id := in.gateID()
	if id == t.data.Gate || t.step != event.Available && t.step != event.Slept {
		return
	}
	pods, listed := t.pods(ctx)
	if !listed || slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		return !ended && p.Annotations[name.AnnotationConfigHash] != t.data.ConfigHash
	}) {
		t.Alarm(lookForPodsAfter, loop.Wake{Kind: wakePods})
		return
	}
	t.data.Gate = id
	if len(t.facts) == 0 {
		t.facts = append(t.facts, loop.Tell{What: t.step, Data: event.WorkloadAvailable{
			About: t.About(), Version: t.data.Version, Replicas: t.data.Replicas, ReadyReplicas: t.data.ReadyReplicas, ConfigHash: t.data.ConfigHash,
		}})
	}
}
