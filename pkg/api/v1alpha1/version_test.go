package v1alpha1

import "testing"

func TestMinor(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{
		"v1.36.3": 36, "1.36.3": 36, "1.36": 36, "v1.33.1+k3s1": 33, "v1.30.0-rc.1": 30, "v1.0.0": 0,
		"": -1, "v1": -1, "v2.36.0": -1, "v1.x.0": -1, "v1.-3.0": -1, "v1.99999999999.0": -1, "36": -1, "v1..3": -1,
	} {
		got, ok := Minor(version)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v", version, got, ok)
		}
	}
}
