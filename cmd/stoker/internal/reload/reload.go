// Package reload has a NATS server read its configuration again when the files of it change.
package reload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/internal/natsusers"
)

// Reloader watches the files of one server.
type Reloader struct {
	// Directories of the server's configuration, accounts and certificates.
	Directories []string
	// URL of the server, SeedFile with the nkey seed of NATS user system, CAFile of the server's authority.
	URL, SeedFile, CAFile string
	// Say gets what was done, and what went wrong.
	Say func(string)
}

const (
	// settle is how long files must have stayed as they are: Kubernetes replaces them one after the other.
	settle = time.Second
	// again is after how long a server that did not take its configuration is asked once more.
	again = 10 * time.Second
	// timeout of one reload.
	timeout = 10 * time.Second
)

// Run reloads until ctx ends, and once at its start, for the files may have changed since the server read them. Errors are those of
// the file system; a server that does not answer, or refuses its configuration, is asked again.
func (r Reloader) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	for _, dir := range r.Directories {
		if err := w.Add(dir); err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	var loaded [sha256.Size]byte
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			next.Reset(settle)
		case err := <-w.Errors:
			return fmt.Errorf("watch %v: %w", r.Directories, err)
		case <-next.C:
			now, err := r.sum()
			if err == nil && now == loaded {
				continue
			}
			if err == nil {
				err = r.reload(ctx)
			}
			if err != nil {
				r.Say("the server did not take its configuration, and is asked again: " + err.Error())
				next.Reset(again)
				continue
			}
			loaded = now
			r.Say("the server has read its configuration again")
		}
	}
}

// sum of all files, of which Kubernetes replaces the links to them.
func (r Reloader) sum() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, dir := range r.Directories {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return sum, err
		}
		for _, entry := range entries {
			file := filepath.Join(dir, entry.Name())
			if info, err := os.Stat(file); err == nil && info.IsDir() {
				continue
			}
			data, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) { // replaced meanwhile; there is an event of it
				continue
			}
			if err != nil {
				return sum, err
			}
			fmt.Fprintf(h, "%s %d\n", file, len(data))
			h.Write(data)
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// reload asks the server.
func (r Reloader) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	seed, err := nats.NkeyOptionFromSeed(r.SeedFile)
	if err != nil {
		return err
	}
	options := []nats.Option{seed, nats.Name("stoker nats-reload"), nats.Timeout(timeout), nats.NoReconnect(), nats.IgnoreDiscoveredServers()}
	if r.CAFile != "" {
		options = append(options, nats.RootCAs(r.CAFile))
	}
	conn, err := nats.Connect(r.URL, options...)
	if err != nil {
		return fmt.Errorf("%s: %w", r.URL, err)
	}
	defer conn.Close()
	return natsusers.Reload(ctx, conn)
}
