package loop

import (
	"hash/fnv"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// share returns the partitions that are one member's. Each partition goes to the member that ranks highest for it and has room
// left (rendezvous hashing with a bound), so that shares differ by at most one and few partitions move when a member comes or
// goes.
func share(members []string, of string) []int {
	if len(members) == 0 {
		return nil
	}
	room := (name.Partitions + len(members) - 1) / len(members)
	count := map[string]int{}
	var own []int
	for p := range name.Partitions {
		best, weight := "", uint64(0)
		for _, m := range members {
			if count[m] >= room {
				continue
			}
			h := fnv.New64a()
			_, _ = h.Write([]byte{byte(p), byte(p >> 8)})
			_, _ = h.Write([]byte(m))
			// FNV alone leaves the high bits of short inputs alike; one multiplication spreads them (Stafford's Mix13).
			w := h.Sum64()
			w = (w ^ w>>30) * 0xbf58476d1ce4e5b9
			w = (w ^ w>>27) * 0x94d049bb133111eb
			w ^= w >> 31
			if best == "" || w > weight {
				best, weight = m, w
			}
		}
		count[best]++
		if best == of {
			own = append(own, p)
		}
	}
	return own
}
