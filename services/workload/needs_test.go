package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
)

func TestMissing(t *testing.T) {
	issued := func() *state.State { return &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-3"} }
	provisioned := func() *state.State { return &state.State{Step: event.Provisioned} }
	tests := map[string]struct {
		certs, datastore *state.State
		change           func(*state.Certs, *state.Datastore)
		want             string // the reason
	}{
		"with everything there, nothing is":             {certs: issued(), datastore: provisioned()},
		"certificates that aren't there are":            {datastore: provisioned(), want: reason.KeysNotIssued},
		"certificates for an earlier generation are":    {certs: &state.State{Step: event.Issued, Generation: 2, Inputs: "abc-2"}, datastore: provisioned(), want: reason.KeysNotIssued},
		"also when their state says that it failed now": {certs: &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-2", Failure: &state.Failure{}}, datastore: provisioned(), want: reason.KeysNotIssued},
		"but not when the failure came later":           {certs: &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-3", Failure: &state.Failure{}}, datastore: provisioned()},
		"certificates of the first stage only are": {
			certs: &state.State{Generation: 3, Inputs: "abc-3", Wait: state.Wait{Text: "workload: the endpoint"}}, datastore: provisioned(), want: reason.KeysNotIssued,
		},
		"an administrator's kubeconfig that isn't there is": {
			certs: issued(), datastore: provisioned(), want: reason.KeysNotIssued,
			change: func(c *state.Certs, _ *state.Datastore) { delete(c.Secrets, name.ComponentAdminKubeconfig) },
		},
		"certificates of an engine that says for which generation are": {
			certs: &state.State{Step: event.Rotated, Generation: 3, Inputs: "abc", Failure: &state.Failure{}}, datastore: provisioned(),
			change: func(c *state.Certs, _ *state.Datastore) { c.IssuedFor = 3 },
		},
		"and those it says are for an earlier one aren't": {
			certs:     &state.State{Step: event.Issued, Generation: 3, Inputs: "abc-3", Wait: state.Wait{On: name.ServiceWorkload, Reason: reason.EndpointUnknown}},
			datastore: provisioned(), want: reason.KeysNotIssued,
			change: func(c *state.Certs, _ *state.Datastore) { c.IssuedFor = 2 },
		},
		"the account of an override that isn't there is": {
			certs: issued(), datastore: provisioned(), want: reason.OverridesNotProvisioned,
			change: func(_ *state.Certs, d *state.Datastore) {
				d.Overrides = []state.Override{{DataStore: "b", Resources: []string{"/events"}}}
			},
		},
		"a schema that isn't there is": {certs: issued(), want: reason.AccountNotProvisioned},
		"a client certificate that isn't there is": {
			certs: issued(), datastore: provisioned(), want: reason.AccountNotProvisioned,
			change: func(_ *state.Certs, d *state.Datastore) { d.Certificate.Checksum = "" },
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			in := load(t, "minimal")
			if test.change != nil {
				test.change(&in.Certs, &in.Datastore)
			}
			if got := missing(3, &in.Tenant.Spec, test.certs, &in.Certs, test.datastore, &in.Datastore); got.Reason != test.want || got.Waits() != (got.On != "") {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}
