package reason

// Reasons of the conditions of a TenantControlPlane, and of the statuses that portals get. A condition that is not true because of
// a failure has the failure's reason.
const (
	// Ready: the tenant is Ready.
	Ready = "Ready"
	// Sleeping: no pods are wanted.
	Sleeping = "Sleeping"
	// Deleting: the tenant is being deleted.
	Deleting = "Deleting"
	// Deleted: nothing of the tenant is left.
	Deleted = "Deleted"
	// Released: the object belongs to another installation.
	Released = "Released"
	// Paused: the tenant was paused before anything was made.
	Paused = "Paused"
	// Annotated: an annotation pauses the tenant.
	Annotated = "Annotated"
	// Transferring: another management cluster may take the tenant over.
	Transferring = "Transferring"
	// EndpointPending: all is done, but the endpoint is not known.
	EndpointPending = "EndpointPending"
	// WorkloadRollingOut: pods are being replaced while others serve.
	WorkloadRollingOut = "WorkloadRollingOut"
	// Unknown: a failure whose reason is no word that the API takes.
	Unknown = "Unknown"
)

// Reasons of the condition of one service. The Ready condition names the service before them.
const (
	// Waiting: the service waits, or has not begun.
	Waiting = "Waiting"
	// InProgress: the service is at work.
	InProgress = "InProgress"
	// Pending: the service, or what is asked of it, is not there yet.
	Pending = "Pending"
	// Removed: a deletion has removed the service's part.
	Removed = "Removed"
	// NoReadyPods: no pod is ready.
	NoReadyPods = "NoReadyPods"
	// RollingOut: pods are being replaced.
	RollingOut = "RollingOut"
	// Issued, Rotated: keys and certificates exist.
	Issued  = "Issued"
	Rotated = "Rotated"
	// Provisioned: user and schema exist.
	Provisioned = "Provisioned"
	// Available, Upgraded: the pods are ready.
	Available = "Available"
	Upgraded  = "Upgraded"
	// Applied, Repaired: the objects inside the tenant are as they must be.
	Applied  = "Applied"
	Repaired = "Repaired"
	// Reached: the endpoint answers.
	Reached = "Reached"
	// EndpointForeign: what answers at the endpoint isn't the tenant's API.
	EndpointForeign = "EndpointForeign"
	// EndpointCertificate: the tenant's API answers at the endpoint with a certificate that isn't valid there.
	EndpointCertificate = "EndpointCertificate"
	// EndpointUnresolved: the endpoint's host name has no address.
	EndpointUnresolved = "EndpointUnresolved"
	// EndpointRefused: nothing listens at the endpoint.
	EndpointRefused = "EndpointRefused"
	// EndpointTimeout: nothing answers at the endpoint in time.
	EndpointTimeout = "EndpointTimeout"
	// EndpointUnreachable: the endpoint can't be reached for another reason.
	EndpointUnreachable = "EndpointUnreachable"
	// AgentsConnected, AgentsNotConnected, NoAgents: whether konnectivity's agents inside the tenant are connected.
	AgentsConnected    = "AgentsConnected"
	AgentsNotConnected = "AgentsNotConnected"
	NoAgents           = "NoAgents"
	// WithinQuota: the tenant keeps less than four fifths of what it may. NearQuota: it keeps more. QuotaFull: it has reached a bound.
	WithinQuota = "WithinQuota"
	NearQuota   = "NearQuota"
	QuotaFull   = "QuotaFull"
	// Registered: Argo CD knows the tenant as a cluster.
	Registered = "Registered"
	// ArgoCDOff: the installation knows of no Argo CD.
	ArgoCDOff = "ArgoCDOff"
	// ArgoCDUnreadable: the annotation that asks for it has a value that says nothing.
	ArgoCDUnreadable = "ArgoCDUnreadable"
	// ArgoCDClusterTaken: Argo CD knows another cluster by the tenant's address or name.
	ArgoCDClusterTaken = "ArgoCDClusterTaken"
	// ArgoCDSecretTaken: the Secret of the tenant's name is somebody else's.
	ArgoCDSecretTaken = "ArgoCDSecretTaken"
	// ArgoCDRefused: the management cluster doesn't let Stoker write the Secret.
	ArgoCDRefused = "ArgoCDRefused"
	// WritesBlocked: kinds of writes are refused inside the tenant.
	WritesBlocked = "WritesBlocked"
)

