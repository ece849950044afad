package v1alpha1

import (
	"slices"
	"strconv"
	"strings"
)

// MostMinorsBehind is how many minor versions a kubelet may be older than the API server it reports to
// (https://kubernetes.io/releases/version-skew-policy/); it may never be newer.
const MostMinorsBehind = 3

// Minor is the minor version in a version of Kubernetes 1, with or without the leading v: 36 of v1.36.3, 1.36 and v1.36.3+k3s1. False
// for everything else.
func Minor(version string) (int, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 || parts[0] != "1" {
		return 0, false
	}
	minor, err := strconv.ParseUint(parts[1], 10, 16)
	return int(minor), err == nil
}

// StepsBetween are the versions to run on the way from one version to another, one of each minor version between them, in order. Of
// several candidates of a minor version the last one is taken; a minor version without any is left out.
func StepsBetween(from, to string, candidates []string) []string {
	first, known := Minor(from)
	last, ok := Minor(to)
	if !known || !ok {
		return nil
	}
	var steps []string
	for minor := first + 1; minor < last; minor++ {
		for _, c := range slices.Backward(candidates) {
			if m, ok := Minor(c); ok && m == minor {
				steps = append(steps, c)
				break
			}
		}
	}
	return steps
}
