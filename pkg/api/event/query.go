package event

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// Subjects of the questions that the status service answers (NATS micro service stoker-status), and its name there.
const (
	StatusService = "stoker-status"
	QueryStatus   = "stoker.status.get"
	QueryWhy      = "stoker.status.why"
)

// Query asks about one tenant.
type Query struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// StatusReply answers QueryStatus: what was published last about the tenant, and its conditions.
type StatusReply struct {
	StatusChanged
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WhyReply answers QueryWhy: where each service stands with the tenant.
type WhyReply struct {
	About
	// Phase, Ready, Reason and Message as last published.
	Phase   string `json:"phase,omitempty"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// AcceptedAt is when this generation was accepted (UTC).
	AcceptedAt time.Time `json:"acceptedAt,omitzero"`
	Deleting   bool      `json:"deleting,omitempty"`
	Paused     bool      `json:"paused,omitempty"`
	// Services in the order in which a tenant meets them.
	Services []ServiceState `json:"services"`
}

// ServiceState says where one service stands with a tenant.
type ServiceState struct {
	Service string `json:"service"`
	// Step done last, empty when the service has not come to the tenant yet; Generation it was for.
	Step       string `json:"step,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Waiting says what is missing, Failure what went wrong last.
	Waiting string         `json:"waiting,omitempty"`
	Failure *state.Failure `json:"failure,omitempty"`
	// Since is when the service last wrote its state (UTC).
	Since time.Time `json:"since,omitzero"`
}
