package data

// A tenant goes to another management cluster, and its data stay where they are, in a database that both reach. Whose they are is on record
// there by the tenant's UID, which is another afterwards. So on the way they belong to a token in the tenant's Secret <t>-datastore-config,
// which goes with it: nothing that is deleted in the first cluster takes them away, and whoever has the Secret has them, also the first
// cluster itself, when the transfer is given up (docs/design/0013-between-clusters.md).

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/services/datastore/account"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// ownerBy is the owner on record of an account that belongs to whoever has a token.
func ownerBy(token []byte) string {
	sum := sha256.Sum256(token)
	return "transfer:" + hex.EncodeToString(sum[:])
}

// PassOn gives the account of a tenant that another management cluster may take over to whoever has the token in its Secret. In that other
// cluster, where the object arrives as it is here, it finds that done once the Secret has arrived, too.
func (k *Keeper) PassOn(ctx context.Context, t *loop.Turn) error {
	own := state.Datastore{}
	if err := t.OwnData(&own); err != nil {
		return err
	}
	if last := t.Own(); own.PassedOn == t.Tenant.Transfer && last.Generation == t.Generation && !last.Failed() && !t.Due() {
		return nil
	}
	if why := own.Untransferable(t.Tenant); why != "" {
		return &intent.Permanent{Reason: reason.NotTransferable, Message: why}
	}
	secret, err := k.accounts.ConfigSecret(ctx, t)
	if err != nil {
		return err
	}
	if secret == nil {
		text := "Secret " + name.DatastoreConfig(t.Key.Name) + ", from the management cluster that the tenant was in"
		return t.Wait(ctx, state.Wait{On: kube.Secrets.Kind, Reason: reason.TransferArriving, Text: text})
	}
	n := cmp.Or(string(secret.Data[name.KeyTransferDataStore]), account.HomeOf(t.Tenant, own))
	st, _, wait, err := k.accounts.Open(ctx, t, n)
	if err != nil {
		return err
	}
	if wait.Waits() {
		return t.Wait(ctx, wait)
	}
	a := driver.Account{Owner: t.UID, Schema: string(secret.Data[name.KeyDBSchema]), User: string(secret.Data[name.KeyDBUser])}
	if secret.Data[name.KeyTransferToken] == nil {
		patched := &corev1.Secret{}
		patch := map[string]any{"metadata": map[string]any{"resourceVersion": secret.ResourceVersion}, "data": map[string][]byte{
			name.KeyTransferToken: []byte(account.Password()), name.KeyTransferDataStore: []byte(n),
		}}
		if err := k.kube.MergePatch(ctx, kube.Secrets, secret.Namespace, secret.Name, patch, patched); err != nil {
			return err
		}
		secret = patched
	}
	err = st.Do(ctx, func(d driver.Driver) error {
		return d.PassOn(ctx, a, ownerBy(secret.Data[name.KeyTransferToken]))
	})
	if err != nil {
		return account.IntentOf(t, st, err)
	}
	own.PassedOn = t.Tenant.Transfer
	if own.DataStore != "" {
		own.Config = k.accounts.Seen(secret, own.Config) // with its password, which stays when the transfer is given up
	}
	return t.Done(ctx, loop.Outcome{Step: event.PassedOn, Inputs: t.Tenant.Transfer, Data: own, Facts: []loop.Tell{{
		What: event.PassedOn, Data: event.DatastorePassedOn{About: t.About(), DataStore: n, Schema: a.Schema, User: a.User},
	}}})
}

// TakeBack takes the account of a tenant that may be taken over no more, or that was in another management cluster, by the token in its Secret,
// and notes that it was made. So it does where nothing is known of the tenant, as after the loss of NATS, and the database says that the account
// in its Secret is its own, with the names that another management cluster gave it. The token is taken off after that is noted
// ([account.Provisioner.Apply]).
func (k *Keeper) TakeBack(ctx context.Context, t *loop.Turn, own *state.Datastore, st *store.Store) error {
	if own.DataStore != "" && own.PassedOn == "" {
		return nil
	}
	secret, err := k.accounts.ConfigSecret(ctx, t)
	if err != nil || secret == nil {
		return err
	}
	token := secret.Data[name.KeyTransferToken]
	a := driver.Account{Owner: t.UID, Schema: string(secret.Data[name.KeyDBSchema]), User: string(secret.Data[name.KeyDBUser])}
	switch in := string(secret.Data[name.KeyTransferDataStore]); {
	case token == nil:
		if usual := account.Of(t.Key, t.UID, t.Tenant, *own); usual.Schema == a.Schema && usual.User == a.User {
			return nil
		}
	case in != st.Name:
		return &intent.Permanent{Reason: reason.TransferredElsewhere, Message: "its data are in DataStore " + in + ", and it was given " + st.Name + " here"}
	default:
		a.Owner = ownerBy(token)
	}
	err = st.Do(ctx, func(d driver.Driver) error { return d.PassOn(ctx, a, t.UID) })
	if taken := (*driver.TakenError)(nil); token == nil && errors.As(err, &taken) {
		return nil // of a Secret that others have written
	}
	if err != nil {
		return account.IntentOf(t, st, err)
	}
	own.DataStore, own.Schema, own.User, own.PassedOn = st.Name, a.Schema, a.User, ""
	// What the tenant was to get before it began its work, or in place of what it had, it got where it was.
	if from, _ := sourceOf(t.Tenant); own.Restored == "" {
		own.Restored = from
	}
	if asked := t.Tenant.InPlace.Request; own.InPlace == nil && asked != "" {
		own.InPlace = &state.Replacing{Request: asked, Over: true}
	}
	return t.Done(ctx, loop.Outcome{Step: event.Provisioned, Data: own})
}
