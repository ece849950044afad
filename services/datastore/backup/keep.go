package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// readers is how many manifests List reads at once.
const readers = 8

// Unreadable is a backup whose manifest isn't one.
type Unreadable struct {
	// Path is <namespace>/<tenant>/<id>.
	Path string
	Err  error
}

// List returns the backups of a location, newest first, and those whose manifests can't be read. namespace and tenant may be empty, for
// those of all.
func List(ctx context.Context, from Location, namespace, tenant string) (made []Manifest, unreadable []Unreadable, err error) {
	prefix, err := prefixOf(namespace, tenant)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readers)
	for o, err := range from.List(ctx, prefix) {
		if err != nil {
			if first := reads.Wait(); first != nil { // which has ended the list, too
				err = first
			}
			return nil, nil, err
		}
		path, name, ok := splitPath(o.Name)
		if !ok || name != manifestName || tenant != "" && strings.Split(path, "/")[1] != tenant {
			continue
		}
		reads.Go(func() error {
			m, err := readManifest(ctx, from, path)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrNotFound): // removed meanwhile
			case errors.Is(err, ErrBroken):
				unreadable = append(unreadable, Unreadable{Path: path, Err: err})
			case err != nil:
				return err
			default:
				made = append(made, m)
			}
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(made, newestFirst)
	slices.SortFunc(unreadable, func(a, b Unreadable) int { return strings.Compare(a.Path, b.Path) })
	return made, unreadable, nil
}

func newestFirst(a, b Manifest) int {
	if order := strings.Compare(b.ID, a.ID); order != 0 {
		return order
	}
	return strings.Compare(a.Tenant.Namespace+"/"+a.Tenant.Name, b.Tenant.Namespace+"/"+b.Tenant.Name)
}

// Remove deletes a backup, the manifest first: from then on it doesn't count as made. Of one that isn't there it returns nil.
func Remove(ctx context.Context, from Location, m Manifest) error {
	path, err := m.Path()
	if err != nil {
		return err
	}
	return remove(ctx, from, path)
}

func remove(ctx context.Context, from Location, path string) error {
	for _, name := range []string{manifestName, dataName, keysName} {
		if err := from.Delete(ctx, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

// prefixOf begins the names of a tenant's objects, of all of a namespace, or of all.
func prefixOf(namespace, tenant string) (prefix string, err error) {
	for _, name := range []string{namespace, tenant} {
		if name != "" && !label.MatchString(name) {
			return "", fmt.Errorf("%.100q is not a DNS label", name)
		}
	}
	if namespace != "" {
		prefix = namespace + "/"
		if tenant != "" {
			prefix += tenant + "/"
		}
	}
	return prefix, nil
}

// Unfinished returns the names of what backups without a manifest have left, the newest part of which was changed before a time: who made
// them was killed, or nothing could be removed any more. They are to be deleted. That time has to be further back than any backup takes: of
// one that is being sent to an S3 server, only its beginning is known.
//
// namespace and tenant are those of List.
func Unfinished(ctx context.Context, from Location, namespace, tenant string, before time.Time) ([]string, error) {
	prefix, err := prefixOf(namespace, tenant)
	if err != nil {
		return nil, err
	}
	type rest struct {
		names  []string
		newest time.Time
		made   bool
	}
	all := map[string]*rest{}
	// Partial ones first: one that becomes an object meanwhile is seen twice, and not never.
	for _, list := range []func(context.Context, string) iter.Seq2[Object, error]{from.Partial, from.List} {
		for o, err := range list(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			path, name, ok := splitPath(o.Name)
			if !ok {
				continue
			}
			r := all[path]
			if r == nil {
				r = &rest{}
				all[path] = r
			}
			r.names = append(r.names, o.Name)
			r.made = r.made || name == manifestName && o.Size > 0
			if o.Changed.After(r.newest) {
				r.newest = o.Changed
			}
		}
	}
	var names []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if r := all[path]; !r.made && r.newest.Before(before) {
			slices.Sort(r.names)
			names = append(names, slices.Compact(r.names)...)
		}
	}
	return names, nil
}

// Surplus returns those of the backups that are kept for no reason any more: scheduled ones of which their tenant has keep newer ones, or
// that began longer than age ago. 0 is without bound. It is never the newest of a tenant, and never one that somebody asked for.
func Surplus(made []Manifest, keep int, age time.Duration, now time.Time) []Manifest {
	sorted := slices.SortedFunc(slices.Values(made), newestFirst)
	type key struct{ namespace, name string }
	seen, scheduled := map[key]bool{}, map[key]int{}
	var surplus []Manifest
	for _, m := range sorted {
		of := key{m.Tenant.Namespace, m.Tenant.Name}
		newest := !seen[of]
		seen[of] = true
		if !m.Scheduled {
			continue
		}
		scheduled[of]++
		if !newest && (keep > 0 && scheduled[of] > keep || age > 0 && now.Sub(m.Began) > age) {
			surplus = append(surplus, m)
		}
	}
	return surplus
}
