package reason

// Entry is a row of the table.
type Entry struct {
	// Reason is the constant.
	Reason string
	// Meaning is one sentence: what is the case.
	Meaning string
	// Do says what a person can do; empty when it ends by itself and nothing need be done.
	Do string
	// Run is the kubectl command that shows more, without "kubectl"; empty for none.
	//
	// In Do and Run, {service} stands for the service that gives the reason, {namespace}, {name} and {selector} for the tenant's
	// namespace and name and the label selector of its pods.
	Run string
}

// Advice for failures of which the table says nothing more, with the words in braces that [Entry] explains.
const (
	// AdviceRetried is for a step that is tried again.
	AdviceRetried = "{service} tries again by itself; if it doesn't end, put right what its message names."
	// AdvicePermanent is for a step that was given up, which is tried again slowly.
	AdvicePermanent = "{service} tries again now and then: put right what its message names, and apply the tenant again to go on at once."
)

// Find returns the row of a reason.
func Find(reason string) (Entry, bool) {
	for _, e := range Table() {
		if e.Reason == reason {
			return e, true
		}
	}
	return Entry{}, false
}

// FindCondition returns the row of a condition's reason.
func FindCondition(reason string) (Entry, bool) {
	for _, e := range Conditions() {
		if e.Reason == reason {
			return e, true
		}
	}
	return Entry{}, false
}

