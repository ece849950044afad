package name

import "testing"

func TestEncryptionRevision(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int64{
		KeyEncryption(1): 1, KeyEncryption(120): 120, "encryption-0.yaml": 0, "encryption-01.yaml": 0, "encryption-1": 0, "encryption--1.yaml": 0,
		"tls.key": 0, "1.yaml": 0, "": 0,
	} {
		if got := EncryptionRevision(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}
