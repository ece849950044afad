package name

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
)

// Checksum returns a fingerprint of a Secret's or ConfigMap's data that fits a label value: the first 32 hexadecimal
// digits of SHA-256. Equal maps have equal checksums whatever their order; nil and empty are the same.
func Checksum(data map[string][]byte) string {
	h := sha256.New()

	for _, key := range slices.Sorted(maps.Keys(data)) {
		writeSized(h, []byte(key))
		writeSized(h, data[key])
	}

	return hex.EncodeToString(h.Sum(nil))[:32]
}

// ChecksumStrings is Checksum for the data of a ConfigMap.
func ChecksumStrings(data map[string]string) string {
	b := make(map[string][]byte, len(data))
	for key, value := range data {
		b[key] = []byte(value)
	}

	return Checksum(b)
}

// writeSized writes the length before the value, so that no two maps run into the same bytes.
func writeSized(h hash.Hash, value []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(value)))
	// Writing to a hash never fails.
	_, _ = h.Write(size[:])
	_, _ = h.Write(value)
}
