// Package natsusers keeps the users of NATS servers in a directory: the nkey of each service, of the operator and of each portal, the portals'
// accounts, and the contexts by which the NATS command line connects as one of them.
package natsusers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// SeedFile is where the seed of a user's nkey is kept in a directory.
func SeedFile(dir, user string) string { return filepath.Join(dir, user+".nk") }

// EnsureKeys makes the users' nkeys where they are missing and returns the public ones.
func EnsureKeys(dir string) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	public := map[string]string{}
	for _, user := range events.Users() {
		var err error
		if public[user], err = ensureKey(SeedFile(dir, user)); err != nil {
			return nil, err
		}
	}
	return public, nil
}

// ensureKey makes an nkey where its seed is missing and returns the public one.
func ensureKey(file string) (string, error) {
	seed, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return "", err
		}
		if seed, err = pair.Seed(); err != nil {
			return "", err
		}
		if err := os.WriteFile(file, seed, 0o600); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return "", fmt.Errorf("nkey in %s: %w", file, err)
	}
	return pair.PublicKey()
}
