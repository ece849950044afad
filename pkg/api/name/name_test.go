package name_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestChecksum(t *testing.T) {
	t.Parallel()

	type data = map[string][]byte

	base := data{"ca.crt": []byte("certificate"), "ca.key": []byte("key")}

	tests := map[string]struct {
		other data
		equal bool
	}{
		"the same pairs give the same checksum": {
			other: data{"ca.key": []byte("key"), "ca.crt": []byte("certificate")}, equal: true,
		},
		"another value gives another checksum": {
			other: data{"ca.crt": []byte("certificate"), "ca.key": []byte("yek")},
		},
		"another key gives another checksum": {
			other: data{"ca.crt": []byte("certificate"), "ca.pem": []byte("key")},
		},
		"a missing pair gives another checksum": {
			other: data{"ca.crt": []byte("certificate")},
		},
		"bytes that move from a value into the next key give another checksum": {
			other: data{"ca.crt": []byte("certificateca.key"), "": []byte("key")},
		},
		"exchanged values give another checksum": {
			other: data{"ca.crt": []byte("key"), "ca.key": []byte("certificate")},
		},
	}

	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()

			if got := name.Checksum(base) == name.Checksum(test.other); got != test.equal {
				t.Errorf("equal is %t, want %t", got, test.equal)
			}
		})
	}

	t.Run("a checksum fits a label value", func(t *testing.T) {
		t.Parallel()

		sum := name.Checksum(base)
		if len(sum) != 32 || len(validation.IsValidLabelValue(sum)) != 0 {
			t.Errorf("%q does not", sum)
		}
	})

	t.Run("nil and empty data have the same checksum, and it never changes between versions", func(t *testing.T) {
		t.Parallel()

		const want = "e3b0c44298fc1c149afbf4c8996fb924"
		if got := []string{name.Checksum(nil), name.Checksum(data{})}; got[0] != want || got[1] != want {
			t.Errorf("got %q, want %s", got, want)
		}
	})

	t.Run("a ConfigMap's strings have the checksum of their bytes", func(t *testing.T) {
		t.Parallel()

		if name.ChecksumStrings(map[string]string{"a": "b"}) != name.Checksum(data{"a": []byte("b")}) {
			t.Error("they do not")
		}
	})
}

func TestLabelsAreValid(t *testing.T) {
	t.Parallel()

	longest := strings.Repeat("a", validation.DNS1035LabelMaxLength)

	for key, value := range name.Labels(longest, name.ComponentKonnectivityEgressSelector, name.Partitions-1) {
		for _, problem := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
			t.Errorf("%s=%s: %s", key, value, problem)
		}
	}
}
