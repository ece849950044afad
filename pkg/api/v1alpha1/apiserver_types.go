package v1alpha1

// APIServerSpec is settings of a tenant's API server that would otherwise be flags and files of one's own. Each is off, or
// Kubernetes' default, where it is absent. What a setting has a flag for can't be in extraArgs as well.
type APIServerSpec struct {
	// Authentication is who may sign in beside holders of client certificates, ServiceAccount tokens and bootstrap tokens. Default:
	// nobody.
	// +optional
	Authentication *AuthenticationSpec `json:"authentication,omitempty"`
	// Authorization is who decides what a user may do, in order. Default: Node, then RBAC.
	// +optional
	Authorization *AuthorizationSpec `json:"authorization,omitempty"`
	// Audit is which requests are recorded, and where. Default: none.
	// +optional
	Audit *AuditSpec `json:"audit,omitempty"`
	// Encryption is which objects are kept encrypted in the DataStore, by keys that Stoker makes and rotates. Default: none.
	// +optional
	Encryption *EncryptionSpec `json:"encryption,omitempty"`
	// FeatureGates switches features of the API server on or off, by name. One that this version of Kubernetes doesn't know, or has
	// locked, keeps the new pods from starting, while the old ones go on. The controller manager and the scheduler have extraArgs for
	// theirs. Default: those of Kubernetes.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
	// EventTTL is how long Events are kept, such as 90m or 24h. Default: 1h.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(h|m|s))+$') && self.matches('[1-9]')",message="must be a duration of more than 0, such as 90m or 24h"
	// +optional
	EventTTL string `json:"eventTTL,omitempty"`
	// MaxRequestsInFlight and maxMutatingRequestsInFlight are together how many requests one API server works on at a time; API
	// priority and fairness shares them out. Default: 400.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxRequestsInFlight *int32 `json:"maxRequestsInFlight,omitempty"`
	// MaxMutatingRequestsInFlight is added to maxRequestsInFlight. Default: 200.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxMutatingRequestsInFlight *int32 `json:"maxMutatingRequestsInFlight,omitempty"`
}

// AuthenticationSpec is who may sign in, and what is open to those who don't.
type AuthenticationSpec struct {
	// JWT are issuers of tokens, such as OpenID Connect providers, in the shape of Kubernetes' AuthenticationConfiguration
	// (apiserver.config.k8s.io/v1). The API server of each version gets it in the form that it knows. Default: none.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(j, self.exists_one(k, k.issuer.url == j.issuer.url))",messageExpression="'\"%s\": each issuer can be listed once'.format([self.filter(j, !self.exists_one(k, k.issuer.url == j.issuer.url))[0].issuer.url])"
	// +optional
	JWT []JWTAuthenticator `json:"jwt,omitempty"`
	// Anonymous is what is open to requests of nobody who has signed in, of which the authorizers still decide. Kubernetes v1.32 or
	// later. Default: all paths.
	// +optional
	Anonymous *AnonymousAuthentication `json:"anonymous,omitempty"`
}

// AnonymousAuthentication is what is open to requests of nobody who has signed in. It can't be switched off, for the probes of the
// control plane's pods are such requests, but be limited to some paths.
type AnonymousAuthentication struct {
	// Enabled must be true: the probes of the pods don't sign in.
	// +kubebuilder:validation:XValidation:rule="self",message="must be true, for the probes of the control plane's pods don't sign in: limit it by conditions"
	// +required
	Enabled bool `json:"enabled"`
	// Conditions of which a request must meet one. Those of probes and of kubeadm join must be among them: /livez, /readyz, /healthz
	// and /api/v1/namespaces/kube-public/configmaps/cluster-info. Default: none, so that all requests are taken.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="['/livez', '/readyz', '/healthz', '/api/v1/namespaces/kube-public/configmaps/cluster-info'].all(p, self.exists(c, c.path == p))",messageExpression="'must have the path ' + ['/livez', '/readyz', '/healthz', '/api/v1/namespaces/kube-public/configmaps/cluster-info'].filter(p, !self.exists(c, c.path == p))[0] + ': probes and kubeadm join don\\'t sign in'"
	// +listType=map
	// +listMapKey=path
	// +optional
	Conditions []AnonymousCondition `json:"conditions,omitempty"`
}

