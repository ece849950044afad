package account

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func bytesOf(kv ...string) map[string][]byte {
	m := map[string][]byte{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = []byte(kv[i+1])
	}
	return m
}

func TestConfigData(t *testing.T) {
	account := driver.Account{Schema: "s", User: "u"}
	want := func(password string) map[string][]byte {
		return bytesOf("DB_CONNECTION_STRING", "", "DB_SCHEMA", "s", "DB_USER", "u", "DB_PASSWORD", password)
	}
	for sentence, test := range map[string]struct {
		have    map[string][]byte
		trusted bool
		want    map[string][]byte
	}{
		"where nothing is, a password is made":             {nil, true, want("new")},
		"a password that was made is kept":                 {want("old"), true, want("old")},
		"a password of a Secret somebody changed is not":   {want("old"), false, want("new")},
		"an empty password is replaced":                    {want(""), true, want("new")},
		"schema and user are put right, the password kept": {bytesOf("DB_SCHEMA", "x", "DB_PASSWORD", "old", "more", "y"), true, want("old")},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := ConfigData(test.have, test.trusted, account, direct{}, func() string { return "new" })
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// direct is a driver of a database that tenants reach themselves, replicated one that they reach through kine.
type direct struct{ driver.Driver }

func (direct) Endpoint() string { return "" }

type replicated struct{ driver.Driver }

func (replicated) Endpoint() string { return "nats:4222" }
func (replicated) Replicas() int    { return 3 }

func TestConfigDataSaysHowManyServersKeepTheData(t *testing.T) {
	got := ConfigData(nil, true, driver.Account{Schema: "s", User: "u"}, replicated{}, func() string { return "new" })
	if want := bytesOf("DB_CONNECTION_STRING", "nats:4222", "DB_SCHEMA", "s", "DB_USER", "u", "DB_PASSWORD", "new", "DB_REPLICAS", "3"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCertificateDataReadsBack(t *testing.T) {
	access := driver.Access{CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key"), Credentials: []byte("credentials")}
	if got := AccessOf(CertificateData(access)); !reflect.DeepEqual(got, access) {
		t.Errorf("got %v", got)
	}
	if got := CertificateData(driver.Access{}); len(got) != 0 {
		t.Errorf("without TLS there is %v", got)
	}
}

func TestRepair(t *testing.T) {
	key := events.Tenant("team", "demo")
	want := SecretFor(key, "uid-1", name.DatastoreConfig("demo"), name.ComponentDatastoreConfig)
	want.Data = bytesOf("a", "1", "b", "2")
	want.Annotations = map[string]string{name.AnnotationChecksum: name.Checksum(want.Data)}
	for sentence, test := range map[string]struct {
		change func(*corev1.Secret)
		want   map[string]any
	}{
		"what is right is left alone": {func(*corev1.Secret) {}, nil},
		"labels, annotations and owners of others stay": {func(s *corev1.Secret) {
			s.Labels["other"], s.Annotations["other"] = "x", "y"
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{UID: "z"})
		}, nil},
		"an edited value is put back": {
			func(s *corev1.Secret) { s.Data["a"] = []byte("x") },
			map[string]any{"data": map[string]any{"a": []byte("1")}, "metadata": map[string]any{"resourceVersion": "7"}},
		},
		"a deleted and a foreign key are put right": {
			func(s *corev1.Secret) { delete(s.Data, "b"); s.Data["c"] = []byte("x") },
			map[string]any{"data": map[string]any{"b": []byte("2"), "c": nil}, "metadata": map[string]any{"resourceVersion": "7"}},
		},
		"the label our watch needs comes back": {
			func(s *corev1.Secret) { delete(s.Labels, name.LabelPartition) },
			map[string]any{"metadata": map[string]any{"resourceVersion": "7", "labels": map[string]any{name.LabelPartition: want.Labels[name.LabelPartition]}}},
		},
		"the owner of an earlier tenant of that name is replaced": {
			func(s *corev1.Secret) { s.OwnerReferences[0].UID = "uid-0" },
			map[string]any{"metadata": map[string]any{"resourceVersion": "7", "ownerReferences": want.OwnerReferences}},
		},
		"Kamaji's finalizer goes, others stay": {
			func(s *corev1.Secret) { s.Finalizers = []string{"other", name.FinalizerDatastoreSecret} },
			map[string]any{"metadata": map[string]any{"resourceVersion": "7", "finalizers": []string{"other"}}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			have := want.DeepCopy()
			have.ResourceVersion = "7"
			test.change(have)
			if got := repair(have, want); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	t.Run("a Secret carries the labels of its tenant and partition and the tenant's object as controller", func(t *testing.T) {
		if want.Labels[name.LabelName] != "demo" || want.Labels[name.LabelComponent] != name.ComponentDatastoreConfig ||
			want.OwnerReferences[0].UID != "uid-1" || !*want.OwnerReferences[0].Controller || want.OwnerReferences[0].Kind != "TenantControlPlane" {
			t.Errorf("%+v", want.ObjectMeta)
		}
	})
}
