package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

func TestStoppedReplicaChangesNothingWhenItGoesOn(t *testing.T) {
	a := e.Services(t)
	for _, service := range []string{"certs", "workload", "datastore", "addons"} {
		t.Run(service, func(t *testing.T) {
			if service != name.ServiceCerts && service != name.ServiceWorkload {
				env.Long(t)
			}
			t.Parallel()
			b := e.Service(t, service, "b")
			defer b.Remove(t)
			key := events.Tenant("default", "zombie-"+service)
			count := oneCA(t, key)
			sub, err := e.Operator.Conn().SubscribeSync(key.FactSubject("intake", event.Accepted))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			holder, other := holders(t, key, a[service], b)
			began := time.Now()
			e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
			if _, err := sub.NextMsg(time.Minute); err != nil {
				t.Fatal(err)
			}
			// In the middle of its work.
			holder.Signal(syscall.SIGSTOP)
			defer holder.Signal(syscall.SIGCONT)
			inFlight(t, service, key)
			e.Ready(t, key)
			// What the one has before it is no longer what is asked for: if it goes on with it, that shows.
			o := env.Tenant(key.Name, "v1.36.3")
			o.Spec.NetworkProfile.CertSANs = []string{"meanwhile.example"}
			o.Spec.ControlPlane.Service.AdditionalMetadata.Labels = map[string]string{"asked": "meanwhile"}
			o.Spec.ControlPlane.Deployment.AdditionalMetadata.Labels = map[string]string{"asked": "meanwhile"}
			e.Apply(t, o)
			env.Eventually(t, "generation 2", func() error {
				if s := e.State(t.Context(), key, events.KeySpec); s == nil || s.Generation < 2 {
					return errNotYet
				}
				return nil
			})
			e.Ready(t, key)
			// The lease of the one is over: the other holds what it held, and has done it.
			if !other.Holds(t, key) || other.Did(t, key, began).IsZero() {
				t.Errorf("%s %s holds the tenant: %v; did a step at %s", service, other.Replica, other.Holds(t, key), other.Did(t, key, began))
			}
			rolledOut(t, key)
			quiet(t, key)
			before := whole(t, key)
			holder.Signal(syscall.SIGCONT)
			awaitHeartbeats(t, service)
			if diff := before.diff(whole(t, key)); diff != "" {
				t.Errorf("the world changed:\n%s", diff)
			}
			if n := count(); n != 1 {
				t.Errorf("the CA was written %d times", n)
			}
			e.Delete(t, key)
			e.Gone(t, key)
		})
	}
}

// awaitHeartbeats waits until both replicas of a service have told several times that they live: what a zombie would do when it
// goes on, it has done by then.
func awaitHeartbeats(t *testing.T, service string) {
	t.Helper()
	heard := map[string]int{}
	sub, err := e.Operator.Conn().SubscribeSync("$KV." + events.BucketLeases + "." + service + ".beat")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for heard["a"] < 4 || heard["b"] < 4 {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		replica, _, _ := strings.Cut(string(m.Data), " ")
		heard[replica]++
	}
}
