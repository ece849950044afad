package nats_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestRaise(t *testing.T) {
	t.Parallel()
	a := driver.Account{Owner: "uid", Schema: "raised", User: "raised", Password: "password"}
	for name, start := range map[string]func(t *testing.T) []*natsserver.Server{
		"of many tenants": func(t *testing.T) []*natsserver.Server {
			return []*natsserver.Server{natsserver.Start(t, natsserver.Options{})}
		},
		"of the only tenant": func(t *testing.T) []*natsserver.Server {
			return []*natsserver.Server{natsserver.Start(t, natsserver.Options{Users: natsserver.Users})}
		},
		"in a cluster": func(t *testing.T) []*natsserver.Server { return natsserver.StartCluster(t, natsserver.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := start(t)
			d := open(t, servers[0].Config(t))
			drivertest.Eventually(t, func() error { _, err := d.Provision(t.Context(), a); return err })
			access, err := d.Access(a, driver.Access{}, time.Now())
			check(t, err)
			raise := func(above int64) error { return d.(driver.DataAccess).Raise(t.Context(), a, access, above) }
			const above = 5_000_000_000
			check(t, raise(above))
			for _, server := range servers {
				server.Stop()
			}
			for _, server := range servers {
				server.Run(t)
			}
			var data driver.Data
			drivertest.Eventually(t, func() error { data, err = d.(driver.DataAccess).Data(t.Context(), a, access); return err })
			at, err := data.Revision(t.Context())
			if err != nil || at <= above || at > above+100 {
				t.Errorf("after a restart the revision is %d: %v", at, err)
			}
			drivertest.Fill(t, data, drivertest.Contents{"a": "1"})
			check(t, data.Close())
			// Servers that have just been started may elect again, and leave a request without an answer.
			drivertest.Eventually(t, func() error { return raise(above) }) // it does nothing
			drivertest.Eventually(t, func() error {
				if err := raise(2 * above); !errors.Is(err, driver.ErrHoldsData) {
					return fmt.Errorf("with data: %w", cmp.Or(err, errors.New("raised")))
				}
				return nil
			})
		})
	}
}
