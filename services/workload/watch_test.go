package workload

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/loop"
	"github.com/stoker-k8s/stoker/pkg/partition"
)

// tenantIn returns a tenant of a partition.
func tenantIn(p int, prefix string) events.Key {
	for i := 0; ; i++ {
		if key := events.Tenant("default", fmt.Sprintf("%s%d", prefix, i)); key.Partition() == p {
			return key
		}
	}
}

func TestAWatchGoesOnForThePartitionsThatStayWhenOthersMove(t *testing.T) {
	c := sharedCluster(t)
	labels := func(key events.Key) map[string]string {
		return map[string]string{
			name.LabelProject: name.Project, name.LabelName: key.Name, name.LabelPartition: fmt.Sprint(key.Partition()),
		}
	}
	// listed waits until the server has an object in memory, of which lists and watches are: a write comes there after its answer.
	listed := func(r kube.Resource, n, version string) {
		t.Helper()
		poll.Nil(t, r.Plural+" "+n+" is in the server's memory", func() error {
			all, err := c.admin.Metadata(t.Context(), r, "")
			if i := slices.IndexFunc(all, func(o metav1.PartialObjectMetadata) bool { return o.Name == n }); err == nil && n != "" &&
				(i < 0 || kube.Older(all[i].ResourceVersion, version)) {
				err = fmt.Errorf("there is %d of %d", i, len(all))
			}
			return err
		})
	}
	service := func(key events.Key, note string) {
		t.Helper()
		o := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: name.Service(key.Name), Labels: labels(key), Annotations: map[string]string{"note": note},
			},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 6443}}},
		}
		c.must(c.admin.Apply(t.Context(), kube.Services, o))
		listed(kube.Services, o.Name, o.ResourceVersion)
	}
	lost, stays, gained := tenantIn(1, "l"), tenantIn(2, "s"), tenantIn(3, "g")
	missing := []events.Key{tenantIn(1, "ml"), tenantIn(2, "ms"), tenantIn(3, "mg")}
	for _, key := range missing {
		c.tenant(key.Namespace, key.Name)
	}
	for _, key := range []events.Key{lost, stays, gained} {
		c.tenant(key.Namespace, key.Name)
		service(key, "")
	}
	for _, key := range append(missing, lost, stays, gained) {
		listed(kube.TenantControlPlanes, key.Name, "")
	}
	listed(kube.ConfigMaps, "", "")
	listed(kube.Deployments, "", "")
	listed(kube.Ingresses, "", "")

	s, held, woken := newService(c.own, slog.New(slog.DiscardHandler), 1), partition.Of(1, 2), make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.watch(ctx, held, func(key events.Key, w loop.Wake) { woken <- key.Name + " " + w.Kind })
	}()
	await := func(what string, want ...string) {
		t.Helper()
		var got []string
		for range want {
			got = append(got, <-woken)
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: woken %q, want %q", what, got, want)
		}
	}
	in := func(partitions string) []string {
		var all []string
		for _, r := range []string{"configmaps", "deployments", "ingresses", "services"} {
			all = append(all, r+" "+name.LabelPartition+" in ("+partitions+")")
		}
		return append(all, "tenantcontrolplanes ") // of which labels don't tell the partition
	}
	await("at first", lost.Name+" object", stays.Name+" object", missing[0].Name+" missing", missing[1].Name+" missing")
	lists := func(what string, want []string, take func() []string) { // each kind is listed by a goroutine of its own
		t.Helper()
		var got []string
		poll.Nil(t, what, func() error {
			got = append(got, take()...)
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				return fmt.Errorf("it listed %q, want %q", got, want)
			}
			return nil
		})
	}
	lists("the lists at first", in("1,2"), c.lists.take)
	service(gained, "while another replica holds it")
	s.slots.take(lost)
	held.Hold([]int{2, 3})
	await("of what it gained", gained.Name+" object", missing[2].Name+" missing")
	service(lost, "which another replica holds now")
	service(stays, "after it moved")
	await("of what stays", stays.Name+" object")
	// A list of the former partitions began before they moved: a server that is new may not know a version from which a watch begins.
	// The one of all tenants is the same at any time.
	former := func(list string) bool { return slices.Contains(in("1,2"), list) }
	lists("the lists when partitions moved", slices.DeleteFunc(in("3"), former), func() []string { return slices.DeleteFunc(c.lists.take(), former) })
	poll.Nil(t, "lost tenants are forgotten", func() error {
		if slots, _ := s.slots.count(); slots > 0 || s.observed.sees(lost, kindService) {
			return fmt.Errorf("%d slots are held", slots)
		}
		return nil
	})
	held.Hold([]int{2})
	service(stays, "after it moved again")
	await("when partitions were only lost", stays.Name+" object")
	if got := c.lists.take(); len(got) > 0 {
		t.Errorf("when partitions were only lost it listed %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