// Table lists the reasons that services give, waits first, then failures, then what keeps pods from being ready. Those of
// conditions are in [Conditions].
func Table() []Entry {
	const logs = "-n {namespace} logs -l {selector} --all-containers --prefix --ignore-errors --tail=20"
	image := "An image can't be had: is there such a version (spec.kubernetes.version), and do nodes reach the registry " +
		"(spec.controlPlane.deployment.registrySettings)? Put it right and apply the tenant again; a registry that comes back is noticed."
	takenElsewhere := "Choose another one, or free the one that the message names; it is tried again by itself."
	notAllowed := "Put right what the message names: a quota, a webhook, the workload service's rights; it is tried again by itself."
	notServed := "Install the kind (for a TLSRoute, the Gateway API) or create the namespace; it is tried again by itself."
	const tryAgain, again = AdviceRetried, AdvicePermanent
	return []Entry{
		{DataStoreNotChosen, "the tenant names no DataStore, and none could be chosen for it", "Name one (spec.dataStore), or create one that fits.", ""},
		{PauseUnreadable, "the end of the pause, an annotation, is no time", "Write the annotation anew, in RFC 3339, or resume the tenant.", ""},
		{ScheduleUnreadable, "what annotations say of sleep or of backups can't be read, and has no effect", "Write the annotation anew, or remove it.", ""},
		{RestoreUnreadable, "what an annotation asks for of a restore in place can't be read, or can't be done, and has no effect", "Write the annotation anew, or remove it.", ""},
		{QuotaUnreadable, "what annotations say of a quota can't be read; the quota of before holds", "Write the annotation anew, or remove it.", ""},
		{KeysNotIssued, "keys and certificates of this generation are not all made", "", ""},
		{AccountNotProvisioned, "user and schema in the DataStore are not made", "", ""},
		{EndpointUnknown, "it isn't known yet where the tenant's API is reached", "", ""},
		{EndpointMoving, "the tenant has another endpoint; kubeconfigs lead there once all pods have a certificate for it", "", ""},
		{AddressPending, "the Service has no address yet", "If it lasts: does the cluster have a load balancer, and an address left?", "-n {namespace} describe service {name}"},
		{RolloutSlot, "other tenants' pods are being rolled out; this one's turn comes", "", ""},
		{ObjectDenied, "the management cluster denies an object; it is applied again now and then", "Put right what the message names.", ""},
		{PodsNotReady, "the control plane's pods are not ready", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodsEnding, "the control plane's pods have not ended", "Which pods, and on which nodes, if it lasts:", "-n {namespace} get pods -l {selector} -o wide"},
		{
			PodsNotDeleted, "pods have not been asked to end, or their ReplicaSets are left",
			"Does the management cluster's kube-controller-manager run, whose garbage collector removes them? If it does, a finalizer may keep a ReplicaSet:",
			"-n {namespace} get replicasets,pods -l {selector} -o custom-columns=KIND:.kind,NAME:.metadata.name,DELETED:.metadata.deletionTimestamp,FINALIZERS:.metadata.finalizers",
		},
		{
			PodsOnLostNode, "the node of a pod that is to end does not report",
			"Bring the node that the message names back, or, if its machine is off for good, delete the Node: its pods go with it. " +
				"Deleting a pod by force on a machine that runs leaves its containers running.",
			"get nodes",
		},
		{
			PodsNotEnding, "containers run for longer than a pod has to end",
			"Look on the node that the message names at kubelet and container runtime: they can't end the containers. " +
				"Once the machine is off for good, delete its Node.",
			"-n {namespace} describe pods -l {selector}",
		},
		{
			PodsNotCleanedUp, "a pod's containers have ended, and its node has not given its volumes and network back",
			"Look at the kubelet's log on the node that the message names: a volume that can't be unmounted, as of a server that is gone, or the network's plug-in.",
			"-n {namespace} describe pods -l {selector}",
		},
		{
			PodsHeld, "a pod has ended, and a finalizer of somebody else's keeps it",
			"Does the controller run that put the finalizer there? If it is gone for good, take the finalizer off the pod that the message names; it is noticed at once.",
			"-n {namespace} get pods -l {selector} -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,DELETED:.metadata.deletionTimestamp,FINALIZERS:.metadata.finalizers",
		},
		{
			ObjectHeld, "an object was deleted, and a finalizer of somebody else's keeps it",
			"Does the controller run that put the finalizer there, as a load balancer's does on a Service? If it is gone for good, take the finalizer off " +
				"the object that the message names; it is noticed at once.",
			"-n {namespace} get deployments,services,ingresses,configmaps,secrets -l {selector} " +
				"-o custom-columns=KIND:.kind,NAME:.metadata.name,DELETED:.metadata.deletionTimestamp,FINALIZERS:.metadata.finalizers",
		},
		{ControlPlaneNotReady, "no pod of the control plane runs this generation and is ready", "", ""},
		{EncryptionRollout, "not all pods have the configuration of the encryption that comes next", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{EncryptionRewrite, "objects inside the tenant have yet to be written anew, by the key that is now used or by none", "", ""},
		{Asleep, "the tenant sleeps, by its schedule or because spec.controlPlane.deployment.replicas is 0", "", ""},
		{EarlierRemoval, "the service before has not removed its part of the tenant", "", ""},
		{NotAdopted, "Kamaji made the tenant, and nobody has said that Stoker is to work on it",
			"Stop Kamaji and run `stoker adopt {name} -n {namespace}`.", ""},
		{StatesLost, "what the services knew is lost; they look at the tenant again", "", ""},

		{Unavailable, "a dependency doesn't answer", tryAgain, ""},
		{StepFailed, "a step failed for no known reason", tryAgain, ""},
		{RetriesExhausted, "a step failed for no known reason too often", again, ""},
		{TooManyDeliveries, "every replica that worked on an event ended before it was done", again, ""},
		{Panic, "the service's code panicked: a defect of Stoker", "Report it with the service's log, then apply the tenant again.", ""},
		{InvalidState, "a state in the tenant's bucket can't be read", again, ""},
		{InvalidFact, "a fact's payload can't be read", again, ""},
		{TooLarge, "an event is larger than what may be published", again, ""},
		{InvalidInbox, "a command's replyto is no subject for answers in its namespace", "Send the command again with `stoker.answer.<namespace>.<token>` or none.", ""},
		{Rejected, "a command was refused, and its sender could not be told", "Send it again as its cause says, with replyto.", ""},
		{
			KeepsDrifting, "somebody else changes objects again and again, which are put right at a bounded rate",
			"Find out who does, and end it: `kubectl get -o yaml --show-managed-fields` of such an object names who wrote it.", "",
		},

		{ImagePull, "an image can't be pulled", image, ""},
		{ImageName, "an image's name is not valid", image, ""},
		{ImageNeverPull, "an image is not on the node and may not be pulled", image, ""},
		{
			Unschedulable, "no node takes the pods",
			"No node takes the pods: make room, or change resources, nodeSelector, affinity or tolerations under spec.controlPlane.deployment.",
			"get nodes",
		},
		{
			OutOfMemory, "a container needs more memory than its limit",
			"A container needs more memory: raise its limit under spec.controlPlane.deployment.resources and apply the tenant again.", "",
		},
		{CrashLoop, "a container crashes again and again", "A container crashes; what it said last:", logs + " --previous"},
		{Crashes, "a container crashed", "A container crashes; what it said last:", logs + " --previous"},
		{ProbesFail, "a container runs and its probes fail", "A container runs, but doesn't answer; what it says:", logs},
		{NoPods, "no pod has been created yet", "What keeps them from being created, if it lasts:", "-n {namespace} describe deployment {name}"},
		{ContainerCreating, "images, volumes or network of a container are not there yet", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodInitializing, "a container waits for the pod's init containers", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodPending, "no node has taken the pod up yet", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodFailed, "a pod failed", "What the pods say:", "-n {namespace} describe pods -l {selector}"},
		{
			NodeLost, "the node of a pod does not report",
			"Will the node come back? If not, delete it: the pod is replaced at once. Else it is replaced after the time that its tolerations give, five minutes by default.",
			"get nodes",
		},
		{DeadlineExceeded, "a rollout takes longer than it should", "What the pods wait for:", "-n {namespace} describe pods -l {selector}"},
		{ReplicaCreationError, "a pod can't be created", "Put right what the message names: a quota, a policy, a webhook.", "-n {namespace} describe replicasets -l {selector}"},

		// Of workload.
		{OverridesNotProvisioned, "the tenant has no account yet in the DataStores of its dataStoreOverrides", "", ""},
		{
			UpgradeUndone, "pods of another version did not become ready in time; those of the version before run",
			"Ask for the version of before (spec.kubernetes.version), and the tenant is Ready at once. Or put right what the message names: " +
				"the next change of the spec tries again. stoker.dev/upgrade-timeout says how long pods have.",
			"",
		},
		{
			SecretUnusable, "a Secret that spec.kubernetes.apiServer refers to isn't there, or isn't meant for the tenant",
			"Create it with the key kubeconfig, and label it stoker.dev/used-by={name}; it is noticed at once. The pods there are go on.",
			"-n {namespace} get secrets -L stoker.dev/used-by",
		},
		{
			AddressRequired, "a Service of type NodePort needs an address in the spec",
			"Set spec.networkProfile.address: the address of a node, or of what stands before the nodes.", "",
		},
		{InvalidHostname, "the port of the Ingress' host name is none", "Correct spec.controlPlane.ingress.hostname.", ""},
		{ServiceRefused, "the management cluster says that the Service is not valid", again, ""},
		{ServiceConflict, "a port or an address of the Service is another object's", takenElsewhere, ""},
		{ServiceForbidden, "the management cluster does not allow the Service", notAllowed, ""},
		{ServiceNotServed, "the management cluster does not have the Service's kind or namespace", notServed, ""},
		{DeploymentRefused, "the management cluster says that the Deployment is not valid", again, ""},
		{DeploymentConflict, "a port or an address of the Deployment is another object's", takenElsewhere, ""},
		{DeploymentForbidden, "the management cluster does not allow the Deployment", notAllowed, ""},
		{DeploymentNotServed, "the management cluster does not have the Deployment's kind or namespace", notServed, ""},
		{IngressRefused, "the management cluster says that the Ingress is not valid", again, ""},
		{IngressConflict, "a port or an address of the Ingress is another object's", takenElsewhere, ""},
		{IngressForbidden, "the management cluster does not allow the Ingress", notAllowed, ""},
		{IngressNotServed, "the management cluster does not have the Ingress's kind or namespace", notServed, ""},
		{TLSRouteRefused, "the management cluster says that the TLSRoute is not valid", again, ""},
		{TLSRouteConflict, "a port or an address of the TLSRoute is another object's", takenElsewhere, ""},
		{TLSRouteForbidden, "the management cluster does not allow the TLSRoute", notAllowed, ""},
		{TLSRouteNotServed, "the management cluster does not have the TLSRoute's kind or namespace", notServed, ""},
		{ConfigMapRefused, "the management cluster says that the ConfigMap is not valid", again, ""},
		{ConfigMapConflict, "what the ConfigMap needs is another object's", takenElsewhere, ""},
		{ConfigMapForbidden, "the management cluster does not allow the ConfigMap", notAllowed, ""},
		{ConfigMapNotServed, "the management cluster does not have the ConfigMap's kind or namespace", notServed, ""},
		{EndpointSliceRefused, "the management cluster says that the EndpointSlice is not valid", again, ""},
		{EndpointSliceConflict, "what the EndpointSlice needs is another object's", takenElsewhere, ""},
		{EndpointSliceForbidden, "the management cluster does not allow the EndpointSlice", notAllowed, ""},
		{EndpointSliceNotServed, "the management cluster does not have the EndpointSlice's kind or namespace", notServed, ""},
		// datastore
		{DataStoreMissing, "there is no DataStore of the name that the tenant names", "Create the DataStore.", "get datastores"},
		{
			MigrationNotSupported, "the tenant names another DataStore than the one its data is in, and they can't be moved",
			"Put spec.dataStore back to the DataStore that holds the data, or put right what the message names.", "",
		},
		{
			MigrationUndone, "the tenant's data stay in the DataStore they are in, for their move to another one was undone",
			"Put right what the message names and set spec.dataStore once more: back to the DataStore that holds the data, then to the other.", "",
		},
		{DataMoving, "the tenant's data are being moved to another DataStore", "", ""},
		{MoveQueued, "the tenant's data are to be moved to another DataStore, and those of other tenants are first", "", ""},
		{DataRestoring, "the tenant gets the data of a backup, or of another tenant; until it has them, it has no pods", "", ""},
		{
			RestoreImpossible, "the tenant can't get the data that its annotation names",
			"Put right what the message names: name another backup, or delete the tenant.", "",
		},
		{DriverNotSupported, "the DataStore's driver is none that Stoker has", "Create a DataStore with a driver that Stoker has.", ""},
		{
			Unreachable, "the DataStore's database doesn't answer, or refuses the administrator",
			"Does the database run, do the pods of Stoker reach it, is the administrator in the DataStore's Secrets right? A database that is back is noticed.",
			"get datastores",
		},
		{
			EtcdDeniesStatus, "the DataStore's etcd keeps its status from tenants, whose API servers then do without part of their watch cache",
			"Have etcd v3.6.12 or later, or v3.5.31 or later of v3.5. Tenants' API servers take it up by themselves within seconds.",
			"get datastores -o yaml",
		},
		{
			EtcdFull, "the DataStore's etcd is out of room and refuses writes: its tenants can be read and deleted from, and new ones wait",
			"Make room as the runbook StokerDataStoreFull says; the alarm is disarmed within ten minutes of there being some.", "get datastores -o yaml",
		},
		{
			EtcdNearlyFull, "the DataStore's etcd has nearly reached its quota, at which it refuses writes of all its tenants",
			"It is defragmented as soon as that would help. Give it a larger --quota-backend-bytes, or move tenants elsewhere with stoker drain.", "get datastores -o yaml",
		},
		{
			ForeignSecret, "the DataStore refers to a Secret of a namespace whose Secrets DataStores may not refer to",
			"Move the Secret to the installation's namespace, or add its namespace to --secret-namespaces of stoker-datastore.",
			"get datastores",
		},
		{
			InvalidName, "a schema or user has a name that the database can't have",
			"Delete the tenant and create it anew without the name, or with another: such names are fixed.", "",
		},
		{SchemaTaken, "the schema that the tenant names is another's", "Delete the tenant and create it anew with another spec.dataStoreSchema, or none.", ""},
		{
			NotTransferable, "another management cluster can't take the tenant over as it is now",
			"Take the annotation stoker.dev/transfer off (unpause its Cluster), and ask again once what the message names is done.", "",
		},
		{TransferArriving, "the Secrets of a tenant that comes from another management cluster aren't here yet", "", ""},
		{
			TransferredElsewhere, "the tenant was in another management cluster, and its data are in another DataStore than the one it has here",
			"Set spec.dataStore to the DataStore that the message names; it must be the same database as there, under the same name.", "",
		},
		{UserTaken, "the user that the tenant names is another's", "Delete the tenant and create it anew with another spec.dataStoreUsername, or none.", ""},
		{
			OverrideDriver, "the tenant's DataStore, or one of spec.dataStoreOverrides, is no etcd",
			"Name DataStores with the driver etcd, or remove the override.", "get datastores",
		},
		{
			OverrideAuthority, "a DataStore of spec.dataStoreOverrides has another certificate authority than the tenant's own",
			"Give both DataStores the same certificateAuthority, or name another DataStore.", "",
		},
		{InvalidCertSAN, "an entry of certSANs is neither an IP address nor a DNS name", "Put spec.networkProfile.certSANs right.", ""},
		{InvalidServiceCIDR, "a service network is no CIDR", "Put spec.networkProfile.serviceCidr right.", ""},
		{InvalidAdvertiseAddress, "advertiseAddress is no address", "Put spec.networkProfile.advertiseAddress right.", ""},
		{InvalidEndpoint, "a certificate can't name the published endpoint", again, "-n {namespace} describe service {name}"},
		{
			NameTaken, "an object bears the name of one of the tenant's and isn't the tenant's; it is left as it is",
			"Delete the object that the message names, hand it over to the tenant, or give the tenant another name; it is looked at again by itself.",
			"-n {namespace} get services,deployments,ingresses,secrets",
		},
		{SecretRefused, "the management cluster refuses a Secret", again, ""},
		{
			EncryptionKeysLost, "the keys by which the tenant's data is encrypted are gone, or were changed",
			"Restore the Secret {name}-encryption from a backup: nothing else has its keys, and none are made in their place. It is noticed at once.",
			"-n {namespace} describe secret {name}-encryption",
		},
		{
			TenantWebhook, "an admission webhook of the tenant's own keeps objects inside the tenant from being applied",
			"The tenant's administrator puts right what answers the webhook that the message names, exempts kube-system and cluster-scoped objects, or removes it " +
				"(inside the tenant: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations). It is looked at again within half a minute.", "",
		},
		{
			RewriteRefused, "the tenant's API refuses to write objects anew, so that the key they are encrypted by has to stay",
			"Put right what the message names: limits of writes (spec.writePermissions), a policy or webhook inside the tenant. All are tried again now and then.", "",
		},
		{InvalidAddons, "the objects inside the tenant can't be made from its spec", again, ""},
		{
			InvalidKubeletPatch, "a patch of the kubelet's configuration can't be applied; nothing inside the tenant is changed",
			"Put the patch of spec.kubernetes.kubelet.configurationJSONPatches right that the message names, by its index.", "",
		},
	}
}
