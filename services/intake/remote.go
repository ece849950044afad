package intake

// A remote source: objects of another management API are made here, and what becomes of them is told there. pkg/mirror does it; here is how
// it is configured, which objects are this replica's, and that another kubeconfig is taken up.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/mirror"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// Remote says where objects come from that are made here. The zero value is for nowhere. What the fields mean is said by [mirror.Config].
type Remote struct {
	// Kubeconfig is a file, read again when it changes.
	Kubeconfig string
	// Kinds, each as Kind.version.group, and Secrets of each are separated by commas. Without Kinds they are TenantControlPlanes, and
	// KamajiControlPlanes if both APIs have them.
	Kinds, Secrets string
	// SecretRights are what may be done to remote Secrets beside updates: create, watch, or both, separated by commas.
	SecretRights                               string
	Source, Suffix, Domain, Propagation, Grace string
	NamespaceSuffix, NamespacePrefix           string
	// Namespaces is "true" to have namespaces made and deleted here.
	Namespaces string
}

// split are the parts of a list.
func split(list string) (all []string) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// config is the configuration of the mirror, without clients and kinds, and the kinds that are asked for.
func (r *Remote) config(namespace string) (cfg mirror.Config, kinds []schema.GroupVersionKind, err error) {
	if namespace != "" {
		return cfg, nil, errors.New("--remote-kubeconfig can't be used with --namespace: a remote has objects of many namespaces")
	}
	cfg = mirror.Config{
		Source: r.Source, RemoteSuffix: r.Suffix, LocalNamespaceSuffix: r.NamespaceSuffix, NamespacePrefix: r.NamespacePrefix, Domain: r.Domain,
		Propagation: metav1.DeletionPropagation(r.Propagation), Namespaces: r.Namespaces == "true",
	}
	if r.Namespaces != "" && r.Namespaces != "true" && r.Namespaces != "false" {
		return cfg, nil, fmt.Errorf("--remote-namespaces %q: it is true or false", r.Namespaces)
	}
	if r.Grace != "" {
		if cfg.Grace, err = time.ParseDuration(r.Grace); err != nil || cfg.Grace <= 0 {
			return cfg, nil, fmt.Errorf("--remote-grace %q: it is a duration as 10m, more than none", r.Grace)
		}
	}
	for _, right := range split(r.SecretRights) {
		if right != "create" && right != "watch" {
			return cfg, nil, fmt.Errorf("--remote-secret-rights: %q is neither create nor watch", right)
		}
	}
	for _, k := range split(r.Kinds) {
		gvk, _ := schema.ParseKindArg(k)
		if gvk == nil {
			return cfg, nil, fmt.Errorf("--remote-kinds: %q is no Kind.version.group, as TenantControlPlane.v1alpha1.kamaji.clastix.io", k)
		}
		kinds = append(kinds, *gvk)
	}
	return cfg, kinds, nil
}

// source is a remote source that is followed.
type source struct {
	Remote
	mirror  mirror.Config
	kinds   []schema.GroupVersionKind
	local   *kube.Client
	options kube.Options
	// forbidden are namespaces here in which nothing is made, as nothing is commanded there.
	forbidden forbidden
	log       *slog.Logger
}

// newSource returns nil when there is no remote.
func newSource(cfg Config, local *kube.Client, not forbidden, log *slog.Logger, metrics *mirror.Metrics) (*source, error) {
	if cfg.Remote.Kubeconfig == "" {
		return nil, nil //nolint:nilnil // which is how a service is that has none
	}
	m, kinds, err := cfg.Remote.config(cfg.Namespace)
	if err != nil {
		return nil, err
	}
	m.Local, m.Log, m.Metrics = local.As(name.FieldManagerMirror), log, metrics
	return &source{
		Remote: cfg.Remote, mirror: m, kinds: kinds, local: local, forbidden: not, log: log,
		options: kube.Options{FieldManager: name.FieldManagerMirror, WatchFilter: cfg.WatchFilter},
	}, nil
}

