package workload

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/events"
)

func TestSights(t *testing.T) {
	key := events.Tenant("default", "demo")
	tests := map[string]func(s *observations) (news, want bool){
		"an object not yet seen nor known may be gone": func(s *observations) (bool, bool) {
			return s.get(key, kindDeployment, "5").changed(), true
		},
		"what the own state knows is no news after a restart": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "5", false)
			return s.get(key, kindDeployment, "5").changed(), false
		},
		"what it doesn't know is": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "6", false)
			return s.get(key, kindDeployment, "5").changed(), true
		},
		"the echo of a write wakes nobody": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			return s.see(key, kindDeployment, "7", false), false
		},
		"nor does a version before it that comes late": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			return s.see(key, kindDeployment, "6", false), false
		},
		"an echo that comes before the write's answer is no news after it": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "7", false)
			s.setKnown(key, kindDeployment, "7", 1)
			return s.get(key, kindDeployment, "").changed(), false
		},
		"another's write is news": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			return s.see(key, kindDeployment, "8", false), true
		},
		"what could not be written is news again": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "8", false)
			s.setKnown(key, kindDeployment, "8", 1)
			s.doubt(key)
			return s.get(key, kindDeployment, "7").changed(), true
		},
		"unless the state has it": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "8", false)
			s.setKnown(key, kindDeployment, "8", 1)
			s.doubt(key)
			return s.get(key, kindDeployment, "8").changed(), false
		},
		"an end is news": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			return s.see(key, kindDeployment, "8", true) && s.get(key, kindDeployment, "").changed(), true
		},
		"the end of an earlier object isn't": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "9", 1)
			return s.see(key, kindDeployment, "8", true) || s.get(key, kindDeployment, "").changed(), false
		},
		"an end that is seen before the write's answer isn't lost": func(s *observations) (bool, bool) {
			s.see(key, kindDeployment, "8", true)
			s.setKnown(key, kindDeployment, "7", 1)
			return s.get(key, kindDeployment, "").changed(), true
		},
		"an object made anew after its end is there": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			s.see(key, kindDeployment, "8", true)
			s.setKnown(key, kindDeployment, "9", 1)
			return s.get(key, kindDeployment, "").changed(), false
		},
		"versions that are no numbers are news unless they are equal": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "b", 1)
			return s.see(key, kindDeployment, "a", false) && !s.see(key, kindDeployment, "b", false), true
		},
		"objects of other kinds have nothing to do with it": func(s *observations) (bool, bool) {
			s.setKnown(key, kindDeployment, "7", 1)
			s.see(key, kindService, "8", false)
			return s.get(key, kindDeployment, "").changed(), false
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got, want := test(&observations{}); got != want {
				t.Errorf("news is %t, want %t", got, want)
			}
		})
	}
}
