package account

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// ConfigData is what <tenant>-datastore-config must hold. The password is kept while it is the one that was made: trusted
// says that nobody is known to have changed the Secret.
func ConfigData(have map[string][]byte, trusted bool, a driver.Account, d driver.Driver, random func() string) map[string][]byte {
	password := have[name.KeyDBPassword]
	if len(password) == 0 || !trusted {
		password = []byte(random())
	}
	data := map[string][]byte{
		name.KeyDBConnectionString: []byte(d.Endpoint()),
		name.KeyDBSchema:           []byte(a.Schema),
		name.KeyDBUser:             []byte(a.User),
		name.KeyDBPassword:         password,
	}
	if d, ok := d.(driver.Replicated); ok {
		data[name.KeyDBReplicas] = []byte(strconv.Itoa(d.Replicas()))
	}
	return data
}

// CertificateData is what <tenant>-datastore-certificate must hold; AccessOf reads it back.
func CertificateData(a driver.Access) map[string][]byte {
	data := map[string][]byte{}
	for key, value := range map[string][]byte{
		name.KeyDatastoreCACert: a.CA, name.KeyDatastoreCert: a.Cert, name.KeyDatastoreKey: a.Key, name.KeyDatastoreContext: a.Credentials,
	} {
		if len(value) > 0 {
			data[key] = value
		}
	}
	return data
}

// AccessOf reads what a certificate Secret holds ([CertificateData]).
func AccessOf(data map[string][]byte) driver.Access {
	return driver.Access{
		CA: data[name.KeyDatastoreCACert], Cert: data[name.KeyDatastoreCert], Key: data[name.KeyDatastoreKey],
		Credentials: data[name.KeyDatastoreContext],
	}
}

// SecretFor is a Secret of a tenant without its data.
func SecretFor(key events.Key, uid, secret, component string) *corev1.Secret {
	controller := true
	labels := name.Labels(key.Name, component, key.Partition())
	if component == name.ComponentDatastoreCertificate {
		labels[name.LabelCertificateLifecycle] = name.LifecycleX509
	}
	return &corev1.Secret{
		TypeMeta: kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: secret, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kube.TenantControlPlanes.GroupVersion.String(), Kind: kube.TenantControlPlanes.Kind,
				Name: key.Name, UID: types.UID(uid), Controller: &controller,
			}},
		},
		Type: corev1.SecretTypeOpaque,
	}
}

// repair is the merge patch that makes a Secret what it must be, nil when it is. Labels and annotations of others stay.
func repair(have, want *corev1.Secret) map[string]any {
	meta, patch := map[string]any{}, map[string]any{}
	data := map[string]any{}
	for key, value := range want.Data {
		if old, ok := have.Data[key]; !ok || !bytes.Equal(old, value) {
			data[key] = value
		}
	}
	for key := range have.Data {
		if _, ok := want.Data[key]; !ok {
			data[key] = nil
		}
	}
	if len(data) > 0 {
		patch["data"] = data
	}
	for field, maps := range map[string][2]map[string]string{
		"labels": {have.Labels, want.Labels}, "annotations": {have.Annotations, want.Annotations},
	} {
		changed := map[string]any{}
		for key, value := range maps[1] {
			if old, ok := maps[0][key]; !ok || old != value {
				changed[key] = value
			}
		}
		if len(changed) > 0 {
			meta[field] = changed
		}
	}
	if !slices.ContainsFunc(have.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == want.OwnerReferences[0].UID && o.Controller != nil && *o.Controller
	}) {
		meta["ownerReferences"] = want.OwnerReferences
	}
	if slices.Contains(have.Finalizers, name.FinalizerDatastoreSecret) {
		meta["finalizers"] = slices.DeleteFunc(slices.Clone(have.Finalizers), func(f string) bool { return f == name.FinalizerDatastoreSecret })
	}
	if len(meta)+len(patch) == 0 {
		return nil
	}
	// What was decided from is what is changed; if not, the turn is repeated.
	meta["resourceVersion"] = have.ResourceVersion
	patch["metadata"] = meta
	return patch
}

// decision returns what a Secret must hold. have is the one that is there, an empty one when it is missing; trusted says that nobody but this
// service is known to have written that.
type decision func(have *corev1.Secret, trusted bool) (map[string][]byte, error)

