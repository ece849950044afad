package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/etcdserver"
	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/internal/testing/postgresserver"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// TestAnEtcdOutOfRoom has a tenant fill an etcd of 4 MiB, until it has room again.
func TestAnEtcdOutOfRoom(t *testing.T) {
	t.Parallel()
	server := etcdserver.Start(t, "--quota-backend-bytes=4194304")
	in := install(t)
	in.etcdStore("full", server)
	defer in.run()()
	ctx := t.Context()
	says := func(why, part string) {
		t.Helper()
		drivertest.Eventually(t, func() error {
			checked, err := in.checked("full")
			if err == nil && (!checked.Ready || checked.Reason != why || !strings.Contains(checked.Message, part)) {
				err = fmt.Errorf("%+v", checked)
			}
			return err
		})
	}

	var provisioned event.DatastoreProvisioned
	filler, leaver, late := in.tenant("filler"), in.tenant("leaver"), in.tenant("late")
	for _, x := range []*tenant{filler, leaver, late} {
		x.t.Spec.DataStore = "full"
	}
	for _, x := range []*tenant{filler, leaver} {
		x.accept()
		x.await(event.Provisioned, &provisioned)
	}
	says(v1alpha1.DataStoreReasonValid, "")
	s, err := filler.secret("filler-datastore-certificate")
	in.must(err)
	keys, own := server.Connect(t, s.Data["server.crt"], s.Data["server.key"]), "/"+filler.account().Schema+"/"
	for n, full := 0, false; !full; {
		for err = nil; err == nil; n++ {
			_, err = keys.Put(ctx, fmt.Sprint(own, n), strings.Repeat("x", 100<<10))
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
		full = fullOfKeys(t, server)
	}

	late.accept()
	says(reason.EtcdFull, "NOSPACE")
	drivertest.Eventually(t, func() error {
		if s, _ := late.state(); s.Failure == nil || s.Failure.Reason != reason.Unavailable || !strings.Contains(s.Failure.Message, "the database has no room left") {
			return fmt.Errorf("%+v", s.Failure)
		}
		return nil
	})
	var gone event.Removals
	leaver.remove()
	if leaver.await(event.Removed, &gone); len(gone.Left) > 0 {
		t.Errorf("a deletion leaves %v", gone.Left)
	}

	removed, err := server.Root.Delete(ctx, own, clientv3.WithPrefix())
	in.must(err)
	_, err = server.Root.Compact(ctx, removed.Header.Revision)
	in.must(err)
	_, err = server.Root.Defragment(ctx, server.Endpoint)
	in.must(err)
	_, err = server.Root.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	in.must(err)
	late.await(event.Provisioned, &provisioned)
}

// fullOfKeys defragments an etcd that refuses writes, and reports whether it has no room after that either. Else it takes writes again. An etcd that
// is full of free pages isn't enough: the service makes room in it.
func fullOfKeys(t *testing.T, server *etcdserver.Server) bool {
	t.Helper()
	_, err := server.Root.Defragment(t.Context(), server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	status, err := server.Root.Status(t.Context(), server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if float64(status.DbSize) >= 0.9*float64(status.DbSizeQuota) {
		return true
	}
	if _, err := server.Root.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	return false
}

// small is a database with little room.
type small struct {
	database
	// full takes all room that is left, and room gives it back.
	full, room func(filler *tenant)
	// says is what tenants hear then; removes that others can be removed all the same.
	says    string
	removes bool
}

var smalls = map[string]func(t *testing.T) small{
	"postgres": func(t *testing.T) small {
		t.Helper()
		server := postgresserver.StartSmall(t, 100<<20)
		// It ends when a database is dropped.
		return onDisk(t, server.Data, small{database: database{kind: v1alpha1.DriverPostgreSQL, config: server.Config()}, says: "the database has no room left"})
	},
	"mysql": func(t *testing.T) small {
		t.Helper()
		server := mysqlserver.StartSmall(t, 100<<20)
		// The statement that makes a user waits for room, and others for that statement.
		return onDisk(t, server.Data, small{database: database{kind: v1alpha1.DriverMySQL, config: server.Config()}, says: "datastore small-mysql is unavailable"})
	},
	"nats": func(t *testing.T) small {
		t.Helper()
		server := natsserver.Start(t, natsserver.Options{MaxFile: 8 << 20})
		return small{
			database: database{kind: v1alpha1.DriverNATS, config: server.Config(t)}, says: "the database has no room left", removes: true,
			full: func(filler *tenant) {
				t.Helper()
				s, err := filler.secret("filler-datastore-certificate")
				filler.must(err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for err == nil {
					err = writeToNATS(ctx, s, filler.account().Schema, strings.Repeat("x", 1<<20))
				}
				var refused *jetstream.APIError
				if !errors.As(err, &refused) {
					t.Fatal(err)
				}
			},
			room: func(filler *tenant) { filler.remove() },
		}
	},
}

// onDisk has a file take all room.
func onDisk(t *testing.T, directory string, s small) small {
	t.Helper()
	path := filepath.Join(directory, "fill")
	s.full = func(*tenant) {
		t.Helper()
		f, err := os.Create(path)
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.room = func(*tenant) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestADatabaseOutOfRoom has one run full: who is new waits and hears why, who goes is removed where the database still does that, tenants of another
// wait for nothing, and all is done once there is room.
func TestADatabaseOutOfRoom(t *testing.T) {
	t.Parallel()
	for kind, start := range smalls {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in, d := install(t), start(t)
			in.etcdStore("beside-"+kind, etcdserver.Start(t))
			defer in.run()()
			in.object("small-"+kind, d.database)
			filler, leaver, late, other := in.tenant("filler"), in.tenant("leaver"), in.tenant("late"), in.tenant("other")
			for _, x := range []*tenant{filler, leaver, late} {
				x.t.Spec.DataStore = "small-" + kind
			}
			other.t.Spec.DataStore = "beside-" + kind
			var provisioned event.DatastoreProvisioned
			for _, x := range []*tenant{filler, leaver} {
				x.accept()
				x.await(event.Provisioned, &provisioned)
			}
			d.full(filler)
			late.accept()
			drivertest.Eventually(t, func() error {
				if s, _ := late.state(); s.Failure == nil || s.Failure.Reason != reason.Unavailable || !strings.Contains(s.Failure.Message, d.says) {
					return fmt.Errorf("%+v", s.Failure)
				}
				return nil
			})
			other.accept()
			other.await(event.Provisioned, &provisioned)
			var gone event.Removals
			if d.removes {
				leaver.remove()
				leaver.await(event.Removed, &gone)
			}
			d.room(filler)
			// MariaDB looks for room once a minute.
			drivertest.Eventually(t, func() error {
				s, _ := late.state()
				if s.Step != event.Provisioned {
					return fmt.Errorf("%+v", s.Failure)
				}
				return nil
			})
			if !d.removes {
				leaver.remove()
				leaver.await(event.Removed, &gone)
			}
			if len(gone.Left) > 0 {
				t.Errorf("a deletion leaves %v", gone.Left)
			}
		})
	}
}
