package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// moving is a tenant whose data move to a database of another kind.
func moving(in Input, driver v1alpha1.Driver, keys ...string) Input {
	in.GateImage = "registry.example.com/stoker-gate:v1"
	in.Datastore.Move = &state.Move{
		ID: "0123456789abcdef", DataStore: "other", Driver: string(driver), Phase: state.MoveCopying, Endpoints: []string{"db.example.com:1234"},
		Schema: "default_demo", User: "default_demo",
		Config: state.Secret{Checksum: "sum-moving-config"}, Certificate: state.Secret{Checksum: "sum-moving-certificate", Keys: keys},
	}
	return in
}

// withQuota is a tenant that has a quota.
func withQuota(in Input) Input {
	in.GateImage = "registry.example.com/stoker-gate:v1"
	in.Tenant.Quota = state.Quota{Bytes: 512 << 20, Objects: 20000}
	return in
}

func TestGate(t *testing.T) {
	config := func(in Input) string { return Deployment(in).Spec.Template.Annotations[name.AnnotationConfigHash] }
	plain := config(load(t, "minimal"))
	in := moving(load(t, "minimal"), v1alpha1.DriverPostgreSQL)
	gated := config(in)

	t.Run("pods have one while their data move, and the same one all the time", func(t *testing.T) {
		for phase, want := range map[string]string{
			state.MovePreparing: plain, state.MoveCopying: gated, state.MoveFollowing: gated, state.MoveGoingOver: gated, state.MoveDone: plain,
		} {
			in.Datastore.Move.Phase, in.Datastore.Move.Keys = phase, in.Datastore.Move.Keys+1
			if config(in) != want {
				t.Errorf("%s rolls out others", phase)
			}
		}
	})
	t.Run("it comes after every kine, and before the API server", func(t *testing.T) {
		var names []string
		for _, c := range Deployment(moving(on(load(t, "minimal"), v1alpha1.DriverMySQL), v1alpha1.DriverNATS)).Spec.Template.Spec.InitContainers {
			names = append(names, c.Name)
		}
		if len(names) != 3 || names[0] != name.ContainerKine || names[1] != name.ContainerKineMoving || names[2] != name.ContainerGate {
			t.Errorf("init containers %v", names)
		}
	})
	t.Run("pods of a tenant with a quota have one, too, and others when it is another", func(t *testing.T) {
		in := withQuota(load(t, "minimal"))
		was := config(in)
		if in.Tenant.Quota.Objects++; was == plain || config(in) == was {
			t.Error("they haven't")
		}
	})
	t.Run("other credentials roll out", func(t *testing.T) {
		in.Datastore.Move.Phase, in.Datastore.Move.Certificate.Checksum = state.MoveCopying, "another"
		if config(in) == gated {
			t.Error("they don't")
		}
	})
}
