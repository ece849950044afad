package natsserver_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestPartitionIsTheServers(t *testing.T) {
	t.Parallel()

	transform, err := server.NewSubjectTransform("stoker.intake.*.*.*",
		fmt.Sprintf("{{partition(%d,2,3)}}.{{wildcard(1)}}", name.Partitions))
	if err != nil {
		t.Fatal(err)
	}

	check := func(namespace, tenant string) int {
		t.Helper()

		subject := strings.Join([]string{"stoker.intake.tenantcontrolplanes", namespace, tenant}, ".")
		want, _, _ := strings.Cut(transform.TransformSubject(subject), ".")

		got := name.Partition(namespace, tenant)
		if strconv.Itoa(got) != want {
			t.Errorf("%s/%s: partition %d, the server says %s", namespace, tenant, got, want)
		}

		return got
	}

	check("default", "demo")
	check("-", "etcd-main")

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	seen := map[int]int{}
	for range 5000 {
		seen[check(randomLabel(random), randomLabel(random))]++
	}

	if len(seen) != name.Partitions {
		t.Errorf("5000 random tenants use %d of %d partitions", len(seen), name.Partitions)
	}
}
func randomLabel(random *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"

	const all = letters + "0123456789-"

	label := []byte{letters[random.IntN(len(letters))]}
	for range random.IntN(61) {
		label = append(label, all[random.IntN(len(all))])
	}

	return string(append(label, letters[random.IntN(len(letters))]))
}
