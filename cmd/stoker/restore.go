package main

// stoker restore: a tenant from a backup.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/follow"
	"github.com/stoker-k8s/stoker/cmd/stoker/internal/manifest"
	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
)

// restoring is what the command line asks for.
type restoring struct {
	anew
	from         event.BackupQuery
	identity, as string
	newKeys      bool
	inPlace      bool
}

func restoreCommand(a *app) *cobra.Command {
	var r restoring
	c := &cobra.Command{
		Use:   "restore BACKUP --identity FILE",
		Short: "Make a tenant from a backup, or set one back to it",
		Long: `restore makes a tenant that has the data of a backup, as stoker backups shows it: location/namespace/name/ID. There must be no tenant of
that name: one that is wrong is deleted first.

Under its own name it is the tenant that it was: with its authorities and keys, so that kubeconfigs, nodes and tokens of before go on working, and with
resource versions above all that clients have seen: by 10,000, and 10 for each second since the backup, up to 1,000,000. With --as, or --new-keys, it is another one with the same objects: it gets authorities of its own, and
nothing of what is about the former one's machines and addresses: leases, nodes, endpoints of the API server, requests for certificates, bootstrap tokens.

With --in-place a tenant that works is set back to a backup of its own: the backup is read to its end while the tenant works, then the tenant has no
pods until its data are those of the backup. What was written since the backup is lost: make another backup first. Authorities, keys and endpoint stay;
resource versions go on, so that clients that come back list anew.

--identity is the file with the age identity (AGE-SECRET-KEY-1…) of one of the location's recipients. It is used here and goes nowhere; Stoker gets what opens
this one backup, in the Secret NAME-restore, which is removed with --wait.

Exit codes: 1 the tenant can't be made; 3 it was not Ready in time.`,
		Example: `  # What was lost with its management cluster
  stoker restore offsite/default/demo/20261126T031500Z-4f2a9c --identity key.txt --wait

  # A copy beside the original, in another DataStore
  stoker restore offsite/default/demo/20261126T031500Z-4f2a9c --identity key.txt --as demo-copy --data-store etcd-2 --wait

  # Back to what it was at a quarter past three; what it is now is kept in a backup
  stoker backup demo --to offsite --wait
  stoker restore offsite/default/demo/20261126T031500Z-4f2a9c --identity key.txt --in-place --wait`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.read(args[0]); err != nil {
				return err
			}
			return a.restore(cmd.Context(), r)
		},
	}
	f := c.Flags()
	f.StringVar(&r.identity, "identity", "", "`file` with the age identity of a recipient; - for standard input")
	f.StringVar(&r.as, "as", "", "`name` of the tenant; without it, the backup's. -n says in which namespace")
	f.BoolVar(&r.newKeys, "new-keys", false, "authorities and keys of its own under the name of the backup's tenant, too")
	f.BoolVar(&r.inPlace, "in-place", false, "set the tenant that there is back to the backup")
	r.anew.flags(f)
	return c
}

// anew is how a tenant is made of another one's object.
type anew struct {
	dataStore, patch string
	wait             bool
	timeout          time.Duration
}

func (n *anew) flags(f *pflag.FlagSet) {
	f.StringVar(&n.dataStore, "data-store", "", "`DataStore` that the data go to; without it, the one that the former object names")
	f.StringVarP(&n.patch, "patch", "p", "", "merge `patch` of the object: {\"spec\": …}")
	f.BoolVar(&n.wait, "wait", false, "follow the tenant until it is Ready")
	f.DurationVar(&n.timeout, "timeout", defaultTimeout, "how long to --wait")
}

// read refuses mistakes in the command line.
func (n *anew) read() error {
	if n.patch == "" {
		return nil
	}
	data, err := yaml.YAMLToJSONStrict([]byte(n.patch))
	if err != nil {
		return usagef("-p %s: must be a merge patch in JSON or YAML: {\"spec\": …}", n.patch)
	}
	n.patch = string(data)
	return nil
}

