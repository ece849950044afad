package name

import "strconv"

// Labels.
const (
	// LabelProject marks everything made for tenants, in the management cluster and inside tenants; its value is
	// Project.
	LabelProject = "kamaji.clastix.io/project"
	// LabelName is the tenant's name. It alone is the selector of Deployment and Service.
	LabelName = "kamaji.clastix.io/name"
	// LabelComponent says what an object is for, one of the Component values.
	LabelComponent = "kamaji.clastix.io/component"
	// LabelPartition is the tenant's partition, on every object that was made for one, and of a DataStore its own. Tenants' objects had it
	// before AnnotationDataStore.
	LabelPartition = "stoker.dev/partition"
	// LabelWatchFilter keeps several installations on one management cluster apart.
	LabelWatchFilter = "cluster.x-k8s.io/watch-filter"
	// LabelCertificateLifecycle marks Secrets whose certificates expire; its value is LifecycleX509 or
	// LifecycleKubeconfig.
	LabelCertificateLifecycle = "kamaji.clastix.io/certificate_lifecycle_controller"
	// LabelManagedBy and LabelManagedFor are on the Secrets of a KubeconfigGenerator: generator and tenant.
	LabelManagedBy  = "kamaji.clastix.io/managed-by"
	LabelManagedFor = "kamaji.clastix.io/managed-for"
	// LabelUsedBy, on a Secret that somebody made, is the tenant of its namespace that may refer to it (spec.kubernetes.apiServer).
	LabelUsedBy = "stoker.dev/used-by"
	// LabelDataStore, on a TenantControlPlane, is what AnnotationDataStore is, for people to select by. It is written together with that,
	// and not put back when somebody takes it away, as Kamaji's Cluster API provider does with all labels.
	LabelDataStore = "stoker.dev/datastore"
	// LabelClusterName is the name of the Cluster of Cluster API that an object belongs to.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// SecretTypeClusterAPI is the type of Secrets that Cluster API reads.
	SecretTypeClusterAPI = "cluster.x-k8s.io/secret"
	// LabelCAPISecret, LabelCAPICluster and LabelCAPITenant are on the Secrets that Cluster API reads: what it is (kubeconfig or ca), the
	// Cluster, and the tenant, which is named as its KamajiControlPlane.
	LabelCAPISecret  = "kamaji.clastix.io/secret"
	LabelCAPICluster = "kamaji.clastix.io/cluster"
	LabelCAPITenant  = "kamaji.clastix.io/tcp"
	// LabelJoinToken, inside a tenant, marks the Secrets of bootstrap tokens that were made for machines to join.
	LabelJoinToken = "stoker.dev/join-token"
	// LabelTenantAddon and LabelTenantAddonNamespace name the TenantAddon that an AddonRelease is of, and an object inside a tenant;
	// LabelTenant, on an AddonRelease, the tenant.
	LabelTenantAddon          = "stoker.dev/tenant-addon"
	LabelTenantAddonNamespace = "stoker.dev/tenant-addon-namespace"
	LabelTenant               = "stoker.dev/tenant"
	// LabelTenantNamespace is LabelTenant's namespace on an object that is in another one: LabelTenant and it are on the tenant's
	// ArgoCDCluster.
	LabelTenantNamespace = "stoker.dev/tenant-namespace"
	// LabelArgoCDSecretType has Argo CD read a Secret as what it says: ArgoCDSecretCluster.
	LabelArgoCDSecretType = "argocd.argoproj.io/secret-type"
	// LabelJobTenant and LabelJobNamespace are on migration Jobs.
	LabelJobTenant    = "tcp.kamaji.clastix.io/name"
	LabelJobNamespace = "tcp.kamaji.clastix.io/namespace"
	// LabelComponentPrefix starts the pod template's labels that carry checksums of Secrets and the DataStore's name.
	LabelComponentPrefix = "component.kamaji.clastix.io/"
	// LabelPodDatastore is the pod template's label with the DataStore's name.
	LabelPodDatastore = LabelComponentPrefix + "datastore"
)

// Values of labels.
const (
	// Project is the value of LabelProject.
	Project = "kamaji"
	// LifecycleX509 and LifecycleKubeconfig are the values of LabelCertificateLifecycle.
	LifecycleX509       = "x509"
	LifecycleKubeconfig = "kubeconfig"
)

