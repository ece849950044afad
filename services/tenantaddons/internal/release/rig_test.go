package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/internal/testing/apiserver"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// server is the API server of all tests of this package: each has namespaces and names of its own there.
var server *apiServer

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "stoker-test-release-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		running, err := apiserver.Start(context.Background(), dir, apiserver.Options{})
		switch {
		case errors.Is(err, exec.ErrNotFound):
			fmt.Fprintln(os.Stderr, "skipped: there is no Go to build etcd and kube-apiserver with")
			return 0
		case err == nil:
			defer running.Close()
			server, err = newAPIServer(running.Kubeconfig)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// apiServer is a real API server on a real etcd, and nothing else.
type apiServer struct {
	kubeconfig []byte
	admin      dynamic.Interface // what somebody with kubectl has
	config     *rest.Config
}

func newAPIServer(kubeconfig []byte) (s *apiServer, err error) {
	s = &apiServer{kubeconfig: kubeconfig}
	if s.config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return nil, err
	}
	s.config.QPS, s.config.WarningHandler = -1, rest.NoWarnings{}
	s.admin, err = dynamic.NewForConfig(s.config)
	return s, err
}

// open opens the test's tenant.
func open(t testing.TB, o kube.Options) *Cluster {
	t.Helper()
	c, err := Open(server.kubeconfig, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var tests atomic.Int32

// newID is a release that nobody else has, in a namespace that isn't there yet.
func newID() ID {
	n := tests.Add(1)
	return ID{
		Name: fmt.Sprint("web-", n), Namespace: fmt.Sprint("apps-", n), Addon: types.NamespacedName{Namespace: "platform", Name: fmt.Sprint("web-", n)},
	}
}

// newChart is a chart of templates and other files, by their names.
func newChart(files map[string]string) *chart.Chart {
	c := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "web", Version: "1.2.3"}, Values: map[string]any{}}
	for file, text := range files {
		f := &common.File{Name: file, Data: []byte(text)}
		switch {
		case strings.HasPrefix(file, "templates/"):
			c.Templates = append(c.Templates, f)
		case file == "values.schema.json":
			c.Schema = f.Data
		default:
			c.Files = append(c.Files, f)
		}
	}
	return c
}

// objects reads what manifests say.
func objects(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	all, err := parse(strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
