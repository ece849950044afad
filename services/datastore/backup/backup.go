// Package backup writes what one tenant keeps to an object store or a directory, and reads it back.
//
// A backup is three objects below <namespace>/<tenant>/<id>/, written in this order:
//
//   - keys.age has the tenant's Secrets and a secret key made for this backup alone, [Keys], encrypted to the location's recipients. Nobody
//     who makes backups can read it again.
//   - data.age has all keys of the tenant, encrypted to that secret key, so that whoever is to read them needs no other one.
//   - manifest.json says what the backup is of, [Manifest], and is no secret. A backup without it doesn't count as made.
//
// Encryption hides and notices what is altered; it doesn't tell who has made a backup. Who may write to a location can put one there.
package backup

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Format is the version of manifests, and of all that they describe.
const Format = 1

// Names of a backup's objects.
const (
	keysName     = "keys.age"
	dataName     = "data.age"
	manifestName = "manifest.json"
)

// Errors that say what helps. Texts around them say what is the matter.
var (
	// ErrAway means that the location doesn't answer, or not now: a retry may help.
	ErrAway = errors.New("the location of backups doesn't answer")
	// ErrRefused means that the location, its address or its credentials have to be changed first.
	ErrRefused = errors.New("the location of backups refuses")
	// ErrNotFound means that there is no such object, or no such backup.
	ErrNotFound = errors.New("not found")
	// ErrBroken means that what was read isn't what was written: it is cut, altered, or of a version that this program doesn't know.
	ErrBroken = errors.New("the backup is broken")
	// ErrIdentity means that a secret key isn't one, or opens something else.
	ErrIdentity = errors.New("no secret key fits")
	// ErrMade means that a backup of this ID is there already.
	ErrMade = errors.New("there is such a backup already")
)

// Manifest describes a backup.
type Manifest struct {
	// Format is [Format].
	Format int    `json:"format"`
	ID     string `json:"id"`
	Tenant Tenant `json:"tenant"`
	// Object is the tenant's TenantControlPlane.
	Object json.RawMessage `json:"object,omitempty"`
	// Stoker and Kubernetes are versions: of who made the backup, and of the tenant.
	Stoker     string `json:"stoker,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// DataStore that the keys are from, and its driver.
	DataStore string `json:"dataStore,omitempty"`
	Driver    string `json:"driver,omitempty"`
	// Revision of that database at which the keys were exported; of several (dataStoreOverrides), the highest.
	Revision int64 `json:"revision"`
	// Keys is how many keys there are, Bytes how many they have with their values.
	Keys  int64 `json:"keys"`
	Bytes int64 `json:"bytes"`
	// Digest of keys and values in whatever order: the sums, modulo 2^64, of the four little-endian words of each key's SHA-256 over its
	// length (eight bytes, little-endian), itself and its value; in hexadecimal digits.
	Digest string `json:"digest"`
	// Size of data.age in bytes, and its SHA-256 in hexadecimal digits.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Recipients, as age writes them, whose secret keys open keys.age.
	Recipients []string `json:"recipients"`
	// Scheduled is false if somebody asked for this one backup.
	Scheduled bool      `json:"scheduled"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
}

// Tenant is whom a backup is of.
type Tenant struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Secret is a Kubernetes Secret of the tenant's.
type Secret struct {
	Name        string            `json:"name"`
	Type        string            `json:"type,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Data        map[string][]byte `json:"data"`
}

// Keys is what keys.age has.
type Keys struct {
	// Backup that these are of: <namespace>/<tenant>/<id>. It is what keeps one tenant's backup from being taken for another's.
	Backup  string   `json:"backup"`
	Secrets []Secret `json:"secrets"`
	// Identity opens this backup's data.age and nothing else: AGE-SECRET-KEY-1….
	Identity string `json:"identity"`
}

// NewID returns an ID that sorts by time, to the second: 20261126T031500Z-4f2a9c.
func NewID(now time.Time) string {
	random := make([]byte, 3)
	_, _ = rand.Read(random) // never fails
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(random)
}

var (
	idPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}$`)
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// Path is <namespace>/<tenant>/<id>, below which the backup's objects are. The error says which of the three can't be one.
func (m *Manifest) Path() (string, error) { return pathOf(m.Tenant.Namespace, m.Tenant.Name, m.ID) }

func pathOf(namespace, tenant, id string) (string, error) {
	switch {
	case !label.MatchString(namespace):
		return "", fmt.Errorf("namespace %.100q is not a DNS label", namespace)
	case !label.MatchString(tenant):
		return "", fmt.Errorf("tenant %.100q is not a DNS label", tenant)
	case !idPattern.MatchString(id):
		return "", fmt.Errorf("backup %.100q is not an ID such as 20261126T031500Z-4f2a9c", id)
	}
	return namespace + "/" + tenant + "/" + id, nil
}

// splitPath takes the name of an object apart; ok is false for one that no backup has.
func splitPath(object string) (path, name string, ok bool) {
	parts := strings.Split(object, "/")
	if len(parts) != 4 {
		return "", "", false
	}
	path, err := pathOf(parts[0], parts[1], parts[2])
	return path, parts[3], err == nil
}

// ObjectOf is a tenant's object as its author wrote it, without what an installation or a server adds.
func ObjectOf(o *v1alpha1.TenantControlPlane) *v1alpha1.TenantControlPlane {
	labels, annotations := maps.Clone(o.Labels), maps.Clone(o.Annotations)
	for _, l := range []string{name.LabelPartition, name.LabelDataStore} {
		delete(labels, l)
	}
	for _, a := range []string{
		name.AnnotationCommand, name.AnnotationDataStore, name.AnnotationDatastoreOverrides, name.AnnotationRestoreFrom, name.AnnotationCloneOf,
		name.AnnotationBackupAt,
		corev1.LastAppliedConfigAnnotation,
	} {
		delete(annotations, a)
	}
	return &v1alpha1.TenantControlPlane{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TenantControlPlane"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: labels, Annotations: annotations},
		Spec:       o.Spec,
	}
}
