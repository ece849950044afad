package portal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// joinTimeout is a little longer than a token takes at most.
const joinTimeout = 15 * time.Second

// Join has a token made by which machines become nodes of a tenant, good for ttl (a minute to a year; 0: a day), and says what to run on them. The
// answer is encrypted on its way, to a key that is made for it. *[DeniedError] when the portal may not have tokens of the namespace's tenants
// (stoker portal add --join). An *[events.Refusal] with code 404 says that there is no such tenant, with 409 that it sleeps, with 429 that it
// has too many tokens, with 503 that it may be asked again.
func (c *Client) Join(ctx context.Context, namespace, tenant string, ttl time.Duration) (event.Join, error) {
	key := events.Tenant(namespace, tenant)
	if !key.Valid() {
		return event.Join{}, fmt.Errorf("%s can't be the name of a tenant", key)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return event.Join{}, err
	}
	reply, err := ask[event.JoinReply](ctx, c, joinTimeout, name.ServiceAddons, key.JoinSubject(), event.JoinQuery{
		Recipient: identity.Recipient().String(), ExpirationSeconds: int64(ttl / time.Second),
	})
	if err != nil {
		return event.Join{}, fmt.Errorf("join of %s: %w", key, err)
	}
	j, err := unseal(reply.Sealed, identity)
	if err != nil {
		return j, fmt.Errorf("join of %s: the answer: %w", key, err)
	}
	return j, nil
}

func unseal(sealed string, identity age.Identity) (j event.Join, err error) {
	plain, err := age.Decrypt(armor.NewReader(strings.NewReader(sealed)), identity)
	if err != nil {
		return j, err
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(text, &j)
}
