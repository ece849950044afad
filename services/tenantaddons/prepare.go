package tenantaddons

// What a TenantAddon's spec comes to: the objects it refers to, the source that is fetched, the revision.

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/tenantaddons/internal/source"
)

// prepared is what a TenantAddon's spec came to. It isn't changed.
type prepared struct {
	revision string
	// source is a hash of what the spec says of the source, digest what its content is, version its name for people.
	source, digest, version string

	spec *tenantaddon.TenantAddonSpec
	in   source.Inputs
}

// sourceOf is a hash of what a spec says of the source; fetched says that it is fetched from elsewhere.
func sourceOf(spec *tenantaddon.TenantAddonSpec) (hash string, fetched bool) {
	data, _ := json.Marshal([]any{spec.Chart, spec.Kustomization, spec.Manifests}) // typed objects can be encoded
	fetched = spec.Chart != nil || spec.Kustomization != nil && spec.Kustomization.URL != "" || spec.Manifests != nil && spec.Manifests.URL != ""
	return events.ID(string(data)), fetched
}

// prepare reads what a TenantAddon refers to and finds out which revision that is. What was fetched for this source before isn't fetched again. The
// error is a *badError when something is to be put right.
func (s *svc) prepare(ctx context.Context, o *tenantaddon.TenantAddon) (*prepared, error) {
	of := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	s.referred.follow(of, refsOf(o)...)
	in, err := s.inputs(ctx, o)
	if err != nil {
		return nil, err
	}
	p := &prepared{spec: o.Spec.DeepCopy(), in: *in}
	p.spec.ReleaseName = releaseName(o)
	hash, fetched := sourceOf(&o.Spec)
	p.source = hash
	if fetched && o.Status.Source == hash && o.Status.Digest != "" {
		if err := source.Check(ctx, p.spec, p.in); err != nil {
			return nil, sourceError(err)
		}
		p.digest, p.version = o.Status.Digest, o.Status.Version
	} else {
		content, err := s.fetch(ctx, p, "", fetched)
		if err != nil {
			return nil, err
		}
		p.digest, p.version = content.Digest, content.Version
	}
	p.revision = source.Revision(p.spec, p.digest, p.in)
	return p, nil
}

// content of what was prepared, fetched if it isn't in memory.
func (s *svc) content(ctx context.Context, p *prepared) (*source.Content, error) {
	_, fetched := sourceOf(p.spec)
	return s.fetch(ctx, p, p.digest, fetched)
}

// errBusy means that something has no place now. The turn is to be repeated soon.
var errBusy = errors.New("too much goes on at once")

// fetch gets the content of a source. Servers that don't answer hold some turns, but never all.
func (s *svc) fetch(ctx context.Context, p *prepared, pinned string, fetched bool) (*source.Content, error) {
	if fetched {
		select {
		case s.fetches <- struct{}{}:
			defer func() { <-s.fetches }()
		default:
			return nil, errBusy
		}
	}
	content, err := s.fetcher.Resolve(ctx, p.spec, p.in, pinned)
	if err != nil {
		return nil, sourceError(err)
	}
	return content, nil
}

// sourceError is what keeps a source from being used.
func sourceError(err error) error {
	if e := (*source.Error)(nil); errors.As(err, &e) {
		return &badError{e.Reason, e.Error()}
	}
	return err
}

// refsOf are the objects that a TenantAddon refers to.
func refsOf(o *tenantaddon.TenantAddon) []ref {
	var all []ref
	add := func(kind kube.Resource, n string) {
		if n != "" {
			all = append(all, ref{kind, types.NamespacedName{Namespace: o.Namespace, Name: n}})
		}
	}
	file, credentials := filesOf(&o.Spec)
	add(kube.ConfigMaps, file)
	add(kube.Secrets, credentials)
	for _, v := range o.Spec.ValuesFrom {
		if v.Kind == kube.Secrets.Kind {
			add(kube.Secrets, v.Name)
		} else {
			add(kube.ConfigMaps, v.Name)
		}
	}
	return all
}

// filesOf are the names of the ConfigMap with the files of a source, and of the Secret with the credentials for it; empty for none.
func filesOf(spec *tenantaddon.TenantAddonSpec) (files, credentials string) {
	switch {
	case spec.Chart != nil:
		return "", spec.Chart.Credentials
	case spec.Kustomization != nil:
		return spec.Kustomization.ConfigMap, spec.Kustomization.Credentials
	case spec.Manifests != nil:
		return spec.Manifests.ConfigMap, spec.Manifests.Credentials
	}
	return "", ""
}

// inputs reads the objects that a TenantAddon refers to. Those that aren't there are none: what that means is the source's to say.
func (s *svc) inputs(ctx context.Context, o *tenantaddon.TenantAddon) (*source.Inputs, error) {
	in := &source.Inputs{}
	files, credentials := filesOf(&o.Spec)
	var err error
	if files != "" {
		if in.Files, err = s.data(ctx, kube.ConfigMaps.Kind, o.Namespace, files); err != nil {
			return nil, err
		}
	}
	if credentials != "" {
		if in.Credentials, err = s.data(ctx, kube.Secrets.Kind, o.Namespace, credentials); err != nil {
			return nil, err
		}
	}
	for _, v := range o.Spec.ValuesFrom {
		data, err := s.data(ctx, v.Kind, o.Namespace, v.Name)
		if err != nil {
			return nil, err
		}
		value, there := data[v.Key]
		if there && value == nil {
			value = []byte{}
		}
		in.ValuesFrom = append(in.ValuesFrom, value)
	}
	return in, nil
}

// data of a ConfigMap or Secret; nil when it isn't there. Secrets of Stoker's own aren't for tenants.
func (s *svc) data(ctx context.Context, kind, namespace, of string) (map[string][]byte, error) {
	if kind == kube.Secrets.Kind {
		o := &corev1.Secret{}
		err := s.kube.Get(ctx, kube.Secrets, namespace, of, o)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case o.Labels[name.LabelProject] == name.Project:
			return nil, invalid("Secret %s/%s is Stoker's own; name another one", namespace, of)
		}
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		return o.Data, nil
	}
	o := &corev1.ConfigMap{}
	err := s.kube.Get(ctx, kube.ConfigMaps, namespace, of, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	all := map[string][]byte{}
	for k, v := range o.Data {
		all[k] = []byte(v)
	}
	for k, v := range o.BinaryData {
		all[k] = v
	}
	return all, err
}
