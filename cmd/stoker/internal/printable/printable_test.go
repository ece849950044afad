package printable

import (
	"encoding/json"
	"testing"
)

// escapes steer terminals: a title, the clipboard, colours by eight bits, a carriage return, the direction of text.
const escapes = "a\x1b]0;title\x07b\x1b]52;c;eA==\x07\u009b31mc\rd\u202ee\nf\tg"

func TestNothingSteersATerminal(t *testing.T) {
	if got, want := Line(escapes), "a ]0;title b ]52;c;eA==  31mc d e f g"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if got, want := Text(escapes), "a ]0;title b ]52;c;eA==  31mc d e\nf\tg"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if got := Line("Grüße \xff 日本語"); got != "Grüße \ufffd 日本語" {
		t.Errorf("%q", got)
	}
	data, err := json.Marshal(escapes)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	escaped := JSON(string(data))
	if err := json.Unmarshal([]byte(escaped), &back); err != nil || back != escapes {
		t.Errorf("%q: %v", back, err)
	}
	for _, r := range escaped {
		if steers(r) {
			t.Errorf("%q is left", r)
		}
	}
}
