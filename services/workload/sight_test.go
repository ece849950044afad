package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestSights(t *testing.T) {
	key := events.Tenant("default", "demo")
	tests := map[string]func(s *sights) (news, want bool){
		"an object not yet seen nor known may be gone": func(s *sights) (bool, bool) {
			return s.get(key, deployment, "5").news(), true
		},
		"what the own state knows is no news after a restart": func(s *sights) (bool, bool) {
			s.see(key, deployment, "5", false)
			return s.get(key, deployment, "5").news(), false
		},
		"what it doesn't know is": func(s *sights) (bool, bool) {
			s.see(key, deployment, "6", false)
			return s.get(key, deployment, "5").news(), true
		},
		"the echo of a write wakes nobody": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			return s.see(key, deployment, "7", false), false
		},
		"nor does a version before it that comes late": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			return s.see(key, deployment, "6", false), false
		},
		"an echo that comes before the write's answer is no news after it": func(s *sights) (bool, bool) {
			s.see(key, deployment, "7", false)
			s.know(key, deployment, "7", 1)
			return s.get(key, deployment, "").news(), false
		},
		"another's write is news": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			return s.see(key, deployment, "8", false), true
		},
		"an end is news": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			return s.see(key, deployment, "8", true) && s.get(key, deployment, "").news(), true
		},
		"the end of an earlier object isn't": func(s *sights) (bool, bool) {
			s.know(key, deployment, "9", 1)
			return s.see(key, deployment, "8", true) || s.get(key, deployment, "").news(), false
		},
		"an end that is seen before the write's answer isn't lost": func(s *sights) (bool, bool) {
			s.see(key, deployment, "8", true)
			s.know(key, deployment, "7", 1)
			return s.get(key, deployment, "").news(), true
		},
		"an object made anew after its end is there": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			s.see(key, deployment, "8", true)
			s.know(key, deployment, "9", 1)
			return s.get(key, deployment, "").news(), false
		},
		"versions that are no numbers are news unless they are equal": func(s *sights) (bool, bool) {
			s.know(key, deployment, "b", 1)
			return s.see(key, deployment, "a", false) && !s.see(key, deployment, "b", false), true
		},
		"objects of other kinds have nothing to do with it": func(s *sights) (bool, bool) {
			s.know(key, deployment, "7", 1)
			s.see(key, service, "8", false)
			return s.get(key, deployment, "").news(), false
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got, want := test(&sights{}); got != want {
				t.Errorf("news is %t, want %t", got, want)
			}
		})
	}
}
