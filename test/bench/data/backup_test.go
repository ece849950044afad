package data

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"text/tabwriter"

	"filippo.io/age"

	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// gigabyte is what is backed up and restored: objects of 2 kB.
var gigabyte = size{500_000, 2048}

// kept is a backup that a task makes, or restores.
type kept struct {
	URL, ID, Recipient, Identity string
}

// BenchmarkBackup makes a backup of a gigabyte in a directory, and restores it beside, each by a process of its own.
func BenchmarkBackup(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nback up, then restore\tMB of it\ts\tMB/s\tCPU s\tpeak MB\ts\tMB/s\tCPU s\tpeak MB\t")
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				backUp(b, w, k)
			}
		})
	}
	fmt.Fprintln(os.Stdout)
	check(b, w.Flush())
}

func backUp(b *testing.B, w *tabwriter.Writer, k kind) {
	b.Helper()
	var config driver.Config
	if k.name == local.DriverEtcd {
		config = etcdserver.Start(b, "--quota-backend-bytes=8589934592").Config(b)
	} else {
		config = k.start(b)
	}
	d, err := k.open(config)
	check(b, err)
	b.Cleanup(func() { check(b, d.Close()) })
	identity, err := age.GenerateX25519Identity()
	check(b, err)
	directory := b.TempDir()
	t := task{Kind: k.name, Config: config, Keys: gigabyte.keys, Bytes: gigabyte.bytes}
	account := func(name string) driver.Account {
		a := driver.Account{Owner: "uid-" + name, Schema: name, User: name, Password: "not-used-by-all"}
		_, err := d.Provision(b.Context(), a)
		check(b, err)
		return a
	}
	t.Account = account("whole")
	t.run(b)
	t.Export, t.Backup = true, &kept{URL: "file://" + directory, Recipient: identity.Recipient().String(), Identity: identity.String()}
	made := t.run(b)
	t.Account, t.Export, t.Backup.ID = account("again"), false, made.ID
	restored := t.run(b)
	all := float64(t.Keys) * float64(t.Bytes) / 1e6
	fmt.Fprintf(w, "%s, %.0f MB\t%.0f", k.name, all, float64(sizeOf(b, directory))/1e6)
	for _, r := range []result{made, restored} {
		fmt.Fprintf(w, "\t%.1f\t%.1f\t%.1f\t%.0f", r.All, all/r.All, r.cpu, r.PeakMB)
	}
	fmt.Fprintln(w, "\t")
	b.ReportMetric(made.All, "backup-s")
	b.ReportMetric(restored.All, "restore-s")
	t.Backup = nil
	t.Export = true
	t.run(b) // says if something isn't there
}

// back makes or restores a backup, and returns its ID.
func (t task) back(ctx context.Context, data driver.Data, at int64) (id string, err error) {
	l, err := backup.OpenLocation(ctx, backup.Access{URL: t.Backup.URL})
	if err != nil {
		return "", err
	}
	defer l.Close()
	const tenant = "bench"
	if t.Export {
		m, err := backup.Make(ctx, l, backup.Source{
			Manifest:   backup.Manifest{Tenant: backup.Tenant{Namespace: tenant, Name: tenant}, Kubernetes: "v1.36.3"},
			Recipients: []string{t.Backup.Recipient}, Export: data.Export(ctx, at),
		})
		return m.ID, err
	}
	m, err := backup.Get(ctx, l, tenant, tenant, t.Backup.ID)
	if err != nil {
		return "", err
	}
	sealed, err := backup.KeysOf(ctx, l, m)
	if err != nil {
		return "", err
	}
	keys, err := backup.OpenKeys(m, sealed, t.Backup.Identity)
	if err != nil {
		return "", err
	}
	return m.ID, data.Import(ctx, backup.Data(ctx, l, m, keys.Identity))
}

// sizeOf is how many bytes the files of a directory have.
func sizeOf(b *testing.B, directory string) (n int64) {
	b.Helper()
	check(b, filepath.WalkDir(directory, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
