package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// TestBackup takes a tenant out to a directory, and makes it anew and another one of it, between databases of two kinds.
func TestBackup(t *testing.T) {
	services := e.Services(t)
	must(t, e.Local.AddDataStore(t.Context(), local.DataStore{Name: "backups-sql", Driver: local.DriverPostgres}))
	dir, identity := location(t, "offsite")
	key, other := events.Tenant("default", "kept"), events.Tenant("default", "kept-copy")
	o := env.Tenant(key.Name, "v1.36.3")
	o.Spec.DataStore = "default"
	e.Apply(t, o)
	e.Ready(t, key)
	c := clientOf(t, e.Kubeconfig(t, key))
	fill(t, c, 300)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := contents(t, c)

	t.Run("a location that isn't there is said, and keeps nobody waiting", func(t *testing.T) {
		code, out := stoker(t, "backup", key.Name, "--to", "nowhere", "--wait", "--timeout", "60s")
		if code != 1 || !strings.Contains(out, "there is no Secret stoker-system/nowhere") {
			t.Errorf("exit code %d: %s", code, out)
		}
		e.Ready(t, key)
	})
	var backup string
	t.Run("a backup that somebody asks for", func(t *testing.T) {
		if code, out := stoker(t, "backup", key.Name, "--to", "offsite", "--wait", "--timeout", "60s"); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		backup = backups(t, key, 1)[0]
		if text := allOf(t, dir); strings.Contains(text, "object-") {
			t.Error("what the tenant keeps can be read in the location")
		}
	})
	t.Run("a backup that is broken stops nobody", func(t *testing.T) {
		brokenInPlace(t, key, dir, backup, identity)
	})
	t.Run("the tenant is set back to it, also by a service that was killed", func(t *testing.T) {
		setBack(t, services[name.ServiceDatastore], key, c, backup, identity, want)
	})
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", Labels: map[string]string{"moving": "true"}}}
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("another tenant of it, in a database of another kind", func(t *testing.T) {
		code, out := stoker(t, "restore", backup, "--identity", identity, "--as", other.Name, "--data-store", "backups-sql", "--wait")
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		copied := clientOf(t, e.Kubeconfig(t, other))
		if have := contents(t, copied); !maps.Equal(have, want) {
			t.Errorf("%d objects, not %d", len(have), len(want))
		}
		if _, err := copied.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the other's node is there: %v", err)
		}
		var mine, its corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &mine)
		get(t, kube.Secrets, other.Namespace, name.CA(other.Name), &its)
		if string(mine.Data["ca.crt"]) == string(its.Data["ca.crt"]) {
			t.Error("both have one authority")
		}
		e.Delete(t, other)
		e.Gone(t, other)
	})
	t.Run("a clone, while the tenant works", func(t *testing.T) {
		env.Long(t, "the part above makes another tenant of a backup; services/datastore shows a clone (TestWhatIsInSeveralDataStores)")
		if code, out := stoker(t, "clone", key.Name, key.Name); code != 1 || !strings.Contains(out, "there is a tenant") {
			t.Errorf("exit code %d: %s", code, out)
		}
		if code, out := stoker(t, "clone", key.Name, other.Name, "--data-store", "backups-sql", "--wait"); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		copied := clientOf(t, e.Kubeconfig(t, other))
		if have, all := contents(t, copied), contents(t, c); !maps.Equal(have, all) || len(have) != len(want)+1 {
			t.Errorf("%d objects, not %d", len(have), len(all))
		}
		if _, err := copied.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the other's node is there: %v", err)
		}
		e.Delete(t, other)
		e.Gone(t, other)
	})
	t.Run("the tenant itself, once it is gone", func(t *testing.T) {
		if code, out := stoker(t, "restore", backup, "--identity", identity); code != 1 || !strings.Contains(out, "there is a tenant") {
			t.Errorf("exit code %d: %s", code, out)
		}
		var before, after corev1.Secret
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &before)
		seen := lastRevision(t, c)
		e.Delete(t, key)
		e.Gone(t, key)
		if code, out := stoker(t, "restore", backup, "--identity", identity, "--wait"); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		get(t, kube.Secrets, key.Namespace, name.CA(key.Name), &after)
		if !maps.EqualFunc(before.Data, after.Data, slices.Equal[[]byte]) {
			t.Error("it has another authority")
		}
		c = clientOf(t, e.Kubeconfig(t, key))
		if have := contents(t, c); !maps.Equal(have, want) {
			t.Errorf("%d objects, not %d", len(have), len(want))
		}
		if _, err := c.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{}); err != nil {
			t.Errorf("its node: %v", err)
		}
		if now := lastRevision(t, c); now <= seen {
			t.Errorf("revision %d after it was restored, and %d before", now, seen)
		}
	})
	t.Run("a backup that isn't there is said, and another one may be named", func(t *testing.T) {
		o := env.Tenant(other.Name, "v1.36.3")
		o.Spec.DataStore = "default"
		o.Annotations = map[string]string{name.AnnotationRestoreFrom: backup[:strings.LastIndex(backup, "/")] + "/20261104T030000Z-4f2a9c"}
		e.Apply(t, o)
		missing := func(what string) {
			env.Eventually(t, what+" to be missed", func() error {
				if s := e.State(t.Context(), other, events.StateKey(name.ServiceDatastore)); s == nil || !strings.Contains(s.Wait.Text, what) {
					return errNotYet
				}
				return nil
			})
		}
		missing("not found")
		annotate(t, other, name.AnnotationRestoreFrom, backup)
		missing("there is no Secret default/kept-copy-restore")
		e.Delete(t, other)
		e.Gone(t, other)
	})
	t.Run("at a time, also after a service that was killed", func(t *testing.T) {
		annotate(t, key, name.AnnotationBackupKeep, "1")
		annotate(t, key, name.AnnotationBackupLocation, "offsite")
		services[name.ServiceDatastore].Kill()
		annotate(t, key, name.AnnotationBackupAt, time.Now().UTC().Format(time.RFC3339))
		services[name.ServiceDatastore].Restart(t)
		backups(t, key, 2)
	})
	t.Run("by a schedule", func(t *testing.T) {
		env.Long(t, "services/intake shows when a schedule has a backup due; the part above shows that a due backup is made")

		annotate(t, key, name.AnnotationBackupSchedule, "* * * * *") // the tenant is older than a minute: one is due at once
		backups(t, key, 3)
		annotate(t, key, name.AnnotationBackupSchedule, nil)
	})
	t.Run("annotations that can't be read say so", func(t *testing.T) {
		annotate(t, key, name.AnnotationBackupSchedule, "at noon")
		env.Eventually(t, "the schedule to be refused", func() error {
			if s := e.State(t.Context(), key, "spec"); s == nil || s.Wait.Reason != reason.ScheduleUnreadable {
				return errNotYet
			}
			return nil
		})
		annotate(t, key, name.AnnotationBackupSchedule, nil)
		e.Ready(t, key)
	})
	e.Delete(t, key)
	e.Gone(t, key)
	nothingLeft(t, key)
}

