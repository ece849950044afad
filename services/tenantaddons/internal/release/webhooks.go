package release

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

// slowHook names the tenant's webhook for which the API server most likely has left a write without an answer, and the object: one that refuses
// or fails is named by the API server, for one that says nothing it waits longer than we wait for it. "" for none.
func (o *operation) slowHook(ctx context.Context) (at *subject, hook string) {
	at = o.wire.slowWrite()
	if at == nil {
		return nil, ""
	}
	ask := func(name string, rules []admissionv1.RuleWithOperations) {
		if hook == "" && slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool { return about(r.Rule, at) }) {
			hook = name
		}
	}
	// Reading asks no webhook. The API server asks those first that change objects. What can't be read names none.
	_ = kube.Each(ctx, o.cluster.kube, kube.MutatingWebhookConfigurations, "", func(c *admissionv1.MutatingWebhookConfiguration) {
		for i := range c.Webhooks {
			ask(c.Webhooks[i].Name, c.Webhooks[i].Rules)
		}
	})
	_ = kube.Each(ctx, o.cluster.kube, kube.ValidatingWebhookConfigurations, "", func(c *admissionv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			ask(c.Webhooks[i].Name, c.Webhooks[i].Rules)
		}
	})
	return at, hook
}

// about reports whether a rule is about an object. What narrows it further, as selectors do, isn't looked at.
func about(r admissionv1.Rule, of *subject) bool {
	is := func(one string) func(string) bool {
		return func(s string) bool { return s == "*" || s == "*/*" || s == one }
	}
	return slices.ContainsFunc(r.APIGroups, is(of.Group)) && slices.ContainsFunc(r.APIVersions, is(of.Version)) &&
		slices.ContainsFunc(r.Resources, is(of.Resource))
}
