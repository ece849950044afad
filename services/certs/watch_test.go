package certs

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
	"github.com/stoker-k8s/stoker/services/certs/internal/generator"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

func TestOfAPartitionThatIsGainedWhatIsMissingIsTold(t *testing.T) {
	admin, limited, _ := cluster(t)
	tenant := func(p int) events.Key {
		for i := 0; ; i++ {
			if key := events.Tenant("default", fmt.Sprintf("t%d", i)); key.Partition() == p {
				return key
			}
		}
	}
	write := func(key events.Key, note string) {
		t.Helper()
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: name.CA(key.Name), Annotations: map[string]string{"note": note}, Labels: map[string]string{
				name.LabelName: key.Name, name.LabelPartition: fmt.Sprint(key.Partition()),
			},
		}}
		if err := admin.Apply(t.Context(), kube.Secrets, o); err != nil {
			t.Fatal(err)
		}
		// Lists and watches are of what the server has in memory, where a write comes after its answer.
		poll.True(t, "the server has it in memory", func() bool {
			all, err := admin.Metadata(t.Context(), kube.Secrets, name.LabelName+"="+key.Name)
			return err == nil && len(all) == 1 && !kube.Older(all[0].ResourceVersion, o.ResourceVersion)
		})
	}
	lost, stays, gained := tenant(1), tenant(2), tenant(3)
	for _, key := range []events.Key{lost, stays, gained} {
		write(key, "")
	}
	for len(listedMetadata) > 0 {
		<-listedMetadata
	}
	s := newService(nil, limited, testLog())
	held, woken := partition.Of(1, 2), make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.watchSecrets(ctx, held, func(key events.Key, w loop.Wake) { woken <- fmt.Sprintf("%s %s %t", key.Name, w.Object, w.Gone) })
	}()
	await := func(what string, of ...events.Key) {
		t.Helper()
		var want, got []string
		for _, key := range of {
			for component := range pki.All(key.Name) {
				want = append(want, fmt.Sprintf("%s %s %t", key.Name, component, component != name.ComponentCA))
			}
		}
		for range want {
			got = append(got, <-woken)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: woken %q, want %q", what, got, want)
		}
	}
	await("at first", lost, stays)
	write(gained, "while another replica holds it")
	held.Hold([]int{2, 3})
	await("of what was gained", gained)
	write(lost, "which another replica holds now")
	write(stays, "after it moved")
	if got, want := <-woken, stays.Name+" "+name.ComponentCA+" false"; got != want {
		t.Errorf("of what stays: woken %q, want %q", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var lists []string
	for len(listedMetadata) > 0 {
		lists = append(lists, <-listedMetadata)
	}
	in := name.LabelPartition + " in "
	if !slices.Equal(lists, []string{in + "(1,2)", in + "(3)"}) {
		t.Errorf("listed %q", lists)
	}
}

func TestWhatAWatchSawIsNewsOrAnEcho(t *testing.T) {
	t.Parallel()
	seen := func(component, version string, gone bool) loop.Wake {
		return loop.Wake{Kind: wakeSecret, Object: component, Version: version, Gone: gone}
	}
	generated := func(n, version string, gone bool) []loop.Wake {
		return []loop.Wake{{Kind: generator.WakeKubeconfig, Object: n, Version: version, Gone: gone}}
	}
	known := &state.Certs{
		Secrets:   map[string]state.Secret{name.ComponentCA: {ResourceVersion: "20"}, "b": {ResourceVersion: "opaque"}},
		Generated: map[string]state.Generated{"viewer": {Secret: state.Secret{ResourceVersion: "30"}}},
	}
	for sentence, test := range map[string]struct {
		wakes []loop.Wake
		own   *state.Certs
		news  bool
	}{
		"what was written last is an echo":              {[]loop.Wake{seen(name.ComponentCA, "20", false)}, known, false},
		"so is what was written before":                 {[]loop.Wake{seen(name.ComponentCA, "9", false)}, known, false},
		"and a deletion before it":                      {[]loop.Wake{seen(name.ComponentCA, "19", true)}, known, false},
		"a later version is news":                       {[]loop.Wake{seen(name.ComponentCA, "100", false)}, known, true},
		"a later deletion is news":                      {[]loop.Wake{seen(name.ComponentCA, "21", true)}, known, true},
		"a Secret missing from the first list is news":  {[]loop.Wake{seen(name.ComponentCA, "", true)}, known, true},
		"one piece of news among echoes counts":         {[]loop.Wake{seen(name.ComponentCA, "20", false), seen("b", "x", false)}, known, true},
		"a version that is no number counts if unequal": {[]loop.Wake{seen("b", "other", false)}, known, true},
		"what isn't issued yet can't be missed":         {[]loop.Wake{seen(name.ComponentAdminKubeconfig, "", true)}, known, false},
		"without a state everything is news":            {[]loop.Wake{seen(name.ComponentAdminKubeconfig, "20", false)}, &state.Certs{}, true},
		"a wake nobody understands is looked into":      {[]loop.Wake{{Kind: "x"}}, known, true},
		"a kubeconfig of a generator as it was written": {generated("viewer", "30", false), known, false},
		"a later version of it is news":                 {generated("viewer", "31", false), known, true},
		"one that is gone is news":                      {generated("viewer", "", true), known, true},
		"one nobody knows is the generators' concern":   {generated("other", "31", false), known, false},
		"nothing seen is no news":                       {nil, known, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := drifted(test.wakes, test.own); got != test.news {
				t.Errorf("got %t", got)
			}
		})
	}
}