// follow mirrors what is in the partitions that are held until ctx ends. It begins anew with each content of the kubeconfig, and waits
// for one that can be used. An error is one of the configuration.
func (s *source) follow(ctx context.Context, held *partition.Held) error {
	defer s.mirror.Metrics.Expect()()
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	for ctx.Err() == nil {
		file := &watchedFile{path: s.Kubeconfig}
		wrong, err := s.once(ctx, held, file)
		if wrong != nil {
			return fmt.Errorf("remote source: %w", wrong)
		}
		if err == nil && ctx.Err() == nil {
			s.log.Info("the remote's kubeconfig has changed and is read again", "file", s.Kubeconfig)
			continue
		}
		if ctx.Err() == nil {
			s.log.Warn("the remote can't be followed yet", "cause", err)
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// once mirrors until the file changes. wrong is an error that doesn't pass, err one that may.
func (s *source) once(ctx context.Context, held *partition.Held, file *watchedFile) (wrong, err error) {
	data, err := file.read()
	if err != nil {
		return nil, err
	}
	remote, err := mirror.Connect(data, s.options)
	if err != nil {
		return nil, err
	}
	defer remote.Close()
	cfg := s.mirror
	if cfg.Kinds, err = s.found(ctx, remote); err != nil {
		return nil, err
	}
	ctx, again := context.WithCancel(ctx)
	defer again()
	cfg.Remote = remote.Observed(func(error) {
		if file.changed() {
			again()
		}
	})
	cfg.Owns = func(namespace, n string) bool {
		return s.forbidden.check(namespace) == nil && slices.Contains(held.Now(), name.Partition(namespace, n))
	}
	moved := make(chan struct{})
	cfg.Again = moved
	var moves sync.WaitGroup
	defer moves.Wait()
	defer again()
	moves.Go(func() {
		for range held.Moves(ctx) {
			select {
			case moved <- struct{}{}:
			case <-ctx.Done():
			}
		}
	})
	return mirror.Run(ctx, cfg), nil
}

// found are the kinds that are mirrored, as the local API has them.
func (s *source) found(ctx context.Context, remote *kube.Client) (all []mirror.Kind, err error) {
	add := func(r kube.Resource) {
		rights := split(s.SecretRights)
		all = append(all, mirror.Kind{
			Resource: r, Secrets: split(s.Secrets), CreateSecrets: slices.Contains(rights, "create"), WatchSecrets: slices.Contains(rights, "watch"),
			Down: withoutRecords,
		})
	}
	for _, k := range s.kinds {
		r, err := s.local.Find(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
		add(r)
	}
	if len(s.kinds) > 0 {
		return all, nil
	}
	add(kube.TenantControlPlanes)
	r := kube.KamajiControlPlanes
	for _, c := range []*kube.Client{s.local, remote} {
		var none *kube.NoKindError
		_, err := c.Find(ctx, r.GroupVersion.WithKind(r.Kind))
		if errors.As(err, &none) {
			s.log.Info("KamajiControlPlanes aren't mirrored: one of the APIs doesn't know them, and is asked again when the remote's kubeconfig changes or intake restarts")
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
	add(r)
	return all, nil
}

// withoutRecords takes off what an installation notes on its own objects, should there be one in the remote cluster, or have been, and what
// clusterctl says there of moving them.
func withoutRecords(o *unstructured.Unstructured) {
	annotations, labels := o.GetAnnotations(), o.GetLabels()
	for _, k := range append(name.Records(), name.LabelDataStore, name.AnnotationBlockMove, name.AnnotationDeleteForMove) {
		delete(annotations, k)
		delete(labels, k)
	}
	o.SetAnnotations(annotations)
	o.SetLabels(labels)
}

// watchedFile is a file that is looked at when it is about to be used. It is safe for concurrent use.
type watchedFile struct {
	path string
	mu   sync.Mutex
	is   stamp
}

func (f *watchedFile) stamp() stamp {
	info, err := os.Stat(f.path)
	if err != nil { // it is being replaced, or gone: what was read stays
		return f.is
	}
	return stamp{info.ModTime(), info.Size()}
}

func (f *watchedFile) read() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.is = f.stamp()
	return os.ReadFile(f.path)
}

// changed reports whether there is something else to read.
func (f *watchedFile) changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stamp() != f.is
}
