package loop

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestSharesDifferByOneAtMostAndAreAllThereIs(t *testing.T) {
	for n := 1; n <= name.Partitions+2; n++ {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprint("replica-", i))
		}
		var all []int
		for _, m := range members {
			own := share(members, m)
			if len(own) > (name.Partitions+n-1)/n {
				t.Errorf("of %d replicas %s has %v", n, m, own)
			}
			all = append(all, own...)
		}
		if slices.Sort(all); len(slices.Compact(all)) != name.Partitions || len(all) != name.Partitions {
			t.Errorf("of %d replicas all have %v", n, all)
		}
	}
	if own := share(nil, "a"); own != nil {
		t.Errorf("of no replica one has %v", own)
	}
}

// Replicas of two versions must agree, each computes the shares by itself: so these never change.
func TestSharesAreThoseOfTheVersionBefore(t *testing.T) {
	for replica, want := range map[string][][]int{ // of three and of the first two
		"stoker-certs-0": {{0, 3, 4, 6, 9, 12}, {0, 2, 3, 4, 6, 9, 12, 14}},
		"stoker-certs-1": {{1, 5, 7, 8, 10, 15}, {1, 5, 7, 8, 10, 11, 13, 15}},
		"stoker-certs-2": {{2, 11, 13, 14}, nil},
	} {
		for i, n := range []int{3, 2} {
			if own := share([]string{"stoker-certs-0", "stoker-certs-1", "stoker-certs-2"}[:n], replica); !slices.Equal(own, want[i]) {
				t.Errorf("of %d, %s has %v", n, replica, own)
			}
		}
	}
}
