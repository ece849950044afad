package datastore_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/services/datastore"
)

// management is the API server of a management cluster, with the CRDs. All tests share one: each is in a namespace of
// its own.
type management struct {
	kube       *kube.Client
	kubeconfig []byte // of the administrator
	address    string
}

var shared struct {
	apiserver.Shared
	once       sync.Once
	management *management
}

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait for servers more than they compute, but the servers do compute: with more at once, some wait too long for others.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "10")
	}
	code := shared.Main(m)
	for _, violation := range datastore.StepViolations() {
		fmt.Fprintln(os.Stderr, violation)
		code = 1
	}
	_ = os.RemoveAll(theProgram.dir)
	os.Exit(code)
}

// manage returns the management cluster, which the first test starts.
func manage(t *testing.T) *management {
	t.Helper()
	server := shared.Server(t, apiserver.Options{})
	shared.once.Do(func() { shared.management = prepare(t, server) })
	if shared.management == nil {
		t.Fatal("the management cluster could not be prepared, as another test says")
	}
	return shared.management
}

// prepare has an API server serve the CRDs.
func prepare(t *testing.T, server *apiserver.Server) *management {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m := &management{kubeconfig: server.Kubeconfig, address: server.Address}
	var err error
	m.kube, err = kube.FromKubeconfig(server.Kubeconfig, kube.Options{FieldManager: name.FieldManagerIntake, Timeout: apiserver.Patience})
	must(err)
	ctx := t.Context()
	crds := kube.Resource{GroupVersion: schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
	files, err := filepath.Glob("../../deployments/crds/kamaji.clastix.io_*.yaml")
	must(err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(err)
		_, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		must(m.kube.ApplyRaw(ctx, crds, "", plural+".kamaji.clastix.io", data, nil))
	}
	drivertest.Eventually(t, func() error { return m.kube.List(ctx, kube.DataStores, "", "", &v1alpha1.DataStoreList{}) })
	return m
}

// through is the administrator's kubeconfig for the API server at another address, which leads to it.
func (m *management) through(address string) []byte {
	return bytes.Replace(m.kubeconfig, []byte(m.address), []byte(address), 1)
}
