package certs

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/certs/internal/encryption"
)

// apply is what a turn leaves behind.
func (x *seen) apply(e encrypting) {
	x.before = e.after
	if e.after == nil {
		x.secret = nil
		return
	}
	annotations := map[string]string{}
	if x.secret != nil {
		annotations = x.secret.Annotations
	}
	if e.rotated {
		annotations[name.AnnotationRotate] = "2026-12-01T00:00:00Z"
	}
	annotations[name.AnnotationRewritten] = e.rewritten
	x.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "demo-encryption", Annotations: annotations}, Data: e.data}
}

// turn is one turn and the same once more, as after a crash before the state was written.
func (x *seen) turn(t *testing.T) encrypting {
	t.Helper()
	before := x.before
	e := nextEncryption(*x)
	if e.failure != nil {
		t.Fatal(e.failure.Message)
	}
	x.apply(e)
	if e.after == nil {
		return e
	}
	again := *x
	again.before = before
	if repeated := nextEncryption(again); repeated.failure != nil || repeated.after.Revision != e.after.Revision ||
		repeated.after.Checksum != e.after.Checksum || len(repeated.data) != len(e.data) {
		t.Fatalf("after a crash %+v, not %+v", repeated.after, e.after)
	}
	return e
}

// keyOf is the content of the current configuration.
func (x *seen) keyOf(t *testing.T) string {
	t.Helper()
	return string(x.secret.Data[name.KeyEncryption(x.before.Revision)])
}

func demoTarget() encryption.Target {
	return encryption.Target{Resources: []string{"secrets"}, Provider: v1alpha1.ProviderSecretbox}
}

func TestEncryptionGoesOnOnceAllPodsHaveIt(t *testing.T) {
	t.Parallel()
	x := &seen{target: demoTarget(), running: true, pods: 0}
	var phases []string
	step := func() {
		t.Helper()
		e := x.turn(t)
		if e.after == nil {
			phases = append(phases, "gone")
			return
		}
		phases = append(phases, e.after.Phase)
	}
	step()
	step() // no pod has it: nothing moves
	x.pods = 1
	step()
	if len(x.secret.Data) != 2 {
		t.Errorf("%d configurations: pods that are there keep theirs", len(x.secret.Data))
	}
	x.pods = 2
	step()
	step() // nothing was written anew
	x.rewritten = 2
	step()
	if len(x.secret.Data) != 1 {
		t.Errorf("%d configurations are left", len(x.secret.Data))
	}
	first := x.keyOf(t)
	x.secret.Annotations[name.AnnotationRotate] = ""
	step()
	if x.secret.Annotations[name.AnnotationRotate] == "" {
		t.Error("the rotation would be done again")
	}
	for x.before.Phase != state.EncryptionSettled {
		x.pods = x.before.Revision
		if x.before.Phase == state.EncryptionRewriting {
			x.rewritten = x.before.Revision
		}
		step()
	}
	if x.keyOf(t) == first || strings.Contains(x.keyOf(t), "key1") {
		t.Error("the key of before is still there")
	}
	x.target = encryption.Target{}
	for x.before != nil {
		x.pods = x.before.Revision
		if x.before.Phase == state.EncryptionRewriting {
			x.rewritten = x.before.Revision
		}
		step()
	}
	want := []string{
		"Introducing", "Introducing", "Switching", "Rewriting", "Rewriting", "Settled",
		"Introducing", "Switching", "Rewriting", "Retiring", "Settled",
		"Switching", "Rewriting", "Retiring", "gone",
	}
	if !slices.Equal(phases, want) {
		t.Errorf("%v\n%v", phases, want)
	}
}

func TestALostStateIsMadeFromTheSecret(t *testing.T) {
	t.Parallel()
	x := &seen{target: demoTarget()}
	x.turn(t)
	x.pods, x.rewritten = 1, 1
	x.turn(t)
	x.turn(t)
	key := x.keyOf(t)
	x.before, x.pods, x.rewritten, x.running = nil, 0, 0, true
	if e := x.turn(t); e.after.Revision != 1 || e.after.Phase == state.EncryptionSettled || x.keyOf(t) != key {
		t.Errorf("%+v", e.after)
	}
	x.pods = 1
	if e := x.turn(t); e.after.Phase != state.EncryptionSettled || x.keyOf(t) != key {
		t.Errorf("%+v", e.after)
	}
}

func TestKeysThatAreLostAreNotMadeAnew(t *testing.T) {
	t.Parallel()
	settled := func() *seen {
		x := &seen{target: demoTarget()}
		x.turn(t)
		x.pods, x.rewritten = 1, 1
		x.turn(t)
		return x
	}
	key := name.KeyEncryption(1)
	for what, lose := range map[string]func(*seen){
		"the Secret is gone":                      func(x *seen) { x.secret = nil },
		"it is empty":                             func(x *seen) { x.secret.Data = nil },
		"another key is in it":                    func(x *seen) { x.secret.Data[key] = (&seen{target: demoTarget()}).turn(t).data[key] },
		"it can't be read, and the state is lost": func(x *seen) { x.secret.Data[key], x.before = []byte("kind: x"), nil },
		"it is one of before":                     func(x *seen) { x.before.Revision = 2 },
		"also when the spec asks for no more":     func(x *seen) { x.secret, x.target = nil, encryption.Target{} },
	} {
		x := settled()
		kept := bytes.Clone(x.secret.Data[key])
		lose(x)
		e := nextEncryption(*x)
		if e.failure == nil || e.failure.Reason != reason.EncryptionKeysLost || !e.failure.Permanent || e.data != nil {
			t.Errorf("%s: %+v", what, e)
			continue
		}
		if strings.Contains(e.failure.Message, string(kept)) {
			t.Errorf("%s: a key is in the message", what)
		}
	}
}
