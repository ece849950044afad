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
	}
}