// Ensure makes a Secret hold what decide returns. last is what the state knows of the Secret. Where there is none, it is created,
// never applied: of two replicas that try, one gets an error and looks again. *[kube.TakenError] for a Secret that isn't the tenant's;
// one of an earlier object of the tenant's name is taken up.
func (p *Provisioner) Ensure(ctx context.Context, want *corev1.Secret, last state.Secret, decide decision) (state.Secret, error) {
	have := &corev1.Secret{}
	fill := func(have *corev1.Secret, trusted bool) (err error) {
		if want.Data, err = decide(have, trusted); err != nil {
			return err
		}
		want.Annotations = map[string]string{name.AnnotationChecksum: name.ChecksumOf(have, have.Data, want.Data)}
		if rotates(have) {
			want.Annotations[name.AnnotationRotate] = p.now().UTC().Format(time.RFC3339)
		}
		return nil
	}
	err := error(nil)
	exists := last.ResourceVersion != ""
	if !exists {
		// A new tenant, nearly always.
		if err := fill(have, true); err != nil {
			return last, err
		}
		made := want.DeepCopy()
		if err = p.kube.Create(ctx, kube.Secrets, made); err == nil {
			return p.Seen(made, last), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return last, err
		}
	}
	key := types.NamespacedName{Namespace: want.Namespace, Name: want.Name}
	err = p.kube.Get(ctx, kube.Secrets, want.Namespace, want.Name, have)
	switch {
	case apierrors.IsNotFound(err):
		if err := fill(have, true); err != nil {
			return last, err
		}
		made := want.DeepCopy()
		if err := p.kube.Create(ctx, kube.Secrets, made); err != nil {
			return last, err
		}
		p.written.Store(key, checksum(made))
		return p.Seen(made, last), nil
	case err != nil:
		return last, err
	}
	owner := kube.Owner{Name: want.Labels[name.LabelName], UID: string(want.OwnerReferences[0].UID)}
	if owner.Of(have) == kube.Foreign {
		return last, owner.Taken(kube.Secrets.Kind, have)
	}
	// Without a memory of it, as after the loss of NATS, what is there is trusted. So is what a turn wrote that failed before
	// its state was written: else each try would make another password.
	sum := checksum(have)
	ours, _ := p.written.Load(key)
	if err := fill(have, last.Checksum == "" || last.Checksum == sum || ours == sum); err != nil {
		return last, err
	}
	if last.Checksum == sum {
		p.written.Delete(key)
	}
	patch := repair(have, want)
	if patch == nil {
		return p.Seen(have, last), nil
	}
	patched := &corev1.Secret{}
	if err := p.kube.MergePatch(ctx, kube.Secrets, want.Namespace, want.Name, patch, patched); err != nil {
		return last, err
	}
	p.written.Store(key, checksum(patched))
	return p.Seen(patched, last), nil
}

// rotates reports whether somebody asks for other credentials than those in the tenant's certificate Secret.
func rotates(secret *corev1.Secret) bool {
	value, asked := secret.Annotations[name.AnnotationRotate]
	return asked && value == "" && secret.Labels[name.LabelComponent] == name.ComponentDatastoreCertificate
}

// paused reports whether the certificate in a Secret is kept while it is good.
func paused(secret *corev1.Secret) bool {
	_, is := secret.Annotations[name.AnnotationPaused]
	return is
}

// checksum of what a Secret holds. Kamaji's stays while it is right.
func checksum(secret *corev1.Secret) string {
	return name.ChecksumOf(secret, secret.Data, secret.Data)
}

// Seen is what the state keeps of a Secret.
func (p *Provisioner) Seen(secret *corev1.Secret, last state.Secret) state.Secret {
	now := state.Secret{
		Name: secret.Name, Checksum: checksum(secret), ResourceVersion: secret.ResourceVersion,
		NotAfter: last.NotAfter, LastUpdate: last.LastUpdate,
	}
	if now.Checksum != last.Checksum || now.LastUpdate.IsZero() {
		now.LastUpdate = p.now().UTC().Truncate(time.Second)
	}
	return now
}

// Password makes one of 128 bits and more.
func Password() string { return rand.Text() }
