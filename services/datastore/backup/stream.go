package backup

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/internal/digest"
)

// What data.age has inside of age and zstd:
//
//	magic
//	for each key: markKey, uvarint length of key, uvarint length of value, key, value, uvarint seconds to live, 0 for ever
//	markEnd, uvarint number of keys, uvarint bytes of all keys and values, 32 bytes Digest.Sum
const (
	magic   = "stoker-backup 1\n"
	family  = "stoker-backup "
	markKey = 1
	markEnd = 0
)

// Bounds of what a reader believes and a writer writes.
const (
	maxKey   = 64 << 10
	maxValue = 64 << 20
	// window of zstd that is written, and the largest that is read.
	window    = 1 << 20
	maxWindow = 4 << 20
)

// writeData writes the content of data.age, readable by to, and says what it was of. told is called now and then, and at the end.
func writeData(
	w io.Writer, to age.Recipient, export iter.Seq2[driver.Change, error], told func(keys, bytes int64),
) (sum digest.Digest, err error) {
	sealed, err := age.Encrypt(w, to)
	if err != nil {
		return sum, err
	}
	packed, err := zstd.NewWriter(sealed, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return sum, err
	}
	records := bufio.NewWriterSize(packed, 64<<10)
	if sum, err = writeRecords(records, export, told); err == nil {
		err = records.Flush()
	}
	if err != nil {
		return sum, err
	}
	if err := packed.Close(); err != nil {
		return sum, err
	}
	return sum, sealed.Close()
}

func writeRecords(w *bufio.Writer, export iter.Seq2[driver.Change, error], told func(keys, bytes int64)) (sum digest.Digest, err error) {
	_, _ = w.WriteString(magic) // a bufio.Writer remembers its error
	var said digest.Digest
	for c, err := range export {
		switch {
		case err != nil:
			return sum, fmt.Errorf("export: %w", err)
		case c.Deleted:
			return sum, fmt.Errorf("export: key %.200q is deleted", c.Key)
		case len(c.Key) > maxKey || len(c.Value) > maxValue || c.Seconds < 0:
			return sum, &driver.KeyError{Key: c.Key, Err: fmt.Errorf("%d bytes with a value of %d that live for %d seconds don't go into a backup",
				len(c.Key), len(c.Value), c.Seconds)}
		}
		head := binary.AppendUvarint([]byte{markKey}, uint64(len(c.Key)))
		_, _ = w.Write(binary.AppendUvarint(head, uint64(len(c.Value))))
		_, _ = w.WriteString(c.Key)
		_, _ = w.Write(c.Value)
		if _, err := w.Write(binary.AppendUvarint(nil, uint64(c.Seconds))); err != nil {
			return sum, err
		}
		sum.Add(c.Key, c.Value)
		if sum.Keys-said.Keys >= 1000 || sum.Bytes-said.Bytes >= 8<<20 {
			said = sum
			told(sum.Keys, sum.Bytes)
		}
	}
	told(sum.Keys, sum.Bytes)
	end := binary.AppendUvarint([]byte{markEnd}, uint64(sum.Keys))
	_, _ = w.Write(binary.AppendUvarint(end, uint64(sum.Bytes)))
	total := sum.Sum()
	_, err = w.Write(total[:])
	return sum, err
}

// broken says what is wrong with data.age.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrBroken, dataName, fmt.Sprintf(format, args...))
}

// readData yields what writeData was given, and then returns what was read; false means that the loop over it was left. The error is
// ErrIdentity, one of r's, or says what is wrong with the data.
func readData(r io.Reader, identity age.Identity, yield func(driver.Change) bool) (sum digest.Digest, ok bool, err error) {
	opened, err := age.Decrypt(r, identity)
	if err != nil {
		var other *age.NoIdentityMatchError
		if errors.As(err, &other) {
			err = fmt.Errorf("%w %s", ErrIdentity, dataName)
		}
		return sum, false, err
	}
	unpacked, err := zstd.NewReader(opened, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return sum, false, err
	}
	defer unpacked.Close()
	sum, ok, err = readRecords(bufio.NewReaderSize(unpacked, 64<<10), yield)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends in the middle")
	}
	return sum, ok, err
}

func readRecords(r *bufio.Reader, yield func(driver.Change) bool) (sum digest.Digest, ok bool, err error) {
	first := make([]byte, len(magic))
	if n, err := io.ReadFull(r, first); err != nil && (n == 0 || !errors.Is(err, io.ErrUnexpectedEOF)) {
		return sum, false, err
	}
	if string(first) != magic {
		if version, ours := strings.CutPrefix(string(first), family); ours {
			return sum, false, fmt.Errorf("it is of version %.10q, and this program knows 1", strings.TrimSpace(version))
		}
		return sum, false, errors.New("it has something other than a tenant's keys")
	}
	for {
		mark, err := r.ReadByte()
		switch {
		case err != nil:
			return sum, false, err
		case mark == markEnd:
			return sum, true, readEnd(r, sum)
		case mark != markKey:
			return sum, false, fmt.Errorf("behind key %d is something unknown", sum.Keys)
		}
		c, err := readRecord(r)
		if err != nil {
			return sum, false, fmt.Errorf("key %d: %w", sum.Keys+1, err)
		}
		sum.Add(c.Key, c.Value)
		if !yield(c) {
			return sum, false, nil
		}
	}
}

func readRecord(r *bufio.Reader) (c driver.Change, err error) {
	keyLength, err := binary.ReadUvarint(r)
	if err != nil {
		return c, err
	}
	valueLength, err := binary.ReadUvarint(r)
	if err != nil {
		return c, err
	}
	if keyLength > maxKey || valueLength > maxValue {
		return c, fmt.Errorf("%d bytes with a value of %d are more than a backup has", keyLength, valueLength)
	}
	key, err := readBytes(r, keyLength)
	if err != nil {
		return c, err
	}
	if c.Value, err = readBytes(r, valueLength); err != nil {
		return c, err
	}
	seconds, err := binary.ReadUvarint(r)
	c.Key, c.Seconds = string(key), int64(seconds)
	if err == nil && c.Seconds < 0 {
		err = errors.New("it lives for too long")
	}
	return c, err
}

// readBytes takes the memory for large values as they come, whatever length is claimed.
func readBytes(r io.Reader, length uint64) ([]byte, error) {
	if length <= 1<<20 {
		data := make([]byte, length)
		_, err := io.ReadFull(r, data)
		return data, err
	}
	var data bytes.Buffer
	_, err := io.CopyN(&data, r, int64(length))
	return data.Bytes(), err
}

// readEnd compares what was read with what was written, and makes sure that nothing follows.
func readEnd(r *bufio.Reader, sum digest.Digest) error {
	keys, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	bytes, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	total := sum.Sum()
	var want [len(total)]byte
	if _, err := io.ReadFull(r, want[:]); err != nil {
		return err
	}
	switch {
	case int64(keys) != sum.Keys || int64(bytes) != sum.Bytes:
		return fmt.Errorf("it has %d keys of %d bytes, and %d of %d were written", sum.Keys, sum.Bytes, keys, bytes)
	case want != total:
		return errors.New("its keys or values are others than those that were written")
	}
	switch _, err := r.ReadByte(); {
	case err == nil:
		return errors.New("something follows its end")
	case err != io.EOF:
		return err
	}
	return nil
}