// Values of others' labels, and of annotations.
const (
	// ManagerActivator is the value of the label endpointslice.kubernetes.io/managed-by on EndpointSlices that lead to the activator.
	ManagerActivator = "activator.stoker.dev"
	// WakeOnConnection is the value of AnnotationWakeOn.
	WakeOnConnection = "connection"
	// BackupLocation is the type of Secrets that say where backups go.
	BackupLocation = "stoker.dev/backup-location"
	// ArgoCDSecretCluster is the value of LabelArgoCDSecretType of clusters.
	ArgoCDSecretCluster = "cluster"
	// SleptByIdleness is the value of AnnotationSleptBy.
	SleptByIdleness = "idleness"
)

// Values of LabelComponent.
const (
	ComponentCA                                = "ca"
	ComponentFrontProxyCA                      = "front-proxy-ca-certificate"
	ComponentServiceAccountKeys                = "sa-certificate"
	ComponentAPIServerCertificate              = "api-server-certificate"
	ComponentAPIServerKubeletClientCertificate = "api-server-kubelet-client-certificate"
	ComponentFrontProxyClientCertificate       = "front-proxy-client-certificate"
	ComponentAdminKubeconfig                   = "admin-kubeconfig"
	ComponentControllerManagerKubeconfig       = "controller-manager-kubeconfig"
	ComponentSchedulerKubeconfig               = "scheduler-kubeconfig"
	ComponentGeneratedKubeconfig               = "generated-kubeconfig"
	ComponentDatastoreConfig                   = "datastore-config"
	ComponentDatastoreCertificate              = "datastore-certificate"
	ComponentDatastoreMoving                   = "datastore-moving"
	ComponentKonnectivityCertificate           = "konnectivity-certificate"
	ComponentKonnectivityKubeconfig            = "konnectivity-kubeconfig"
	ComponentEncryption                        = "encryption"
	ComponentArgoCDCluster                     = "argocd-cluster"
	ComponentKubeadmConfig                     = "kubeadmconfig"
	ComponentKonnectivityEgressSelector        = "konnectivity-egress-selector-configuration"
	ComponentDeployment                        = "deployment"
	ComponentService                           = "service"
	ComponentIngress                           = "ingress"
	ComponentRoute                             = "gateway"
	ComponentKonnectivityRoute                 = "konnectivity-gateway"
	ComponentActivator                         = "activator"
	ComponentMigrate                           = "migrate"
	ComponentCAPI                              = "capi"
)

// Keys of the pod template's labels that carry checksums; without the LabelComponentPrefix they are what
// PodChecksumLabel takes.
const (
	ChecksumAPIServerCertificate              = "api-server-certificate"
	ChecksumAPIServerKubeletClientCertificate = "api-server-kubelet-client-certificate"
	ChecksumCA                                = "ca"
	ChecksumControllerManagerKubeconfig       = "controller-manager-kubeconfig"
	ChecksumFrontProxyCA                      = "front-proxy-ca-certificate"
	ChecksumFrontProxyClientCertificate       = "front-proxy-client-certificate"
	ChecksumServiceAccountKeys                = "service-account"
	ChecksumSchedulerKubeconfig               = "scheduler-kubeconfig"
	// ChecksumKonnectivityKubeconfig and ChecksumKonnectivityEgressSelector are Stoker's own, of tenants with the tunnel.
	ChecksumKonnectivityKubeconfig     = "konnectivity-kubeconfig"
	ChecksumKonnectivityEgressSelector = "konnectivity-egress-selector-configuration"
	// ChecksumAPIServerSecrets is Stoker's own, of tenants whose API server has Secrets of theirs (spec.kubernetes.apiServer).
	ChecksumAPIServerSecrets = "api-server-secrets"
	// ChecksumEncryption is Stoker's own, of tenants that encrypt what they store.
	ChecksumEncryption = "encryption"
)

// PodChecksumLabel returns the pod template's label for one of the Checksum keys.
func PodChecksumLabel(checksum string) string {
	return LabelComponentPrefix + checksum
}

