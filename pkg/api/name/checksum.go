package name

import (
	"crypto/md5" //nolint:gosec // Kamaji's
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// KamajiChecksum is the checksum that Kamaji has of a Secret on the pods that mount it: MD5 of the values in the order of their keys.
func KamajiChecksum(data map[string][]byte) string {
	h := md5.New() //nolint:gosec // nothing secret rests on it: it tells whether something is as Kamaji left it
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = h.Write(data[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ChecksumOf is the checksum of a Secret that must hold data: Kamaji's, as long as it holds that as Kamaji made it, since pods that are to
// stay have it, else Checksum. A Secret of Kamaji's has no partition yet, or the annotation says so.
func ChecksumOf(secret metav1.Object, has, data map[string][]byte) string {
	noted, sum, kamajis := secret.GetAnnotations()[AnnotationChecksum], Checksum(data), KamajiChecksum(data)
	untouched := noted != "" && secret.GetLabels()[LabelPartition] == "" && KamajiChecksum(has) == kamajis
	if noted != sum && (noted == kamajis || untouched) {
		return kamajis
	}
	return sum
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
