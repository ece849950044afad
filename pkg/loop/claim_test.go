package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// TestClaims has a replica read claims in which one partition, of its own share, is as each case says, and all others are its own.
func TestClaims(t *testing.T) {
	const p = 3
	soon := time.Now().Add(time.Hour)
	for what, c := range map[string]struct {
		holder         string // in the claims that are read
		owned, leaving bool
		stopping       bool // then the partition is not of its share
		rival          time.Time
		written        string // the holder in the claims that are written
		taken, lost    bool
		unchanged      bool
	}{
		"one that is free is taken":                                   {written: "me", taken: true},
		"one of a replica that lives is not":                          {holder: "living", written: "living", unchanged: true},
		"one of a replica that died is":                               {holder: "dead", written: "me", taken: true},
		"one that was its own before it was started anew is":          {holder: "me", written: "me", taken: true},
		"one that it works on stays":                                  {holder: "me", owned: true, written: "me", unchanged: true},
		"one that it works on is claimed again in a bucket made anew": {owned: true, written: "me"},
		"one that another claimed while its lease was over is lost":   {holder: "living", owned: true, written: "living", lost: true, unchanged: true},
		"even to one that died since":                                 {holder: "dead", owned: true, written: "dead", lost: true, unchanged: true},
		"one that is handed over is neither freed nor claimed yet":    {holder: "me", leaving: true, written: "me", unchanged: true},
		"one that is not of its share any more is freed":              {holder: "me", stopping: true, written: ""},
		"one that is free and not of its share stays so":              {stopping: true, written: "", unchanged: true},
		"one of a replica that died and not of its share stays":       {holder: "dead", stopping: true, written: "dead", unchanged: true},
		"one that another process of its name works on is left to it": {holder: "me", rival: soon, written: "me", unchanged: true},
		"one that is free is not taken while there is such a process": {rival: soon, written: "", unchanged: true},
	} {
		t.Run(what, func(t *testing.T) {
			s := &lease{
				clock:   machineClock,
				replica: "me", members: map[string]time.Time{"me": time.Now()}, stopping: c.stopping, rivalUntil: c.rival,
			}
			read := claims{Written: map[string]int{"me": 7, "dead": 2, "long dead": 1}}
			for i := range read.Holders {
				read.Holders[i], s.owned[i] = "me", true
			}
			read.Holders[p], s.owned[p], s.leaving[p] = c.holder, c.owned, c.leaving
			if c.holder == "living" {
				s.members["living"], read.Written["living"] = time.Now(), 4
				if !c.owned { // a share of one's own is all of it only while nobody else lives: give the others away
					for i, w := range s.want() {
						if i != p && !w {
							read.Holders[i], s.owned[i] = "living", false
						}
					}
				}
			}
			next, taken, changes := s.amend(read)
			if next.Holders[p] != c.written {
				t.Errorf("held by %q", next.Holders[p])
			}
			if slices.Contains(taken, p) != c.taken {
				t.Errorf("taken: %v", taken)
			}
			if lost := !s.owned[p] && s.leaving[p] && s.terms[p] == 1; lost != c.lost {
				t.Errorf("owned %v, leaving %v, term %d", s.owned[p], s.leaving[p], s.terms[p])
			}
			if changes == c.unchanged {
				t.Errorf("something is to be written: %v", changes)
			}
			for replica, want := range map[string]bool{"me": true, "living": c.holder == "living", "dead": next.Holders[p] == "dead", "long dead": false} {
				if _, counted := next.Written[replica]; counted != want {
					t.Errorf("what %s wrote is counted: %v", replica, counted)
				}
			}
		})
	}
}

// TestAClaimIsAskedForOnlyWhereOneMayDiffer holds how quiet a replica at rest is: it reads the claims when one may have to be written.
func TestAClaimIsAskedForOnlyWhereOneMayDiffer(t *testing.T) {
	const p = 3
	for what, c := range map[string]struct {
		holder         string
		owned, leaving bool
		want, stale    bool
		rival          time.Time
		differs        bool
	}{
		"one that it works on":                                         {holder: "me", owned: true, want: true},
		"one that it works on, after others may have written":          {holder: "me", owned: true, want: true, stale: true},
		"one that it works on, claimed by another":                     {holder: "living", owned: true, want: true, differs: true},
		"one that another took and that is handed over":                {holder: "living", leaving: true, want: true},
		"one that another took and that died, until it is handed over": {holder: "dead", leaving: true, want: true},
		"one in its name that is handed over":                          {holder: "me", leaving: true},
		"one that was handed over and is still in its name":            {holder: "me", differs: true},
		"the same while another process has its name":                  {holder: "me", rival: time.Now().Add(time.Hour)},
		"one of its share that a living replica holds":                 {holder: "living", want: true},
		"that, after others may have written":                          {holder: "living", want: true, stale: true, differs: true},
		"one of its share that nobody holds":                           {want: true, differs: true},
		"one of its share whose holder died":                           {holder: "dead", want: true, differs: true},
		"one of another's share whose holder died":                     {holder: "dead"},
		"one of another's share, after others may have written":        {holder: "living", stale: true},
	} {
		t.Run(what, func(t *testing.T) {
			s := &lease{clock: machineClock, replica: "me", members: map[string]time.Time{"me": {}, "living": {}}, stale: c.stale, rivalUntil: c.rival}
			s.claims.Holders[p], s.owned[p], s.leaving[p] = c.holder, c.owned, c.leaving
			want := [name.Partitions]bool{p: c.want}
			if got := s.differs(want, p); got != c.differs {
				t.Errorf("asked for: %v", got)
			}
		})
	}
}

func TestWhoWroteClaimsLives(t *testing.T) {
	s := &lease{clock: machineClock, replica: "me", members: map[string]time.Time{"me": {}}, rewritten: true, stale: true}
	s.claims = claims{Written: map[string]int{"me": 1, "alive": 1, "silent": 1}}
	read := claims{Written: map[string]int{"me": 2, "alive": 2, "silent": 1, "holds nothing": 5}}
	read.Holders[0], read.Holders[1], read.Holders[2] = "me", "alive", "silent"
	s.note(read)
	if !s.lives("alive") || s.lives("silent") || s.lives("holds nothing") || !s.members["me"].IsZero() || len(s.members) != 2 {
		t.Errorf("members are %v", s.members)
	}
	if s.rewritten || s.stale || s.claims.Holders != read.Holders {
		t.Errorf("the claims are still to be read: %+v", s)
	}
}