// Annotations.
const (
	// AnnotationPaused, when present with any value, stops all services for the object.
	AnnotationPaused = "kamaji.clastix.io/paused"
	// AnnotationPausedUntil stops all services for the object until the given RFC 3339 time.
	AnnotationPausedUntil = "stoker.dev/paused-until"
	// AnnotationDataStore on a TenantControlPlane is the DataStore it was assigned to, empty for none yet: the record of the assignment, and
	// what a DataStore's tenants are counted by. Where it is, Stoker works on the tenant. See DataStore and Taken.
	AnnotationDataStore = "stoker.dev/datastore"
	// AnnotationDatastoreSelector on a TenantControlPlane is a label selector (as kubectl's -l) that limits the DataStores
	// it may be assigned to when it names none.
	AnnotationDatastoreSelector = "stoker.dev/datastore-selector"
	// AnnotationMaxTenants and AnnotationMaxBytes on a DataStore limit how many tenants are placed there, and how much they
	// may hold together (a quantity, "8Gi") while more are: Limits.
	AnnotationMaxTenants = "stoker.dev/max-tenants"
	AnnotationMaxBytes   = "stoker.dev/max-bytes"
	// AnnotationTenantMetrics with the value "true" on a DataStore has sizes of each of its tenants among the metrics, not
	// only of the largest.
	AnnotationTenantMetrics = "stoker.dev/tenant-metrics"
	// AnnotationDatastoreOverrides, on a TenantControlPlane, lists the DataStores that may hold something of it beside its own
	// (by dataStoreOverrides, or a move to it or from it), until nothing is left there: what they are counted as used by. See Overrides.
	AnnotationDatastoreOverrides = "stoker.dev/datastore-overrides"
	// AnnotationClusterPaused, with any value, has providers of Cluster API leave an object alone; AnnotationBlockMove has clusterctl not move
	// the Cluster that it belongs to.
	AnnotationClusterPaused = "cluster.x-k8s.io/paused"
	AnnotationBlockMove     = "clusterctl.cluster.x-k8s.io/block-move"
	// AnnotationDeleteForMove is on what clusterctl deletes because it has moved it to another management cluster.
	AnnotationDeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// AnnotationTransfer on a TenantControlPlane has Stoker leave it alone, as in a pause, for another management cluster to take it over with its
	// data; its value tells one time from another. It goes with the object, and ends where it is taken off.
	AnnotationTransfer = "stoker.dev/transfer"
	// AnnotationTransferWhenPaused with the value "true" on a KamajiControlPlane has its tenant be so whenever its Cluster is paused.
	AnnotationTransferWhenPaused = "stoker.dev/transfer-when-paused"
	// AnnotationExternalTenant on a KamajiControlPlane records where its tenant is, in another cluster: JSON of services/capi.
	AnnotationExternalTenant = "stoker.dev/external-tenant"
	// AnnotationControlPlane on a TenantControlPlane in another cluster than its KamajiControlPlane is that one's namespace/name.
	AnnotationControlPlane = "stoker.dev/control-plane"
	// AnnotationUsableFrom on a Secret with the kubeconfig of another cluster names the namespaces, besides its own, whose
	// KamajiControlPlanes may use it, comma-separated; "*" for all.
	AnnotationUsableFrom = "stoker.dev/usable-from"
	// AnnotationAdopt, with any value, has Stoker work on a TenantControlPlane that Kamaji made; until then it is left alone.
	AnnotationAdopt = "stoker.dev/adopt"
	// AnnotationAwakeReplicas on a TenantControlPlane that sleeps is how many replicas it had: the command wake brings them
	// back.
	AnnotationAwakeReplicas = "stoker.dev/awake-replicas"
	// AnnotationSleepAt and AnnotationWakeAt on a TenantControlPlane are when it is put to sleep and woken, cron expressions in the zone
	// AnnotationTimeZone (an IANA name; UTC without).
	AnnotationSleepAt  = "stoker.dev/sleep-at"
	AnnotationWakeAt   = "stoker.dev/wake-at"
	AnnotationTimeZone = "stoker.dev/time-zone"
	// AnnotationSleptAt and AnnotationWokenAt are when a tenant with a schedule was put to sleep and woken beside it (RFC 3339), by the
	// commands sleep and wake.
	AnnotationSleptAt = "stoker.dev/slept-at"
	AnnotationWokenAt = "stoker.dev/woken-at"
	// AnnotationSleepWhenIdle on a TenantControlPlane is after how long without use it is put to sleep, a duration: see IdleTime.
	AnnotationSleepWhenIdle = "stoker.dev/sleep-when-idle"
	// AnnotationSleptBy is why a tenant was put to sleep at the time of AnnotationSleptAt, if nobody said so: SleptByIdleness.
	AnnotationSleptBy = "stoker.dev/slept-by"
	// AnnotationWakeOn on a TenantControlPlane says what wakes it beside its schedule and commands: WakeOnConnection.
	AnnotationWakeOn = "stoker.dev/wake-on"
	// AnnotationLoopback on an EndpointSlice is the address it is for, where that is a loopback address, which it may not hold.
	AnnotationLoopback = "stoker.dev/loopback-address"
	// AnnotationCommand on an object names the last command that expected a generation and was carried out on it: that
	// command is known when it is delivered again.
	AnnotationCommand = "stoker.dev/command"
	// AnnotationRotate on a Secret asks for new keys or certificates; its value is replaced by the time of the rotation.
	AnnotationRotate = "certs.kamaji.clastix.io/rotate"
	// AnnotationChecksum on Secrets and ConfigMaps is the Checksum of what was written, to see drift.
	AnnotationChecksum = "kamaji.clastix.io/checksum"
	// AnnotationConfigHash on the pod template is the hash of everything the pods are made from; a change rolls out.
	AnnotationConfigHash = "stoker.dev/config-hash"
	// AnnotationKubeconfigSecretKey says which key of the admin kubeconfig Secret is used to reach the tenant, and that its address is tried
	// before others. Default: KeySuperAdminConf, and no address before others.
	AnnotationKubeconfigSecretKey = "kamaji.clastix.io/kubeconfig-secret-key"
	// AnnotationKubeletServing on a TenantControlPlane with the value KubeletServingApprove has kubelets ask for serving certificates,
	// and approves those that are right.
	AnnotationKubeletServing = "stoker.dev/kubelet-serving-certificates"
	KubeletServingApprove    = "approve"
	// AnnotationArgoCDCluster on a TenantControlPlane with the value "true" has Argo CD know the tenant as a cluster, see ArgoCDCluster.
	AnnotationArgoCDCluster = "stoker.dev/argocd-cluster"
	// AnnotationUpgradeTimeout on a TenantControlPlane is how long pods of another version may take to become ready before that version is
	// undone, see UpgradeTimeout.
	AnnotationUpgradeTimeout = "stoker.dev/upgrade-timeout"
	// AnnotationUpgradeThrough on a TenantControlPlane lists the versions between the one that runs and the one that the spec asks for,
	// see UpgradeThrough.
	AnnotationUpgradeThrough = "stoker.dev/upgrade-through"
	// AnnotationMigrationTimeout is how long a migration may take, as a Go duration.
	AnnotationMigrationTimeout = "kamaji.clastix.io/migration-timeout"
	// AnnotationCleanupPriorMigration, when true, drops what a schema of the same name holds before a migration.
	AnnotationCleanupPriorMigration = "kamaji.clastix.io/cleanup-prior-migration"
	// AnnotationMigrationGrace on a TenantControlPlane is how long data are kept where they were before a migration, as a Go duration; a day
	// without it.
	AnnotationMigrationGrace = "stoker.dev/migration-grace"
	// AnnotationBackupLocation on a TenantControlPlane names the Secret in SystemNamespace, of the type BackupLocation, that says where its
	// backups go; AnnotationBackupSchedule is when they are made, a cron expression in the zone AnnotationTimeZone; AnnotationBackupKeep
	// is how many of the scheduled ones stay (7 without it), a number, or for how long, a Go duration; AnnotationBackupAt asks for one beside
	// the schedule, with the time of the request (RFC 3339).
	AnnotationBackupLocation = "stoker.dev/backup-location"
	AnnotationBackupSchedule = "stoker.dev/backup-schedule"
	AnnotationBackupKeep     = "stoker.dev/backup-keep"
	AnnotationBackupAt       = "stoker.dev/backup-at"
	// AnnotationRestoreFrom on a TenantControlPlane that is made anew is the backup that its data come from: location/namespace/name/ID.
	// AnnotationCloneOf is the tenant in the same namespace that they come from instead.
	AnnotationRestoreFrom = "stoker.dev/restore-from"
	AnnotationCloneOf     = "stoker.dev/clone-of"
	// AnnotationRestoreInPlace on a TenantControlPlane that works is the backup of its own that it is set back to, and when that was asked
	// for: see InPlace.
	AnnotationRestoreInPlace = "stoker.dev/restore-in-place"
	// AnnotationQuotaBytes on a TenantControlPlane is how many bytes it may keep, a quantity; AnnotationQuotaObjects how many objects, a number.
	AnnotationQuotaBytes   = "stoker.dev/quota-bytes"
	AnnotationQuotaObjects = "stoker.dev/quota-objects"
	// AnnotationAPIServerArgs on the Deployment is the hash of the API server's extra arguments.
	AnnotationAPIServerArgs = "kube-apiserver.kamaji.clastix.io/args"
	// AnnotationRewritten on the Encryption Secret is the revision of its configuration by which all objects are written.
	AnnotationRewritten = "stoker.dev/rewritten"
	// AnnotationStorageConfig and AnnotationStorageCertificate on the pod template are checksums of the DataStore's
	// Secrets.
	AnnotationStorageConfig      = "storage.kamaji.clastix.io/config"
	AnnotationStorageCertificate = "storage.kamaji.clastix.io/certificate"
	// AnnotationStorageMoving on the pod template is a checksum of the Secrets of the DataStore that the data move to.
	AnnotationStorageMoving = "stoker.dev/moving"
	// AnnotationAuthentication, AnnotationAuthorization and AnnotationAuditPolicy on the pod template are documents that the API server
	// reads as files.
	AnnotationAuthentication = "stoker.dev/authentication-configuration"
	AnnotationAuthorization  = "stoker.dev/authorization-configuration"
	AnnotationAuditPolicy    = "stoker.dev/audit-policy"
)

