package name

// Objects in the tenant's namespace of the management cluster.

import (
	"strconv"
	"strings"
)

// Deployment runs the control plane.
func Deployment(tenant string) string { return tenant }

// Service is how the control plane is reached.
func Service(tenant string) string { return tenant }

// ServiceHost is the Service's host name inside the management cluster.
func ServiceHost(tenant, namespace string) string { return Service(tenant) + "." + namespace + ".svc" }

// Activator is the EndpointSlice by which connections to the tenant are held while it sleeps.
func Activator(tenant string) string { return tenant + "-activator" }

// Ingress exposes the API server by host name.
func Ingress(tenant string) string { return tenant }

// Route is the TLSRoute of the API server.
func Route(tenant string) string { return tenant }

// KonnectivityRoute is the TLSRoute of the konnectivity server.
func KonnectivityRoute(tenant string) string { return tenant + "-konnectivity" }

// CA is the Secret of the tenant's certificate authority.
func CA(tenant string) string { return tenant + "-ca" }

// FrontProxyCA is the Secret of the certificate authority of API aggregation.
func FrontProxyCA(tenant string) string { return tenant + "-front-proxy-ca-certificate" }

// ServiceAccountKeys is the Secret of the key pair that signs ServiceAccount tokens.
func ServiceAccountKeys(tenant string) string { return tenant + "-sa-certificate" }

// APIServerCertificate is the Secret of the API server's serving certificate.
func APIServerCertificate(tenant string) string { return tenant + "-api-server-certificate" }

// APIServerKubeletClientCertificate is the Secret of the API server's client certificate for kubelets.
func APIServerKubeletClientCertificate(tenant string) string {
	return tenant + "-api-server-kubelet-client-certificate"
}

// FrontProxyClientCertificate is the Secret of the API server's client certificate for aggregated APIs.
func FrontProxyClientCertificate(tenant string) string {
	return tenant + "-front-proxy-client-certificate"
}

// AdminKubeconfig is the Secret of the administrators' kubeconfigs.
func AdminKubeconfig(tenant string) string { return tenant + "-admin-kubeconfig" }

// ArgoCDCluster is the Secret, in Argo CD's own namespace, by which Argo CD knows a tenant. A namespace has no dot, so that no two tenants
// have the same; with the longest of both it has 134 characters.
func ArgoCDCluster(namespace, tenant string) string { return "tenant." + namespace + "." + tenant }

// ControllerManagerKubeconfig is the Secret of kube-controller-manager's kubeconfig.
func ControllerManagerKubeconfig(tenant string) string {
	return tenant + "-controller-manager-kubeconfig"
}

// SchedulerKubeconfig is the Secret of kube-scheduler's kubeconfig.
func SchedulerKubeconfig(tenant string) string { return tenant + "-scheduler-kubeconfig" }

// DatastoreConfig is the Secret of the connection's settings to the DataStore.
func DatastoreConfig(tenant string) string { return tenant + "-datastore-config" }

// DatastoreCertificate is the Secret of the tenant's client certificate of the DataStore.
func DatastoreCertificate(tenant string) string { return tenant + "-datastore-certificate" }

// MovingDatastoreConfig and MovingDatastoreCertificate are those two Secrets for the DataStore that the tenant's data move to, while they do.
func MovingDatastoreConfig(tenant string) string { return DatastoreConfig(tenant + moving) }

// MovingDatastoreCertificate is described at MovingDatastoreConfig.
func MovingDatastoreCertificate(tenant string) string { return DatastoreCertificate(tenant + moving) }

const moving = "-moving"

// KonnectivityCertificate is the Secret of the konnectivity server's client certificate.
func KonnectivityCertificate(tenant string) string { return tenant + "-konnectivity-certificate" }

// KonnectivityKubeconfig is the Secret of the konnectivity server's kubeconfig.
func KonnectivityKubeconfig(tenant string) string { return tenant + "-konnectivity-kubeconfig" }

// Encryption is the Secret of the configurations and keys by which the API server encrypts what it stores.
func Encryption(tenant string) string { return tenant + "-encryption" }

// Restore is the Secret by which a backup is opened that the tenant is made of.
func Restore(tenant string) string { return tenant + "-restore" }

