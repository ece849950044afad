package datastore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/driver/drivertest"
	"github.com/stoker-k8s/stoker/services/datastore/driver/etcd/etcdserver"
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
		drivertest.Eventually(t, 30*time.Second, func() error {
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
	for n := 0; err == nil; n++ {
		_, err = keys.Put(ctx, fmt.Sprint(own, n), strings.Repeat("x", 100<<10))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}

	late.accept()
	says(reason.EtcdFull, "NOSPACE")
	drivertest.Eventually(t, 30*time.Second, func() error {
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
	_, err = server.Root.Defragment(ctx, server.Root.Endpoints()[0])
	in.must(err)
	_, err = server.Root.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	in.must(err)
	late.await(event.Provisioned, &provisioned)
}
