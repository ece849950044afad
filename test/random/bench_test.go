package random_test

import (
	"testing"

	"github.com/stoker-k8s/stoker/test/random"
)

func BenchmarkDraw(b *testing.B) {
	k := kinds(b)["tenantcontrolplanes"]
	s := random.New(1)
	for b.Loop() {
		s.Draw(k, "default", "x", random.Options{Fill: 3, Wild: 1.5})
	}
}
