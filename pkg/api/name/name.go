// Package name is the one place where the names are built of everything Stoker makes for a tenant: objects, Secret keys,
// labels, annotations, finalizers, field managers. Most are Kamaji's and a contract with its users; those of Stoker's own
// are under stoker.dev. Subjects, streams and buckets are built in pkg/events.
//
// In the functions here, tenant is the name of a TenantControlPlane. All are pure and safe for concurrent use.
package name

// Namespace is where Stoker's own services run in the management cluster.
const Namespace = "stoker-system"

// The services of Stoker, as they are called in subjects, state keys, metrics and logs.
const (
	ServiceIntake    = "intake"
	ServiceCerts     = "certs"
	ServiceDatastore = "datastore"
	ServiceWorkload  = "workload"
	ServiceAddons    = "addons"
	ServiceStatus    = "status"
	ServiceCAPI      = "capi"
	// ServiceTenantAddons installs what TenantAddons say; addons, what every tenant has.
	ServiceTenantAddons = "tenantaddons"
)

// Services returns the eight services, in the order in which a tenant meets them.
func Services() []string {
	return []string{ServiceIntake, ServiceCerts, ServiceDatastore, ServiceWorkload, ServiceAddons, ServiceStatus, ServiceCAPI, ServiceTenantAddons}
}

// Optional reports whether an installation may do without a service: capi, where there is no Cluster API, and tenantaddons, where there are no
// TenantAddons. Such a service works only on tenants that have something of its kinds, and no other waits for it.
func Optional(service string) bool { return service == ServiceCAPI || service == ServiceTenantAddons }

// Field managers of server-side apply, one per service, so that managedFields tell who owns what.
const (
	FieldManagerIntake       = "stoker-intake"
	FieldManagerCerts        = "stoker-certs"
	FieldManagerDatastore    = "stoker-datastore"
	FieldManagerWorkload     = "stoker-workload"
	FieldManagerAddons       = "stoker-addons"
	FieldManagerStatus       = "stoker-status"
	FieldManagerCAPI         = "stoker-capi"
	FieldManagerTenantAddons = "stoker-tenantaddons"
)

// FieldManager returns the field manager of a service.
func FieldManager(service string) string {
	return "stoker-" + service
}
