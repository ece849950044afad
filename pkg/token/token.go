// Package token is the file of bearer tokens with which portals come in by HTTP: who has which, what each may command, and until when.
// It holds hashes, never a token: a token has 130 random bits, so that one round of SHA-256 can't be tried backwards, and a hash made
// slow on purpose, as for passwords, would only make each request slow.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Any stands for every namespace, where that is meant.
const Any = "*"

// algorithm begins each hash.
const algorithm = "sha256:"

// File is the file, as YAML or JSON.
type File struct {
	Tokens []Token `json:"tokens"`
}

// Token is one token and what it may command.
type Token struct {
	// Name says whose it is, in logs and errors.
	Name string `json:"name"`
	// Hash is the SHA-256 sum of the token, as "sha256:" and 64 hexadecimal digits.
	Hash string `json:"hash"`
	// Kinds are plural resource names; none means tenantcontrolplanes alone.
	Kinds []string `json:"kinds,omitempty"`
	// Namespaces of tenants that it may command, or [Any].
	Namespaces []string `json:"namespaces"`
	// Expires is when it ends; zero for never.
	Expires time.Time `json:"expires,omitzero"`
}

// New makes a token that nobody guesses.
func New() string { return rand.Text() }

// Hash is the hash by which the file knows a token.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return algorithm + hex.EncodeToString(sum[:])
}

// Parse reads a file strictly: no unknown field, nothing twice, nothing that can't be meant. The error names the entry, the value and
// the way out.
func Parse(data []byte) (File, error) {
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return f, fmt.Errorf("no file of tokens (YAML with tokens: a list of name, hash, namespaces, kinds, expires), make it by "+
			"`stoker token add`: %w", err)
	}
	names, hashes := map[string]bool{}, map[string]bool{}
	for i, t := range f.Tokens {
		at := fmt.Sprintf("tokens[%d]", i)
		switch err := t.check(); {
		case err != nil:
			return f, fmt.Errorf("%s.%w", at, err)
		case names[t.Name]:
			return f, fmt.Errorf("%s.name: %q is given twice", at, t.Name)
		case hashes[t.Hash]:
			return f, fmt.Errorf("%s.hash: the token of another entry; each has one of its own", at)
		}
		names[t.Name], hashes[t.Hash] = true, true
	}
	return f, nil
}

// check says what is wrong with a token, beginning with the field.
func (t Token) check() error {
	sum, err := hex.DecodeString(strings.TrimPrefix(t.Hash, algorithm))
	switch {
	case len(validation.IsDNS1123Subdomain(t.Name)) > 0:
		return fmt.Errorf("name: %q must be lower-case letters, digits, dashes and dots", t.Name)
	case !strings.HasPrefix(t.Hash, algorithm) || err != nil || len(sum) != sha256.Size || t.Hash != strings.ToLower(t.Hash):
		return fmt.Errorf("hash: of %s must be sha256: and the 64 hexadecimal digits of the token's SHA-256 sum", t.Name)
	}
	for _, k := range t.Kinds {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("kinds: %q of %s must be one of %s", k, t.Name, strings.Join(Kinds(), ", "))
		}
	}
	if len(t.Namespaces) == 0 && t.mayKind(event.TenantControlPlanes) {
		return fmt.Errorf("namespaces: missing for %s; list those whose tenants it may command, or %q for all", t.Name, Any)
	}
	for _, n := range t.Namespaces {
		if n != Any && len(validation.IsDNS1123Label(n)) > 0 {
			return fmt.Errorf("namespaces: %q of %s can't be the name of a namespace, nor is it %q", n, t.Name, Any)
		}
	}
	return nil
}

// Kinds are all that a token can be for.
func Kinds() []string {
	return []string{event.TenantControlPlanes, event.DataStores, event.KubeconfigGenerators}
}

// Marshal is the file's content.
func (f File) Marshal() ([]byte, error) { return yaml.Marshal(f) }

// Find returns the entry of a token, nil for none. How long it takes says nothing about the tokens there are.
func (f File) Find(token string) *Token {
	hash, found := []byte(Hash(token)), -1
	for i := range f.Tokens {
		same := subtle.ConstantTimeCompare([]byte(f.Tokens[i].Hash), hash)
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	return &f.Tokens[found]
}

// Expired reports whether a token has ended.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Errors of [Token.Allows], each for a part of what a command is about.
var (
	ErrKind      = errors.New("the token is not for this kind")
	ErrNamespace = errors.New("the token is not for this namespace")
)

// Allows says whether a token may command objects of a kind in a namespace, which only tenants have: nil, [ErrKind] or [ErrNamespace].
func (t Token) Allows(kind, namespace string) error {
	switch {
	case !t.mayKind(kind):
		return ErrKind
	case kind == event.TenantControlPlanes && !slices.Contains(t.Namespaces, Any) && !slices.Contains(t.Namespaces, namespace):
		return ErrNamespace
	}
	return nil
}

func (t Token) mayKind(kind string) bool {
	return slices.Contains(t.Kinds, kind) || len(t.Kinds) == 0 && kind == event.TenantControlPlanes
}
