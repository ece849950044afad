package datastore

// Orphans: what a DataStore keeps for owners that are no tenant, as after a deletion while it was away. They are found and
// removed when somebody asks (stoker.datastore.orphans and stoker.datastore.drop, `stoker datastores orphans`), never by
// themselves: a DataStore that two management clusters share has the other's tenants on record, too.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/store"
)

// questions are the endpoints.
func (s *svc) questions() events.Questions {
	endpoints := s.keeper.Questions()
	endpoints["orphans"] = events.Question{Subject: event.QueryOrphans, Timeout: orphansTimeout, Answer: s.answerOrphans}
	endpoints["drop"] = events.Question{Subject: event.QueryDrop, Timeout: dropTimeout, Answer: s.answerDrop}
	return events.Questions{
		Service: event.DatastoreService, Version: "1.1.0",
		Description: "what DataStores keep for owners that are no tenant, what moves of data would meet, and which backups there are",
		Endpoints:   endpoints,
	}
}

// answerOrphans lists the orphans of one DataStore, or of all.
func (s *svc) answerOrphans(ctx context.Context, question []byte) (any, error) {
	var q event.OrphansQuery
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, &events.Refusal{Code: "400", Message: `send {"dataStore":"…"} or {}`}
	}
	names := []string{q.DataStore}
	if q.DataStore == "" {
		names = nil
		add := func(o *metav1.PartialObjectMetadata) { names = append(names, o.Name) }
		if err := kube.Each(ctx, s.kube, kube.DataStores, "", add); err != nil {
			return nil, err
		}
	}
	reply := event.OrphansReply{Orphans: []event.Orphan{}, Failed: map[string]string{}}
	for _, n := range names {
		orphans, err := s.orphans(ctx, n)
		switch {
		case errors.Is(err, store.ErrNoDataStore) && q.DataStore != "":
			return nil, noSuchDataStore(n)
		case err != nil:
			reply.Failed[n] = err.Error()
		}
		reply.Orphans = append(reply.Orphans, orphans...)
	}
	slices.SortFunc(reply.Orphans, func(a, b event.Orphan) int {
		return cmp.Or(cmp.Compare(a.DataStore, b.DataStore), cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.User, b.User))
	})
	if reply.More = max(len(reply.Orphans)-event.MaxOrphans, 0); reply.More > 0 {
		reply.Orphans = reply.Orphans[:event.MaxOrphans]
	}
	return reply, nil
}

// answerDrop removes orphans of one DataStore.
func (s *svc) answerDrop(ctx context.Context, question []byte) (any, error) {
	var q event.DropQuery
	if err := json.Unmarshal(question, &q); err != nil || q.DataStore == "" || len(q.Orphans) == 0 || len(q.Orphans) > event.MaxOrphans {
		return nil, &events.Refusal{
			Code: "400", Message: `send {"dataStore":"…","orphans":[{"dataStore":"…","owner":"…","schema":"…","user":"…"}]}`,
		}
	}
	reply, err := s.dropOrphans(ctx, q)
	if errors.Is(err, store.ErrNoDataStore) {
		return nil, noSuchDataStore(q.DataStore)
	}
	return reply, err
}

func noSuchDataStore(n string) error {
	return &events.Refusal{Code: "404", Message: "there is no DataStore " + n}
}

// orphans are the accounts of a DataStore whose owners are no tenants. What is on record is read before the tenants are
// listed: so whoever is new has his object among them.
func (s *svc) orphans(ctx context.Context, n string) ([]event.Orphan, error) {
	st, err := s.stores.Loaded(ctx, n)
	if err != nil {
		return nil, err
	}
	var accounts []driver.Account
	var sizes map[string]driver.Size
	if err := st.Do(ctx, func(d driver.Driver) (err error) {
		lister, ok := d.(driver.Lister)
		if !ok {
			return errors.New("its driver lists no accounts")
		}
		if accounts, err = lister.Accounts(ctx); err != nil {
			return err
		}
		if sizer, ok := d.(driver.Sizer); ok {
			sizes, err = sizer.Sizes(ctx)
		}
		return err
	}); err != nil {
		return nil, err
	}
	have, err := s.tenants(ctx)
	if err != nil {
		return nil, err
	}
	var orphans []event.Orphan
	for _, a := range accounts {
		if !have.has(a) {
			size := sizes[a.Schema]
			orphans = append(orphans, event.Orphan{DataStore: n, Schema: a.Schema, User: a.User, Owner: a.Owner, Bytes: size.Bytes, Keys: size.Keys})
		}
	}
	return orphans, nil
}

// dropOrphans removes those of the accounts asked for that are orphans still.
func (s *svc) dropOrphans(ctx context.Context, q event.DropQuery) (reply event.DropReply, err error) {
	still, err := s.orphans(ctx, q.DataStore)
	if err != nil {
		return reply, err
	}
	st := s.stores.Get(q.DataStore)
	for _, o := range q.Orphans {
		d := event.Dropped{Orphan: o}
		if slices.ContainsFunc(still, func(x event.Orphan) bool { return x.Owner == o.Owner && x.Schema == o.Schema && x.User == o.User }) {
			removed, err := st.DropOrphan(ctx, o)
			d.Removed = removed
			if err != nil {
				d.Error = err.Error()
			}
			s.log.Info("orphan dropped", "datastore", q.DataStore, "schema", o.Schema, "user", o.User, "owner", o.Owner,
				"removed", removed, "error", err)
		} else {
			d.Error = "it is no orphan any more: a tenant has it, or it is gone"
		}
		reply.Dropped = append(reply.Dropped, d)
	}
	return reply, nil
}

// claims are what the tenants of the management cluster have or may ask for.
type claims struct{ owners, schemas, users map[string]bool }

// tenants reads from the API server, which knows of all, also of other installations', and of those of which NATS doesn't.
func (s *svc) tenants(ctx context.Context) (claims, error) {
	c := claims{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	err := kube.Each(ctx, s.kube.Unscoped(), kube.TenantControlPlanes, "", c.add)
	if err != nil {
		return c, fmt.Errorf("tenants: %w", err)
	}
	return c, nil
}

// claimant is what of a tenant says which accounts are its.
type claimant struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		DataStoreSchema   string `json:"dataStoreSchema"`
		DataStoreUsername string `json:"dataStoreUsername"`
	} `json:"spec"`
	Status struct {
		Storage struct {
			Setup struct {
				Schema string `json:"schema"`
				User   string `json:"user"`
			} `json:"setup"`
		} `json:"storage"`
	} `json:"status"`
}

func (c claims) add(o *claimant) {
	uid := string(o.UID)
	c.owners[uid] = true
	for _, n := range []string{o.Spec.DataStoreSchema, o.Status.Storage.Setup.Schema, name.DataStoreSchema(o.Namespace, o.Name, uid)} {
		c.schemas[n] = true
	}
	for _, n := range []string{
		o.Spec.DataStoreUsername, name.DataStoreUserLike(o.Spec.DataStoreUsername, o.Namespace, o.Name, uid),
		o.Status.Storage.Setup.User, name.DataStoreUser(o.Namespace, o.Name, uid),
	} {
		c.users[n] = true
	}
}

// has reports whether an account is a tenant's, or has a name that one has or asks for.
func (c claims) has(a driver.Account) bool {
	return c.owners[a.Owner] || a.Schema != "" && c.schemas[a.Schema] || a.User != "" && c.users[a.User]
}
