package status

import (
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/local/natsserver"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// stack is a NATS server with Stoker's users, and connections as some of them.
type stack struct {
	intake, certs, status, capi, tenantAddons, operator *events.Bus
}

func start(t *testing.T) stack {
	t.Helper()
	srv, err := natsserver.Start(t.Context(), t.TempDir(), "127.0.0.1:-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	connect := func(user string) *events.Bus {
		b, err := events.Connect(events.Config{
			URL: srv.URL(), User: user, SeedFile: srv.SeedFile(user), Replica: "test", StreamReplicas: 1, RequestTimeout: 30 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	s := stack{
		connect(name.ServiceIntake), connect(name.ServiceCerts), connect(name.ServiceStatus), connect(name.ServiceCAPI), connect(name.ServiceTenantAddons),
		connect(events.UserOperator),
	}
	if err := s.intake.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
