package event

// The catalogue: every command, fact and question. docs/events.md, docs/asyncapi.yaml and the schemas come from it.

import "strings"

// Entry is a row of the catalogue. Where it is published and who reads it is in pkg/events (AddressCommand, AddressFact,
// Readers).
type Entry struct {
	// Type is the CloudEvents type.
	Type string
	// Command is true for what portals send, false for facts.
	Command bool
	// Service that receives the command or tells the fact, and What it is.
	Service, What string
	// Kind a command is for, a plural resource name; empty for facts.
	Kind string
	// Payload is a value of the Go type of the data.
	Payload any
	// Doc is one sentence for the documentation.
	Doc string
}

// Short is the type without the prefix all types have ("certs.issued.v1"): the name of its schema's file, too.
func (e Entry) Short() string { return short(e.Type) }

func short(typ string) string { return strings.TrimPrefix(typ, TypePrefix) }

// SchemaURI identifies the JSON Schema of a type's payload (attribute dataschema).
func SchemaURI(typ string) string { return SchemaBase + short(typ) + ".json" }

// Catalogue lists every command and every fact.
func Catalogue() []Entry {
	fact := func(service, what string, payload any, doc string) Entry {
		return Entry{Type: FactType(service, what), Service: service, What: what, Payload: payload, Doc: doc}
	}
	command := func(kind, verb string, payload any, doc string) Entry {
		return Entry{Type: CommandType(kind, verb), Command: true, Service: "intake", Kind: kind, What: verb, Payload: payload, Doc: doc}
	}
	entries := []Entry{
		command(TenantControlPlanes, Apply, TenantApplyCommand{}, "create the tenant or change it"),
		command(TenantControlPlanes, Patch, PatchCommand{}, "change parts of the tenant's spec"),
		command(TenantControlPlanes, Delete, DeleteCommand{}, "delete the tenant and everything of it"),
		command(TenantControlPlanes, Pause, PauseCommand{}, "leave the tenant alone, its deletion included"),
		command(TenantControlPlanes, Resume, ResumeCommand{}, "end the tenant's pause"),
		command(TenantControlPlanes, Sleep, SleepCommand{}, "stop the tenant's pods; data and keys stay"),
		command(TenantControlPlanes, Wake, WakeCommand{}, "start as many pods as there were before the sleep"),
		command(TenantControlPlanes, Backup, BackupCommand{}, "make a backup of the tenant"),
		command(TenantControlPlanes, Restore, RestoreCommand{}, "set the tenant back to a backup of its own"),
		command(DataStores, Apply, DataStoreApplyCommand{}, "create the DataStore or change it"),
		command(DataStores, Patch, PatchCommand{}, "change parts of the DataStore's spec"),
		command(DataStores, Delete, DeleteCommand{}, "delete the DataStore once no tenant uses it"),
		command(DataStores, Pause, PauseCommand{}, "leave the DataStore alone, its deletion included"),
		command(DataStores, Resume, ResumeCommand{}, "end the DataStore's pause"),
		command(KubeconfigGenerators, Apply, GeneratorApplyCommand{}, "create the generator or change it"),
		command(KubeconfigGenerators, Patch, PatchCommand{}, "change parts of the generator's spec"),
		command(KubeconfigGenerators, Delete, DeleteCommand{}, "delete the generator and its kubeconfigs"),
		command(KubeconfigGenerators, Pause, PauseCommand{}, "leave the generator and its kubeconfigs alone"),
		command(KubeconfigGenerators, Resume, ResumeCommand{}, "end the generator's pause"),
		fact("intake", Accepted, IntakeAccepted{}, "a generation is now the desired state"),
		fact("intake", Rejected, IntakeRejected{}, "a command was refused and changed nothing"),
		fact("intake", Deleting, IntakeDeleting{}, "deletion has begun"),
		fact("intake", Checked, IntakeChecked{}, "a tenant's or a DataStore's object was looked at, as once a day: every service looks at all of its part"),
		fact("intake", Asked, IntakeAsked{}, "the operator asked that all services look at the tenant anew"),
		fact("intake", Due, TimerDue{}, "a pause ends, or sleep begins or ends"),
		fact("intake", Released, IntakeReleased{}, "the object is another installation's now; this one forgets it"),
		fact("intake", Removed, Removals{}, "the object, its bucket and its timers are gone"),
		fact("datastore", Provisioned, DatastoreProvisioned{}, "user, schema and grants exist"),
		fact("datastore", Withdrawn, DatastoreWithdrawn{}, "DataStores that overrides no longer name hold nothing of the tenant"),
		fact("datastore", Migrating, DatastoreMigrating{}, "how far the move of the tenant's data to another DataStore is"),
		fact("datastore", Migrated, DatastoreMigrated{}, "the tenant's data have moved to another DataStore"),
		fact("datastore", BackedUp, DatastoreBackedUp{}, "a backup of the tenant was made"),
		fact("datastore", NotBackedUp, DatastoreNotBackedUp{}, "a backup that is due could not be made, and is tried again"),
		fact("datastore", Restoring, DatastoreRestoring{}, "the tenant is to be stopped, for its data to be replaced by those of a backup"),
		fact("datastore", Restored, DatastoreRestored{}, "the tenant has the data of a backup, or of another tenant"),
		fact("datastore", NotRestored, DatastoreNotRestored{}, "the tenant's data can't be replaced by those of a backup, and stay"),
		fact("datastore", PassedOn, DatastorePassedOn{}, "another management cluster may take the tenant over, with its data"),
		fact("datastore", Checked, DatastoreChecked{}, "a DataStore was reached, or not"),
		fact("datastore", Measured, DatastoreMeasured{}, "a tenant, or all tenants of a DataStore, hold notably more or less"),
		fact("datastore", Quota, DatastoreQuota{}, "a tenant has come near to its quota, has reached it, or uses less of it again"),
		fact("datastore", Removed, Removals{}, "user, schema and data are gone"),
		fact("datastore", Due, TimerDue{}, "a tenant's access to its DataStore is looked at again"),
		fact("certs", Issued, CertsIssued{}, "every key, certificate and kubeconfig exists"),
		fact("certs", Rotated, CertsIssued{}, "some keys or certificates were replaced"),
		fact("certs", Generated, KubeconfigGenerated{}, "a generator's kubeconfig for a tenant was made, changed, removed, or could not be made"),
		fact("certs", Registered, CertsRegistered{}, "Argo CD knows the tenant as a cluster, or no longer, or can't"),
		fact("certs", Due, TimerDue{}, "a certificate is about to expire"),
		fact("certs", Removed, Removals{}, "keys, certificates and kubeconfigs are gone"),
		fact("workload", Exposed, WorkloadExposed{}, "the endpoint is known"),
		fact("workload", Available, WorkloadAvailable{}, "the pods run this generation and are ready"),
		fact("workload", Degraded, WorkloadAvailable{}, "no pod is ready any more"),
		fact("workload", Slept, WorkloadAvailable{}, "no pods are asked for and none runs"),
		fact("workload", Called, WorkloadCalled{}, "a client has connected to the tenant, which sleeps, and waits for it to wake"),
		fact("workload", Upgraded, WorkloadUpgraded{}, "every pod runs the new version"),
		fact("workload", Due, TimerDue{}, "pods of another version have had their time to become ready"),
		fact("workload", Removed, Removals{}, "Deployment, pods and Service are gone"),
		fact("addons", Applied, AddonsApplied{}, "what must exist inside the tenant does"),
		fact("addons", Repaired, AddonsRepaired{}, "objects inside the tenant were put right"),
		fact("addons", Rewritten, AddonsRewritten{}, "what the tenant's encryption is about was written anew, whole"),
		fact("addons", Idle, AddonsIdle{}, "nobody has used the tenant's API for as long as has it put to sleep"),
		fact("addons", Removed, Removals{}, "the tenant's inside is no longer looked after"),
		fact("status", Changed, StatusChanged{}, "the tenant's status, for portals"),
		fact("status", Deleted, StatusChanged{}, "nothing of the tenant is left, or what is"),
		fact("capi", Initialized, CAPIInitialized{}, "Cluster API may use the tenant: its API has answered, kubeconfig and authority are in the Secrets that "+
			"Cluster API reads"),
		fact("capi", Abandoned, CAPIAbandoned{}, "a control plane is gone, and its tenant may be left in another cluster, which couldn't be asked"),
		fact("tenantaddons", Installed, TenantAddonInstalled{}, "a TenantAddon was installed or upgraded in the tenant"),
		fact("tenantaddons", NotInstalled, TenantAddonNotInstalled{}, "a TenantAddon has failed in the tenant, or no longer works there"),
		fact("tenantaddons", Repaired, TenantAddonRepaired{}, "objects of a TenantAddon were put right in the tenant"),
		fact("tenantaddons", Uninstalled, TenantAddonUninstalled{}, "a TenantAddon is no longer in the tenant"),
		fact("tenantaddons", Abandoned, TenantAddonAbandoned{}, "a TenantAddon could not be removed from the tenant in time, and is left there"),
	}
	for _, service := range []string{"intake", "datastore", "certs", "workload", "addons", "status", "capi", "tenantaddons"} {
		entries = append(entries, fact(service, Failed, StepFailed{}, "a step failed"))
	}
	return entries
}