// Reasons of a tenant that is not Ready because of one service.
const (
	CertificatesWaiting    = "CertificatesWaiting"
	CertificatesInProgress = "CertificatesInProgress"
	CertificatesPending    = "CertificatesPending"
	CertificatesRemoved    = "CertificatesRemoved"
	DatastoreWaiting       = "DatastoreWaiting"
	DatastoreInProgress    = "DatastoreInProgress"
	DatastorePending       = "DatastorePending"
	DatastoreRemoved       = "DatastoreRemoved"
	WorkloadWaiting        = "WorkloadWaiting"
	WorkloadInProgress     = "WorkloadInProgress"
	WorkloadPending        = "WorkloadPending"
	WorkloadNoReadyPods    = "WorkloadNoReadyPods"
	WorkloadRemoved        = "WorkloadRemoved"
	AddonsWaiting          = "AddonsWaiting"
	AddonsInProgress       = "AddonsInProgress"
	AddonsPending          = "AddonsPending"
	AddonsRemoved          = "AddonsRemoved"
)

// Conditions lists the reasons of conditions. A word may be in [Table] as well, where it says why pods aren't ready ("Pending").
func Conditions() []Entry {
	const why = "stoker why {name} -n {namespace} says what is missing."
	return []Entry{
		{Ready, "the tenant's API answers, and everything of this generation is done", "", ""},
		{Sleeping, "no pods are wanted (spec.controlPlane.deployment.replicas is 0)", "", ""},
		{Deleting, "the tenant is being deleted; the message says whose turn it is", "", ""},
		{Deleted, "nothing of the tenant is left, or what is left is listed", "", ""},
		{Released, "the object belongs to another installation of Stoker, which goes on with it", "", ""},
		{Paused, "the tenant was paused before anything was made for it", "Resume it: stoker resume {name} -n {namespace}", ""},
		{Annotated, "an annotation pauses the tenant: nothing is changed for it", "Resume it: stoker resume {name} -n {namespace}", ""},
		{
			Transferring, "an annotation lets another management cluster take the tenant over: nothing is changed for it",
			"When that is given up, take the annotation off, or unpause its Cluster.", "",
		},
		{EndpointPending, "the services are done, but it isn't known where the tenant's API is reached", why, ""},
		{WorkloadRollingOut, "pods are being replaced while others serve", "", ""},
		{Unknown, "a step failed, and its reason is no word that the API takes", why, ""},

		{Waiting, "a service waits for what its message says, or has not begun", why, ""},
		{InProgress, "a service is at work", "", ""},
		{Pending, "a service has not come to this generation, or what its message names is not there yet", "", ""},
		{Removed, "a deletion has removed the service's part of the tenant", "", ""},
		{NoReadyPods, "no pod of the control plane is ready", why, ""},
		{RollingOut, "pods are ready, and others are being replaced", "", ""},
		{Issued, "all keys, certificates and kubeconfigs of this generation exist", "", ""},
		{Rotated, "some of them were made anew", "", ""},
		{Provisioned, "user and schema exist in the DataStore", "", ""},
		{Available, "the pods of this generation are ready", "", ""},
		{Upgraded, "they are ready, and run another version than before", "", ""},
		{Applied, "the objects inside the tenant are as they must be", "", ""},
		{Repaired, "they are again: somebody had changed some", "", ""},
		{Reached, "the endpoint answers with a certificate of the tenant's authority", "", ""},
		{
			EndpointForeign, "something else answers at the tenant's endpoint, with a certificate of another authority or without TLS",
			"Does the address lead to the tenant's Service (spec.networkProfile.address, DNS)? A gateway, Ingress or load balancer on the way " +
				"must pass TLS through, not end it.", "-n {namespace} get service {name}",
		},
		{
			EndpointCertificate, "the tenant's API answers at its endpoint with a certificate that doesn't name it or isn't valid now",
			"It may end by itself, with the rollout of new certificates. Else: is the clock right, does stoker why {name} -n {namespace} name " +
				"certs?", "",
		},
		{
			EndpointUnresolved, "the host name of the tenant's endpoint has no address where Stoker looks it up",
			"Is there a DNS record of it? One that is to resolve outside of the management cluster only needs nothing: clients reach the tenant, " +
				"and Ready is apart from this.", "",
		},
		{
			EndpointRefused, "nothing listens at the tenant's endpoint",
			"Does the address lead to the tenant's Service (spec.networkProfile.address, DNS), at that port?", "-n {namespace} get service {name}",
		},
		{
			EndpointTimeout, "nothing answers at the tenant's endpoint",
			"Do firewalls, loadBalancerSourceRanges and NetworkPolicies let clients there? If they do, and only Stoker doesn't come through, as " +
				"behind a NAT, nothing need be done.", "-n {namespace} describe service {name}",
		},
		{
			EndpointUnreachable, "the tenant's endpoint can't be reached; the message says why",
			"Is there a route to the address (spec.networkProfile.address, DNS)?", "-n {namespace} describe service {name}",
		},
		{AgentsConnected, "an agent of konnectivity is connected, so that the API server reaches nodes, pods and Services", "", ""},
		{
			AgentsNotConnected, "no agent of konnectivity is connected to its server",
			"Look inside the tenant at the pods with the label k8s-app=konnectivity-agent and their events; their logs are to be had on their nodes " +
				"only. Nodes must reach the address and port that the message names.", "",
		},
		{NoAgents, "there is no node that runs an agent of konnectivity", "Have a node join.", ""},
		{WithinQuota, "the tenant keeps less than four fifths of what its quota lets it", "", ""},
		{NearQuota, "the tenant keeps four fifths of what its quota lets it, or more", "Does it need more? See the annotations stoker.dev/quota-bytes and stoker.dev/quota-objects.", ""},
		{QuotaFull, "the tenant has reached its quota: what would grow it is refused, deletes go on", "Delete something inside the tenant, or give it a larger quota.", ""},
		{Registered, "Argo CD knows the tenant as a cluster", "", ""},
		{
			ArgoCDOff, "the tenant asks to be known to Argo CD, and this installation knows of none",
			"Say in which namespace Argo CD is (--argocd-namespace of certs, argocd.namespace in the chart), or take the annotation away.", "",
		},
		{ArgoCDUnreadable, "the annotation by which a tenant asks to be known to Argo CD is neither true nor false, and has no effect", "Write the annotation anew, or remove it.", ""},
		{
			ArgoCDClusterTaken, "Argo CD knows another cluster by the tenant's address or name, and would take one for the other; nothing is changed",
			"Give the tenant an endpoint of its own, or remove the other cluster from Argo CD.", "",
		},
		{ArgoCDSecretTaken, "a Secret of the name that the tenant's has in the namespace of Argo CD is somebody else's, and is left as it is", "Delete it, or give it another name.", ""},
		{ArgoCDRefused, "the management cluster does not let certs write the tenant's Secret in the namespace of Argo CD", "Create the namespace, and give certs its rights there.", ""},
		{WritesBlocked, "kinds of writes are refused inside the tenant, as spec.writePermissions asks", "Set its fields to false to allow them again.", ""},

		{CertificatesWaiting, "certs waits, or has not begun", why, ""},
		{CertificatesInProgress, "certs is at work", "", ""},
		{CertificatesPending, "certs has not come to this generation", "", ""},
		{CertificatesRemoved, "certs has removed keys and certificates in a deletion", "", ""},
		{DatastoreWaiting, "datastore waits, or has not begun", why, ""},
		{DatastoreInProgress, "datastore is at work", "", ""},
		{DatastorePending, "datastore has not come to this generation", "", ""},
		{DatastoreRemoved, "datastore has removed user and schema in a deletion", "", ""},
		{WorkloadWaiting, "workload waits, or has not begun", why, ""},
		{WorkloadInProgress, "workload is at work", "", ""},
		{WorkloadPending, "workload has not come to this generation", "", ""},
		{WorkloadNoReadyPods, "no pod of the control plane is ready", why, ""},
		{WorkloadRemoved, "workload has removed the pods in a deletion", "", ""},
		{AddonsWaiting, "addons waits, or has not begun", why, ""},
		{AddonsInProgress, "addons is at work", "", ""},
		{AddonsPending, "addons has not come to this generation", "", ""},
		{AddonsRemoved, "addons has let go of the tenant in a deletion", "", ""},
	}
}