// Keys of the Secret Restore: the age identity that opens the data of the backup, and, with any value, that the tenant is who the backup is of.
// Clients know it then, so that no object may be older than they have seen it, and what is about its nodes stays.
const (
	KeyRestoreIdentity      = "identity"
	KeyRestoreSameAuthority = "same-authority"
)

// Keys of Secrets of the type BackupLocation: where it is (file:///directory, s3://bucket/prefix?endpoint=…), who can open its backups (age
// recipients, one a line), and for S3 the access key and the server's authority.
const (
	KeyLocationURL             = "url"
	KeyLocationRecipients      = "recipients"
	KeyLocationAccessKeyID     = "accessKeyID"
	KeyLocationSecretAccessKey = "secretAccessKey"
	KeyLocationSessionToken    = "sessionToken"
	KeyLocationCA              = "ca.crt"
)

// KeyEncryption is the key of the Encryption Secret for a revision of the configuration.
func KeyEncryption(revision int64) string {
	return keyEncryption + strconv.FormatInt(revision, 10) + ".yaml"
}

// EncryptionRevision is the revision that a key of the Encryption Secret is for; 0 for a key of another kind.
func EncryptionRevision(key string) int64 {
	n, _ := strings.CutPrefix(key, keyEncryption)
	revision, err := strconv.ParseInt(strings.TrimSuffix(n, ".yaml"), 10, 64)
	if err != nil || revision < 1 || KeyEncryption(revision) != key {
		return 0
	}
	return revision
}

const keyEncryption = "encryption-"

// KubeadmConfig is the ConfigMap of the tenant's kubeadm configuration.
func KubeadmConfig(tenant string) string { return tenant + "-kubeadmconfig" }

// KonnectivityEgressSelector is the ConfigMap of the API server's egress selector configuration.
func KonnectivityEgressSelector(tenant string) string {
	return tenant + "-konnectivity-egress-selector-configuration"
}

// MigrationJob is the Job that moves a tenant's data, in Stoker's namespace. uid is the TenantControlPlane's.
func MigrationJob(uid string) string { return "migrate-" + uid }

// GeneratedKubeconfig is the Secret that a KubeconfigGenerator makes for a tenant.
func GeneratedKubeconfig(tenant, generator string) string { return tenant + "-" + generator }

// Keys of Secrets and ConfigMaps.
const (
	// KeyCACert and KeyCAKey are the certificate authority's, repeated under KeyTLSCert and KeyTLSKey for Cluster API.
	KeyCACert = "ca.crt"
	KeyCAKey  = "ca.key"
	// KeyTLSCert and KeyTLSKey are those of Secrets of type kubernetes.io/tls.
	KeyTLSCert = "tls.crt"
	KeyTLSKey  = "tls.key"

	KeyFrontProxyCACert           = "front-proxy-ca.crt"
	KeyFrontProxyCAKey            = "front-proxy-ca.key"
	KeyServiceAccountPublic       = "sa.pub"
	KeyServiceAccountPrivate      = "sa.key"
	KeyAPIServerCert              = "apiserver.crt"
	KeyAPIServerKey               = "apiserver.key"
	KeyAPIServerKubeletClientCert = "apiserver-kubelet-client.crt"
	KeyAPIServerKubeletClientKey  = "apiserver-kubelet-client.key"
	KeyFrontProxyClientCert       = "front-proxy-client.crt"
	KeyFrontProxyClientKey        = "front-proxy-client.key"

	// KeyAdminConf is the administrators' kubeconfig with the published endpoint, KeyAdminSvc the one with the Service's
	// name; likewise KeySuperAdminConf and KeySuperAdminSvc, which no RBAC rule of the tenant can lock out.
	KeyAdminConf             = "admin.conf"
	KeyAdminSvc              = "admin.svc"
	KeySuperAdminConf        = "super-admin.conf"
	KeySuperAdminSvc         = "super-admin.svc"
	KeyControllerManagerConf = "controller-manager.conf"
	KeySchedulerConf         = "scheduler.conf"
	KeyKonnectivityConf      = "konnectivity-server.conf"
	// KeyGeneratedKubeconfig is that of a KubeconfigGenerator's Secret.
	KeyGeneratedKubeconfig = "value"

	KeyDBConnectionString = "DB_CONNECTION_STRING"
	KeyDBSchema           = "DB_SCHEMA"
	KeyDBUser             = "DB_USER"
	KeyDBPassword         = "DB_PASSWORD"
	// KeyDBReplicas is how many servers of a NATS keep the tenant's data, which kine must say.
	KeyDBReplicas = "DB_REPLICAS"
	// KeyTransferToken is there while another management cluster may take the tenant over: who has it gets the schema and the user, in the
	// DataStore KeyTransferDataStore.
	KeyTransferToken     = "TRANSFER_TOKEN"
	KeyTransferDataStore = "TRANSFER_DATASTORE"

	// KeyDatastoreCACert, KeyDatastoreCert and KeyDatastoreKey are those of the DatastoreCertificate Secret.
	KeyDatastoreCACert = "ca.crt"
	KeyDatastoreCert   = "server.crt"
	KeyDatastoreKey    = "server.key"
	// KeyDatastoreContext is a context of NATS' command line tool (servers, and who the tenant is), which kine reads, too.
	KeyDatastoreContext = "nats.json"

	KeyInitConfiguration           = "InitConfiguration"
	KeyClusterConfiguration        = "ClusterConfiguration"
	KeyEgressSelectorConfiguration = "egress-selector-configuration.yaml"
	// KeySettingsKubeconfig is that of a Secret which spec.kubernetes.apiServer refers to. No Secret of Stoker's has it.
	KeySettingsKubeconfig = "kubeconfig"
)

