package env

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// IntakeUser is the user of the management cluster as which intake writes what commands ask for.
const IntakeUser = "system:serviceaccount:" + name.SystemNamespace + ":stoker-" + name.ServiceIntake

// PrivilegedFields says whether a user of the management cluster may set the fields of a tenant that reach beyond it, and waits
// until the API server knows.
func (e *Env) PrivilegedFields(t testing.TB, user string, may bool) {
	t.Helper()
	admin := e.Local.Kubeconfig("admin")
	binding := "privileged-fields:" + user
	var out string
	var err error
	if may {
		out, err = e.TryKubectl(t.Context(), admin, nil, "create", "clusterrolebinding", binding, "--clusterrole=stoker-privileged-fields", "--user="+user)
		if err != nil && strings.Contains(out, "already exists") {
			err = nil
		}
	} else {
		out, err = e.TryKubectl(t.Context(), admin, nil, "delete", "clusterrolebinding", binding, "--ignore-not-found")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[bool]string{true: "yes", false: "no"}[may]
	Eventually(t, "the API server to know what "+user+" may", func() error {
		// Without the verb, kubectl says no and exits with 1.
		out, _ := e.TryKubectl(t.Context(), admin, nil, "auth", "can-i", "use-privileged-fields", "tenantcontrolplanes", "-A", "--as="+user)
		if !strings.HasPrefix(strings.TrimSpace(lastLine(out)), want) {
			return fmt.Errorf("want %s, got %s", want, out)
		}
		return nil
	})
}

// lastLine is what kubectl says after its warnings.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
