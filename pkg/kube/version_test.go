package kube_test

import (
	"testing"

	"github.com/stoker-k8s/stoker/pkg/kube"
)

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b  string
		older bool
	}{
		{"9", "10", true},
		{"10", "9", false},
		{"10", "10", false},
		{"", "10", false},
		{"10", "", false},
		{"opaque", "10", false},
		{"18446744073709551616", "18446744073709551617", true}, // more than 64 bits
	} {
		if got := kube.Older(test.a, test.b); got != test.older {
			t.Errorf("Older(%q, %q) is %t", test.a, test.b, got)
		}
	}
}
