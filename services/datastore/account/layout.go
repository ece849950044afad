package account

import (
	"maps"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Stays reports of a resource whether its objects stay where they are until they are moved. Events go where the spec says at once, and what
// kube-apiserver doesn't keep elsewhere is nowhere else.
func Stays(resource string) bool {
	return resource != v1alpha1.ResourceEvents && len(PrefixesOf(resource)) > 0
}

// LayoutOf says which resources of a tenant are in which DataStore besides its own: by the state, where that is lost by its object, and where
// that doesn't say, as of a tenant that has no data yet, by the spec. What doesn't stay is always as the spec says.
func LayoutOf(t *state.Tenant, own state.Datastore) map[string]string {
	layout, home := map[string]string{}, HomeOf(t, own)
	put := func(all []v1alpha1.DataStoreOverride, staying bool) {
		for _, o := range all {
			if Stays(o.Resource) == staying && o.DataStore != home {
				layout[o.Resource] = o.DataStore
			}
		}
	}
	put(t.Spec.DataStoreOverrides, false)
	switch {
	case own.DataStore != "":
		for _, o := range own.Overrides {
			for _, resource := range o.Resources {
				put([]v1alpha1.DataStoreOverride{{Resource: resource, DataStore: o.DataStore}}, true)
			}
		}
	case t.Setup.DataStore != "" && t.Overridden != nil:
		put(t.Overridden, true)
	default:
		put(t.Spec.DataStoreOverrides, true)
	}
	return layout
}

// OverridesOf returns the DataStores beside the tenant's own that hold something of the tenant or will, sorted by name. Each is
// listed if the state, the object's annotation or the spec names it, and keeps what the state knows of it. Resources are those that
// are there (LayoutOf); a DataStore that has none is one to withdraw from, unless a move needs it (neededByMove).
func OverridesOf(t *state.Tenant, own state.Datastore) []state.Override {
	all := map[string]*state.Override{}
	at := func(n string) *state.Override {
		if all[n] == nil {
			all[n] = &state.Override{DataStore: n}
		}
		return all[n]
	}
	for _, o := range own.Overrides {
		o.Resources = nil
		all[o.DataStore] = &o
	}
	for _, n := range name.Overrides(t.Annotations) {
		at(n)
	}
	for resource, dataStore := range LayoutOf(t, own) {
		x := at(dataStore)
		x.Resources = append(x.Resources, resource)
	}
	delete(all, HomeOf(t, own)) // where everything is anyway
	var list []state.Override
	for _, n := range slices.Sorted(maps.Keys(all)) {
		slices.Sort(all[n].Resources)
		list = append(list, *all[n])
	}
	return list
}

// NamesOf are the DataStores that hold resources by overrides.
func NamesOf(overrides []state.Override) (names []string) {
	for _, o := range overrides {
		if len(o.Resources) > 0 {
			names = append(names, o.DataStore)
		}
	}
	return names
}

// kept are the resources that kube-apiserver keeps elsewhere when it is told to (--etcd-servers-overrides), by group, with their own names but for
// those of keptAs. Others it keeps where the rest is, whatever it is told: those of CustomResourceDefinitions, these themselves, APIServices, and
// resources by another of their groups than the one they are stored in (cohabiting ones: Events are the core group's). Of Kubernetes 1.33 to 1.36
// (pkg/kubeapiserver/default_storage_factory_builder.go).
var kept = map[string][]string{
	"": {
		"configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates",
		"replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
	},
	"admissionregistration.k8s.io": {
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	},
	"apps":                         {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	"autoscaling":                  {"horizontalpodautoscalers"},
	"batch":                        {"cronjobs", "jobs"},
	"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"},
	"coordination.k8s.io":          {"leasecandidates", "leases"},
	"discovery.k8s.io":             {"endpointslices"},
	"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
	"networking.k8s.io":            {"ingressclasses", "ingresses", "ipaddresses", "networkpolicies", "servicecidrs"},
	"node.k8s.io":                  {"runtimeclasses"},
	"policy":                       {"poddisruptionbudgets"},
	"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
	"resource.k8s.io":              {"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
	"scheduling.k8s.io":            {"priorityclasses"},
	"storage.k8s.io":               {"csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments", "volumeattributesclasses"},
}

// keptAs are the beginnings of keys of resources that aren't their names (SpecialDefaultResourcePrefixes of k8s.io/kubernetes/pkg/kubeapiserver).
// With Services goes which addresses and ports are taken (pkg/registry/core/rest/storage_core.go).
var keptAs = map[string][]string{
	"replicationcontrollers": {"controllers/"}, "endpoints": {"services/endpoints/"}, "services": {"ranges/", "services/specs/"},
	"nodes": {"minions/"}, "ingresses": {"ingress/"},
}

// PrefixesOf begin the keys of resources, group/resource, as dataStoreOverrides name them: sorted, each once. A resource that can't be elsewhere
// has none.
func PrefixesOf(resources ...string) (all []string) {
	for _, resource := range resources {
		group, plural, _ := strings.Cut(resource, "/")
		switch {
		case !slices.Contains(kept[group], plural):
		case keptAs[plural] != nil:
			all = append(all, keptAs[plural]...)
		default:
			all = append(all, plural+"/")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
