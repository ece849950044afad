package reason

// Reasons of the checks of a plan (event.PlanCheck), beside those of the other tables that they share.
const (
	// ChangeRefused: the API server refuses the change.
	ChangeRefused = "ChangeRefused"
	// VersionNotReached: the version that runs is more than one minor version below the one that is planned.
	VersionNotReached = "VersionNotReached"
	// RolloutUnderWay: the pods of the change before are not all ready.
	RolloutUnderWay = "RolloutUnderWay"
	// APIAway: no pod is ready for a while when the pods are replaced.
	APIAway = "APIAway"
	// PodsMayRestart: whether pods are replaced is known once keys, certificates or the account in the DataStore are made.
	PodsMayRestart = "PodsMayRestart"
	// DataStoreNotReady: a DataStore that the tenant uses is not ready.
	DataStoreNotReady = "DataStoreNotReady"
	// DataStoreWarns: a DataStore that the tenant uses is ready, and something about it should be put right.
	DataStoreWarns = "DataStoreWarns"
	// KubeletTooOld: kubelets are more minor versions older than the planned version than Kubernetes allows.
	KubeletTooOld = "KubeletTooOld"
	// KubeletTooNew: kubelets are newer than the planned version.
	KubeletTooNew = "KubeletTooNew"
	// APIRemoved: deprecated APIs are used that the planned version no longer serves.
	APIRemoved = "APIRemoved"
	// APIDeprecated: deprecated APIs are used that a later version no longer serves.
	APIDeprecated = "APIDeprecated"
)

// Reasons of what a move of a tenant's data would meet (event.MoveFinding), beside those of the other tables that they share.
const (
	// AlreadyThere: the data are in the DataStore that they would go to.
	AlreadyThere = "AlreadyThere"
	// SameDatabase: both DataStores are one database.
	SameDatabase = "SameDatabase"
	// OverridesSet: the tenant's dataStoreOverrides are against the move.
	OverridesSet = "OverridesSet"
	// DataStoreDeleting: the DataStore that the data would go to is being deleted.
	DataStoreDeleting = "DataStoreDeleting"
	// DataStorePaused: the DataStore that the data would go to is paused.
	DataStorePaused = "DataStorePaused"
	// TooLittleRoom: the database that the data would go to has less room than they take.
	TooLittleRoom = "TooLittleRoom"
	// NearlyFull: the database that the data would go to is nearly full with them.
	NearlyFull = "NearlyFull"
	// RoomUnknown: the driver can't tell how much room there is.
	RoomUnknown = "RoomUnknown"
	// SizeUnknown: how much the tenant holds has not been measured yet.
	SizeUnknown = "SizeUnknown"
	// RevisionsBehind: the revisions of the etcd that the data would go to are too far below.
	RevisionsBehind = "RevisionsBehind"
	// RevisionsRaised: the revisions of the etcd that the data would go to are raised by writes first.
	RevisionsRaised = "RevisionsRaised"
	// RevisionsUnknown: whether they have to be raised is known once data are copied.
	RevisionsUnknown = "RevisionsUnknown"
)

// Plans lists the reasons of plans.
func Plans() []Entry {
	const why = "stoker why {name} -n {namespace} says what is missing."
	return []Entry{
		{ChangeRefused, "the API server refuses the change", "Put right what the message names.", ""},
		{
			VersionNotReached, "the version that runs is more than one minor version below the one that is planned",
			"Wait until the upgrade before has ended; " + why, "",
		},
		{RolloutUnderWay, "the pods of the change before are not all ready", "Wait for them; " + why, ""},
		{
			APIAway, "no pod is ready for a while when the pods are replaced",
			"For an upgrade without an interruption, take the strategy RollingUpdate with maxUnavailable 0 (spec.controlPlane.deployment.strategy).", "",
		},
		{PodsMayRestart, "whether pods are replaced is known once keys, certificates or the account in the DataStore are made", "", ""},
		{DataStoreNotReady, "a DataStore that the tenant uses is not ready: pods that are started now don't become ready", "Put right what the message names.", ""},
		{DataStoreWarns, "a DataStore that the tenant uses is ready, and something about it should be put right", "Put right what the message names.", ""},
		{
			KubeletTooOld, "kubelets are more minor versions older than the planned version than Kubernetes allows",
			"Upgrade the kubelets of the nodes that are named first.", "",
		},
		{KubeletTooNew, "kubelets are newer than the planned version, which Kubernetes doesn't support", "Plan a version that isn't older than any kubelet.", ""},
		{
			APIRemoved, "deprecated APIs are used that the planned version no longer serves",
			"Find who uses them, by the API server's audit log or its warnings, and have it use the APIs that replace them.", "",
		},
		{APIDeprecated, "deprecated APIs are used that a later version no longer serves", "Have those who use them use the APIs that replace them.", ""},

		{AlreadyThere, "the tenant's data are in the DataStore that they would go to", "", ""},
		{SameDatabase, "both DataStores are one database, in which the data are already", "Choose a DataStore of another database.", ""},
		{
			OverridesSet, "what the tenant keeps in other DataStores by dataStoreOverrides is against the move",
			"Choose an etcd of the same certificateAuthority that none of them names.", "get datastores",
		},
		{DataStoreDeleting, "the DataStore that the data would go to is being deleted", "Choose another one.", "get datastores"},
		{DataStorePaused, "the DataStore that the data would go to is paused: changes of it aren't taken up", "Resume it: stoker resume datastore/NAME", ""},
		{
			TooLittleRoom, "the database that the data would go to has less room than they take",
			"Make room there, give it more, or choose another DataStore.", "",
		},
		{NearlyFull, "the database that the data would go to is nearly full with them", "Make room there, or give it more.", ""},
		{RoomUnknown, "the driver can't tell how much room the database has that the data would go to", "See that there is enough.", ""},
		{SizeUnknown, "how much the tenant holds has not been measured yet", "It is, within half a minute after the tenant was made.", ""},
		{
			RevisionsBehind, "the revisions of the etcd that the data would go to are too far below to be raised by writes",
			"Raise them as the message says, or choose another DataStore.", "",
		},
		{
			RevisionsRaised, "the revisions of the etcd that the data would go to are raised by writes first, and compacted",
			"Lists that its other tenants page through begin anew then.", "",
		},
		{RevisionsUnknown, "whether the other etcd's revisions have to be raised is known once the move has begun", "", ""},
	}
}
