package robustness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/pki"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// Keeper is a portal that may change DataStores. It makes, changes and deletes one beside those that other actors' tenants are on, in the
// same etcd as otherStore, and has a tenant of its own on it at times. A DataStore that is deleted while its tenant is there must stay
// until the tenant has left.
type Keeper struct {
	*Actor
	client *portal.Client
	admin  *kube.Client
	store  store
}

// store is what a keeper knows of its DataStore.
type store struct {
	exists, going bool // going: it is deleted, and its tenant is still there
	uid, mark     string
	credentials   int // index into clientSecrets
}

// Verbs beside those of commands.
const (
	verbMake   = "make DataStore"
	verbLabel  = "label DataStore"
	verbRotate = "rotate DataStore"
	verbDelete = "delete DataStore"
	verbUse    = "use DataStore"
	verbLeave  = "leave DataStore"
)

// clientSecrets have the administrator's certificates of otherStore's etcd, both signed by its authority.
var clientSecrets = []string{"etcd-" + otherStore + "-client", "etcd-" + otherStore + "-client-2"}

func newKeeper(ctx context.Context, keeper string, client *portal.Client, s *Site, seed uint64, h *History) (*Keeper, error) {
	k := &Keeper{Actor: newActor(keeper, byPortal{client}, seed, 1, h), client: client, admin: s.Admin}
	k.tenants[0].only = keeper
	return k, secondCertificate(ctx, s)
}

// Run changes the DataStore until ctx ends.
func (k *Keeper) Run(ctx context.Context, pause time.Duration) {
	for ctx.Err() == nil {
		wait := time.Duration(k.random.Int64N(int64(2 * pause)))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			k.turn(context.WithoutCancel(ctx), k.nextTurn())
		}
	}
}

// Finish lets a DataStore go that waits for its tenant, and notes what tenant and DataStore must come to.
func (k *Keeper) Finish(ctx context.Context) {
	if k.store.going {
		k.turn(ctx, verbLeave)
	}
	k.Actor.Finish(ctx)
	want := Record{Kind: Expected, By: k.name, Tenant: storePrefix + k.name, What: "Deleted"}
	if k.store.exists {
		want.What, want.UID, want.Mark = "Unused", k.store.uid, k.store.mark
		if k.tenants[0].exists {
			want.What = "Used"
		}
	}
	k.history.Add(want)
}

// nextTurn chooses what fits.
func (k *Keeper) nextTurn() string {
	verbs := []string{verbLabel, verbRotate, verbDelete, verbUse, verbUse}
	switch {
	case k.store.going:
		return verbLeave
	case !k.store.exists:
		return verbMake
	case k.tenants[0].exists:
		verbs = []string{verbLabel, verbRotate, verbDelete, verbLeave}
	}
	return verbs[k.random.IntN(len(verbs))]
}

func (k *Keeper) turn(ctx context.Context, verb string) {
	t := k.tenants[0]
	switch verb {
	case verbUse:
		k.step(ctx, t, event.Apply)
		if t.exists {
			k.step(ctx, t, event.Sleep)
		}
	case verbLeave:
		if k.store.going {
			k.held(ctx)
		}
		k.step(ctx, t, event.Delete)
		if !t.exists && k.store.going {
			k.store = store{}
			k.awaitGone(ctx)
		}
	case verbDelete:
		k.delete(ctx)
	default:
		k.apply(ctx, verb)
	}
}

// asked notes that the DataStore is to be changed, and returns what is to be noted of the end.
func (k *Keeper) asked(verb string, mark func(id string) string) Record {
	k.changes++
	id := fmt.Sprintf("%s-%d", k.name, k.changes)
	r := Record{Kind: Asked, By: k.name, Tenant: storePrefix + k.name, UID: k.store.uid, What: verb, Mark: mark(id), ID: id}
	k.history.Add(r)
	r.At = time.Time{}
	return r
}