// object is the tenant that is asked for, with an annotation that says where its data come from; same says that it is who it was.
func (n *anew) object(o *v1alpha1.TenantControlPlane, key events.Key, same bool, annotation, from string) (manifest.Object, error) {
	o.Namespace, o.Name = key.Namespace, key.Name
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[annotation] = from
	delete(o.Annotations, name.AnnotationRestoreInPlace)
	if !same { // what may be one tenant's alone
		o.Spec.DataStoreSchema, o.Spec.DataStoreUsername, o.Spec.NetworkProfile.Address = "", "", ""
	}
	if n.dataStore != "" {
		o.Spec.DataStore = n.dataStore
	}
	data, err := json.Marshal(o)
	if err != nil {
		return manifest.Object{}, err
	}
	if n.patch != "" {
		if data, err = jsonpatch.MergePatch(data, []byte(n.patch)); err != nil {
			return manifest.Object{}, usagef("-p %s: %s", n.patch, err)
		}
	}
	return manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind, Data: data}, nil
}

// read refuses mistakes in the command line.
func (r *restoring) read(backupName string) error {
	parts := strings.Split(backupName, "/")
	if len(parts) != 4 || slices.Contains(parts, "") {
		return usagef("%s: must be location/namespace/name/ID, as `stoker backups` shows it", backupName)
	}
	r.from = event.BackupQuery{Location: parts[0], Namespace: parts[1], Name: parts[2], ID: parts[3]}
	if r.identity == "" {
		return usagef("--identity names the file with the age identity of one of the location's recipients")
	}
	if r.inPlace && (r.as != "" || r.newKeys || r.dataStore != "" || r.patch != "") {
		return usagef("--in-place changes nothing but the data: --as, --new-keys, --data-store and -p are for a tenant that is made anew")
	}
	return r.anew.read()
}

// backup is what stoker backups calls it.
func (r *restoring) backup() string {
	return strings.Join([]string{r.from.Location, r.from.Namespace, r.from.Name, r.from.ID}, "/")
}

// restore makes the Secrets that the tenant is to have, then asks for the tenant.
func (a *app) restore(ctx context.Context, r restoring) error {
	identity, err := a.readFile(r.identity)
	if err != nil {
		return err
	}
	bus, err := a.bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	there, err := follow.Backup(ctx, bus, r.from)
	if err != nil {
		return err
	}
	m := backup.Manifest{ID: r.from.ID, Tenant: backup.Tenant{Namespace: r.from.Namespace, Name: r.from.Name}}
	keys, err := backup.OpenKeys(m, there.Keys, string(identity))
	if err != nil {
		return fmt.Errorf("--identity %s: %w", r.identity, err)
	}
	key := events.Tenant(r.from.Namespace, r.from.Name)
	if r.inPlace {
		if a.namespace != "" && a.namespace != key.Namespace {
			return usagef("-n %s: the backup is of a tenant in namespace %s, and --in-place is for that one", a.namespace, key.Namespace)
		}
		return a.restoreInPlace(ctx, r, key, keys)
	}
	if r.as != "" || a.namespace != "" {
		if key, err = a.tenant(cmp.Or(r.as, r.from.Name)); err != nil {
			return err
		}
	}
	same := key == events.Tenant(r.from.Namespace, r.from.Name) && !r.newKeys
	o := &v1alpha1.TenantControlPlane{}
	if err := json.Unmarshal(there.Object, o); err != nil {
		return fmt.Errorf("the object in the backup can't be read: %w", err)
	}
	object, err := r.object(o, key, same, name.AnnotationRestoreFrom, r.backup())
	if err != nil {
		return err
	}
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	if err := makeSecrets(ctx, k, key, r.from.Name, keys, same); err != nil {
		return err
	}
	err = a.apply(ctx, []manifest.Object{object}, 0, r.wait, r.timeout)
	if err == nil && r.wait {
		_, err = k.Delete(ctx, kube.Secrets, key.Namespace, name.Restore(key.Name), metav1.DeleteOptions{})
	}
	return err
}