// AnonymousCondition is what a request without a user may be.
type AnonymousCondition struct {
	// Path is the request's path as a whole, without its query; what is below it is not meant.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^*?#[:space:]]*$`
	// +required
	Path string `json:"path"`
}

// JWTAuthenticator is an issuer of tokens, and what the API server makes of them.
type JWTAuthenticator struct {
	// Issuer is who signs the tokens, and for whom.
	// +required
	Issuer JWTIssuer `json:"issuer"`
	// ClaimValidationRules must all hold for a token to be taken. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	// ClaimMappings say which user a token is.
	// +required
	ClaimMappings ClaimMappings `json:"claimMappings"`
	// UserValidationRules must all hold for the user that a token is. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// JWTIssuer is who signs tokens, and for whom.
//
// +kubebuilder:validation:XValidation:rule="size(self.audiences) < 2 || has(self.audienceMatchPolicy)",fieldPath=".audienceMatchPolicy",reason=FieldValueRequired,message="must be MatchAny with several audiences"
// +kubebuilder:validation:XValidation:rule="!has(self.discoveryURL) || self.discoveryURL != self.url",fieldPath=".discoveryURL",messageExpression="'\"%s\": must be another URL than that of the issuer'.format([self.discoveryURL])"
type JWTIssuer struct {
	// URL is the issuer as its tokens name it (iss). The API server reads <url>/.well-known/openid-configuration unless there is a
	// discoveryURL. It is reached from the management cluster, not through the tenant's network.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https://[^/?#@[:space:]]+(/[^?#[:space:]]*)?$')",message="must be a URL that begins with https:// and has no user, query or fragment"
	// +required
	URL string `json:"url"`
	// DiscoveryURL is where the issuer's configuration is read instead, whole. Default: <url>/.well-known/openid-configuration.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https://[^/?#@[:space:]]+(/[^?#[:space:]]*)?$')",message="must be a URL that begins with https:// and has no user, query or fragment"
	// +optional
	DiscoveryURL string `json:"discoveryURL,omitempty"`
	// CertificateAuthority is the PEM of the authorities that the issuer's certificate is checked by. Default: those that the API
	// server's image trusts.
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----') && !self.contains('PRIVATE KEY')",message="must be certificates in PEM, and no keys"
	// +optional
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// Audiences are for whom tokens may be (aud), such as the client id. One of them must be in a token.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +required
	Audiences []string `json:"audiences"`
	// AudienceMatchPolicy must be MatchAny with several audiences: one of them is enough. Default: none.
	// +kubebuilder:validation:Enum=MatchAny
	// +optional
	AudienceMatchPolicy string `json:"audienceMatchPolicy,omitempty"`
}

// ClaimValidationRule is what must hold for a token: a claim that has a value, or an expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="must have either claim or expression"
// +kubebuilder:validation:XValidation:rule="has(self.claim) || !has(self.requiredValue)",fieldPath=".requiredValue",message="goes with claim, not with expression"
// +kubebuilder:validation:XValidation:rule="has(self.expression) || !has(self.message)",fieldPath=".message",message="goes with expression, not with claim"
type ClaimValidationRule struct {
	// Claim is the name of the claim. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Claim string `json:"claim,omitempty"`
	// RequiredValue is what the claim must be. Default: it need only be there, and empty.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	RequiredValue string `json:"requiredValue,omitempty"`
	// Expression is CEL that must be true, over claims. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Expression string `json:"expression,omitempty"`
	// Message says in the API server's log what was wrong. Default: the expression.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// ClaimMappings say which user a token is.
//
// +kubebuilder:validation:XValidation:rule="has(self.username.claim) || has(self.username.expression)",fieldPath=".username",reason=FieldValueRequired,message="must have claim or expression"
type ClaimMappings struct {
	// Username is the user's name.
	// +required
	Username PrefixedClaimOrExpression `json:"username"`
	// Groups are the user's groups. Default: none but system:authenticated.
	// +optional
	Groups *PrefixedClaimOrExpression `json:"groups,omitempty"`
	// UID is the user's UID. Default: none.
	// +optional
	UID *ClaimOrExpression `json:"uid,omitempty"`
	// Extra is more about the user, for authorizers and admission. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=key
	// +optional
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with what stands before it, or an expression.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.claim) && has(self.expression))",message="must not have both claim and expression"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || has(self.prefix)",fieldPath=".prefix",reason=FieldValueRequired,message="goes with claim, and keeps the issuer's users apart from the cluster's own: \"\" for none"
// +kubebuilder:validation:XValidation:rule="has(self.claim) || !has(self.prefix)",fieldPath=".prefix",message="goes with claim, not with expression"
type PrefixedClaimOrExpression struct {
	// Claim is the name of the claim. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Claim string `json:"claim,omitempty"`
	// Prefix stands before the claim's value; "" for none. It goes with claim and has no default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Prefix *string `json:"prefix,omitempty"`
	// Expression is CEL that makes it, over claims. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim or an expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="must have either claim or expression"
type ClaimOrExpression struct {
	// Claim is the name of the claim. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Claim string `json:"claim,omitempty"`
	// Expression is CEL that makes it, over claims. Default: none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping is more about a user.
type ExtraMapping struct {
	// Key is a path that begins with a domain, in small letters, such as example.com/tenant; kubernetes.io and k8s.io are Kubernetes'
	// own.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[-a-z0-9._~!$&()*+,;=:@/]+$') && !self.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/')",message="must be a domain and a path in small letters, such as example.com/tenant, and not of kubernetes.io or k8s.io"
	// +required
	Key string `json:"key"`
	// ValueExpression is CEL that makes a string or a list of strings, over claims.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is what must hold for a user.
type UserValidationRule struct {
	// Expression is CEL that must be true, over user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Expression string `json:"expression"`
	// Message says in the API server's log what was wrong. Default: the expression.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// AuthorizationSpec is who decides what a user may do.
type AuthorizationSpec struct {
	// Authorizers are asked in this order, until one allows or denies. Node and RBAC must be among them: the control plane and Stoker
	// itself depend on them.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="['Node', 'RBAC'].all(t, self.exists_one(a, a.type == t))",message="must have Node and RBAC, each once: the control plane depends on them"
	// +listType=map
	// +listMapKey=name
	// +required
	Authorizers []Authorizer `json:"authorizers"`
}

// Authorizer decides, or has no opinion.
//
// +kubebuilder:validation:XValidation:rule="has(self.webhook) == (self.type == 'Webhook')",fieldPath=".webhook",message="must be set with type Webhook, and only then"
type Authorizer struct {
	// Type is Webhook, Node or RBAC.
	// +kubebuilder:validation:Enum=Webhook;Node;RBAC
	// +required
	Type string `json:"type"`
	// Name is what it is called in metrics, a DNS label, unique.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`
	// Webhook is asked by SubjectAccessReviews (authorization.k8s.io/v1). With type Webhook only. Default: none.
	// +optional
	Webhook *AuthorizationWebhook `json:"webhook,omitempty"`
}

// AuthorizationWebhook is a service that is asked what a user may do.
type AuthorizationWebhook struct {
	// KubeconfigSecret holds the kubeconfig by which the service is reached.
	// +required
	KubeconfigSecret SettingsSecret `json:"kubeconfigSecret"`
	// FailurePolicy says what becomes of a request when the service can't be asked: NoOpinion asks the next authorizer, Deny refuses
	// it. With Deny before Node and RBAC, a service that is away keeps the controller manager, the scheduler and nodes from working.
	// +kubebuilder:validation:Enum=NoOpinion;Deny
	// +required
	FailurePolicy string `json:"failurePolicy"`
	// Timeout of one question, from 1s to 30s. Default: 3s.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^([1-9]|[12][0-9]|30)s$')",message="must be from 1s to 30s"
	// +optional
	Timeout string `json:"timeout,omitempty"`
	// AuthorizedTTL is how long it is remembered that something was allowed. Default: 5m.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(h|m|s))+$') && self.matches('[1-9]')",message="must be a duration of more than 0, such as 30s or 5m"
	// +optional
	AuthorizedTTL string `json:"authorizedTTL,omitempty"`
	// UnauthorizedTTL is how long it is remembered that something wasn't allowed. Default: 30s.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(h|m|s))+$') && self.matches('[1-9]')",message="must be a duration of more than 0, such as 30s or 5m"
	// +optional
	UnauthorizedTTL string `json:"unauthorizedTTL,omitempty"`
	// MatchConditions must all hold for the service to be asked. Default: it is asked always.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	MatchConditions []AuthorizationMatchCondition `json:"matchConditions,omitempty"`
}

// AuthorizationMatchCondition is what must hold for a webhook to be asked.
type AuthorizationMatchCondition struct {
	// Expression is CEL that must be true, over request, the spec of a SubjectAccessReview.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Expression string `json:"expression"`
}

// SettingsSecret is a Secret of the tenant's namespace with something that the API server is to have. It is mounted, never
// copied, and a change of it starts new pods. It must carry the label stoker.dev/used-by with the tenant's name: so whoever may
// write a tenant, but not Secrets, reaches none that isn't meant for it.
type SettingsSecret struct {
	// Name of the Secret. Its key "kubeconfig" holds the kubeconfig.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// AuditSpec is which requests are recorded, and where.
//
// +kubebuilder:validation:XValidation:rule="has(self.log) || has(self.webhook)",reason=FieldValueRequired,message="must have log or webhook: where events go"
type AuditSpec struct {
	// Policy says what is recorded of which requests, in the shape of Kubernetes' audit policy (audit.k8s.io/v1).
	// +required
	Policy AuditPolicy `json:"policy"`
	// Log writes events to the API server's own output, one line of JSON each, or to a file. Default: off.
	// +optional
	Log *AuditLog `json:"log,omitempty"`
	// Webhook sends events to a service. Default: off.
	// +optional
	Webhook *AuditWebhook `json:"webhook,omitempty"`
}

// AuditLog writes audit events where the API server runs.
type AuditLog struct {
	// File writes to /var/log/kubernetes/audit.log of the volume kube-apiserver-audit-log, which lives as long as the pod and which
	// additionalContainers may mount, instead of to the output of the container. Default: off.
	// +optional
	File *AuditLogFile `json:"file,omitempty"`
}

// AuditLogFile bounds files of audit events.
type AuditLogFile struct {
	// MaxSize is at how many megabytes a file is put aside. Default: 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxSize int32 `json:"maxSize,omitempty"`
	// MaxBackup is how many files that were put aside are kept. Default: 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxBackup int32 `json:"maxBackup,omitempty"`
	// MaxAge is for how many days files that were put aside are kept at most. Default: as long as maxBackup lets them.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	// +optional
	MaxAge int32 `json:"maxAge,omitempty"`
}

// AuditWebhook is a service that gets audit events.
type AuditWebhook struct {
	// KubeconfigSecret holds the kubeconfig by which the service is reached.
	// +required
	KubeconfigSecret SettingsSecret `json:"kubeconfigSecret"`
}

// AuditPolicy says what is recorded of which requests.
type AuditPolicy struct {
	// OmitStages are those of which no events are recorded. Default: none.
	// +kubebuilder:validation:MaxItems=4
	// +optional
	OmitStages []AuditStage `json:"omitStages,omitempty"`
	// OmitManagedFields leaves managedFields out of the bodies that are recorded. Default: false.
	// +optional
	OmitManagedFields bool `json:"omitManagedFields,omitempty"`
	// Rules are tried in this order; the first that a request fits counts. A request that fits none isn't recorded.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +required
	Rules []AuditPolicyRule `json:"rules"`
}

// AuditStage is a point in a request's life.
//
// +kubebuilder:validation:Enum=RequestReceived;ResponseStarted;ResponseComplete;Panic
type AuditStage string

// AuditPolicyRule says what is recorded of some requests. Each list that is absent fits all.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nonResourceURLs) || !has(self.resources) && !has(self.namespaces)",fieldPath=".nonResourceURLs",message="cannot be set beside resources or namespaces: no request is of both kinds"
type AuditPolicyRule struct {
	// Level is None, Metadata (who did what), Request (and the request's body) or RequestResponse (and the answer's).
	// +kubebuilder:validation:Enum=None;Metadata;Request;RequestResponse
	// +required
	Level string `json:"level"`
	// Users who make the requests. Default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Users []string `json:"users,omitempty"`
	// UserGroups one of which the users are in. Default: any.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	UserGroups []string `json:"userGroups,omitempty"`
	// Verbs of the requests, such as get or create. Default: all.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Verbs []string `json:"verbs,omitempty"`
	// Resources that the requests are about. Default: all.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Resources []AuditResources `json:"resources,omitempty"`
	// Namespaces that the requests are about; "" for what is in none. Default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// NonResourceURLs are paths of other requests, such as /metrics or /healthz*. Default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([*]|/[^*]*[*]?)$`
	// +optional
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	// OmitStages are those of which no events are recorded, beside the policy's. Default: none.
	// +kubebuilder:validation:MaxItems=4
	// +optional
	OmitStages []AuditStage `json:"omitStages,omitempty"`
	// OmitManagedFields, when set, counts instead of the policy's. Default: the policy's.
	// +optional
	OmitManagedFields *bool `json:"omitManagedFields,omitempty"`
}

// AuditResources are resources of one API group.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resourceNames) || has(self.resources)",fieldPath=".resources",reason=FieldValueRequired,message="must be set with resourceNames"
type AuditResources struct {
	// Group of the resources, without a version. Default: the core group.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +optional
	Group string `json:"group,omitempty"`
	// Resources in the plural, with a slash before subresources: pods, pods/log, */status. Default: all of the group.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Resources []string `json:"resources,omitempty"`
	// ResourceNames are the names of the objects. Default: any.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// EncryptionSpec is which objects are kept encrypted, and how.
type EncryptionSpec struct {
	// Resources are the kinds of objects, in the plural, with their API group unless that is the core group: secrets,
	// deployments.apps, tokens.example.com. Default: secrets.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z][a-z0-9]*([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="!self.exists(r, r.endsWith('.extensions') || r.endsWith('.events.k8s.io') || r in ['apiserveripinfo', 'serviceipallocations', 'servicenodeportallocations'])",messageExpression="'\"%s\": can\\'t be encrypted by that name: events are events, what was in extensions is in the group where it is now'.format([self.filter(r, r.endsWith('.extensions') || r.endsWith('.events.k8s.io') || r in ['apiserveripinfo', 'serviceipallocations', 'servicenodeportallocations'])[0]])"
	// +listType=set
	// +optional
	Resources []string `json:"resources,omitempty"`
	// Provider is the cipher: secretbox (XSalsa20 and Poly1305), or aescbc where only AES may be used. Another one means another key.
	// Default: secretbox.
	// +kubebuilder:validation:Enum=secretbox;aescbc
	// +optional
	Provider string `json:"provider,omitempty"`
}

// Providers of encryption.
const (
	ProviderSecretbox = "secretbox"
	ProviderAESCBC    = "aescbc"
)

// Encrypted are the resources that are to be encrypted, and by which provider; none when nothing is.
func (s *APIServerSpec) Encrypted() (resources []string, provider string) {
	if s == nil || s.Encryption == nil {
		return nil, ""
	}
	resources, provider = s.Encryption.Resources, s.Encryption.Provider
	if len(resources) == 0 {
		resources = []string{"secrets"}
	}
	if provider == "" {
		provider = ProviderSecretbox
	}
	return resources, provider
}

// Secrets are the names of the Secrets that the settings refer to, in the order of the spec; nil for none.
func (s *APIServerSpec) Secrets() []string {
	if s == nil {
		return nil
	}
	var names []string
	if s.Authorization != nil {
		for _, a := range s.Authorization.Authorizers {
			if a.Webhook != nil {
				names = append(names, a.Webhook.KubeconfigSecret.Name)
			}
		}
	}
	if s.Audit != nil && s.Audit.Webhook != nil {
		names = append(names, s.Audit.Webhook.KubeconfigSecret.Name)
	}
	return names
}
