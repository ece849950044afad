package natsserver_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/local/natsserver"
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

func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer l.Close()

	_, err = natsserver.Start(t.Context(), t.TempDir(), l.Addr().String(), nil)
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v", err)
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

func TestStreamsOfAServerBeforeAccountsAreFoundAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	before.Start()
	use := func(url string, options ...nats.Option) jetstream.JetStream {
		t.Helper()
		nc, err := nats.Connect(url, append(options, nats.Timeout(time.Minute))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	js := use(before.ClientURL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STOKER_DEAD", Subjects: []string{"stoker.dead.*.*.*.*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "stoker.dead.certs.0.default.demo", nil); err != nil {
		t.Fatal(err)
	}
	before.Shutdown()
	before.WaitForShutdown()

	now, err := natsserver.Start(t.Context(), dir, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Stop()
	operator, err := nats.NkeyOptionFromSeed(now.SeedFile("operator"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := use(now.URL(), operator, nats.CustomInboxPrefix("_INBOX_operator")).Stream(t.Context(), "STOKER_DEAD")
	if err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}
