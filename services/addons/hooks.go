package addons

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// errHookHangs is of an object that a webhook of the tenant is asked about, while the API server doesn't answer such requests in time.
var errHookHangs = errors.New("the API server doesn't answer in time what it asks the webhook about")

// slowHooks finds the webhooks for which an API server makes us wait. One that refuses or fails is named by the API server; for one that says
// nothing it waits longer than we wait for it. So from the first write that isn't answered in time, the webhooks that are asked about an object are
// taken for the cause, and no other such object is tried: a tenant that hangs takes a turn's time once, not for each object.
type slowHooks struct {
	// seen is set once a write wasn't answered in time.
	seen *atomic.Bool
	// all reads the tenant's webhooks, once. Reading asks no webhook. None when they can't be read: then none is named.
	all func() []hook
}

// hook is a webhook and what it is asked about.
type hook struct {
	name  string
	rules []admissionv1.RuleWithOperations
}

func (c *Cluster) slowHooks(ctx context.Context) slowHooks {
	return slowHooks{seen: &atomic.Bool{}, all: sync.OnceValue(func() []hook { return c.hooks(ctx) })}
}

// before names the webhook for which an object isn't tried.
func (s slowHooks) before(ref Ref) string {
	if !s.seen.Load() {
		return ""
	}
	return s.asked(ref)
}

// after names the webhook for which a write wasn't answered in time, if that is what its error means.
func (s slowHooks) after(ref Ref, err error) string {
	if !apierrors.IsTimeout(err) && !kube.BrokenOff(err) {
		return ""
	}
	s.seen.Store(true)
	return s.asked(ref)
}

// asked names the first webhook that is asked about an object.
func (s slowHooks) asked(ref Ref) string {
	k, err := ref.kind()
	if err != nil {
		return ""
	}
	for _, h := range s.all() {
		if slices.ContainsFunc(h.rules, func(r admissionv1.RuleWithOperations) bool { return matches(r.Rule, k.Resource) }) {
			return h.name
		}
	}
	return ""
}

// matches reports whether a rule is about a resource. What narrows it further, as selectors do, isn't looked at.
func matches(r admissionv1.Rule, of kube.Resource) bool {
	is := func(one string) func(string) bool {
		return func(s string) bool { return s == "*" || s == "*/*" || s == one }
	}
	if r.Scope != nil && *r.Scope != admissionv1.AllScopes && (*r.Scope == admissionv1.NamespacedScope) != of.Namespaced {
		return false
	}
	return slices.ContainsFunc(r.APIGroups, is(of.GroupVersion.Group)) && slices.ContainsFunc(r.APIVersions, is(of.GroupVersion.Version)) &&
		slices.ContainsFunc(r.Resources, is(of.Plural))
}

// hooks are the tenant's webhooks, in the order in which the API server asks them: those that change objects first.
func (c *Cluster) hooks(ctx context.Context) []hook {
	var all []hook
	_ = kube.Each(ctx, c.kube, kube.MutatingWebhookConfigurations, "", func(o *admissionv1.MutatingWebhookConfiguration) {
		for i := range o.Webhooks {
			all = append(all, hook{o.Webhooks[i].Name, o.Webhooks[i].Rules})
		}
	})
	_ = kube.Each(ctx, c.kube, kube.ValidatingWebhookConfigurations, "", func(o *admissionv1.ValidatingWebhookConfiguration) {
		for i := range o.Webhooks {
			all = append(all, hook{o.Webhooks[i].Name, o.Webhooks[i].Rules})
		}
	})
	return all
}
