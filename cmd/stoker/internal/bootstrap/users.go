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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/natsusers"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Annotations of a user's Secret.
const (
	// annotationKeys is the [Config.Keys] that the seed was made for.
	annotationKeys = "stoker.dev/keys"
	// annotationFormer is the public nkey of before.
	annotationFormer = "stoker.dev/former"
)

// annotationChanged is when the data of a Secret or ConfigMap was changed (RFC 3339).
const annotationChanged = "stoker.dev/changed"

// formerCounts is how long nkeys and authorities of before count at least: time for kubelets to bring the new ones, for the servers to
// read them, and for all pods to be replaced.
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
	secret, file := b.cfg.Name+"-"+user, natsusers.SeedFile(b.nats(), user)
	err := b.kube.Get(ctx, kube.Secrets, b.cfg.Namespace, secret, there)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	made := b.secret(secret, corev1.SecretTypeOpaque, nil)
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
		made.Annotations[annotationFormer], made.Annotations[annotationChanged] = public, now()
		b.former[user] = public
		b.say("changed Secret " + secret + "; the nkey of before counts until the next run in an hour or later")
		err = b.replace(ctx, made)
	case there.Annotations[annotationFormer] == "":
	case time.Since(changedAt(there)) < formerCounts:
		b.former[user] = there.Annotations[annotationFormer]
	default:
		b.say("the former nkey of Secret " + secret + " doesn't count any more")
		err = b.replace(ctx, made) // without it
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, made.Data[KeySeed], 0o600)
}

// now is the time as annotations have it.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

// changedAt is when an object was changed; one that doesn't say it was long ago.
func changedAt(o metav1.Object) time.Time {
	at, err := time.Parse(time.RFC3339, o.GetAnnotations()[annotationChanged])
	if err != nil {
		return time.Time{}
	}
	return at
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
