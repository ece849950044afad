package workload

import (
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestMissing(t *testing.T) {
	// As certs of before wrote it: its Inputs end in the generation it has issued for.
	issued := func(generation int64) *state.State {
		return &state.State{Step: event.Issued, Generation: 3, Inputs: fmt.Sprint("abc-", generation)}
	}
	failed := func(s *state.State) *state.State { s.Failure = &state.Failure{}; return s }
	waits := func(s *state.State) *state.State {
		s.Wait = state.Wait{On: name.ServiceWorkload, Reason: reason.EndpointUnknown}
		return s
	}
	provisioned := func() *state.State { return &state.State{Step: event.Provisioned} }
	tests := map[string]struct {
		certs, datastore *state.State
		change           func(*state.Certs, *state.Datastore)
		sleeps           bool
		want             string // the reason
	}{
		"with everything there, nothing is":  {certs: issued(3), datastore: provisioned()},
		"certificates that aren't there are": {datastore: provisioned(), want: reason.KeysNotIssued},
		"certificates for an earlier generation are": {
			certs: &state.State{Step: event.Issued, Generation: 2, Inputs: "abc-2"}, datastore: provisioned(), want: reason.KeysNotIssued,
		},
		"also when their state says that it failed now": {certs: failed(issued(2)), datastore: provisioned(), want: reason.KeysNotIssued},
		"or that it waits":                                 {certs: waits(issued(2)), datastore: provisioned(), want: reason.KeysNotIssued},
		"but not when the failure came later":              {certs: failed(issued(3)), datastore: provisioned()},
		"nor when they were found to be good for this one": {certs: issued(2), datastore: provisioned()},
		"certificates of the first stage only are": {
			certs: waits(&state.State{Generation: 3, Inputs: "abc-3"}), datastore: provisioned(), want: reason.KeysNotIssued,
		},
		"where certs says for which generation it has issued, that counts": {
			certs: failed(&state.State{Step: event.Rotated, Generation: 3, Inputs: "abc"}), datastore: provisioned(),
			change: func(c *state.Certs, _ *state.Datastore) { c.IssuedFor = 3 },
		},
		"and whatever its Inputs end in doesn't": {
			certs: waits(issued(3)), datastore: provisioned(), want: reason.KeysNotIssued,
			change: func(c *state.Certs, _ *state.Datastore) { c.IssuedFor = 2 },
		},
		"an administrator's kubeconfig that isn't there is": {
			certs: issued(3), datastore: provisioned(), want: reason.KeysNotIssued,
			change: func(c *state.Certs, _ *state.Datastore) { delete(c.Secrets, name.ComponentAdminKubeconfig) },
		},
		"a Secret that the spec refers to is": {
			certs: issued(3), datastore: provisioned(), want: reason.SecretUnusable,
			change: func(c *state.Certs, _ *state.Datastore) { delete(c.Referenced, "quota") },
		},
		"data that are being replaced are, for pods": {
			certs: issued(3), datastore: &state.State{}, want: reason.AccountNotProvisioned,
			change: func(_ *state.Certs, d *state.Datastore) { d.Restoring = &state.Restoring{InPlace: "asked"} },
		},
		"but not to keep that there are none": {
			certs: issued(3), datastore: &state.State{}, sleeps: true,
			change: func(_ *state.Certs, d *state.Datastore) { d.Restoring = &state.Restoring{InPlace: "asked"} },
		},
		"a schema that isn't there is": {certs: issued(3), want: reason.AccountNotProvisioned},
		"a client certificate that isn't there is": {
			certs: issued(3), datastore: provisioned(), want: reason.AccountNotProvisioned,
			change: func(_ *state.Certs, d *state.Datastore) { d.Certificate.Checksum = "" },
		},
		"overrides of another spec are": {
			certs: issued(3), datastore: provisioned(), want: reason.OverridesNotProvisioned,
			change: func(_ *state.Certs, d *state.Datastore) {
				d.Overrides = []state.Override{{DataStore: "b", Resources: []string{"/events"}}}
			},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			in := load(t, "settings")
			if test.change != nil {
				test.change(&in.Certs, &in.Datastore)
			}
			if test.sleeps {
				in.Tenant.Spec.ControlPlane.Deployment.Replicas = new(int32)
			}
			if got := missing(3, &in.Tenant.Spec, test.certs, &in.Certs, test.datastore, &in.Datastore); got.Reason != test.want || got.Waits() != (got.On != "") {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}