// Question is a request that a NATS micro service answers.
type Question struct {
	// Service that answers, as NATS knows it, and Endpoint there.
	Service, Endpoint string
	// Subject of the request; pkg/events has what may follow it (AddressQuestion).
	Subject string
	// Request and Reply are values of the Go types of the data.
	Request, Reply any
	// Doc is one sentence for the documentation: what the reply says.
	Doc string
}

// Questions lists every question.
func Questions() []Question {
	return []Question{
		{StatusService, "get", QueryStatus, Query{}, StatusReply{}, "what was published last about the tenant, and its conditions"},
		{StatusService, "why", QueryWhy, Query{}, WhyReply{}, "where each service stands with the tenant: last step, what it waits for, what failed"},
		{DatastoreService, "orphans", QueryOrphans, OrphansQuery{}, OrphansReply{}, "what DataStores keep for owners that are no tenant of the management cluster"},
		{DatastoreService, "drop", QueryDrop, DropQuery{}, DropReply{}, "what became of orphans that were to be removed"},
		{DatastoreService, "move", QueryMove, MoveQuery{}, MoveReply{}, "what a move of the tenant's data to another DataStore would meet: how much there is to copy, what is against it"},
		{DatastoreService, "backups", QueryBackups, BackupsQuery{}, BackupsReply{}, "which backups there are in a location"},
		{DatastoreService, "backup", QueryBackup, BackupQuery{}, BackupReply{}, "one backup: the tenant's object, and its keys, encrypted"},
		{IntakeService, "dead-list", QueryDeadList, DeadListQuery{}, DeadListReply{}, "the dead letters, newest first, without what the events hold"},
		{IntakeService, "dead-replay", QueryDeadReplay, DeadReplayQuery{}, DeadReplayReply{}, "which dead letters were handed once more to the service that had given them up, and which were left"},
		{IntakeService, "dead-drop", QueryDeadDrop, DeadDropQuery{}, DeadDropReply{}, "which dead letters were removed"},
		{IntakeService, "replicas", QueryReplicas, ReplicasQuery{}, ReplicasReply{}, "the replicas of each service: what they hold, whether they are ready, which build they are"},
		{IntakeService, "partitions", QueryPartitions, ReplicasQuery{}, PartitionsReply{}, "which replica of each service holds which partition, and which are held by nobody"},
		{IntakeService, "resync", QueryResync, ResyncQuery{}, ResyncReply{}, "how many tenants all services will look at anew"},
		{IntakeService, "plan", QueryPlan, PlanQuery{}, PlanReply{}, "what a change of the tenant would come to: whether it is accepted, what restarts, what is against it"},
		{WorkloadService, "pods", QueryPods, PodsQuery{}, PodsReply{}, "what a desired state would mean for the tenant's pods, for plans"},
		{AddonsService, "join", QueryJoin, JoinQuery{}, JoinReply{}, "how a machine becomes a node of the tenant, with a new token for it, encrypted to the asker"},
		{AddonsService, "inside", QueryInside, Query{}, InsideReply{}, "kubelets and deprecated APIs inside the tenant, for plans"},
	}
}

// Phases are the phases of a tenant that StatusChanged tells today. More may come: an unknown one means not ready.
func Phases() []string {
	return []string{
		"Provisioning", "Ready", "NotReady", "Reconciling", "Upgrading", "Migrating", "CertificateAuthorityRotating", "WriteLimited",
		"Sleeping", "Paused", "Failed", "Deleting", "Deleted", "Released",
	}
}
