package nats

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// TestSeenKeys has messages be pushed out while they are read: by ten later ones, of which an export has to know.
func TestSeenKeys(t *testing.T) {
	t.Parallel()
	const at = 100
	type message struct {
		sequence uint64
		mark     bool
	}
	later := func(n int) (all []message) {
		for i := range n {
			all = append(all, message{sequence: uint64(at + 1 + i)})
		}
		return all
	}
	for what, c := range map[string]struct {
		read  []message
		live  []uint64
		later int
	}{
		"one that stays":                             {[]message{{sequence: 5}, {sequence: 7}}, []uint64{7}, 0},
		"one that is written later":                  {append([]message{{sequence: 5}}, later(3)...), []uint64{5}, 0},
		"one that was deleted":                       {[]message{{sequence: 5}, {sequence: 6}, {7, true}}, nil, 0},
		"one that was deleted and made again":        {[]message{{7, true}, {sequence: 8}}, []uint64{8}, 0},
		"one that is made later":                     {later(3), nil, 3},
		"one whose messages of before are gone":      {later(history), nil, history},
		"one of which only a deletion was seen":      {append([]message{{7, true}}, later(history)...), nil, history},
		"one that was deleted, and made again later": {append([]message{{7, true}}, later(2)...), nil, 2},
	} {
		s := seenKeys{at: at, keys: map[subject]uint64{}, later: map[subject]*laterKey{}}
		for _, m := range c.read {
			s.note("a", m.sequence, m.mark)
		}
		n := 0
		if k := s.later[idOf("a")]; k != nil {
			n = k.n
		}
		if live := s.live(); !slices.Equal(live, c.live) || n != c.later {
			t.Errorf("%s: %v, %d later ones", what, live, n)
		}
	}
	s := seenKeys{at: at, known: map[subject]*driver.Change{idOf("a"): nil}, keys: map[subject]uint64{}, later: map[subject]*laterKey{}}
	s.note("a", 5, false)
	s.note("a", at+1, false)
	if len(s.live()) > 0 || len(s.later) > 0 {
		t.Error("one that is known is asked for")
	}
}
