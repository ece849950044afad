package natsusers

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/pkg/events"
)

// Portals are the portals of a NATS server: Dir/portals.conf with their accounts, which the server's configuration includes, and
// Dir/<name>.nk with the nkey seed of each (mode 0600), for that portal alone. Changes count once the servers read their
// configuration again ([Reload]). It is not safe for use by two processes at a time.
type Portals struct{ Dir string }

// Errors of [Portals].
var (
	ErrPortalExists = errors.New("there is a portal of that name; remove it first, or take another name")
	ErrNoPortal     = errors.New("there is no portal of that name")
)

// List the portals by name.
func (p Portals) List() ([]events.Portal, error) {
	text, err := os.ReadFile(p.file())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := events.ParsePortals(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.file(), err)
	}
	return all, nil
}

// Add a portal and return it with its nkey and limits. [ErrPortalExists] when its name is taken; any other error that isn't of
// the file system says by field what is wrong with it.
func (p Portals) Add(portal events.Portal) (events.Portal, error) {
	all, err := p.List()
	if err != nil {
		return portal, err
	}
	if slices.ContainsFunc(all, func(o events.Portal) bool { return o.Name == portal.Name }) {
		return portal, fmt.Errorf("portal %q: %w", portal.Name, ErrPortalExists)
	}
	// A name that is none is no file's either.
	check := portal
	if check.NKey, err = unusedKey(); err != nil {
		return portal, err
	}
	if err := check.Validate(); err != nil {
		return portal, err
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return portal, err
	}
	if check.NKey, err = ensureKey(p.SeedFile(portal.Name)); err != nil {
		return portal, err
	}
	return check, p.write(append(all, check))
}

// Remove a portal, its seed and its context. [ErrNoPortal] when there is none of that name.
func (p Portals) Remove(name string) error {
	all, err := p.List()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(all), func(o events.Portal) bool { return o.Name == name })
	if len(left) == len(all) {
		return fmt.Errorf("portal %q: %w", name, ErrNoPortal)
	}
	if err := p.write(left); err != nil {
		return err
	}
	for _, file := range []string{p.SeedFile(name), ContextFile(p.Dir, name)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Set makes the portals these and no others. Those that there were keep their nkeys. Errors are those of [Portals.Add]; nothing
// is written then.
func (p Portals) Set(portals []events.Portal) error {
	next, err := CheckPortals(portals)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	for n := range next {
		if next[n].NKey, err = ensureKey(p.SeedFile(next[n].Name)); err != nil {
			return err
		}
	}
	return p.write(next)
}

// CheckPortals returns portals with what was left to defaults, or says by portal and field what is wrong with them.
func CheckPortals(portals []events.Portal) ([]events.Portal, error) {
	var checked []events.Portal
	for _, portal := range portals {
		if slices.ContainsFunc(checked, func(o events.Portal) bool { return o.Name == portal.Name }) {
			return nil, fmt.Errorf("portal %q: %w", portal.Name, ErrPortalExists)
		}
		var err error
		if portal.NKey, err = unusedKey(); err != nil {
			return nil, err
		}
		if err := portal.Validate(); err != nil {
			return nil, fmt.Errorf("portal %q: %w", portal.Name, err)
		}
		checked = append(checked, portal)
	}
	return checked, nil
}

// SeedFile of a portal's nkey.
func (p Portals) SeedFile(name string) string { return SeedFile(p.Dir, name) }

// AddMissing adds the portals that the file doesn't have, and makes the file, which the server's configuration includes, if there is none.
// It returns the errors of [Portals.Add], except [ErrPortalExists].
func (p Portals) AddMissing(portals []events.Portal) error {
	all, err := p.List()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	if err := p.write(all); err != nil { // as this version writes it
		return err
	}
	for _, portal := range portals {
		if _, err := p.Add(portal); err != nil && !errors.Is(err, ErrPortalExists) {
			return err
		}
	}
	return nil
}

func (p Portals) file() string { return filepath.Join(p.Dir, events.PortalsFile) }

// write replaces the file as a whole.
func (p Portals) write(all []events.Portal) error {
	slices.SortFunc(all, func(a, b events.Portal) int { return cmp.Compare(a.Name, b.Name) })
	next := p.file() + ".new"
	if err := os.WriteFile(next, []byte(events.Portals(all)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.file())
}

func unusedKey() (string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	return pair.PublicKey()
}
