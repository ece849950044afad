package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DataStore is a shared etcd, PostgreSQL, MySQL or NATS that holds the data of many tenants.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=datastores,scope=Cluster
// +kubebuilder:printcolumn:name="Driver",type="string",JSONPath=".spec.driver",description="Driver"
// +kubebuilder:printcolumn:name="Ready",type="boolean",JSONPath=".status.ready",description="Whether tenants can use it"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Age"
type DataStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is how the DataStore is reached.
	// +required
	Spec DataStoreSpec `json:"spec"`
	// Status is what was last observed.
	// +optional
	Status DataStoreStatus `json:"status,omitzero"`
}

// DataStoreList is a list of DataStore objects.
//
// +kubebuilder:object:root=true
type DataStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DataStore `json:"items"`
}

// Driver is the kind of database behind a DataStore.
//
// +kubebuilder:validation:Enum=etcd;MySQL;PostgreSQL;NATS
type Driver string

// The kinds of database behind a DataStore. All but etcd are reached through kine.
const (
	DriverEtcd       Driver = "etcd"
	DriverMySQL      Driver = "MySQL"
	DriverPostgreSQL Driver = "PostgreSQL"
	DriverNATS       Driver = "NATS"
)

// DataStoreSpec is how a DataStore is reached.
//
// +kubebuilder:validation:XValidation:rule="self.driver != 'etcd' || (has(self.tlsConfig) && has(self.tlsConfig.certificateAuthority.privateKey) && (has(self.tlsConfig.certificateAuthority.privateKey.secretReference) || has(self.tlsConfig.certificateAuthority.privateKey.content)))",fieldPath=".tlsConfig",reason=FieldValueRequired,message="set certificateAuthority.privateKey, as content or secretReference: etcd's tenants get client certificates that it signs"
// +kubebuilder:validation:XValidation:rule="self.driver != 'etcd' || (has(self.tlsConfig) && has(self.tlsConfig.clientCertificate) && (has(self.tlsConfig.clientCertificate.certificate.secretReference) || has(self.tlsConfig.clientCertificate.certificate.content)))",fieldPath=".tlsConfig",reason=FieldValueRequired,message="set clientCertificate.certificate, as content or secretReference: Stoker administers etcd with it"
// +kubebuilder:validation:XValidation:rule="self.driver != 'etcd' || (has(self.tlsConfig) && has(self.tlsConfig.clientCertificate) && (has(self.tlsConfig.clientCertificate.privateKey.secretReference) || has(self.tlsConfig.clientCertificate.privateKey.content)))",fieldPath=".tlsConfig",reason=FieldValueRequired,message="set clientCertificate.privateKey, as content or secretReference: the key of clientCertificate.certificate"
// +kubebuilder:validation:XValidation:rule="self.driver == 'etcd' || !has(self.tlsConfig) || !has(self.tlsConfig.clientCertificate) || has(self.tlsConfig.clientCertificate.certificate.secretReference) || has(self.tlsConfig.clientCertificate.certificate.content)",fieldPath=".tlsConfig.clientCertificate",reason=FieldValueRequired,message="set clientCertificate.certificate, as content or secretReference, or remove clientCertificate"
// +kubebuilder:validation:XValidation:rule="self.driver == 'etcd' || !has(self.basicAuth) || has(self.basicAuth.username.secretReference) || has(self.basicAuth.username.content)",fieldPath=".basicAuth.username",reason=FieldValueRequired,message="set username, as content or secretReference, or remove basicAuth"
// +kubebuilder:validation:XValidation:rule="self.driver == 'etcd' || !has(self.basicAuth) || has(self.basicAuth.password.secretReference) || has(self.basicAuth.password.content)",fieldPath=".basicAuth.password",reason=FieldValueRequired,message="set password, as content or secretReference, or remove basicAuth"
// +kubebuilder:validation:XValidation:rule="self.driver == 'etcd' || has(self.tlsConfig) || has(self.basicAuth)",fieldPath=".tlsConfig",reason=FieldValueRequired,message="set tlsConfig, basicAuth or both: Stoker logs in to the database with them"
type DataStoreSpec struct {
	// Driver is the kind of database. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the driver cannot change: create another DataStore, and move the tenants to it"
	// +required
	Driver Driver `json:"driver"`
	// Endpoints are the addresses of the database's servers, each as host:port without a scheme. PostgreSQL and MySQL
	// use the first one only.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([^:/ ]+|[[][0-9A-Fa-f:.]+[]]):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$')",message="all endpoints must be host:port without a scheme, an IPv6 address in brackets"
	// +required
	Endpoints []string `json:"endpoints"`
	// BasicAuth is the user name and password of the database's administrator, by which tenants' users are made. etcd
	// knows its administrator by the client certificate instead. Default: none.
	// +optional
	BasicAuth *BasicAuth `json:"basicAuth,omitempty"`
	// TLSConfig is the certificates for the connection. etcd needs all of it. Default: no TLS.
	// +optional
	TLSConfig *TLSConfig `json:"tlsConfig,omitempty"`
}

