// What a Deployment needs from the other services. Pure.

package workload

import (
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// missing says what the Deployment of a generation still needs, the zero Wait when it has everything. A nil state is one
// that isn't there.
func missing(
	generation int64, spec *v1alpha1.TenantControlPlaneSpec,
	certs *state.State, c *state.Certs, datastore *state.State, d *state.Datastore,
) state.Wait {
	switch {
	case !issuedFor(generation, certs, c) || !hasChecksums(spec, c):
		return state.Wait{On: name.ServiceCerts, Reason: reason.KeysNotIssued, Text: "certs: keys and certificates"}
	case unusable(spec, c) != "":
		return state.Wait{On: kube.Secrets.Kind, Reason: reason.SecretUnusable, Text: unusable(spec, c)}
	case datastore == nil || datastore.Step == "" && !staysStopped(spec, d) || d.Schema == "" || len(d.Endpoints) == 0 || d.Certificate.Checksum == "":
		return state.Wait{On: name.ServiceDatastore, Reason: reason.AccountNotProvisioned, Text: "datastore: user and schema"}
	case !overridesProvisioned(spec, d):
		return state.Wait{
			On: name.ServiceDatastore, Reason: reason.OverridesNotProvisioned, Text: "datastore: the DataStores of dataStoreOverrides",
		}
	}
	return state.Wait{}
}

// staysStopped reports whether a tenant is to have no pods while its data are being replaced: its Deployment is kept so, whoever scales it.
func staysStopped(spec *v1alpha1.TenantControlPlaneSpec, d *state.Datastore) bool {
	return spec.Sleeps() && d.Restoring != nil && d.Restoring.InPlace != ""
}

// issuedFor reports whether certs has made everything for a generation. The Generation of its state doesn't say it where it
// failed or waits: it is then that of the turn.
func issuedFor(generation int64, certs *state.State, c *state.Certs) bool {
	if certs == nil || certs.Step != event.Issued && certs.Step != event.Rotated {
		return false
	}
	return state.IssuedFor(certs, c) == generation || certs.Generation >= generation && !certs.Waits() && !certs.Failed()
}

// hasChecksums reports whether every Secret of certs that a tenant needs is there.
func hasChecksums(spec *v1alpha1.TenantControlPlaneSpec, c *state.Certs) bool {
	if spec.Addons.Konnectivity != nil && c.Secrets[name.ComponentKonnectivityKubeconfig].Checksum == "" {
		return false
	}
	if resources, _ := spec.Kubernetes.APIServer.Encrypted(); len(resources) > 0 && c.Encryption == nil {
		return false
	}
	for component := range checksums {
		if c.Secrets[component].Checksum == "" {
			return false
		}
	}
	return c.Secrets[name.ComponentAdminKubeconfig].Checksum != ""
}

// unusable names the first Secret that the spec refers to and that the tenant doesn't have, or may not have; empty for none.
func unusable(spec *v1alpha1.TenantControlPlaneSpec, c *state.Certs) string {
	for _, secret := range spec.Kubernetes.APIServer.Secrets() {
		if c.Referenced[secret].Checksum == "" {
			return "a Secret " + secret + " with the key " + name.KeySettingsKubeconfig + ", which somebody has labelled " + name.LabelUsedBy +
				" with the tenant's name (spec.kubernetes.apiServer)"
		}
	}
	return ""
}
