package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// webhooks are the kind of object by which the API server knows of webhooks.
var webhooks = kube.Resource{
	GroupVersion: admissionv1.SchemeGroupVersion, Plural: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration",
}

// heldTenant is how the names of tenants begin whose webhook hangs.
const heldTenant = "held-"

// hangWebhook is a fault: a webhook for some tenants takes connections and answers nothing. A portal makes such tenants, one in each
// partition, and takes them back.
func hangWebhook(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
	link, err := NewLink(net.JoinHostPort(s.host(), "0"), s.host()+":0")
	if err != nil {
		return "", nil, err
	}
	link.Hold()
	if err := s.Admin.Create(ctx, webhooks, heldBy(link.Address())); err != nil {
		link.Close()
		return "", nil, err
	}
	client, _, err := s.Portal("/held")
	if err != nil {
		link.Close()
		return "", nil, err
	}
	var asked sync.WaitGroup
	for _, n := range onePerPartition() {
		asked.Go(func() {
			t := tenant{name: n}
			_, _ = client.Apply(context.WithoutCancel(ctx), &t.object().TenantControlPlane) // refused, or taken back
			_, _ = client.Delete(context.WithoutCancel(ctx), events.Tenant(namespace, n))
		})
	}
	return "tenants " + heldTenant + "*", func(ctx context.Context) error {
		_, err := s.Admin.Delete(ctx, webhooks, "", heldTenant+"hook", metav1.DeleteOptions{})
		link.Close()
		asked.Wait()
		client.Close()
		return err
	}, nil
}

// heldBy is a webhook at an address.
func heldBy(address string) *admissionv1.ValidatingWebhookConfiguration {
	none, seconds, url := admissionv1.SideEffectClassNone, int32(10), "https://"+address
	tenants := kube.TenantControlPlanes
	return &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta: webhooks.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Name: heldTenant + "hook"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "held.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, TimeoutSeconds: &seconds,
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "held", Expression: fmt.Sprintf("object.metadata.name.startsWith(%q)", heldTenant),
			}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups:   []string{tenants.GroupVersion.Group},
					APIVersions: []string{tenants.GroupVersion.Version}, Resources: []string{tenants.Plural},
				},
			}},
		}},
	}
}

// onePerPartition are names of tenants, one for each partition.
func onePerPartition() (all []string) {
	seen := map[int]bool{}
	for i := 0; len(seen) < name.Partitions; i++ {
		n := fmt.Sprintf("%s%d", heldTenant, i)
		if p := events.Tenant(namespace, n).Partition(); !seen[p] {
			seen[p] = true
			all = append(all, n)
		}
	}
	return all
}
