// Package mirror keeps objects of two clusters in step: in the local one, which nobody need be able to reach, there is an object for each
// that the remote one has; what is asked for comes down (spec, labels, annotations), and how it is goes up (status, Secrets by name). The
// remote API is all that it connects to.
//
// Any kind will do that is namespaced and has a subresource status. The two objects are known for each other by annotations on both, with
// the other's UID, and by a finalizer on the remote one ([name.Mirror]). What comes down is applied by a field manager of its own: labels,
// annotations and fields that only the local object has stay.
//
// look.go is one look at a pair of objects, and reads top to bottom: steps.go and secrets.go have its steps, whose.go says whether the
// local object is the remote one's, remove.go what happens when there is no remote object (any more), census.go when that is believed.
// Of what is away nothing is concluded, and each step can be the last one before a crash. Nothing is kept outside the two clusters.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Config of a mirror.
type Config struct {
	// Local and Remote are the two clusters. The field managers of these clients own what is written; see [kube.Client.As].
	Local, Remote *kube.Client
	// Source names the remote in the records on local objects, so that several remotes can be mirrored into one cluster: at most 63
	// letters, digits and dashes; "remote" if empty. With another name, a mirror takes what it made for another's.
	Source string
	// Kinds that are mirrored, at least one.
	Kinds []Kind

	// RemoteSuffix ends the names of remote objects that are mirrored, and isn't in the names of local ones; others are ignored. So several
	// clusters share what one remote has.
	RemoteSuffix string
	// LocalNamespaceSuffix is appended to the remote namespace for the local one.
	LocalNamespaceSuffix string
	// NamespacePrefix begins the remote namespaces that are looked at. It stays in the names of local ones.
	NamespacePrefix string
	// Propagation of deletions of local objects; Foreground if empty.
	Propagation metav1.DeletionPropagation
	// Namespaces has local namespaces made where they are missing. One that was made so is deleted after the last object for which it
	// was made, unless it holds something else.
	Namespaces bool
	// Domain of finalizer and annotations; [name.MirrorDomain] if empty. With that of another program which did the same before, its
	// objects are taken over.
	Domain string
	// Adopt has local objects taken over that nobody made from the remote. Otherwise they are left as they are, unless the remote object
	// has the annotation Adopt of [name.MirrorKeys].
	Adopt bool

	// Grace is how long a remote object must be missing, while the remote API answers and without a restart, before the local one is
	// deleted; ten minutes if 0. It has nothing to do with remote objects that are deleted as they should be: the finalizer holds those.
	Grace time.Duration
	// MaxMissing is how large a share of the objects of a kind may be missing for any to be deleted; 0.2 if 0. One may always be, all never.
	MaxMissing float64

	// Owns reports whether this process works on a local object, when several share the work; nil: on all. It is asked before each write,
	// too, from several goroutines.
	Owns func(namespace, name string) bool
	// Again has all objects looked at with each value it delivers: what Owns accepts has changed. May be nil.
	Again <-chan struct{}
	// Workers is how many objects are worked on at a time; 4 if 0.
	Workers int

	// Log gets what is done and why something isn't; required.
	Log *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Kind is a kind that is mirrored.
type Kind struct {
	Resource kube.Resource
	// Secrets are names of Secrets in the local namespace that go up when the local object is their controller; {name} in one stands for
	// the local object's name. The remote Secret's name ends in Config.RemoteSuffix.
	Secrets []string
	// CreateSecrets has remote Secrets made that are missing. Otherwise rights to get and update those that exist are enough.
	CreateSecrets bool
	// WatchSecrets has remote Secrets put right when somebody changes them, for which the right to list all is needed. Otherwise they are
	// put right when something of their object changes.
	WatchSecrets bool
	// Down changes what comes down before it is applied; nil: nothing. The object has name, namespace, labels, annotations, and all
	// fields beside metadata and status. The same object must always be changed in the same way.
	Down func(*unstructured.Unstructured)
}

// Run mirrors until ctx ends, through every outage of either API, and returns nil then; before that only errors of the configuration.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	return newMirror(cfg).run(ctx)
}

