package data

import "testing"

func TestAResourceThatCantBeElsewhereHasNoKeys(t *testing.T) {
	if has := hasOf([]string{"/nothing"}); has("nothing/a") || has("secrets/a") {
		t.Error("a resource that can't be elsewhere has keys")
	}
}
