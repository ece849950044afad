package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Surveyor is a driver that sees at little cost whether accounts are as they were left.
type Surveyor interface {
	// Survey returns a fingerprint for each schema that is on record as some tenant's, by name; of those named, if any
	// are. It is of the records of owners, and of what the database's own tables say of the schema and of its owner's
	// user: it changes when somebody changes these, and not with the tenant's data. It asks for all at once.
	Survey(ctx context.Context, schemas ...string) (map[string]string, error)
}

// Fingerprint of what a survey found of an account.
func Fingerprint(found ...string) string {
	h := sha256.New()
	for _, f := range found {
		fmt.Fprintf(h, "%d:%s", len(f), f)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
