// Resources that are kept in other DataStores than the rest (spec.dataStoreOverrides): the API server's flag, and which
// DataStores and credentials pods use. Pure.

package workload

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// overrides is the value of kube-apiserver's flag that says which resources are where, empty for none. It reaches all its stores in one way,
// so that where the tenant's own is behind a gate, the others are, too.
func (in Input) overrides() string {
	at := map[string]string{}
	for i, o := range in.overridden() {
		servers := urls(o.Endpoints, ";")
		if in.hasGate() {
			servers = "unix://" + throughSocket(i)
		}
		for _, resource := range o.Resources {
			at[resource] = servers
		}
	}
	if m := in.Datastore.Move; m.Gated() {
		for _, resource := range m.Resources {
			at[resource] = "unix://" + movingSocket
		}
	}
	var all []string
	for _, resource := range slices.Sorted(maps.Keys(at)) {
		all = append(all, resource+"#"+at[resource])
	}
	return strings.Join(all, ",")
}

// overridden are the DataStores that hold resources instead of the tenant's own.
func (in Input) overridden() (all []state.Override) {
	for _, o := range in.Datastore.Overrides {
		if len(o.Resources) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// throughSocket is where a gate passes on what is asked of the override of an index in overridden. Names of DataStores may be longer than a
// socket's path.
func throughSocket(i int) string { return path.Join(dirKineSocket, "gate-"+strconv.Itoa(i)) }

// movingSocket is where a gate takes what is asked of resources that move, while the rest stays.
const movingSocket = dirKineSocket + "/gate-moving"

// through is the value of the gate's flag for them, empty for none.
func (in Input) through() string {
	var all []string
	m, from := in.Datastore.Move, in.Datastore.Endpoints
	for i, o := range in.overridden() {
		all = append(all, throughSocket(i)+"="+urls(o.Endpoints, ","))
		if m != nil && o.DataStore == m.From {
			from = o.Endpoints
		}
	}
	if m.Gated() && len(m.Resources) > 0 {
		all = append(all, movingSocket+"="+urls(from, ","))
	}
	return strings.Join(all, ";")
}

// urls joins the URLs of an etcd's endpoints.
func urls(endpoints []string, separator string) string {
	var all []string
	for _, e := range endpoints {
		all = append(all, "https://"+e)
	}
	return strings.Join(all, separator)
}

// overridesProvisioned reports whether datastore has provisioned what the spec says of Events, which go where it says at once. Until then
// no pod may start: a DataStore that is missing has no account for it, and with one too many it would be replaced once that is withdrawn.
// Other resources stay where datastore has them until it has moved them.
func overridesProvisioned(spec *v1alpha1.TenantControlPlaneSpec, d *state.Datastore) bool {
	want, have := "", ""
	for _, o := range spec.DataStoreOverrides {
		if o.Resource == v1alpha1.ResourceEvents && o.DataStore != d.DataStore { // the tenant's own, where everything is that no override names
			want = o.DataStore
		}
	}
	for _, o := range d.Overrides {
		if slices.Contains(o.Resources, v1alpha1.ResourceEvents) {
			have = o.DataStore
		}
	}
	return want == have
}

// overridesInUse returns the DataStores of overrides that pods may use; see inUse.
func overridesInUse(step string, before []string, d *state.Datastore) []string {
	var use []string
	for _, o := range d.Overrides {
		if len(o.Resources) > 0 {
			use = append(use, o.DataStore)
		}
	}
	return inUse(step, before, use)
}

// inUse returns what pods may use: use is what new ones do, before what those of earlier rollouts do, which run until the
// rollout is complete.
func inUse(step string, before, use []string) []string {
	if step != event.Available && step != event.Slept {
		use = append(use, before...)
	}
	slices.Sort(use)
	return slices.Compact(use)
}
