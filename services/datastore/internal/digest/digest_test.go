package digest

import "testing"

func TestDigest(t *testing.T) {
	of := func(pairs ...string) (d Digest) {
		for i := 0; i < len(pairs); i += 2 {
			d.Add(pairs[i], []byte(pairs[i+1]))
		}
		return d
	}
	want := of("a", "1", "b", "2")
	if got := of("b", "2", "a", "1"); got != want {
		t.Errorf("another order is another digest: %v", got)
	}
	if want.Keys != 2 || want.Bytes != 4 {
		t.Errorf("%d keys of %d bytes", want.Keys, want.Bytes)
	}
	for sentence, got := range map[string]Digest{
		"values are exchanged":      of("a", "2", "b", "1"),
		"a key is missing":          of("a", "1"),
		"a key is there twice":      of("a", "1", "a", "1"),
		"a key ends somewhere else": of("a1", "", "b", "2"),
		"nothing is there":          {},
	} {
		if got == want || got.String() == want.String() {
			t.Errorf("the same digest when %s", sentence)
		}
	}
	// Backups that were made keep theirs.
	const made = "9a7f66ca65e9990fde3e9169341e0dc8c3dc75fbcc9c091bbfdf0b9c78b4be84"
	if got := want.String(); got != made {
		t.Errorf("digests are others than they were: %s", got)
	}
}