// BasicAuth is a user name and password.
type BasicAuth struct {
	// Username of the database's administrator.
	// +required
	Username ContentRef `json:"username"`
	// Password of the database's administrator.
	// +required
	Password ContentRef `json:"password"`
}

// TLSConfig is the certificates for the connection to a database.
type TLSConfig struct {
	// CertificateAuthority verifies the servers. With etcd, its private key signs the tenants' client certificates.
	// +required
	CertificateAuthority CertKeyPair `json:"certificateAuthority"`
	// ClientCertificate is shown to the servers. Default: none.
	// +optional
	ClientCertificate *ClientCertificate `json:"clientCertificate,omitempty"`
}

// CertKeyPair is a certificate and perhaps its private key, PEM encoded.
type CertKeyPair struct {
	// Certificate, PEM encoded.
	// +required
	Certificate ContentRef `json:"certificate"`
	// PrivateKey of the certificate, PEM encoded. Default: none.
	// +optional
	PrivateKey *ContentRef `json:"privateKey,omitempty"`
}

// ClientCertificate is a certificate and its private key, PEM encoded.
type ClientCertificate struct {
	// Certificate, PEM encoded.
	// +required
	Certificate ContentRef `json:"certificate"`
	// PrivateKey of the certificate, PEM encoded.
	// +required
	PrivateKey ContentRef `json:"privateKey"`
}

// ContentRef is a value given in place or in a Secret; in place wins.
type ContentRef struct {
	// Content is the value itself, base64 encoded. Everybody who may read the object can read it: prefer
	// secretReference for anything secret. Default: what secretReference names.
	// +optional
	Content []byte `json:"content,omitempty"`
	// SecretReference is the place of the value in a Secret. Default: none.
	// +optional
	SecretReference *SecretReference `json:"secretReference,omitempty"`
}

// SecretReference is a key of a Secret.
type SecretReference struct {
	corev1.SecretReference `json:",inline"`
	// KeyPath is the key of the Secret's data that holds the value.
	// +kubebuilder:validation:MinLength=1
	// +required
	KeyPath string `json:"keyPath"`
}

// Types and reasons of the conditions of a DataStore.
const (
	// DataStoreConditionValid says whether what the DataStore refers to is there and can be used.
	DataStoreConditionValid = "kamaji.clastix.io/DataStoreValidation"
	// DataStoreConditionAllowedDeletion says whether no tenant uses the DataStore.
	DataStoreConditionAllowedDeletion = "kamaji.clastix.io/DataStoreAllowedDeletion"

	// DataStoreReasonMissingCondition is the reason before the first check.
	DataStoreReasonMissingCondition = "MissingCondition"
	// DataStoreReasonBasicAuthFailed means that user name or password cannot be read.
	DataStoreReasonBasicAuthFailed = "BasicAuthValidationFailed"
	// DataStoreReasonTLSConfigFailed means that a certificate or key cannot be read.
	DataStoreReasonTLSConfigFailed = "TLSConfigurationValidationFailed"
	// DataStoreReasonValid means that all checks passed.
	DataStoreReasonValid = "DataStoreIsValid"
	// DataStoreReasonStillUsed means that tenants use the DataStore.
	DataStoreReasonStillUsed = "DataStoreStillUsed"
	// DataStoreReasonUnused means that no tenant uses the DataStore.
	DataStoreReasonUnused = "DataStoreUnused"
)

// DataStoreUsage is how much tenants hold in a DataStore, and how fast it answers.
type DataStoreUsage struct {
	StorageUsage `json:",inline"`
	// LatencyMilliseconds is how long the database took to answer a check.
	// +optional
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
}

// DataStoreStatus is what was last observed of a DataStore.
type DataStoreStatus struct {
	// ObservedGeneration is the metadata.generation this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Ready says whether tenants can use the DataStore.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// UsedBy are the tenants that use the DataStore, as namespace/name.
	// +optional
	UsedBy []string `json:"usedBy,omitempty"`
	// Usage is how much all tenants hold in it, and how fast it answers; absent until it was measured.
	// +optional
	Usage *DataStoreUsage `json:"usage,omitempty"`
	// Conditions of the DataStore.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
