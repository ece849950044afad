package event

import "time"

// QueryJoin is the subject of the question how a machine becomes a node of a tenant, which addons answers, with the tenant's namespace and
// name after it (events.Key.JoinSubject). Each answer has a new token.
const QueryJoin = "stoker.join"

// How long a token is good for, in seconds.
const (
	MinJoinSeconds     = 60
	DefaultJoinSeconds = 24 * 60 * 60
	MaxJoinSeconds     = 365 * 24 * 60 * 60
)

// JoinQuery asks how a machine becomes a node of the tenant in the subject.
type JoinQuery struct {
	// Recipient is the public key that the answer is encrypted to, as age writes those of X25519 ("age1…", https://age-encryption.org/v1).
	// Its private key never leaves whoever asks.
	Recipient string `json:"recipient"`
	// ExpirationSeconds is how long the token is good for: MinJoinSeconds to MaxJoinSeconds; absent: DefaultJoinSeconds.
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// JoinReply answers QueryJoin.
type JoinReply struct {
	// Sealed is a Join as JSON in an age file with armor, encrypted to the recipient of the question.
	Sealed string `json:"sealed"`
	// Expires is when the token ends, UTC.
	Expires time.Time `json:"expires"`
}

// Join is how a machine becomes a node.
type Join struct {
	// Command is all of it, for a shell.
	Command string `json:"command"`
	// Endpoint of the tenant's API, host:port.
	Endpoint string `json:"endpoint"`
	// Token is a credential.
	Token string `json:"token"`
	// CACertHashes are of the tenant's authorities, as kubeadm takes them.
	CACertHashes []string `json:"caCertHashes"`
	// Expires is when the token ends, UTC.
	Expires time.Time `json:"expires"`
}