// ended notes what became of a change, and reports whether it was carried out.
func (k *Keeper) ended(r Record, accepted portal.Accepted, err error) bool {
	r.Kind, r.UID, r.Generation = Answered, accepted.About.UID, accepted.About.Generation
	var refused *portal.RefusedError
	switch {
	case errors.As(err, &refused) && (r.What != verbDelete || !refused.Has("NotFound")): // not there: carried out, and the note of it lost
		r.Kind, r.Detail = Refused, err.Error()
	case err != nil && refused == nil:
		r.Kind, r.Detail = Unanswered, err.Error()
	}
	k.history.Add(r)
	return r.Kind == Answered
}

// apply makes or changes the DataStore.
func (k *Keeper) apply(ctx context.Context, verb string) {
	want := k.store
	r := k.asked(verb, func(id string) string { return id })
	want.exists, want.mark = true, r.ID
	if verb == verbRotate {
		want.credentials = 1 - want.credentials
	}
	o, err := k.object(ctx, want)
	if err != nil {
		r.Kind, r.Detail = Unanswered, err.Error()
		k.history.Add(r)
		return
	}
	accepted, err := k.client.Apply(ctx, o, portal.ID(r.ID))
	if k.ended(r, accepted, err) {
		k.store = want
		k.store.uid = accepted.About.UID
	}
}

// object is the DataStore as it shall be: like otherStore, whose etcd it shares.
func (k *Keeper) object(ctx context.Context, want store) (*v1alpha1.DataStore, error) {
	o := &v1alpha1.DataStore{}
	if err := retry(ctx, func() error { return k.admin.Get(ctx, kube.DataStores, "", otherStore, o) }); err != nil {
		return nil, err
	}
	o.ObjectMeta = metav1.ObjectMeta{Name: k.name, Labels: map[string]string{markLabel: want.mark}}
	o.Status = v1alpha1.DataStoreStatus{}
	client := o.Spec.TLSConfig.ClientCertificate
	for _, ref := range []*v1alpha1.ContentRef{&client.Certificate, &client.PrivateKey} {
		ref.SecretReference.Name = clientSecrets[want.credentials]
	}
	return o, nil
}

// delete deletes the DataStore. While its tenant is there it must stay.
func (k *Keeper) delete(ctx context.Context) {
	r := k.asked(verbDelete, func(string) string { return "" })
	accepted, err := k.client.Delete(ctx, events.DataStore(k.name), portal.ID(r.ID))
	if !k.ended(r, accepted, err) {
		return
	}
	if k.tenants[0].exists {
		k.store.going = true
		k.held(ctx)
		return
	}
	k.store = store{}
	k.awaitGone(ctx)
}

// held notes it if the DataStore is gone, of which a tenant is still there.
func (k *Keeper) held(ctx context.Context) {
	if k.gone(ctx) {
		k.history.Add(Record{Kind: Lost, Tenant: storePrefix + k.name, Object: "datastores/" + k.name, Detail: "used by " + k.tenants[0].name})
	}
}

func (k *Keeper) gone(ctx context.Context) (gone bool) {
	_ = retry(ctx, func() error {
		err := k.admin.Get(ctx, kube.DataStores, "", k.name, &v1alpha1.DataStore{})
		gone = apierrors.IsNotFound(err)
		if gone {
			return nil
		}
		return err
	})
	return gone
}

// patience is how long everything may take to come to rest.
const patience = 5 * time.Minute

// awaitGone waits until the DataStore is gone: one of its name can't be made before.
func (k *Keeper) awaitGone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil && !k.gone(ctx) {
		<-time.After(200 * time.Millisecond)
	}
}

// retry does something again until the API server answers, or ctx ends.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(200 * time.Millisecond)
	}
}

// secondCertificate makes a Secret with another certificate of the administrator of otherStore's etcd.
func secondCertificate(ctx context.Context, s *Site) error {
	ca, err := pki.OpenAuthority(filepath.Join(s.Local.Dir(), "pki", "etcd-"+otherStore), "") // is there
	if err != nil {
		return err
	}
	pair, err := ca.Issue(pki.Leaf{File: "root-2", Name: "root"})
	if err != nil {
		return err
	}
	return s.Admin.Create(ctx, kube.Secrets, &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: clientSecrets[1]},
		Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key},
	})
}