// complete fills in what has a default and says what is wrong.
func (c *Config) complete() error {
	c.Source = cmp.Or(c.Source, "remote")
	c.Propagation = cmp.Or(c.Propagation, metav1.DeletePropagationForeground)
	c.Domain = cmp.Or(c.Domain, name.MirrorDomain)
	c.Grace, c.MaxMissing, c.Workers = cmp.Or(c.Grace, 10*time.Minute), cmp.Or(c.MaxMissing, 0.2), cmp.Or(c.Workers, 4)
	switch {
	case c.Local == nil || c.Remote == nil:
		return errors.New("mirror: Local and Remote are both needed")
	case c.Log == nil:
		return errors.New("mirror: Log is needed")
	case len(c.Kinds) == 0:
		return errors.New("mirror: Kinds is empty, so there is nothing to do")
	case c.Grace < 0 || c.Workers < 0:
		return fmt.Errorf("mirror: Grace %s and Workers %d must not be negative", c.Grace, c.Workers)
	case c.MaxMissing < 0 || c.MaxMissing > 1:
		return fmt.Errorf("mirror: MaxMissing %g must be a share from 0 to 1", c.MaxMissing)
	}
	if wrong := validation.IsDNS1123Label(c.Source); len(wrong) > 0 {
		return fmt.Errorf("mirror: Source %q: %s", c.Source, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsDNS1123Subdomain(c.Domain); len(wrong) > 0 {
		return fmt.Errorf("mirror: Domain %q: %s", c.Domain, strings.Join(wrong, "; "))
	}
	for what, part := range map[string]string{"RemoteSuffix": c.RemoteSuffix, "LocalNamespaceSuffix": c.LocalNamespaceSuffix} {
		if wrong := validation.IsDNS1123Subdomain("x" + part); len(wrong) > 0 {
			return fmt.Errorf("mirror: %s %q can't end a name: %s", what, part, strings.Join(wrong, "; "))
		}
	}
	switch c.Propagation {
	case metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan:
	default:
		return fmt.Errorf("mirror: Propagation %q is none of Foreground, Background, Orphan", c.Propagation)
	}
	return c.checkKinds()
}

func (c *Config) checkKinds() error {
	seen := map[string]bool{}
	for _, k := range c.Kinds {
		r := k.Resource
		switch {
		case !r.Namespaced:
			return fmt.Errorf("mirror: kind %s of %s isn't namespaced, and can't be mirrored", r.Kind, r.GroupVersion)
		case seen[r.GroupVersion.Group+"/"+r.Kind]:
			return fmt.Errorf("mirror: kind %s of %s is there twice", r.Kind, r.GroupVersion.Group)
		}
		seen[r.GroupVersion.Group+"/"+r.Kind] = true
		for _, s := range k.Secrets {
			if wrong := validation.IsDNS1123Subdomain(strings.ReplaceAll(s, namePlace, "x")); len(wrong) > 0 {
				return fmt.Errorf("mirror: Secret %q of kind %s: %s", s, r.Kind, strings.Join(wrong, "; "))
			}
		}
	}
	return nil
}

// mirror is a running one.
type mirror struct {
	Config
	keys  name.MirrorKeys
	queue *queue
	index index
	away  [2]sideState // of local and remote
	mu    sync.Mutex   // guards away
	// census is the last complete list of each kind.
	census []census
}

func newMirror(cfg Config) *mirror {
	m := &mirror{Config: cfg, keys: name.Mirror(cfg.Domain), queue: newQueue(), census: make([]census, len(cfg.Kinds))}
	m.index.kinds = make([]kindIndex, len(cfg.Kinds))
	m.Local = cfg.Local.Observed(func(err error) { m.saw(local, err) })
	m.Remote = cfg.Remote.Observed(func(err error) { m.saw(remote, err) })
	return m
}

// run ends when ctx does and all that it started has ended.
func (m *mirror) run(ctx context.Context) error {
	stop := m.Metrics.serve(m)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	m.watches(ctx, g)
	g.Go(func() error { <-ctx.Done(); m.queue.ShutDown(); return nil })
	for range m.Workers {
		g.Go(func() error {
			for m.work(ctx) {
			}
			return nil
		})
	}
	return g.Wait()
}
