// Encryption of what the API server stores: each pod has the configuration that its template names, of the Secret that certs keeps, and
// keeps it also when the Secret has a later one. Which of them is to come next, certs decides once this says that no pod has another.

package workload

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

const (
	dirEncryption  = "/etc/kubernetes/encryption"
	fileEncryption = dirEncryption + "/encryption.yaml"
	flagEncryption = "encryption-provider-config"
)

// askLeftIn is how long after now pods are looked for again that have another configuration of the encryption than they are to have, when
// a rollout has been going on for a while: they are about to end, and no watch tells. One on a lost node may be so for long.
func askLeftIn(since time.Duration) time.Duration {
	return min(max(since/8, time.Second), 30*time.Second)
}

// encrypts reports whether API servers are to have a configuration of the encryption.
func (in Input) encrypts() bool { return in.Certs.Encryption != nil && !in.Certs.Encryption.Off }

func (in Input) encryptionVolume() corev1.Volume {
	return corev1.Volume{Name: name.VolumeAPIServerEncryption, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: name.Encryption(in.Tenant.Name), DefaultMode: new(mode),
		Items: []corev1.KeyToPath{{Key: name.KeyEncryption(in.Certs.Encryption.Revision), Path: "encryption.yaml"}},
	}}}
}

func encryptionMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: name.VolumeAPIServerEncryption, MountPath: dirEncryption, ReadOnly: true}
}

// encryptionLabel is the value of the label that tells the configuration of a pod, empty for none.
func (in Input) encryptionLabel() string {
	if !in.encrypts() {
		return ""
	}
	return in.Certs.Encryption.Checksum
}

// haveEncryption notes the configuration that certs waits for once all pods have it: those that are to be there are ready, and of others
// none is left, also none that is about to end, which serves until then. Where pods can't be listed, it is asked again.
func (t *turn) haveEncryption(ctx context.Context, in Input) {
	e := in.Certs.Encryption
	if e == nil || t.data.Encryption == e.Revision || t.step != event.Available && t.step != event.Slept {
		return
	}
	pods, listed := t.pods(ctx)
	if !listed || hasOther(pods, in.encryptionLabel()) {
		t.Alarm(askLeftIn(t.s.now().Sub(t.data.LastUpdate)), loop.Wake{Kind: wakePods})
		return
	}
	t.data.Encryption = e.Revision
	if !slices.ContainsFunc(t.facts, func(f loop.Tell) bool { return f.What == t.step }) {
		t.facts = append(t.facts, loop.Tell{What: t.step, Data: t.payload(t.step, rollout{})})
	}
}

// hasOther reports whether one of the pods has, or may have, an API server of another configuration. One that has failed or succeeded has
// none any more.
func hasOther(pods []corev1.Pod, label string) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		return !ended && p.Labels[name.PodChecksumLabel(name.ChecksumEncryption)] != label
	})
}