// AdmissionConfigMap, in SystemNamespace, is what admission policies have to know of the cluster. intake keeps it.
const (
	SystemNamespace    = "stoker-system"
	AdmissionConfigMap = "stoker-admission"
	// AdmissionGateway is the key that says whether TLSRoutes (Gateway API, v1) are served: "true" or "false".
	AdmissionGateway = "gateway"
)

// AdmissionDataStore is the key of AdmissionConfigMap for a DataStore; its value is the driver.
func AdmissionDataStore(dataStore string) string { return "datastore." + dataStore }

// Finalizers.
const (
	// FinalizerTenant holds a TenantControlPlane until everything made for it is gone.
	FinalizerTenant = "finalizer.kamaji.clastix.io"
	// FinalizerSoot is Kamaji's hold for what it keeps inside a tenant: removed when the tenant is adopted, never added.
	FinalizerSoot = "finalizer.kamaji.clastix.io/soot"
	// FinalizerControlPlane holds a KamajiControlPlane until its tenant is gone.
	FinalizerControlPlane = "stoker.dev/control-plane"
	// FinalizerExternalTenant is the hold of Kamaji's provider on a KamajiControlPlane whose tenant is in another cluster: removed when
	// found, never added.
	FinalizerExternalTenant = "ecr.kamaji.clastix.io/finalizer"
	// FinalizerTenantAddon holds a TenantAddon until it is removed from all tenants, and an AddonRelease until it is from its tenant.
	FinalizerTenantAddon = "stoker.dev/tenant-addon"
	// FinalizerEncryption is certs' hold on the Encryption Secret: whoever deletes it would lose what is encrypted by its keys.
	FinalizerEncryption = "stoker.dev/encryption"
	// FinalizerDatastoreSecret is Kamaji's hold on the DatastoreConfig Secret: removed when found, never added.
	FinalizerDatastoreSecret = "finalizer.kamaji.clastix.io/datastore-secret"
	// FinalizerDataStore holds a DataStore while tenants use it.
	FinalizerDataStore = "kamaji.clastix.io/TenantControlPlane"
)

// Labels returns the labels of an object made for a tenant: project, tenant, component, partition.
func Labels(tenant, component string, partition int) map[string]string {
	return map[string]string{
		LabelProject:   Project,
		LabelName:      tenant,
		LabelComponent: component,
		LabelPartition: strconv.Itoa(partition),
	}
}

// Selector returns the labels that select a tenant's pods. It never changes, for a Deployment's cannot.
func Selector(tenant string) map[string]string {
	return map[string]string{LabelName: tenant}
}
