package random_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/test/random"
)

func kinds(t testing.TB) map[string]*random.Kind {
	t.Helper()
	kinds, err := random.Kinds(filepath.Join("..", "..", "deployments", "crds"))
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

func typed(plural string) any {
	switch plural {
	case "datastores":
		return &v1alpha1.DataStore{}
	case "kubeconfiggenerators":
		return &v1alpha1.KubeconfigGenerator{}
	}
	return &v1alpha1.TenantControlPlane{}
}

func TestSameSeedDrawsTheSame(t *testing.T) {
	for plural, k := range kinds(t) {
		o := random.Options{Fill: 2, Wild: 1.5}
		a, b := random.New(7), random.New(7)
		for range 200 {
			x, y := a.Draw(k, "default", "x", o), b.Draw(k, "default", "x", o)
			if !bytes.Equal(x.JSON, y.JSON) {
				t.Fatalf("%s:\n%s\n%s", plural, x.JSON, y.JSON)
			}
		}
	}
}

// failVariable has TestFailsWhenAsked fail.
const failVariable = "STOKER_TEST_RANDOM_FAILS"

func TestFailsWhenAsked(t *testing.T) {
	seed := random.Seed(t)
	if os.Getenv(failVariable) != "" {
		t.Errorf("seed %d", seed)
	}
}

func TestEachRunDrawsItsOwnAndCanBeRepeated(t *testing.T) {
	t.Setenv("STOKER_TEST_SEED", "") // the developer's own
	if a, b := random.Seed(t), random.Seed(t); a == b {
		t.Errorf("%d twice", a)
	}
	fails := func(env ...string) string {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.short", "-test.run=^TestFailsWhenAsked$")
		cmd.Env = append(append(os.Environ(), failVariable+"=1", "STOKER_TEST_OBJECTS=5"), env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Fatalf("it passes:\n%s", out)
		}
		return string(out)
	}
	out := fails()
	command := regexp.MustCompile(`STOKER_TEST_SEED=(\d+) STOKER_TEST_OBJECTS=5 go test -C (\S+) -count=1 -short -run '\^TestFailsWhenAsked\$' \.`).FindStringSubmatch(out)
	dir, err := os.Getwd()
	if err != nil || command == nil || command[2] != dir {
		t.Fatalf("no command that repeats it in %s (%v):\n%s", dir, err, out)
	}
	if again := fails("STOKER_TEST_SEED=" + command[1]); !strings.Contains(again, "seed "+command[1]+"\n") {
		t.Errorf("with the seed %s:\n%s", command[1], again)
	}
}

func TestWhatIsMeantToBeValidFitsTheGoTypes(t *testing.T) {
	for _, seed := range []uint64{random.Fixed, random.Seed(t)} {
		fitsTheGoTypes(t, random.New(seed))
	}
}

func fitsTheGoTypes(t *testing.T, s *random.Source) {
	t.Helper()
	for plural, k := range kinds(t) {
		for _, fill := range []float64{0, 2, 6, random.All} {
			for range 100 {
				d := s.Draw(k, "default", "x", random.Options{Fill: fill, Status: fill == random.All})
				if unknown, err := kjson.UnmarshalStrict(d.JSON, typed(plural)); err != nil || len(unknown) > 0 || len(d.Wrong) > 0 {
					t.Fatalf("%s: %v %v %v\n%s", plural, err, unknown, d.Wrong, d.JSON[:min(len(d.JSON), 2000)])
				}
			}
		}
	}
}

func TestEveryWayOfBeingWrongIsDrawn(t *testing.T) {
	s := random.Seeded(t)
	seen, unreadable := map[string]int{}, 0
	for _, k := range kinds(t) {
		for range 3000 {
			d := s.Draw(k, "default", "x", random.Options{Fill: 3, Wild: 2})
			if len(d.Wrong) == 0 {
				t.Fatalf("nothing wrong with %s", d.JSON)
			}
			for _, w := range d.Wrong {
				_, how, _ := strings.Cut(w, ": ")
				seen[how]++
			}
			if d.Object() == nil {
				unreadable++
			}
		}
	}
	for _, how := range []string{"bad value", "wrong type", "null", "out of range", "odd text", "not of the enum", "unknown field", "missing",
		"duplicate item", "too many items", "empty", "deep nesting", "cut off", "duplicate key", "invalid UTF-8"} {
		if seen[how] == 0 {
			t.Errorf("never: %s", how)
		}
	}
	t.Log(seen, "no object:", unreadable)
}
