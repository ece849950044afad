package events

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Streams, the bucket of the replicas' leases, and the one of answers to commands.
const (
	StreamIntake   = "STOKER_INTAKE"
	StreamFacts    = "STOKER_FACTS"
	StreamStatus   = "STOKER_STATUS"
	StreamDead     = "STOKER_DEAD"
	BucketLeases   = "stoker_leases"
	BucketCommands = "stoker_commands"
)

// ClusterScoped stands for the namespace of cluster-scoped kinds in subjects.
const ClusterScoped = "-"

// Key names the object an event is about: a tenant, or an object of another kind.
type Key struct {
	// Kind is the plural resource name (event.TenantControlPlanes, event.DataStores, event.KubeconfigGenerators).
	Kind string
	// Namespace, ClusterScoped for cluster-scoped kinds.
	Namespace string
	Name      string
}

// Tenant is the key of a TenantControlPlane.
func Tenant(namespace, name string) Key {
	return Key{Kind: event.TenantControlPlanes, Namespace: namespace, Name: name}
}

// Generator is the key of a KubeconfigGenerator.
func Generator(name string) Key {
	return Key{Kind: event.KubeconfigGenerators, Namespace: ClusterScoped, Name: name}
}

// DataStore is the key of a DataStore.
func DataStore(name string) Key {
	return Key{Kind: event.DataStores, Namespace: ClusterScoped, Name: name}
}

// TenantAddon is the key of a TenantAddon. No event is about it: the service tenantaddons has turns for it that watches wake.
func TenantAddon(namespace, name string) Key {
	return Key{Kind: event.TenantAddons, Namespace: namespace, Name: name}
}

