package addons

// How a machine becomes a node of a tenant, for portals (stoker.join.<namespace>.<name>): a bootstrap token is made inside the tenant, and what
// to run is encrypted to whoever asks. The token is in no log, event or state.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/join"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// answerJoin makes a token and says how a machine joins with it.
func (s *svc) answerJoin(ctx context.Context, subject string, question []byte) (any, error) {
	key := events.ParseQuestionSubject(event.QueryJoin, subject)
	if !key.Valid() || key.Namespace == events.ClusterScoped {
		return nil, refused("400", "the subject must be %s.<namespace>.<name>, of a tenant", event.QueryJoin)
	}
	recipient, life, err := parseJoin(question)
	if err != nil {
		return nil, err
	}
	cluster, err := s.visit(ctx, key)
	if errors.Is(err, errAsleep) {
		return nil, refused("409", "tenant %s sleeps; wake it first", key)
	}
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	published := &corev1.Secret{}
	if err := s.clients.Kube.Get(ctx, kube.Secrets, key.Namespace, name.AdminKubeconfig(key.Name), published); err != nil {
		return nil, fmt.Errorf("kubeconfig of tenant %s: %w", key, err)
	}
	j, err := join.From(published.Data[name.KeyAdminConf])
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of tenant %s: %w", key, err)
	}
	if err := cluster.makeToken(ctx, j, time.Now().Add(life)); err != nil {
		return nil, fmt.Errorf("bootstrap token in tenant %s: %w", key, err)
	}
	s.clients.Log.Info("bootstrap token made for a portal", "tenant", key.String(), "expires", j.Expires)
	sealed, err := seal(j, recipient)
	return event.JoinReply{Sealed: sealed, Expires: j.Expires}, err
}

func refused(code, format string, args ...any) error {
	return &events.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// parseJoin reads the question: who reads the answer, and how long the token is good for. Its errors are *[events.Refusal]s.
func parseJoin(question []byte) (*age.X25519Recipient, time.Duration, error) {
	var q event.JoinQuery
	d := json.NewDecoder(bytes.NewReader(question))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return nil, 0, refused("400", `send {"recipient":"age1…"}: %v`, err)
	}
	recipient, err := age.ParseX25519Recipient(q.Recipient)
	if err != nil {
		return nil, 0, refused("400", "recipient %q: must be a public key of age, as age-keygen prints it (age1…)", events.Clip(q.Recipient))
	}
	if q.ExpirationSeconds == 0 {
		q.ExpirationSeconds = event.DefaultJoinSeconds
	}
	if q.ExpirationSeconds < event.MinJoinSeconds || q.ExpirationSeconds > event.MaxJoinSeconds {
		return nil, 0, refused("400", "expirationSeconds %d: must be from %d to %d", q.ExpirationSeconds, event.MinJoinSeconds, event.MaxJoinSeconds)
	}
	return recipient, time.Duration(q.ExpirationSeconds) * time.Second, nil
}

// makeToken makes a token, unless the tenant has as many as it may.
func (c *Cluster) makeToken(ctx context.Context, j *event.Join, expires time.Time) error {
	var tokens metav1.PartialObjectMetadataList
	if err := c.kube.List(ctx, kube.Secrets, metav1.NamespaceSystem, name.LabelJoinToken, &tokens); err != nil {
		return err
	}
	if len(tokens.Items) >= maxJoinTokens {
		return refused("429", "there are %d already; wait until some expire, or delete some inside the tenant (kubeadm token delete)", len(tokens.Items))
	}
	return join.MakeToken(ctx, c.kube, j, expires, "made for a portal")
}

// seal encrypts how to join, for one reader.
func seal(j *event.Join, to age.Recipient) (string, error) {
	var file bytes.Buffer
	text := armor.NewWriter(&file)
	w, err := age.Encrypt(text, to)
	if err != nil {
		return "", err
	}
	_, err = w.Write(event.Marshal(j))
	err = errors.Join(err, w.Close(), text.Close())
	return file.String(), err
}