// restoreInPlace gives the tenant what opens the backup, then asks for it by the tenant's annotation.
func (a *app) restoreInPlace(ctx context.Context, r restoring, key events.Key, keys backup.Keys) error {
	k, err := a.kube()
	if err != nil {
		return err
	}
	defer k.Close()
	err = k.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, &v1alpha1.TenantControlPlane{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no tenant %s: without --in-place it is made anew", key)
	}
	if err != nil {
		return err
	}
	if err := sameEncryption(ctx, k, key, keys); err != nil {
		return err
	}
	n := name.Restore(key.Name)
	if _, err := k.Delete(ctx, kube.Secrets, key.Namespace, n, metav1.DeleteOptions{}); err != nil { // of an earlier restore
		return err
	}
	data := map[string][]byte{name.KeyRestoreIdentity: []byte(keys.Identity)}
	if err := makeSecret(ctx, k, key.Namespace, n, corev1.SecretTypeOpaque, nil, nil, data); err != nil {
		return err
	}
	from := r.backup()
	object := manifest.Object{Key: key, Kind: kube.TenantControlPlanes.Kind}
	err = a.commandAll(ctx, []manifest.Object{object}, r.wait, r.timeout, commanding{
		command: func(manifest.Object) command {
			return command{verb: event.Restore, data: event.RestoreCommand{Backup: from}, expected: anyGeneration}
		},
		done: func(event.IntakeAccepted) string { return "is to be set back to " + r.from.ID },
		wait: func(ctx context.Context, f following, out func(follow.Line)) error {
			if err := follow.UntilRestored(ctx, f.feed, from, out); err != nil {
				return f.late(ctx, err, "not restored")
			}
			return untilReady(ctx, f, out)
		},
	})
	if err == nil && r.wait {
		_, err = k.Delete(ctx, kube.Secrets, key.Namespace, n, metav1.DeleteOptions{})
	}
	return err
}

// sameEncryption refuses a backup whose objects are encrypted by keys that the tenant hasn't.
func sameEncryption(ctx context.Context, k *kube.Client, key events.Key, keys backup.Keys) error {
	n := name.Encryption(key.Name)
	i := slices.IndexFunc(keys.Secrets, func(s backup.Secret) bool { return s.Name == n })
	if i < 0 {
		return nil
	}
	have := &corev1.Secret{}
	err := k.Get(ctx, kube.Secrets, key.Namespace, n, have)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if !maps.EqualFunc(have.Data, keys.Secrets[i].Data, slices.Equal[[]byte]) {
		return fmt.Errorf("the backup's objects are encrypted, and the tenant has not the keys in Secret %s/%s that it had then: restore it with --as another tenant", key.Namespace, n)
	}
	return nil
}

func (a *app) readFile(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(path)
}

// makeSecrets makes the Secrets that the tenant is to have from the beginning. same brings those back by which clients know it.
func makeSecrets(ctx context.Context, k *kube.Client, key events.Key, was string, keys backup.Keys, same bool) error {
	if err := mustBeFree(ctx, k, key); err != nil {
		return err
	}
	for _, s := range keys.Secrets {
		n := key.Name + strings.TrimPrefix(s.Name, was)
		if !same && n != name.Encryption(key.Name) {
			continue // it gets its own
		}
		if err := makeSecret(ctx, k, key.Namespace, n, corev1.SecretType(s.Type), labelsFor(key, s.Labels), s.Annotations, s.Data); err != nil {
			return err
		}
	}
	data := map[string][]byte{name.KeyRestoreIdentity: []byte(keys.Identity)}
	if same {
		data[name.KeyRestoreSameAuthority] = []byte("true")
	}
	n := name.Restore(key.Name)
	if _, err := k.Delete(ctx, kube.Secrets, key.Namespace, n, metav1.DeleteOptions{}); err != nil { // of an earlier try
		return err
	}
	return makeSecret(ctx, k, key.Namespace, n, corev1.SecretTypeOpaque, nil, nil, data)
}

// labelsFor are labels of a Secret, for a tenant.
func labelsFor(key events.Key, of map[string]string) map[string]string {
	labels := maps.Clone(of)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name.LabelProject], labels[name.LabelName] = name.Project, key.Name
	return labels
}

// mustBeFree refuses the name of a tenant that there is.
func mustBeFree(ctx context.Context, k *kube.Client, key events.Key) error {
	err := k.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, &v1alpha1.TenantControlPlane{})
	if err == nil {
		return fmt.Errorf("there is a tenant %s: delete it first, or choose another name", key)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// makeSecret makes a Secret. One that is there already must hold the same.
func makeSecret(
	ctx context.Context, k *kube.Client, namespace, n string, kind corev1.SecretType, labels, annotations map[string]string, data map[string][]byte,
) error {
	secret := &corev1.Secret{
		TypeMeta:   kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n, Labels: labels, Annotations: annotations}, Type: kind, Data: data,
	}
	err := k.Create(ctx, kube.Secrets, secret)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have := &corev1.Secret{}
	if err := k.Get(ctx, kube.Secrets, namespace, n, have); err != nil {
		return err
	}
	if !maps.EqualFunc(have.Data, data, slices.Equal[[]byte]) {
		return fmt.Errorf("there is a Secret %s/%s that holds something else: delete it first", namespace, n)
	}
	return nil
}