// String is namespace/name, or the name alone for cluster-scoped kinds: the CloudEvents subject.
func (k Key) String() string {
	if k.Namespace == ClusterScoped {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// IsTenant reports whether the key names a tenant, which has a bucket of its own.
func (k Key) IsTenant() bool { return k.Kind == event.TenantControlPlanes }

// Valid reports whether namespace and name can be those of a Kubernetes object: anybody may publish on any subject.
func (k Key) Valid() bool {
	if k.IsTenant() && len(validation.IsDNS1123Label(k.Name)) > 0 { // it names a bucket
		return false
	}
	return (k.Namespace == ClusterScoped || len(validation.IsDNS1123Label(k.Namespace)) == 0) && len(validation.IsDNS1123Subdomain(k.Name)) == 0
}

// Partition of the key, 0…name.Partitions-1.
func (k Key) Partition() int { return name.Partition(k.Namespace, k.Name) }

// Bucket is the tenant's KV bucket; Kubernetes names hold no underscore, so two tenants never share one.
func (k Key) Bucket() string { return "tenant_" + k.Namespace + "_" + k.Name }

// CommandSubject is where a command for the object is published.
func (k Key) CommandSubject() string {
	return "stoker.intake." + k.Kind + "." + k.Namespace + "." + name.Token(k.Name)
}

// FactSubject is where a fact about the object is published.
func (k Key) FactSubject(service, what string) string {
	return "stoker.fact." + k.place() + "." + service + "." + what
}

// TimerSubject holds the scheduled message that becomes the fact at its time.
func (k Key) TimerSubject(service, what string) string {
	return "stoker.timer." + k.place() + "." + service + "." + what
}

// AnswerSubjects are all subjects on which commands are answered.
const AnswerSubjects = "stoker.answer.*.*"

// AnswerSubject is where the answer to a command about the object is sent: to those who may command in its namespace, and among them
// to who knows the token.
func (k Key) AnswerSubject(token string) string { return "stoker.answer." + k.Namespace + "." + token }

// NewAnswerSubject is an AnswerSubject that nobody can guess.
func (k Key) NewAnswerSubject() string { return k.AnswerSubject(rand.Text()) }

// IsAnswer reports whether a subject is one of the object's for answers; whoever sends a command names it.
func (k Key) IsAnswer(subject string) bool {
	token, ok := strings.CutPrefix(subject, k.AnswerSubject(""))
	return ok && token != "" && Token(token) == token && len(subject) <= 256
}

// StatusSubject is what a portal subscribes to for one tenant.
func (k Key) StatusSubject() string { return "stoker.status." + k.Namespace + "." + name.Token(k.Name) }

// LastStatusSubject is where the last status of a tenant is asked for (a direct get of JetStream's API).
func (k Key) LastStatusSubject() string {
	return "$JS.API.DIRECT.GET." + StreamStatus + "." + k.StatusSubject()
}

// PlanSubjects are all subjects on which plans are asked for, JoinSubjects those on which it is asked how machines join.
const (
	PlanSubjects = event.QueryPlan + ".*.*"
	JoinSubjects = event.QueryJoin + ".*.*"
)

// PlanSubject is where it is asked what a change of a tenant would come to.
func (k Key) PlanSubject() string { return k.questionSubject(event.QueryPlan) }

// JoinSubject is where it is asked how a machine joins a tenant.
func (k Key) JoinSubject() string { return k.questionSubject(event.QueryJoin) }

func (k Key) questionSubject(question string) string {
	return question + "." + k.Namespace + "." + name.Token(k.Name)
}

// ParseQuestionSubject finds the tenant that a question ([event.QueryPlan], [event.QueryJoin]) is about; its key may be invalid, as the
// sender's word.
func ParseQuestionSubject(question, subject string) Key {
	rest, ok := strings.CutPrefix(subject, question+".")
	t := strings.Split(rest, ".")
	if !ok || len(t) != 2 {
		return Tenant("", "")
	}
	return Tenant(t[0], name.FromToken(t[1]))
}

// DeadSubject holds events about the object that no retry can help.
func (k Key) DeadSubject(service string) string {
	return fmt.Sprintf("stoker.dead.%s.%d.%s.%s", service, k.Partition(), k.scope(), name.Token(k.Name))
}

// ReplicaSubject is where all replicas of a service are asked what they hold ([Bus.AskReplicas]).
func ReplicaSubject(service string) string { return replicaPrefix + service }

const (
	replicaPrefix   = "stoker.replica."
	replicaSubjects = replicaPrefix + "*"
)

// Where dead letters are, and where one of them goes that is replayed: to the service that gave it up and to no other.
const (
	deadPrefix     = "stoker.dead."
	replayPrefix   = "stoker.replay."
	replaySubjects = replayPrefix + "*.*.*.*"
)

// IsReplay reports whether a delivered message is a dead letter that is replayed; its header [HeaderSubject] says where it was before.
func IsReplay(subject string) bool { return strings.HasPrefix(subject, replayPrefix) }

func (k Key) place() string {
	return strconv.Itoa(k.Partition()) + "." + k.scope() + "." + name.Token(k.Name)
}

// scope is the namespace in subjects that don't name the kind. There, DataStores have the one of cluster-scoped kinds to
// themselves, and other such kinds add their name to it.
func (k Key) scope() string {
	if k.Namespace == ClusterScoped && k.Kind != event.DataStores {
		return ClusterScoped + k.Kind
	}
	return k.Namespace
}

// StateKey is the key of a service's state in a tenant's bucket: its name, for intake [KeySpec].
func StateKey(service string) string {
	if service == name.ServiceIntake {
		return KeySpec
	}
	return service
}

// ParseSubject finds what a delivered message is about; what and service are empty for commands.
func ParseSubject(subject string) (key Key, partition int, service, what string, err error) {
	t := strings.Split(subject, ".")
	switch {
	case len(t) == 6 && t[0] == "stoker" && t[1] == "intake":
		partition, err = strconv.Atoi(t[2])
		return Key{Kind: t[3], Namespace: t[4], Name: name.FromToken(t[5])}, partition, "", "", err
	case len(t) == 7 && t[0] == "stoker" && t[1] == "fact":
		partition, err = strconv.Atoi(t[2])
		key = Key{Kind: event.TenantControlPlanes, Namespace: t[3], Name: name.FromToken(t[4])}
		if kind, cluster := strings.CutPrefix(t[3], ClusterScoped); cluster {
			key.Namespace, key.Kind = ClusterScoped, cmp.Or(kind, event.DataStores)
		}
		return key, partition, t[5], t[6], err
	}
	return Key{}, 0, "", "", fmt.Errorf("subject %q is neither a command's nor a fact's", subject)
}
