package workload

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestActivatorSlice(t *testing.T) {
	s := Subject{UID: "u", Tenant: &state.Tenant{Namespace: "default", Name: "demo"}}
	for sentence, c := range map[string]struct {
		at                      string
		addressType             discoveryv1.AddressType
		address, localAnnotated string
	}{
		"a pod's address":         {"10.1.2.3:20001", discoveryv1.AddressTypeIPv4, "10.1.2.3", ""},
		"one of IPv6":             {"[fd00::1]:20001", discoveryv1.AddressTypeIPv6, "fd00::1", ""},
		"a local stack's":         {"127.0.0.1:20001", discoveryv1.AddressTypeIPv4, documentationIPv4, "127.0.0.1"},
		"a local stack's in IPv6": {"[::1]:20001", discoveryv1.AddressTypeIPv6, documentationIPv6, "::1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := ActivatorSlice(s, netip.MustParseAddrPort(c.at))
			if o.AddressType != c.addressType || o.Endpoints[0].Addresses[0] != c.address || o.Annotations[name.AnnotationLoopback] != c.localAnnotated {
				t.Errorf("%+v", o)
			}
			if o.Labels[discoveryv1.LabelServiceName] != "demo" || *o.Ports[0].Name != Service(s).Spec.Ports[0].Name || *o.Ports[0].Port != 20001 {
				t.Errorf("not of the Service's port: %+v", o)
			}
		})
	}
}

func TestReadyAt(t *testing.T) {
	pod := func(ip string, ready corev1.ConditionStatus, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{Status: corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	pods := []corev1.Pod{
		pod("10.0.0.1", corev1.ConditionTrue), pod("10.0.0.2", corev1.ConditionFalse), pod("10.0.0.3", corev1.ConditionTrue, ending),
		pod("", corev1.ConditionTrue), pod("fd00::1", corev1.ConditionTrue),
	}
	if got := readyAt(pods, 6443); !slices.Equal(got, []string{"10.0.0.1:6443", "[fd00::1]:6443"}) {
		t.Errorf("%v", got)
	}
}
