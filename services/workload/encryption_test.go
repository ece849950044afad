package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestEachConfigurationOfTheEncryptionIsARolloutOfItsOwn(t *testing.T) {
	t.Parallel()
	in := load(t, "minimal")
	plain := hash(Deployment(in))
	with := func(e state.Encryption) Input {
		in := in
		in.Certs.Encryption = &e
		return in
	}
	one, two := Deployment(with(state.Encryption{Revision: 1, Checksum: "a"})), Deployment(with(state.Encryption{Revision: 2, Checksum: "b"}))
	if a, b := one.Spec.Template.Annotations[name.AnnotationConfigHash], two.Spec.Template.Annotations[name.AnnotationConfigHash]; a == b {
		t.Error("pods with another configuration have the same config hash")
	}
	if hash(Deployment(with(state.Encryption{Revision: 3, Off: true}))) != plain {
		t.Error("without encryption, pods are others than those that never had any")
	}
	if phase := with(state.Encryption{Revision: 1, Checksum: "a", Phase: state.EncryptionSettled}); hash(Deployment(phase)) != hash(one) {
		t.Error("another phase starts pods anew")
	}
	args := strings.Join(containerOf(t, one.Spec.Template.Spec, name.ContainerAPIServer).Args, " ")
	if !strings.Contains(args, "--encryption-provider-config=/etc/kubernetes/encryption/encryption.yaml") {
		t.Error(args)
	}
	for _, v := range one.Spec.Template.Spec.Volumes {
		if v.Name == name.VolumeAPIServerEncryption {
			if s := v.Secret; s.SecretName != "demo-encryption" || len(s.Items) != 1 || s.Items[0].Key != "encryption-1.yaml" {
				t.Errorf("%+v", s)
			}
			return
		}
	}
	t.Error("the configuration isn't mounted")
}

func containerOf(t *testing.T, pod corev1.PodSpec, n string) corev1.Container {
	t.Helper()
	for _, c := range pod.Containers {
		if c.Name == n {
			return c
		}
	}
	t.Fatalf("there is no container %s", n)
	return corev1.Container{}
}

func TestPodsOfAnotherConfiguration(t *testing.T) {
	t.Parallel()
	pod := func(label string, phase corev1.PodPhase, ending bool) corev1.Pod {
		p := corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		if label != "" {
			p.Labels = map[string]string{name.PodChecksumLabel(name.ChecksumEncryption): label}
		}
		if ending {
			p.DeletionTimestamp = new(metav1.Now())
		}
		return p
	}
	for sentence, test := range map[string]struct {
		pods  []corev1.Pod
		label string
		want  bool
	}{
		"none of none":                                {nil, "a", false},
		"those that are to be":                        {[]corev1.Pod{pod("a", corev1.PodRunning, false)}, "a", false},
		"one that had none before":                    {[]corev1.Pod{pod("a", corev1.PodRunning, false), pod("", corev1.PodRunning, false)}, "a", true},
		"one that is about to end serves until then":  {[]corev1.Pod{pod("b", corev1.PodRunning, true)}, "a", true},
		"one that has ended doesn't":                  {[]corev1.Pod{pod("b", corev1.PodSucceeded, true), pod("b", corev1.PodFailed, false)}, "a", false},
		"one that is pending may begin":               {[]corev1.Pod{pod("b", corev1.PodPending, false)}, "a", true},
		"one that encrypts still, when none is to":    {[]corev1.Pod{pod("a", corev1.PodRunning, false)}, "", true},
		"one that doesn't any more, when none is to ": {[]corev1.Pod{pod("", corev1.PodRunning, false)}, "", false},
	} {
		if got := hasOther(test.pods, test.label); got != test.want {
			t.Errorf("%s: %t", sentence, got)
		}
	}
}
