package owner

import (
	"strconv"
	"testing"
)

func TestStatementHasTheDatabasesParameters(t *testing.T) {
	for want, parameter := range map[string]func(int) string{
		"a = ? AND b = ?":   func(int) string { return "?" },
		"a = $1 AND b = $2": func(n int) string { return "$" + strconv.Itoa(n) },
	} {
		if got := (Table{Parameter: parameter}).statement("a = ? AND b = ?"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
