// A tenant as a cluster of Argo CD: on request (annotation stoker.dev/argocd-cluster), a Secret in Argo CD's own namespace with the
// credentials of the administrators' kubeconfig. It follows these and the endpoint, is put back when somebody changes it, and goes with
// the request or the tenant. What is in the way is no failure of the tenant: it is in the state, in a condition, and tried again.
// Package argocd knows what is in the Secret.

package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/fence"
	"github.com/stoker-k8s/stoker/pkg/intent"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/certs/internal/argocd"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

// Kinds of wakes about Argo CD's Secrets.
const (
	// wakeCluster: the tenant's changed, or is there although there is no tenant.
	wakeCluster = "Cluster of Argo CD"
	// wakeClusterRetry: it could not be made as asked, which may be possible now.
	wakeClusterRetry = "Cluster of Argo CD again"
)

// clusterLabels select all clusters of Argo CD, ownClusters those that are tenants.
const (
	clusterLabels = name.LabelArgoCDSecretType + "=" + name.ArgoCDSecretCluster
	ownClusters   = name.LabelProject + "=" + name.Project + "," + name.LabelComponent + "=" + name.ComponentArgoCDCluster
)

// unregistered is why Argo CD doesn't know a tenant as it should.
type unregistered struct{ reason, message string }

func (u *unregistered) Error() string { return u.message }

// asksForCluster reports whether a tenant asks to be known to Argo CD. The error says what is wrong with what it says, or with asking.
func (s *svc) asksForCluster(t *state.Tenant) (asks bool, why *unregistered) {
	switch value := t.Annotations[name.AnnotationArgoCDCluster]; {
	case value == "" || value == "false":
		return false, nil
	case value != "true":
		return true, &unregistered{reason.ArgoCDUnreadable, fmt.Sprintf("annotation %s %q is neither true nor false", name.AnnotationArgoCDCluster, value)}
	case s.argocd.Namespace == "":
		return true, &unregistered{reason.ArgoCDOff, "annotation " + name.AnnotationArgoCDCluster + " has no effect: this installation knows of no Argo CD"}
	}
	return true, nil
}

// wantCluster is a tenant's Secret as it must be, by what a state knows: nothing of that before the endpoint is known.
func (s *svc) wantCluster(t *state.Tenant, own *state.Certs) *argocd.Want {
	return &argocd.Want{
		Config: s.argocd, TenantNamespace: t.Namespace, Tenant: t.Name, TenantLabels: t.Labels,
		Server: pki.ServerURL(own.Endpoint), Credentials: own.Secrets[name.ComponentAdminKubeconfig].Checksum,
	}
}

// clusterDue reports whether a tenant's Secret isn't as the state has it, or as it is asked for now.
func (s *svc) clusterDue(t *loop.Turn, own *state.Certs) bool {
	asks, why := s.asksForCluster(t.Tenant)
	has := own.ArgoCD
	if clusterChanged(t.Wakes, has) {
		return true
	}
	switch {
	case !asks || has == nil:
		return asks != (has != nil)
	case why != nil:
		return has.Reason != why.reason
	case own.Endpoint == "":
		return false // the turn that learns of it goes on
	}
	return has.Inputs != s.wantCluster(t.Tenant, own).Inputs()
}

// clusterChanged reports whether watches saw a Secret that isn't as the state has it, or it is time to try again.
func clusterChanged(wakes []loop.Wake, has *state.ArgoCD) bool {
	if has == nil {
		has = &state.ArgoCD{}
	}
	return slices.ContainsFunc(wakes, func(w loop.Wake) bool {
		switch {
		case w.Kind == wakeClusterRetry:
			return true
		case w.Kind != wakeCluster:
			return false
		case w.Gone:
			return has.Name != ""
		}
		return w.Version != has.ResourceVersion && !kube.Older(w.Version, has.ResourceVersion)
	})
}

