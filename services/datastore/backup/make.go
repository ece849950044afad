package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/internal/digest"
)

// cleanWithin is how long a Make that fails may take to remove what it has written.
const cleanWithin = 30 * time.Second

// Source is what a backup is made of.
type Source struct {
	// Manifest needs a Tenant. Make adds an ID if it has none, Began if it is zero, and all that it counts and sums up.
	Manifest Manifest
	// Secrets to keep.
	Secrets []Secret
	// Recipients are public keys, age1…, at least one. The secret key of any opens the backup.
	Recipients []string
	// Export yields all keys, none of them Deleted, as driver.Data does.
	Export iter.Seq2[driver.Change, error]
	// Progress, which may be nil, is told now and then how many keys of how many bytes are read.
	Progress func(keys, bytes int64)
	// Now is the time; nil is the clock's.
	Now func() time.Time
}

// Make writes a backup, and returns its complete manifest. When it fails, it removes what it has written, within half a minute, even
// though ctx has ended; a process that is killed leaves it to [Unfinished]. It needs a few MB, and 17 more for an S3 server, however large
// the data are.
//
// Errors are those of the location, of recipients ([CheckRecipients]) and of Export, wrapped; ErrMade, which leaves that backup as it is;
// or a *driver.KeyError. An ID must not be given to two Makes at the same time.
func Make(ctx context.Context, to Location, source Source) (Manifest, error) {
	recipients, err := parseRecipients(source.Recipients)
	if err != nil {
		return Manifest{}, err
	}
	now := source.Now
	if now == nil {
		now = time.Now
	}
	m := source.Manifest
	m.Format, m.Recipients = Format, source.Recipients
	if m.Began.IsZero() {
		m.Began = now()
	}
	m.Began = m.Began.UTC()
	if m.ID == "" {
		m.ID = NewID(m.Began)
	}
	path, err := m.Path()
	if err != nil {
		return Manifest{}, err
	}
	if _, err := readObject(ctx, to, path+"/"+manifestName, maxManifest); err == nil {
		return Manifest{}, fmt.Errorf("%w: %s", ErrMade, path)
	} else if !errors.Is(err, ErrNotFound) {
		return Manifest{}, err
	}
	if err := write(ctx, to, path, &m, source, recipients, now); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
		defer cancel()
		if left := remove(ctx, to, path); left != nil {
			err = fmt.Errorf("%w; what was written of %s is left there: %s", err, path, left.Error())
		}
		return Manifest{}, err
	}
	return m, nil
}

// write completes the manifest on the way.
func write(
	ctx context.Context, to Location, path string, m *Manifest, source Source, recipients []age.Recipient, now func() time.Time,
) error {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	keys := Keys{Backup: path, Secrets: source.Secrets, Identity: identity.String()}
	if err := to.Put(ctx, path+"/"+keysName, func(w io.Writer) error { return seal(w, keys, recipients) }); err != nil {
		return err
	}
	told := source.Progress
	if told == nil {
		told = func(int64, int64) {}
	}
	var sum digest.Digest
	count := &counter{hash: sha256.New()}
	err = to.Put(ctx, path+"/"+dataName, func(w io.Writer) (err error) {
		sum, err = writeData(io.MultiWriter(w, count), identity.Recipient(), source.Export, told)
		return err
	})
	if err != nil {
		return err
	}
	m.Keys, m.Bytes, m.Digest = sum.Keys, sum.Bytes, sum.String()
	m.Size, m.SHA256 = count.size, count.String()
	m.Ended = now().UTC()
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", manifestName, err)
	}
	if len(text) > maxManifest {
		return fmt.Errorf("%s would have %d bytes, and %d are the most", manifestName, len(text), maxManifest)
	}
	return to.Put(ctx, path+"/"+manifestName, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// seal writes the content of keys.age.
func seal(w io.Writer, keys Keys, recipients []age.Recipient) error {
	text, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	if len(text) > maxKeys {
		return fmt.Errorf("the Secrets have %d bytes, and %d are the most", len(text), maxKeys)
	}
	sealed, err := age.Encrypt(w, recipients...)
	if err != nil {
		return err
	}
	if _, err := sealed.Write(text); err != nil {
		return err
	}
	return sealed.Close()
}

// counter knows size and SHA-256 of what is written to it.
type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(data []byte) (int, error) {
	c.size += int64(len(data))
	return c.hash.Write(data)
}

func (c *counter) String() string { return hex.EncodeToString(c.hash.Sum(nil)) }

// CheckRecipients says what is wrong with recipients of backups: that there is none, or which one can't be read, or can't be beside the
// others. A secret key among them isn't repeated.
func CheckRecipients(recipients []string) error {
	_, err := parseRecipients(recipients)
	return err
}

func parseRecipients(texts []string) ([]age.Recipient, error) {
	if len(texts) == 0 {
		return nil, errors.New("backups need a recipient, age1…, so that somebody can open them")
	}
	var all []age.Recipient
	for i, text := range texts {
		if strings.Contains(strings.ToUpper(text), "SECRET-KEY") {
			return nil, fmt.Errorf("recipient %d is a secret key: give the public one that belongs to it (age-keygen -y)", i+1)
		}
		if strings.ContainsAny(text, "\n\r#") {
			return nil, fmt.Errorf("recipient %.100q is more than one public key", text)
		}
		one, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("recipient %.100q is not a public key of age, age1…: %w", text, err)
		}
		all = append(all, one...)
	}
	// Some kinds can't be together.
	if _, err := age.Encrypt(io.Discard, all...); err != nil {
		return nil, fmt.Errorf("recipients: %w", err)
	}
	return all, nil
}
