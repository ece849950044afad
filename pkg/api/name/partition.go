package name

import (
	"hash/fnv"
	"strings"
)

// Partitions is the number of partitions that tenants are spread over. It is fixed at install: a tenant's partition is
// part of its subjects and labels.
const Partitions = 16

// Partition returns the partition of an object, 0 to Partitions-1. It is the number that NATS computes for
// {{partition(16,2,3)}} when wildcards 2 and 3 of a subject are namespace and name: FNV-1a, 32 bits, of both joined
// by nothing, the name as Token. A namespace is "-" for cluster-scoped kinds.
func Partition(namespace, name string) int {
	h := fnv.New32a()
	// Writing to a hash never fails.
	_, _ = h.Write([]byte(namespace))
	_, _ = h.Write([]byte(Token(name)))

	return int(h.Sum32() % Partitions)
}

// Token is an object's name as one token of a subject: dots are underscores, which names don't hold.
func Token(name string) string { return strings.ReplaceAll(name, ".", "_") }

// FromToken is the name that Token was made of.
func FromToken(token string) string { return strings.ReplaceAll(token, "_", ".") }
