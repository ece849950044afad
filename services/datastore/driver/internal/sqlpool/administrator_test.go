package sqlpool_test

import (
	"errors"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

func TestAdministratorOf(t *testing.T) {
	good := driver.Config{Endpoints: []string{"db.example:5432", "other.example:5432"}, Username: []byte("admin"), Password: []byte("secret")}
	for sentence, test := range map[string]struct {
		change func(*driver.Config)
		field  string // at fault, empty for none
	}{
		"a user with a password is enough":   {func(*driver.Config) {}, ""},
		"somebody must be the administrator": {func(c *driver.Config) { c.Username = nil }, "basicAuth"},
		"there must be an endpoint":          {func(c *driver.Config) { c.Endpoints = nil }, "endpoints"},
		"an endpoint has a port":             {func(c *driver.Config) { c.Endpoints = []string{"db.example"} }, "endpoints"},
		"a port is a number":                 {func(c *driver.Config) { c.Endpoints = []string{"db.example:65536"} }, "endpoints"},
		"a client certificate needs its verifier": {
			func(c *driver.Config) { c.ClientCert, c.ClientKey = []byte("x"), []byte("x") }, "tlsConfig.certificateAuthority",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := good
			test.change(&c)
			got, err := sqlpool.AdministratorOf(c)
			var bad *driver.ConfigError
			switch {
			case test.field != "":
				if !errors.As(err, &bad) || bad.Field != test.field {
					t.Errorf("%v", err)
				}
			case err != nil || got.Endpoint != "db.example:5432" || got.User != "admin" || got.Password != "secret" || got.TLS != nil:
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