// register makes a tenant's Secret as it is asked for, or removes it, and notes in r what has become of it. Errors are those that pass by
// themselves.
func (s *svc) register(ctx context.Context, t *loop.Turn, in pki.Input, own *state.Certs, r *pki.Result) error {
	asks, why := s.asksForCluster(t.Tenant)
	has := state.ArgoCD{}
	if own.ArgoCD != nil {
		has = *own.ArgoCD
	}
	var err error
	known := own.ArgoCD != nil || t.Woken(wakeCluster)
	if known && (!asks || why != nil || has.Namespace != "" && has.Namespace != s.argocd.Namespace) {
		if err = s.unregister(ctx, t, &has); err == nil {
			has = state.ArgoCD{Reason: has.Reason, Since: has.Since}
		}
	}
	switch {
	case err != nil:
	case !asks:
		return nil
	case why != nil:
		err = why
	case in.Exposed == nil:
		if has.Name == "" {
			err = &unregistered{reason.Pending, "the endpoint is not known yet"}
		}
	default:
		r.Data.Endpoint = in.Published()
		err = s.ensureCluster(ctx, s.wantCluster(t.Tenant, &r.Data), &has, r)
	}
	return s.noteCluster(t, &has, err, r)
}

// noteCluster notes what has become of a tenant's Secret, and has what isn't as it should be tried again.
func (s *svc) noteCluster(t *loop.Turn, is *state.ArgoCD, err error, r *pki.Result) error {
	r.Data.ArgoCD = is
	if err == nil {
		is.Reason, is.Message, is.Since = "", "", time.Time{}
		return nil
	}
	why := (*unregistered)(nil)
	if !errors.As(err, &why) {
		return err
	}
	if is.Reason == "" {
		is.Since = s.now().UTC()
	}
	is.Reason, is.Message = why.reason, state.ClipMessage(why.message)
	if why.reason != reason.Pending && why.reason != reason.ArgoCDOff && why.reason != reason.ArgoCDUnreadable {
		t.Alarm(min(max(s.now().Sub(is.Since), soonestCluster), latestCluster), loop.Wake{Kind: wakeClusterRetry})
	}
	return nil
}

// ensureCluster makes the Secret so; has is what the state has of it, and becomes what it is.
func (s *svc) ensureCluster(ctx context.Context, w *argocd.Want, has *state.ArgoCD, r *pki.Result) error {
	done := has.Reason == "" && has.Inputs == w.Inputs()
	has.Inputs = w.Inputs()
	found, err := s.readCluster(ctx, w.Namespace, w.Name())
	switch {
	case err != nil:
		return err
	case found != nil && argocd.TenantOf(found) != events.Tenant(w.TenantNamespace, w.Tenant):
		*has = state.ArgoCD{Inputs: has.Inputs, Reason: has.Reason, Since: has.Since}
		return &unregistered{reason.ArgoCDSecretTaken, fmt.Sprintf("Secret %s/%s is not this tenant's, by its labels, and is left as it is; delete it", w.Namespace, w.Name())}
	case found != nil && found.DeletionTimestamp != nil:
		return &unregistered{reason.ArgoCDRefused, fmt.Sprintf("Secret %s/%s is being deleted", w.Namespace, w.Name())}
	case found != nil && done && found.ResourceVersion == has.ResourceVersion:
		return nil
	}
	uid := types.UID("")
	if found != nil {
		uid = found.UID
	}
	anew := found == nil || has.Server != w.Server
	if anew {
		if err := s.clusterTaken(ctx, w, false); err != nil {
			return err
		}
	}
	secret, err := s.clusterSecret(ctx, w, r)
	if err != nil {
		return err
	}
	if err := s.kube.ApplyOnto(ctx, kube.Secrets, secret, uid); err != nil {
		return refusedCluster("write", w.Namespace, w.Name(), err)
	}
	was := has.Secret
	has.Secret = state.Secret{Name: secret.Name, Checksum: name.Checksum(secret.Data), ResourceVersion: secret.ResourceVersion, LastUpdate: was.LastUpdate}
	has.Namespace, has.Server = w.Namespace, w.Server
	if was.Checksum != has.Checksum {
		has.LastUpdate = s.now().UTC()
	}
	if !anew {
		return nil
	}
	// Another may have been made meanwhile, for a tenant that another replica works on: then one of them yields.
	if err := s.clusterTaken(ctx, w, true); err != nil {
		if _, gone := s.kube.DeleteOnly(ctx, kube.Secrets, secret, metav1.DeleteOptions{}); gone != nil {
			return refusedCluster("delete", w.Namespace, w.Name(), gone)
		}
		*has = state.ArgoCD{Inputs: has.Inputs, Reason: has.Reason, Since: has.Since}
		return err
	}
	return nil
}

