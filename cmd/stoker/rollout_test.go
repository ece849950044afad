package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func TestWaveSize(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]int{
		"10% of 100": 10, "10% of 95": 10, "10% of 3": 1, "100% of 7": 7, "3 of 100": 3, "3 of 1": 3, "0% of 10": 1,
		"0 of 10": 0, "-1 of 10": 0, "-5% of 10": 0, "x of 10": 0, "10 % of 10": 0, " of 10": 0,
	} {
		var all int
		wave, n, _ := strings.Cut(of, " of ")
		if _, err := fmt.Sscan(n, &all); err != nil {
			t.Fatal(err)
		}
		got, err := waveSize(wave, all)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %d, %v", of, got, err)
		}
	}
}

func TestRemaining(t *testing.T) {
	t.Parallel()
	tenant := func(n, version string, change func(*v1alpha1.TenantControlPlane)) v1alpha1.TenantControlPlane {
		o := v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n, Generation: 2}}
		o.Spec.Kubernetes.Version, o.Status.Kubernetes.Version.Version = version, version
		o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		if change != nil {
			change(&o)
		}
		return o
	}
	sleeping := v1alpha1.VersionSleeping
	todo, done, left := remaining([]v1alpha1.TenantControlPlane{
		tenant("old-b", "v1.35.4", nil),
		tenant("has-it", "v1.36.3", nil),
		tenant("has-it-without-v", "1.36.3", func(o *v1alpha1.TenantControlPlane) { o.Status.Kubernetes.Version.Version = "v1.36.3" }),
		tenant("comes-up", "v1.36.3", func(o *v1alpha1.TenantControlPlane) { o.Status.Kubernetes.Version.Version = "v1.35.4" }),
		tenant("not-ready", "v1.36.3", func(o *v1alpha1.TenantControlPlane) { o.Status.Conditions[0].Status = metav1.ConditionFalse }),
		tenant("seen-before", "v1.36.3", func(o *v1alpha1.TenantControlPlane) { o.Generation = 3 }),
		tenant("asleep", "v1.36.3", func(o *v1alpha1.TenantControlPlane) {
			o.Status.Conditions[0].Status, o.Status.Kubernetes.Version.Status = metav1.ConditionFalse, &sleeping
		}),
		tenant("going", "v1.35.4", func(o *v1alpha1.TenantControlPlane) { o.DeletionTimestamp = &metav1.Time{Time: time.Now()} }),
		tenant("paused", "v1.35.4", func(o *v1alpha1.TenantControlPlane) {
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: "Paused", Status: metav1.ConditionTrue})
		}),
		tenant("old-a", "v1.35.4", nil),
	}, "v1.36.3")
	var order []string
	for _, u := range todo {
		order = append(order, fmt.Sprintf("%s %v", u.tenant.Name, u.asked))
	}
	want := []string{"comes-up true", "not-ready true", "seen-before true", "old-a false", "old-b false"}
	if slices.Sort(order[:min(3, len(order))]); !slices.Equal(order, want) || done != 3 {
		t.Errorf("%q, %d done", order, done)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"default/going is being deleted", "default/paused is paused"}) {
		t.Errorf("left out: %q", left)
	}
}

func TestMistakesInARollout(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		args []string
		says string
	}{
		"no selector":               {[]string{"--version", "v1.36.3"}, "-l"},
		"a selector that isn't one": {[]string{"-l", "a in", "--version", "v1.36.3"}, "label selector"},
		"no version":                {[]string{"-l", "a=b"}, "--version"},
		"a version of nothing":      {[]string{"-l", "a=b", "--version", "latest"}, "must be a version of Kubernetes"},
		"a wave of none":            {[]string{"-l", "a=b", "--version", "v1.36.3", "--wave", "0"}, "--wave 0"},
		"a name":                    {[]string{"demo", "-l", "a=b", "--version", "v1.36.3"}, "unknown command"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if code, _, errs := cli(t, "", append([]string{"rollout"}, c.args...)...); code != exitUsage || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d: %s", code, errs)
			}
		})
	}
}
