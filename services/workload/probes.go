// Probes of the control plane's containers, and what the spec changes about their timing. Pure.

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// timing of a probe, in seconds and probes in a row.
type timing struct{ timeout, period, failures int32 }

var (
	// startup probes every second, so that a pod counts as soon as it serves, and gives a slow or busy machine five minutes.
	startup = timing{timeout: 3, period: 1, failures: 300}
	// readiness takes a pod out of the Service some six seconds after it stops answering.
	readiness = timing{timeout: 3, period: 2, failures: 3}
	// liveness is for processes that hang for good. A busy machine must not restart API servers, which makes it busier.
	liveness = timing{timeout: 15, period: 10, failures: 8}
)

func probe(path string, port int32, t timing) *corev1.Probe {
	return probeOf(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTPS,
	}}, t)
}

func probeOf(handler corev1.ProbeHandler, t timing) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: handler, TimeoutSeconds: t.timeout, PeriodSeconds: t.period, SuccessThreshold: 1, FailureThreshold: t.failures,
	}
}

// probeAt gives a container the three probes of a component, which is asked on one port: alive at its start and later, and
// ready.
func probeAt(c *corev1.Container, port int32, alive, ready string) {
	c.StartupProbe, c.LivenessProbe = probe(alive, port, startup), probe(alive, port, liveness)
	c.ReadinessProbe = probe(ready, port, readiness)
}

// retimeProbes changes the timing of a container's probes: as all says for all components first, then as one says for this
// one. Either may be nil.
func retimeProbes(c *corev1.Container, all *v1alpha1.ControlPlaneProbes, one *v1alpha1.ProbeSet) {
	if all == nil {
		return
	}
	retime(c.LivenessProbe, all.Liveness)
	retime(c.ReadinessProbe, all.Readiness)
	retime(c.StartupProbe, all.Startup)
	if one != nil {
		retime(c.LivenessProbe, one.Liveness)
		retime(c.ReadinessProbe, one.Readiness)
		retime(c.StartupProbe, one.Startup)
	}
}

func retime(p *corev1.Probe, s *v1alpha1.ProbeSpec) {
	if p == nil || s == nil {
		return
	}
	for _, field := range []struct {
		to   *int32
		from *int32
	}{
		{&p.InitialDelaySeconds, s.InitialDelaySeconds},
		{&p.TimeoutSeconds, s.TimeoutSeconds},
		{&p.PeriodSeconds, s.PeriodSeconds},
		{&p.SuccessThreshold, s.SuccessThreshold},
		{&p.FailureThreshold, s.FailureThreshold},
	} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
}