// clusterTaken is the error when Argo CD knows another cluster by the tenant's URL or name. made says that it knows the tenant, too.
func (s *svc) clusterTaken(ctx context.Context, w *argocd.Want, made bool) error {
	all := &corev1.SecretList{}
	if err := s.kube.List(ctx, kube.Secrets, w.Namespace, clusterLabels, all); err != nil {
		return refusedCluster("list", w.Namespace, "", err)
	}
	if by := w.Taken(all.Items, made); by != "" {
		return &unregistered{reason.ArgoCDClusterTaken, by + " as well; Argo CD would take one cluster for the other"}
	}
	return nil
}

// clusterSecret renders the Secret from the administrators' kubeconfig as it is now.
func (s *svc) clusterSecret(ctx context.Context, w *argocd.Want, r *pki.Result) (*corev1.Secret, error) {
	admin := r.Data.Secrets[name.ComponentAdminKubeconfig]
	o := r.Found[admin.Name]
	if o == nil || o.ResourceVersion != admin.ResourceVersion {
		var err error
		if o, err = s.secrets.Get(ctx, w.TenantNamespace, admin.Name); err != nil {
			return nil, err
		}
	}
	if o == nil || admin.Name == "" {
		return nil, fmt.Errorf("kubeconfig of the administrators of %s: %w", w.Cluster(), intent.ErrStale)
	}
	secret, err := w.Secret(o.Data[name.KeyAdminConf])
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w: %w", admin.Name, err, intent.ErrStale)
	}
	return secret, nil
}

// readCluster reads the metadata of a Secret of Argo CD, nil when it isn't there.
func (s *svc) readCluster(ctx context.Context, namespace, secret string) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	err := s.kube.Get(ctx, kube.Secrets, namespace, secret, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, refusedCluster("read", namespace, secret, err)
	}
	return o, nil
}

// refusedCluster is the error for an answer of the management cluster; one that passes by itself stays as it is.
func refusedCluster(verb, namespace, secret string, err error) error {
	if kube.IsAway(err) || errors.Is(err, fence.ErrFenced) || errors.Is(err, intent.ErrStale) || errors.Is(err, context.Canceled) {
		return err
	}
	return &unregistered{reason.ArgoCDRefused, fmt.Sprintf("%s Secret %s/%s: %v", verb, namespace, secret, err)}
}

// unregister removes a tenant's Secret: where the state has one, else where there may be one. Errors are as those of register; a Secret that
// a finalizer keeps is *[kube.HeldError].
func (s *svc) unregister(ctx context.Context, t *loop.Turn, has *state.ArgoCD) error {
	_, err := s.removeCluster(ctx, t, has)
	if held := (*kube.HeldError)(nil); errors.As(err, &held) {
		return nil // it goes when it is let go
	}
	return err
}

func (s *svc) removeCluster(ctx context.Context, t *loop.Turn, has *state.ArgoCD) (deleted bool, err error) {
	in := []string{s.argocd.Namespace, has.Namespace}
	slices.Sort(in)
	for _, namespace := range slices.Compact(in) {
		if namespace == "" {
			continue
		}
		secret := name.ArgoCDCluster(t.Key.Namespace, t.Key.Name)
		found, err := s.readCluster(ctx, namespace, secret)
		if err != nil {
			return deleted, err
		}
		if found == nil || argocd.TenantOf(found) != t.Key {
			continue
		}
		one, err := s.kube.Remove(ctx, kube.Secrets, found)
		deleted = deleted || one
		if held := (*kube.HeldError)(nil); errors.As(err, &held) {
			return deleted, err
		}
		if err != nil {
			return deleted, refusedCluster("delete", namespace, secret, err)
		}
	}
	return deleted, nil
}

