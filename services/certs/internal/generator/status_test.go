package generator

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestStatusOfAGenerator(t *testing.T) {
	t.Parallel()
	type kg = v1alpha1.KubeconfigGenerator
	failures := func(n int) []v1alpha1.KubeconfigGeneratorStatusError {
		var all []v1alpha1.KubeconfigGeneratorStatusError
		for i := range n {
			all = append(all, v1alpha1.KubeconfigGeneratorStatusError{Resource: fmt.Sprintf("default/t%03d", n-1-i), Message: "no"})
		}
		return all
	}
	until := now.Add(time.Hour).UTC().Format(time.RFC3339)
	for sentence, test := range map[string]struct {
		change  func(*kg)
		count   count
		ready   metav1.ConditionStatus
		reason  string
		message string
		paused  string // message, empty for no condition
		errors  int
	}{
		"all have theirs": {
			count: count{selected: 3, available: 3}, ready: "True", reason: "Ready",
			message: "all 3 tenants have their kubeconfig",
		},
		"nobody is selected": {
			count: count{}, ready: "True", reason: "NoTenants",
			message: "no tenant is selected",
		},
		"some wait": {
			count: count{selected: 3, available: 1}, ready: "False", reason: "Waiting",
			message: "2 of 3 tenants have no kubeconfig as asked yet: they have no endpoint, are paused, or are being worked on",
		},
		"some failed": {
			count: count{selected: 3, available: 1, failures: failures(2)}, ready: "False", reason: "Failed",
			message: "2 of 3 tenants: no kubeconfig could be made as asked; the first is default/t000: no", errors: 2,
		},
		"of many failures, some": {
			count: count{selected: 300, failures: failures(150)}, ready: "False", reason: "Failed",
			message: "150 of 300 tenants: no kubeconfig could be made as asked; the first is default/t000: no", errors: 100,
		},
		"the generator can't be": {
			change: func(o *kg) { o.Name = "ca" }, ready: "False", reason: "InvalidGenerator",
			message: `metadata.name "ca": Secrets whose names end in -ca are those of tenants' control planes; choose another name`,
		},
		"paused with nothing to do": {
			change: func(o *kg) { o.Annotations = map[string]string{name.AnnotationPaused: ""} },
			count:  count{selected: 1, available: 1}, ready: "True", reason: "Ready",
			message: "all 1 tenants have their kubeconfig",
			paused:  "annotation kamaji.clastix.io/paused: its kubeconfigs are left alone",
		},
		"paused with something": {
			change: func(o *kg) { o.Annotations = map[string]string{name.AnnotationPausedUntil: until} }, count: count{selected: 2, available: 1}, ready: "False", reason: "Paused",
			message: "1 of 2 tenants wait for the end of the pause",
			paused:  "annotation stoker.dev/paused-until: until " + until + " its kubeconfigs are left alone",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if test.change == nil {
				test.change = func(*kg) {}
			}
			s := statusOf(changed(test.change), test.count, v1alpha1.KubeconfigGeneratorStatus{}, now)
			if s.Resources != test.count.selected || s.AvailableResources != test.count.available || s.ObservedGeneration != 3 ||
				len(s.Errors) != test.errors {
				t.Errorf("%+v", s)
			}
			c := s.Conditions[0]
			if c.Type != "Ready" || c.Status != test.ready || c.Reason != test.reason || c.Message != test.message || c.ObservedGeneration != 3 {
				t.Errorf("%+v", c)
			}
			switch {
			case test.paused == "" && len(s.Conditions) != 1:
				t.Errorf("%+v", s.Conditions)
			case test.paused != "" && (len(s.Conditions) != 2 || s.Conditions[1].Type != "Paused" || s.Conditions[1].Message != test.paused):
				t.Errorf("%+v", s.Conditions)
			}
		})
	}
	t.Run("a condition keeps the time of its last transition", func(t *testing.T) {
		t.Parallel()
		g, all := changed(func(*kg) {}), count{selected: 1, available: 1}
		first := statusOf(g, all, v1alpha1.KubeconfigGeneratorStatus{}, now)
		later := statusOf(g, all, first, now.Add(time.Hour))
		if !later.Conditions[0].LastTransitionTime.Equal(&first.Conditions[0].LastTransitionTime) {
			t.Error("it doesn't")
		}
		failed := statusOf(g, count{selected: 1}, later, now.Add(2*time.Hour))
		if !failed.Conditions[0].LastTransitionTime.Equal(new(metav1.NewTime(now.Add(2 * time.Hour)))) {
			t.Error("it keeps that of another status")
		}
	})
}

func TestAGeneratorIsCountedAgainWithinADayWhateverIsLost(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]count{
		"all have theirs": {selected: 3, available: 3}, "some wait": {selected: 3, available: 1}, "nobody is selected": {},
	} {
		for _, news := range []bool{true, false} {
			if after := c.again(news); after <= 0 || after > 24*time.Hour {
				t.Errorf("%s (news: %t): after %s", what, news, after)
			}
		}
	}
	if good := (count{selected: 3, available: 3}).again(false); good < 12*time.Hour {
		t.Errorf("a good one is counted every %s", good)
	}
}
