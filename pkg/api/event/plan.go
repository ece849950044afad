package event

import "encoding/json"

// QueryPlan is the subject of the question what a change of a tenant would come to, which intake answers, with the tenant's namespace and name
// after it (events.Key.PlanSubject), so that a portal may ask about its own tenants.
const QueryPlan = "stoker.plan"

// PlanQuery asks what a change of the tenant in the subject would come to. Nothing is changed. One of Spec and Apply is given.
type PlanQuery struct {
	// Spec is a JSON merge patch of the tenant's spec (RFC 7386), as in the command patch.
	Spec json.RawMessage `json:"spec,omitempty"`
	// Apply is the whole object, as in the command apply.
	Apply json.RawMessage `json:"apply,omitempty"`
}

// What a plan looks at (PlanCheck.Check).
const (
	// CheckRules: whether the API server accepts the change.
	CheckRules = "Rules"
	// CheckTenant: whether the tenant is in a state in which it can be changed.
	CheckTenant = "Tenant"
	// CheckPods: whether the control plane's pods are started anew.
	CheckPods = "Pods"
	// CheckDataStore: whether the DataStores that the tenant uses are well.
	CheckDataStore = "DataStore"
	// CheckKubelets: whether the kubelets inside the tenant are of versions that the new API server works with.
	CheckKubelets = "Kubelets"
	// CheckAPIs: whether deprecated APIs are used inside the tenant that the new version no longer serves.
	CheckAPIs = "APIs"
)

// What comes of a check (PlanCheck.Verdict).
const (
	// VerdictPasses: nothing is against the change.
	VerdictPasses = "passes"
	// VerdictWarns: the change can be made, and somebody should know something.
	VerdictWarns = "warns"
	// VerdictBlocks: the change is refused, or breaks something.
	VerdictBlocks = "blocks"
	// VerdictUnknown: it could not be looked at, as inside a tenant that sleeps.
	VerdictUnknown = "unknown"
)

// PlanReply answers QueryPlan.
type PlanReply struct {
	// About the tenant as it was looked at; without UID and generation when it isn't there yet.
	About
	// Blocked is true when a check blocks.
	Blocked bool `json:"blocked"`
	// From is the version of Kubernetes that the tenant asks for now, Running the one that runs in its pods, To the one it would ask
	// for; absent where there is none.
	From    string `json:"from,omitempty"`
	Running string `json:"running,omitempty"`
	To      string `json:"to,omitempty"`
	// Steps are the versions that pods are to run one after the other, To being the last; absent when To runs.
	Steps []string `json:"steps,omitempty"`
	// Checks that were made; more kinds of them may come. What is refused is looked at no further.
	Checks []PlanCheck `json:"checks"`
	// Errors say why the API server refuses the change.
	Errors []FieldError `json:"errors,omitempty"`
	// Kubelets that the new version doesn't work with, by version.
	Kubelets []Kubelets `json:"kubelets,omitempty"`
	// APIs that are deprecated and used; those first that the new version no longer serves.
	APIs []DeprecatedAPI `json:"apis,omitempty"`
}

// PlanCheck is what comes of one check.
type PlanCheck struct {
	// Check is a constant Check….
	Check string `json:"check"`
	// Verdict is a constant Verdict….
	Verdict string `json:"verdict"`
	// Reason is one of pkg/api/reason; absent when the check passes.
	Reason string `json:"reason,omitempty"`
	// Message for people, one line.
	Message string `json:"message"`
}

// Kubelets are those of one version inside a tenant.
type Kubelets struct {
	Version string `json:"version"`
	// Nodes is how many there are, Names are some of them.
	Nodes int      `json:"nodes"`
	Names []string `json:"names,omitempty"`
}

// DeprecatedAPI is an API that is deprecated and was used.
type DeprecatedAPI struct {
	Group       string `json:"group,omitempty"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// RemovedIn is the version of Kubernetes that no longer serves it ("1.38"), absent while that isn't decided.
	RemovedIn string `json:"removedIn,omitempty"`
}

// Questions of intake to other services for a plan.
const (
	WorkloadService = "stoker-workload"
	QueryPods       = "stoker.workload.pods"
	AddonsService   = "stoker-addons"
	QueryInside     = "stoker.addons.inside"
)

// PodsQuery asks what a desired state would mean for the pods of a tenant.
type PodsQuery struct {
	Query
	// Tenant is the desired state: what intake keeps, with the change made.
	Tenant json.RawMessage `json:"tenant"`
}

// What a change means for pods (PodsReply.Pods).
const (
	// PodsStay: none is started or stopped because of it, but for a change of their number.
	PodsStay = "stay"
	// PodsRestart: all are replaced by others.
	PodsRestart = "restart"
	// PodsMayRestart: that is known once keys, certificates or the account in the DataStore are made.
	PodsMayRestart = "mayRestart"
)

// PodsReply answers QueryPods.
type PodsReply struct {
	// Pods is a constant Pods….
	Pods string `json:"pods"`
	// Version runs in all pods of the last complete rollout, empty before the first; Complete is true when no other was begun since.
	Version  string `json:"version,omitempty"`
	Complete bool   `json:"complete"`
	// Steps are the versions that pods are to run one after the other, the last being the one that is asked for; absent when that runs.
	Steps []string `json:"steps,omitempty"`
	// Replicas there are of the pods.
	Replicas int32 `json:"replicas"`
}

// InsideReply answers QueryInside, a Query: what is inside a tenant that bears on its version.
type InsideReply struct {
	// Asleep is true for a tenant without pods: nothing was looked at.
	Asleep bool `json:"asleep,omitempty"`
	// Kubelets by version. Versions are as the kubelets themselves say; MaxKubelets of them at most.
	Kubelets []Kubelets `json:"kubelets,omitempty"`
	// APIs that are deprecated and were used since the API server that answered was started; MaxDeprecatedAPIs at most.
	APIs []DeprecatedAPI `json:"apis,omitempty"`
}

// Bounds of an InsideReply: versions of kubelets, names of nodes of one version, APIs.
const (
	MaxKubelets       = 50
	MaxKubeletNames   = 5
	MaxDeprecatedAPIs = 200
)
