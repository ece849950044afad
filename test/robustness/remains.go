package robustness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Settle waits until every tenant is what it is expected to be, patience at most, and notes what each is then.
func Settle(ctx context.Context, s *Site, h *History, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for _, want := range h.Records() {
		if want.Kind != Expected {
			continue
		}
		var now Record
		for {
			now = s.look(ctx, want.Tenant)
			if now.What == want.What && (now.Mark == want.Mark || want.What == "Deleted") || time.Now().After(deadline) || ctx.Err() != nil {
				break
			}
			<-time.After(200 * time.Millisecond)
		}
		h.Add(now)
	}
}

// look finds what a tenant is now.
func (s *Site) look(ctx context.Context, tenant string) Record {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r := Record{Kind: Ended, Tenant: tenant}
	_, n, _ := strings.Cut(tenant, "/")
	if strings.HasPrefix(tenant, storePrefix) {
		return s.lookAtStore(ctx, r, n)
	}
	var o tenantObject
	err := s.Admin.Get(ctx, kube.TenantControlPlanes, namespace, n, &o.TenantControlPlane)
	switch {
	case apierrors.IsNotFound(err):
		r.What = "Deleted"
		return r
	case err != nil:
		r.Detail = err.Error()
		return r
	}
	r.UID, r.Generation, r.Mark = string(o.UID), o.Generation, o.mark()
	i := slices.IndexFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" })
	if i < 0 {
		r.Detail = "no condition Ready"
		return r
	}
	c := o.Status.Conditions[i]
	r.Detail = fmt.Sprintf("condition Ready of generation %d of %d: %s %s: %s", c.ObservedGeneration, o.Generation, c.Status, c.Reason, c.Message)
	switch {
	case c.ObservedGeneration != o.Generation || o.DeletionTimestamp != nil:
	case c.Status == metav1.ConditionTrue:
		r.What = "Ready"
	case c.Reason == string(v1alpha1.VersionSleeping):
		r.What = "Sleeping"
	}
	return r
}

// lookAtStore finds what a DataStore is now: Used or Unused, when its status speaks of it as it is.
func (s *Site) lookAtStore(ctx context.Context, r Record, dataStore string) Record {
	var o v1alpha1.DataStore
	err := s.Admin.Get(ctx, kube.DataStores, "", dataStore, &o)
	switch {
	case apierrors.IsNotFound(err):
		r.What = "Deleted"
		return r
	case err != nil:
		r.Detail = err.Error()
		return r
	}
	r.UID, r.Generation, r.Mark = string(o.UID), o.Generation, o.Labels[markLabel]
	now := o.Status
	r.Detail = fmt.Sprintf("status of generation %d of %d: ready %t, used by %v", now.ObservedGeneration, o.Generation, now.Ready, now.UsedBy)
	switch {
	case now.ObservedGeneration != o.Generation || !now.Ready || o.DeletionTimestamp != nil:
	case len(now.UsedBy) > 0:
		r.What = "Used"
	default:
		r.What = "Unused"
	}
	return r
}

// Remains notes what is left of tenants that are gone: in the management cluster and in NATS.
func Remains(ctx context.Context, s *Site, h *History) error {
	for _, want := range h.Records() {
		if want.Kind != Expected || want.What != "Deleted" || strings.HasPrefix(want.Tenant, storePrefix) {
			continue
		}
		_, n, _ := strings.Cut(want.Tenant, "/")
		for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments, kube.ConfigMaps, kube.Pods} {
			var list metav1.PartialObjectMetadataList
			if err := s.Admin.List(ctx, r, namespace, name.LabelName+"="+n, &list); err != nil {
				return err
			}
			for _, o := range list.Items {
				h.Add(Record{Kind: Left, Tenant: want.Tenant, What: r.Kind, Object: o.Name})
			}
		}
		_, err := s.Operator.JetStream().KeyValue(ctx, events.Tenant(namespace, n).Bucket())
		if err == nil {
			h.Add(Record{Kind: Left, Tenant: want.Tenant, What: "bucket", Object: events.Tenant(namespace, n).Bucket()})
		} else if !errors.Is(err, jetstream.ErrBucketNotFound) {
			return err
		}
	}
	return nil
}

// Leaks searches all that NATS holds on disk, the services' logs and the audit log for what only Secrets may hold: private keys, as
// text and as Secrets encode them.
func Leaks(s *Site, h *History) error {
	signs := [][]byte{[]byte("PRIVATE KEY-----")}
	for _, header := range []string{"-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----"} {
		for shift := range 3 { // where the text may begin in three bytes of base64
			encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + header))
			signs = append(signs, []byte(encoded[4:len(encoded)-4]))
		}
	}
	for _, root := range []string{s.NATS.dir, s.AuditLog()} {
		if err := search(root, signs, func(path string) { h.Add(Record{Kind: Leaked, What: "file", Object: path}) }); err != nil {
			return err
		}
	}
	for _, r := range s.Replicas {
		if err := search(r.Log(), signs, func(path string) { h.Add(Record{Kind: Leaked, What: "log", Object: path}) }); err != nil {
			return err
		}
	}
	return nil
}

// search calls found for each file below root that has one of the signs. Seeds of users, which are no keys of tenants, have another
// form.
func search(root string, signs [][]byte, found func(path string)) error {
	files, err := filesBelow(root)
	if err != nil {
		return err
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // compacted meanwhile
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(signs, func(sign []byte) bool { return bytes.Contains(data, sign) }) {
			found(path)
		}
	}
	return nil
}

// filesBelow lists the regular files below a path, or the path itself.
func filesBelow(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	return files, err
}
