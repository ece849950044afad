package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/deployments/natsserver"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Annotations of a user's Secret.
const (
	// annotationKeys is the [Config.Keys] that the seed was made for.
	annotationKeys = "stoker.dev/keys"
	// annotationFormer is the public nkey of before, annotationChanged since when it is that (RFC 3339).
	annotationFormer, annotationChanged = "stoker.dev/former", "stoker.dev/changed"
)

// formerCounts is how long nkeys of before count at least: time for the servers to hear of the new ones and for all pods to be replaced.
const formerCounts = time.Hour

// users brings the seeds of all NATS users into the directory, and makes those that are missing or to be changed.
func (b bootstrap) users(ctx context.Context) error {
	if err := os.MkdirAll(b.nats(), 0o700); err != nil {
		return err
	}
	for _, user := range events.Users() {
		if err := b.user(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

// user makes the Secret of one user so.
func (b bootstrap) user(ctx context.Context, user string) error {
	there := &corev1.Secret{}
	secret, file := b.cfg.Name+"-"+user, natsserver.SeedFile(b.nats(), user)
	err := b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, secret, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	made := &corev1.Secret{TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: b.meta(secret), Type: corev1.SecretTypeOpaque}
	made.Annotations = map[string]string{annotationKeys: cmp.Or(b.cfg.Keys, "1")}
	if err != nil {
		if made.Data, err = newSeed(); err != nil {
			return err
		}
		b.say("made Secret " + secret)
		if err := b.kube.Create(ctx, kube.Secrets, made); err != nil {
			return err
		}
		return os.WriteFile(file, made.Data[KeySeed], 0o600)
	}
	public, err := publicKey(there.Data[KeySeed])
	if err != nil {
		return fmt.Errorf("secret %s/%s: key %s: %w: put the seed back, or delete the Secret to have a new one made", b.cfg.Namespace, secret, KeySeed, err)
	}
	made.Data, made.ResourceVersion = there.Data, there.ResourceVersion
	// By the user system the servers are asked to read the accounts again: with a new nkey, which they don't know yet, they couldn't be.
	changes := user != events.UserSystem && cmp.Or(there.Annotations[annotationKeys], "1") != made.Annotations[annotationKeys]
	switch {
	case changes:
		if made.Data, err = newSeed(); err != nil {
			return err
		}
		made.Annotations[annotationFormer], made.Annotations[annotationChanged] = public, time.Now().UTC().Format(time.RFC3339)
		b.former[user] = public
		b.say("changed Secret " + secret + "; the nkey of before counts until the next run in an hour or later")
		err = b.kube.Apply(ctx, kube.Secrets, made)
	case there.Annotations[annotationFormer] == "":
	case stillCounts(there.Annotations[annotationChanged]):
		b.former[user] = there.Annotations[annotationFormer]
	default:
		b.say("the former nkey of Secret " + secret + " doesn't count any more")
		err = b.kube.Apply(ctx, kube.Secrets, made) // without it
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, made.Data[KeySeed], 0o600)
}

// stillCounts reports whether a nkey counts that was replaced at a time. One whose time can't be read doesn't.
func stillCounts(changed string) bool {
	at, err := time.Parse(time.RFC3339, changed)
	return err == nil && time.Since(at) < formerCounts
}

// newSeed is the data of a Secret with a new nkey.
func newSeed() (map[string][]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	return map[string][]byte{KeySeed: seed}, err
}

func publicKey(seed []byte) (string, error) {
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return "", err
	}
	return pair.PublicKey()
}
