// Package printable keeps what others wrote (messages of statuses, names, errors of servers) from steering the terminal on which a
// person reads it: an escape sequence may hide lines, write others or fill the clipboard.
package printable

import (
	"fmt"
	"strings"
	"unicode"
)

// Line is text for a part of a line: whatever isn't printed, line breaks and tabs among it, becomes a blank.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return ' '
		}
		return r
	}, s)
}

// Text is text of several lines: as Line, but line breaks and tabs stay.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, s)
}

// JSON escapes what encoding/json leaves as it is and terminals may act on. Line breaks stay.
func JSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if steers(r) && r != '\n' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// steers reports whether a terminal acts on a character instead of showing it: control characters, those of eight bits among them,
// and those that turn the direction of text.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
