package backup

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"filippo.io/age"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// How many bytes are believed of a manifest, and of keys.age.
const (
	maxManifest = 4 << 20
	maxKeys     = 32 << 20
)

// Get reads the manifest of one backup. The error may be ErrNotFound or ErrBroken.
func Get(ctx context.Context, from Location, namespace, tenant, id string) (Manifest, error) {
	path, err := pathOf(namespace, tenant, id)
	if err != nil {
		return Manifest{}, err
	}
	return readManifest(ctx, from, path)
}

func readManifest(ctx context.Context, from Location, path string) (m Manifest, err error) {
	text, err := readObject(ctx, from, path+"/"+manifestName, maxManifest)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %s", ErrBroken, manifestName, err.Error())
	}
	if m.Format != Format {
		return m, fmt.Errorf("%w: %s is of version %d, and this program knows %d", ErrBroken, manifestName, m.Format, Format)
	}
	if own, err := m.Path(); err != nil || own != path {
		return m, fmt.Errorf("%w: %s is of another backup", ErrBroken, manifestName)
	}
	return m, nil
}

// readObject reads a small object.
func readObject(ctx context.Context, from Location, name string, most int64) ([]byte, error) {
	r, err := from.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrBroken, name, most)
	}
	return text, err
}

// KeysOf reads a backup's keys.age as it is, encrypted. The error may be ErrNotFound.
func KeysOf(ctx context.Context, from Location, m Manifest) (ciphertext []byte, err error) {
	path, err := m.Path()
	if err != nil {
		return nil, err
	}
	return readObject(ctx, from, path+"/"+keysName, maxKeys+maxKeys/8)
}

// OpenKeys decrypts what KeysOf has read of a backup. identities is what a file of secret keys has, as age-keygen writes it. The error may
// be ErrIdentity, when none fits, or ErrBroken, also for the keys of another backup.
func OpenKeys(m Manifest, ciphertext []byte, identities string) (keys Keys, err error) {
	path, err := m.Path()
	if err != nil {
		return keys, err
	}
	parsed, err := age.ParseIdentities(strings.NewReader(identities))
	if err != nil {
		// age's own text doesn't repeat keys, but what may be one it might.
		return keys, fmt.Errorf("%w: what was given is not a file of secret keys, AGE-SECRET-KEY-1…", ErrIdentity)
	}
	opened, err := age.Decrypt(strings.NewReader(string(ciphertext)), parsed...)
	var other *age.NoIdentityMatchError
	if errors.As(err, &other) {
		return keys, fmt.Errorf("%w: %s is for %s", ErrIdentity, keysName, strings.Join(m.Recipients, ", "))
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(opened, maxKeys+1))
	}
	if err == nil && len(text) > maxKeys {
		err = fmt.Errorf("more than %d bytes", maxKeys)
	}
	if err != nil {
		return keys, fmt.Errorf("%w: %s: %s", ErrBroken, keysName, err.Error())
	}
	if json.Unmarshal(text, &keys) != nil { // which would tell what is in it
		return Keys{}, fmt.Errorf("%w: %s has something other than keys", ErrBroken, keysName)
	}
	if keys.Backup != path {
		return Keys{}, fmt.Errorf("%w: %s is of another backup, %.250q", ErrBroken, keysName, keys.Backup)
	}
	return keys, nil
}

// Data yields all keys of a backup, opened by the Identity of its Keys. They are as they were written only when the loop ends without an
// error: the last thing that is done is to compare number, digest, size and SHA-256 of all with the manifest. An error is the last that is
// yielded: of the location, ErrIdentity, or ErrBroken, which says what is wrong. Revision is that of the manifest. Memory is bounded but
// for single values.
func Data(ctx context.Context, from Location, m Manifest, identity string) iter.Seq2[driver.Change, error] {
	return func(yield func(driver.Change, error) bool) {
		ok, err := readInto(ctx, from, m, identity, func(c driver.Change) bool { return yield(c, nil) })
		if err != nil && ok {
			yield(driver.Change{}, err)
		}
	}
}

// readInto returns false when yield did.
func readInto(ctx context.Context, from Location, m Manifest, identity string, yield func(driver.Change) bool) (ok bool, err error) {
	path, err := m.Path()
	if err != nil {
		return true, err
	}
	key, err := age.ParseX25519Identity(strings.TrimSpace(identity))
	if err != nil { // which may repeat it
		return true, fmt.Errorf("%w: what was given is not a secret key, AGE-SECRET-KEY-1…", ErrIdentity)
	}
	object, err := from.Get(ctx, path+"/"+dataName)
	if err != nil {
		return true, err
	}
	defer object.Close()
	raw := &measured{from: object, counter: counter{hash: sha256.New()}}
	sum, more, err := readData(raw, key, func(c driver.Change) bool {
		c.Revision = m.Revision
		ok = yield(c)
		return ok
	})
	switch {
	case raw.err != nil:
		return true, raw.err
	case errors.Is(err, ErrIdentity):
		return true, err
	case err != nil && raw.ended && raw.size != m.Size:
		return true, broken("it has %d bytes, and %d were written: %v", raw.size, m.Size, err)
	case err != nil:
		return true, broken("%v", err)
	case !more:
		return false, nil
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return true, err
	}
	switch {
	case raw.size != m.Size || raw.String() != m.SHA256:
		return true, broken("it has %d bytes, SHA-256 %s, and its manifest has %d, %.64s", raw.size, raw.String(), m.Size, m.SHA256)
	case sum.Keys != m.Keys || sum.Bytes != m.Bytes || sum.String() != m.Digest:
		return true, broken("it has %d keys of %d bytes, digest %s, and its manifest has %d of %d, %.64s",
			sum.Keys, sum.Bytes, sum.String(), m.Keys, m.Bytes, m.Digest)
	}
	return true, nil
}

// measured knows what was read through it, and whether to the end.
type measured struct {
	counter
	from  io.Reader
	ended bool
	err   error // of the location, and not io.EOF
}

func (m *measured) Read(data []byte) (int, error) {
	n, err := m.from.Read(data)
	_, _ = m.Write(data[:n])
	switch {
	case err == io.EOF:
		m.ended = true
	case err != nil:
		m.err = err
	}
	return n, err
}