// location makes a location of backups in a directory, and a file with the identity that opens them.
func location(t *testing.T, n string) (dir, identity string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	must(t, err)
	dir, identity = t.TempDir(), filepath.Join(t.TempDir(), "key.txt")
	must(t, os.WriteFile(identity, []byte(id.String()+"\n"), 0o600))
	secret := &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(), ObjectMeta: metav1.ObjectMeta{Namespace: name.SystemNamespace, Name: n}, Type: "stoker.dev/backup-location",
		Data: map[string][]byte{"url": []byte("file://" + dir), "recipients": []byte(id.Recipient().String())},
	}
	must(t, e.Admin.Create(t.Context(), kube.Secrets, secret))
	t.Cleanup(func() {
		_, _ = e.Admin.Delete(context.WithoutCancel(t.Context()), kube.Secrets, name.SystemNamespace, n, metav1.DeleteOptions{})
	})
	return dir, identity
}

// backups waits until a tenant has so many, and returns what they are called, the newest first.
func backups(t *testing.T, key events.Key, want int) (names []string) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("%d backups", want), func() error {
		code, out := stoker(t, "backups", key.Name, "--location", "offsite", "-o", "name")
		if names = strings.Fields(out); code != 0 || len(names) != want {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	return names
}

// contents are the ConfigMaps of a tenant that fill made.
func contents(t *testing.T, c *kubernetes.Clientset) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range list(t, c) {
		all[o.Name] = fmt.Sprint(o.UID, o.Data)
	}
	return all
}

// lastRevision is the resource version of a list.
func lastRevision(t *testing.T, c *kubernetes.Clientset) int64 {
	t.Helper()
	l, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	must(t, err)
	var n int64
	_, err = fmt.Sscan(l.ResourceVersion, &n)
	must(t, err)
	return n
}

// allOf is what the files of a directory hold.
func allOf(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	})
	must(t, err)
	return all.String()
}