// endCluster removes a tenant's Secret with the tenant and returns its name, or says what is left because the management cluster doesn't let
// certs remove it: that keeps no tenant. *[kube.HeldError] while a finalizer keeps it.
func (s *svc) endCluster(ctx context.Context, t *loop.Turn, own *state.Certs) (removed, left []string, err error) {
	has := own.ArgoCD
	if has == nil {
		has = &state.ArgoCD{}
	}
	deleted, err := s.removeCluster(ctx, t, has)
	if deleted {
		removed = []string{name.ArgoCDCluster(t.Key.Namespace, t.Key.Name)}
	}
	if why := (*unregistered)(nil); errors.As(err, &why) {
		if has.Name == "" {
			return removed, nil, nil // nobody knows of one
		}
		own.ArgoCD = nil
		return removed, []string{"a cluster of Argo CD, Secret " + has.Namespace + "/" + has.Name + ": " + why.message}, nil
	}
	return removed, nil, err
}

// orphanedCluster removes the Secret of a tenant that is no more: one whose finalizer somebody took off left it, for it is in another
// namespace than its owner, where Kubernetes collects nothing.
func (s *svc) orphanedCluster(ctx context.Context, t *loop.Turn) error {
	if !t.Woken(wakeCluster) {
		return nil
	}
	err := s.kube.Get(ctx, kube.TenantControlPlanes, t.Key.Namespace, t.Key.Name, &metav1.PartialObjectMetadata{})
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	err = s.unregister(ctx, t, &state.ArgoCD{})
	if why := (*unregistered)(nil); errors.As(err, &why) {
		s.log.Warn("Argo CD knows a cluster that is no more", "tenant", t.Key.String(), "error", why.message)
		return nil
	}
	return err
}

// registered is the fact of a change that others may see, nil for none.
func registered(about event.About, before, after *state.ArgoCD) *event.CertsRegistered {
	if before == nil {
		before = &state.ArgoCD{}
	}
	is := after
	if is == nil {
		is = &state.ArgoCD{}
	}
	if before.Name == is.Name && before.Server == is.Server && before.Reason == is.Reason && before.Message == is.Message {
		return nil
	}
	fact := &event.CertsRegistered{About: about, Reason: is.Reason, Message: is.Message}
	if is.Name != "" {
		fact.Secret = is.Namespace + "/" + is.Name
	}
	return fact
}

// watchClusters wakes the tenants whose Secrets in Argo CD's namespace change. Without the right to watch it goes on without, and asks
// again: a tenant that asks for one says what is missing.
func (s *svc) watchClusters(ctx context.Context, held *partition.Held, wake loop.Waker) error {
	if s.argocd.Namespace == "" {
		return nil
	}
	changed := func(c kube.Change) {
		key := argocd.TenantOf(c.Object)
		if key.Valid() && s.kube.InScope(kube.Secrets, &metav1.ObjectMeta{Namespace: key.Namespace}) { // else it is another installation's
			wake(key, loop.Wake{Kind: wakeCluster, Object: c.Object.Name, Version: c.Object.ResourceVersion, Gone: c.Type == watch.Deleted})
		}
	}
	k := s.kube.In(s.argocd.Namespace)
	again := time.NewTicker(latestCluster)
	defer again.Stop()
	for {
		err := k.WatchPartitions(ctx, kube.Secrets, kube.PartitionWatch{Held: held, Selector: ownClusters, Changed: changed})
		if !apierrors.IsForbidden(err) {
			return err
		}
		s.log.Warn("clusters of Argo CD are not watched: certs may not watch Secrets in its namespace", "namespace", s.argocd.Namespace, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}