// Names of containers and of the Service's ports.
const (
	ContainerAPIServer         = "kube-apiserver"
	ContainerScheduler         = "kube-scheduler"
	ContainerControllerManager = "kube-controller-manager"
	ContainerKine              = "kine"
	ContainerKineChmod         = "chmod"
	ContainerKineMoving        = "kine-moving" // of the DataStore that the data move to
	ContainerGate              = "stoker-gate"
	ContainerKonnectivity      = "konnectivity-server"

	PortAPIServer    = "kube-apiserver"
	PortKonnectivity = "konnectivity-server"
	PortKine         = "server"
)

// Konnectivity inside the tenant: the agents' namespace, the name of their workload and of their ServiceAccount, and the server's user,
// which is also the audience of the agents' tokens and the name of the binding that lets it review them.
const (
	NamespaceKonnectivityAgent = "kube-system"
	KonnectivityAgent          = "konnectivity-agent"
	KonnectivityUser           = "system:konnectivity-server"
)

// WritePermissions is the name of the policy, and of its binding, that limit writes inside the tenant; Kamaji's webhook for it has it, too.
const WritePermissions = "kamaji-write-permissions"

// KeptEndpoints is the name of the policy inside the tenant, and of its binding, by which an API server that ends leaves the Service
// kubernetes its address.
const KeptEndpoints = "stoker-kept-endpoints"

// Names of the pods' volumes.
const (
	VolumePKI                         = "etc-kubernetes-pki"
	VolumeEtcCACertificates           = "etc-ca-certificates"
	VolumeUsrShareCACertificates      = "usr-share-ca-certificates"
	VolumeUsrLocalShareCACertificates = "usr-local-share-ca-certificates"
	VolumeSchedulerKubeconfig         = "scheduler-kubeconfig"
	VolumeControllerManagerKubeconfig = "controller-manager-kubeconfig"
	VolumeKineUDS                     = "kine-uds"
	VolumeKineConfig                  = "kine-config"
	VolumeKineCerts                   = "kine-certs"
	VolumeKineMovingCerts             = "kine-moving-certs"
	VolumeGateFrom                    = "gate-from"
	VolumeGateTo                      = "gate-to"
	VolumeKonnectivityUDS             = "konnectivity-uds"
	VolumeEgressSelectorConfiguration = "egress-selector-configuration"
	VolumeKonnectivityKubeconfig      = "konnectivity-server-kubeconfig"
	VolumeAPIServerSettings           = "kube-apiserver-settings"
	VolumeAPIServerAuditLog           = "kube-apiserver-audit-log"
	VolumeAPIServerEncryption         = "kube-apiserver-encryption"
)
