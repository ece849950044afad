package mysql_test

import (
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/mysqlserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

func TestReadOnlyNeedsAnAdministratorWhoEndsConnections(t *testing.T) {
	t.Parallel()
	server := mysqlserver.Start(t)
	w := newWorld(t, server)
	ends := "SUPER, CONNECTION_ADMIN"
	if w.MariaDB {
		ends = "SUPER, CONNECTION ADMIN"
	}
	for name, lacks := range map[string]string{"blind": "PROCESS", "mild": ends} {
		w.do(t, "CREATE USER "+name+" IDENTIFIED BY 'x'", "GRANT ALL ON *.* TO "+name+" WITH GRANT OPTION", "REVOKE "+lacks+" ON *.* FROM "+name)
		c := server.Config()
		c.Username, c.Password = []byte(name), []byte("x")
		d := open(t, c)
		a := driver.Account{Owner: "uid", Schema: "of-" + name, User: "of-" + name, Password: "password"}
		_, err := d.Provision(t.Context(), a)
		check(t, err)
		in, err := server.DB(a.User, a.Password, a.Schema)
		check(t, err)
		defer in.Close()
		check(t, in.PingContext(t.Context()))
		a.ReadOnly = true
		for range 2 {
			_, err := d.Provision(t.Context(), a)
			if err == nil {
				t.Errorf("%s has made it so", name)
			}
			t.Log(err)
		}
		// Who may do all sees what is left to do.
		if _, err := open(t, server.Config()).Provision(t.Context(), a); err != nil {
			t.Error(err)
		}
		if changed, err := d.Provision(t.Context(), a); err != nil || len(changed) > 0 {
			t.Errorf("changed %q: %v", changed, err)
		}
		_, err = d.Drop(t.Context(), a)
		check(t, err)
	}
}
