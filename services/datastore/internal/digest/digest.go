// Package digest compares sets of keys and what they hold, in whatever order they come: each database has one of its own.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest is of a set of keys with their values. Two are equal (==) if and only if the sets are, as far as SHA-256 tells sets apart. The
// zero value is of the empty set.
type Digest struct {
	// Keys is how many there are, Bytes how many all keys and values have together.
	Keys, Bytes int64
	sum         [4]uint64
}

// Add has the set contain one more key.
func (d *Digest) Add(key string, value []byte) {
	hash := Of(key, value)
	for i := range d.sum {
		d.sum[i] += binary.LittleEndian.Uint64(hash[8*i:])
	}
	d.Keys++
	d.Bytes += int64(len(key) + len(value))
}

// Sum is what the digest has beside its counts: the sums of the hashes' four words, little-endian.
func (d *Digest) Sum() (sum [sha256.Size]byte) {
	for i, word := range d.sum {
		binary.LittleEndian.PutUint64(sum[8*i:], word)
	}
	return sum
}

// String is Sum in hexadecimal digits.
func (d *Digest) String() string {
	sum := d.Sum()
	return hex.EncodeToString(sum[:])
}

// Of is the SHA-256 of one key's length, in eight bytes, little-endian, the key, and its value.
func Of(key string, value []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(key)))
	_, _ = h.Write(length[:])
	_, _ = h.Write([]byte(key))
	_, _ = h.Write(value)
	h.Sum(sum[:0])
	return sum
}
