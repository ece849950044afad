package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// one is a backup in a directory, whose objects a test alters.
type one struct {
	Location
	dir      string
	manifest Manifest
	owner    *age.X25519Identity
	identity string
}

func makeOne(t *testing.T, keys int) *one {
	t.Helper()
	o := &one{dir: t.TempDir(), owner: owner(t)}
	o.Location = open(t, Access{URL: "file://" + o.dir})
	s := source(o.owner.Recipient().String())
	s.Export = noise(keys, 100)
	o.manifest = mustMake(t, o, s)
	o.identity = opened(t, o, o.manifest, o.owner).Identity
	return o
}

func (o *one) path(name string) string {
	return filepath.Join(o.dir, o.manifest.Tenant.Namespace, o.manifest.Tenant.Name, o.manifest.ID, name)
}

func (o *one) file(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(o.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (o *one) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(o.path(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDataThatIsAltered(t *testing.T) {
	o, other := makeOne(t, 5000), makeOne(t, 10)
	whole := o.file(t, dataName)
	if len(whole) < 3*64<<10 {
		t.Fatalf("%d bytes are not several pieces of age", len(whole))
	}
	flipped := func(at int) []byte {
		data := bytes.Clone(whole)
		data[at] ^= 1
		return data
	}
	for name, test := range map[string]struct {
		data []byte
		kind error
		text string
	}{
		"all is cut":                {nil, ErrBroken, "it has 0 bytes"},
		"it ends in the header":     {whole[:50], ErrBroken, "it has 50 bytes"},
		"it ends in the middle":     {whole[:len(whole)/2], ErrBroken, "were written"},
		"it ends between pieces":    {whole[:headerOf(whole)+16+2*(64<<10+16)], ErrBroken, "were written"},
		"its last byte is missing":  {whole[:len(whole)-1], ErrBroken, "were written"},
		"something follows":         {append(bytes.Clone(whole), 'x'), ErrBroken, "were written"},
		"it is there twice":         {append(bytes.Clone(whole), whole...), ErrBroken, dataName},
		"a bit of the header":       {flipped(10), ErrBroken, dataName},
		"a bit of the first piece":  {flipped(1000), ErrBroken, dataName},
		"a bit in the middle":       {flipped(len(whole) / 2), ErrBroken, dataName},
		"a bit at the end":          {flipped(len(whole) - 1), ErrBroken, dataName},
		"it is another backup's":    {other.file(t, dataName), ErrIdentity, dataName},
		"it is no data":             {[]byte("something else"), ErrBroken, dataName},
		"the keys are in its place": {o.file(t, keysName), ErrIdentity, dataName},
	} {
		o.write(t, dataName, test.data)
		_, err := read(o, o.manifest, o.identity)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) || strings.Count(err.Error(), dataName) > 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(o.path(dataName)); err != nil {
		t.Fatal(err)
	}
	if _, err := read(o, o.manifest, o.identity); !errors.Is(err, ErrNotFound) {
		t.Errorf("without data: %v", err)
	}
}

// headerOf is how long age's header is.
func headerOf(data []byte) int {
	end := bytes.Index(data, []byte("\n---"))
	return end + 1 + bytes.IndexByte(data[end+1:], '\n') + 1
}

func TestAManifestThatIsAltered(t *testing.T) {
	o := makeOne(t, 10)
	for name, alter := range map[string]func(*Manifest){
		"keys": func(m *Manifest) { m.Keys++ }, "bytes": func(m *Manifest) { m.Bytes-- }, "size": func(m *Manifest) { m.Size++ },
		"digest": func(m *Manifest) { m.Digest = strings.Repeat("0", 64) }, "SHA-256": func(m *Manifest) { m.SHA256 = "" },
	} {
		m := o.manifest
		alter(&m)
		have, err := read(o, m, o.identity)
		if !errors.Is(err, ErrBroken) || len(have) != 10 {
			t.Errorf("%s: %d keys, %v", name, len(have), err)
		}
	}
	text := o.file(t, manifestName)
	for name, test := range map[string]struct{ text, says string }{
		"no JSON":         {"x", manifestName},
		"cut":             {string(text[:len(text)/2]), manifestName},
		"a later version": {strings.Replace(string(text), `"format": 1`, `"format": 2`, 1), "is of version 2"},
		"another tenant":  {strings.Replace(string(text), `"demo"`, `"other"`, 1), "of another backup"},
		"no ID":           {strings.Replace(string(text), `"id"`, `"di"`, 1), "of another backup"},
		"too large":       {strings.Repeat(" ", maxManifest+1), "more than"},
	} {
		o.write(t, manifestName, []byte(test.text))
		_, err := Get(t.Context(), o, "default", "demo", o.manifest.ID)
		if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, names := range [][3]string{
		{"", "demo", o.manifest.ID}, {"..", "demo", o.manifest.ID}, {"default", "a/b", o.manifest.ID}, {"default", "demo", "../x"},
		{"default", "demo", ""},
	} {
		if _, err := Get(t.Context(), o, names[0], names[1], names[2]); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := Get(t.Context(), o, "default", "demo", "20260101T000000Z-000000"); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that isn't there: %v", err)
	}
}

func TestKeysThatDoNotOpen(t *testing.T) {
	o, other := makeOne(t, 1), makeOne(t, 1)
	whole := o.file(t, keysName)
	var swapped bytes.Buffer
	theirs := Keys{Backup: "default/other/" + o.manifest.ID, Identity: o.identity}
	if err := seal(&swapped, theirs, []age.Recipient{o.owner.Recipient()}); err != nil {
		t.Fatal(err)
	}
	mine := o.owner.String()
	for name, test := range map[string]struct {
		ciphertext []byte
		identities string
		kind       error
		text       string
	}{
		"another identity":    {whole, other.owner.String(), ErrIdentity, o.owner.Recipient().String()},
		"no identity":         {whole, "# none\n", ErrIdentity, "not a file of secret keys"},
		"half an identity":    {whole, mine[:40], ErrIdentity, "not a file of secret keys"},
		"a public key":        {whole, o.owner.Recipient().String(), ErrIdentity, "not a file of secret keys"},
		"cut keys":            {whole[:len(whole)-1], mine, ErrBroken, keysName},
		"no keys":             {nil, mine, ErrBroken, keysName},
		"other keys":          {other.file(t, keysName), mine, ErrIdentity, keysName},
		"another tenant's":    {swapped.Bytes(), mine, ErrBroken, "default/other/"},
		"data in their place": {o.file(t, dataName), mine, ErrIdentity, keysName},
	} {
		keys, err := OpenKeys(o.manifest, test.ciphertext, test.identities)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) || keys.Identity != "" {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), mine[:30]) || strings.Contains(err.Error(), other.owner.String())) {
			t.Errorf("%s: it has a secret key in it: %v", name, err)
		}
	}
	if _, err := OpenKeys(o.manifest, whole, other.owner.String()+"\n"+mine); err != nil {
		t.Errorf("the second of two: %v", err)
	}
	for name, test := range map[string]struct {
		identity string
		kind     error
	}{
		"another":             {other.identity, ErrIdentity},
		"the owner's":         {mine, ErrIdentity},
		"none":                {"", ErrIdentity},
		"half of one":         {o.identity[:40], ErrIdentity},
		"with an end of line": {o.identity + "\n", nil},
	} {
		_, err := read(o, o.manifest, test.identity)
		if !errors.Is(err, test.kind) || err != nil && len(test.identity) > 0 && strings.Contains(err.Error(), test.identity[:30]) {
			t.Errorf("identity %s: %v", name, err)
		}
	}
}

// seal replaces data.age by one with another content.
func (o *one) seal(t *testing.T, text string) {
	t.Helper()
	identity, err := age.ParseX25519Identity(o.identity)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	sealed, err := age.Encrypt(&data, identity.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := zstd.NewWriter(sealed, zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	_, err = packed.Write([]byte(text))
	if err := errors.Join(err, packed.Close(), sealed.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data.Bytes())
	o.manifest.Size, o.manifest.SHA256 = int64(data.Len()), hex.EncodeToString(sum[:])
	o.write(t, dataName, data.Bytes())
}

// TestStreamsThatNobodyWrites seals what writeData would not.
func TestStreamsThatNobodyWrites(t *testing.T) {
	uvarints := func(begin []byte, numbers ...uint64) []byte {
		for _, n := range numbers {
			begin = binary.AppendUvarint(begin, n)
		}
		return begin
	}
	key := string(append(uvarints([]byte{markKey}, 1, 2), 'k', 'v', 'v', 0))
	end := func(keys, bytes uint64, sum string) string {
		return string(uvarints([]byte{markEnd}, keys, bytes)) + sum
	}
	none := strings.Repeat("\x00", sha256.Size)
	for name, test := range map[string]struct{ text, says string }{
		"nothing at all":             {"", "ends in the middle"},
		"another version":            {"stoker-backup 2\n", `version "2"`},
		"a version of more digits":   {"stoker-backup 10", `version "10"`},
		"something else":             {"something else than that", "other than a tenant's keys"},
		"something short":            {"x", "other than a tenant's keys"},
		"no end":                     {magic + key, "ends in the middle"},
		"an end in the middle":       {magic + key[:4], "ends in the middle"},
		"an end in the length":       {magic + "\x01\xff", "ends in the middle"},
		"half of an end":             {magic + end(0, 0, none[:10]), "ends in the middle"},
		"fewer keys":                 {magic + end(1, 3, none), "0 keys of 0 bytes, and 1 of 3"},
		"more keys":                  {magic + key + end(0, 0, none), "1 keys of 3 bytes, and 0 of 0"},
		"other keys":                 {magic + key + end(1, 3, none), "others than those"},
		"something behind the end":   {magic + end(0, 0, none) + "x", "follows its end"},
		"an unknown mark":            {magic + key + "\x02", "behind key 1"},
		"a key that is too long":     {magic + string(uvarints([]byte{markKey}, maxKey+1, 0)), "more than a backup has"},
		"a value that is too long":   {magic + string(uvarints([]byte{markKey}, 1, maxValue+1)), "more than a backup has"},
		"lengths beyond all numbers": {magic + "\x01" + strings.Repeat("\xff", 11), "overflow"},
		"a value that doesn't come":  {magic + string(uvarints([]byte{markKey}, 1, maxValue)) + "k", "ends in the middle"},
		"a life beyond all numbers":  {magic + string(uvarints(append(uvarints([]byte{markKey}, 1, 0), 'k'), 1<<63)), "lives for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			o := makeOne(t, 0)
			o.seal(t, test.text)
			before := live()
			_, err := read(o, o.manifest, o.identity)
			if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %s", err, test.says)
			}
			if more := live() - before; more > 4<<20 {
				t.Errorf("%d bytes are still in use", more)
			}
		})
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	o := makeOne(t, 20_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	keys := 0
	for _, err := range Data(ctx, o, o.manifest, o.identity) {
		cancel()
		keys, last = keys+1, err
	}
	if !errors.Is(last, context.Canceled) || errors.Is(last, ErrBroken) || keys >= 20_000 {
		t.Errorf("after %d keys: %v", keys, last)
	}
}

func TestAServerThatGoesAwayWhileItIsRead(t *testing.T) {
	s := startServer(t)
	defer s.end()
	l, o := open(t, s.accessTo(s.bucket(t))), owner(t)
	src := source(o.Recipient().String())
	src.Export = noise(20_000, 1000)
	m := mustMake(t, l, src)
	var last error
	for _, err := range Data(t.Context(), l, m, opened(t, l, m, o).Identity) {
		s.kill()
		last = err
	}
	if !errors.Is(last, ErrAway) || errors.Is(last, ErrBroken) {
		t.Errorf("got %v", last)
	}
}

// TestWhatWasMadeIsRead reads what version 1 is, so that it stays readable.
func TestWhatWasMadeIsRead(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	identity, err := os.ReadFile(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, Access{URL: "file://" + absolute(t, dir)})
	made, unreadable, err := List(t.Context(), l, "", "")
	if err != nil || len(made) != 1 || len(unreadable) > 0 {
		t.Fatalf("%v, %v, %v", made, unreadable, err)
	}
	ciphertext, err := KeysOf(t.Context(), l, made[0])
	if err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(made[0], ciphertext, string(identity))
	if err != nil {
		t.Fatal(err)
	}
	have, err := read(l, made[0], keys.Identity)
	if err != nil || len(have) != 2 {
		t.Fatalf("%v, %v", have, err)
	}
	if c := have["a"]; string(c.Value) != "1" || c.Seconds != 60 {
		t.Errorf("%+v", c)
	}
	secrets, err := json.Marshal(keys.Secrets)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"demo-ca","type":"Opaque","labels":{"a":"b"},"data":{"ca.key":"AP8="}}]`
	if string(secrets) != want {
		t.Errorf("Secrets are %s", secrets)
	}
}

func absolute(t *testing.T, dir string) string {
	t.Helper()
	path, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
