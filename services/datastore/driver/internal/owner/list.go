package owner

import (
	"cmp"
	"context"
	"slices"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/sqlpool"
)

// Kinds of records in the tables of SQL databases.
const (
	KindSchema = "schema"
	KindUser   = "user"
)

// Listed makes accounts of all records in a table of owners.
func Listed(ctx context.Context, s *sqlpool.Session, table string) ([]driver.Account, error) {
	records := map[string]map[string]string{KindSchema: {}, KindUser: {}}
	err := s.Rows(ctx, "SELECT kind, name, owner FROM "+table+" WHERE kind IN ('"+KindSchema+"', '"+KindUser+"')", nil, func(scan func(...any) error) error {
		var kind, name, owner string
		err := scan(&kind, &name, &owner)
		if err == nil {
			records[kind][name] = owner
		}
		return err
	})
	return List(records[KindSchema], records[KindUser]), err
}

// List makes accounts of records, of the owners of schemas and of users by name. An owner has one of each, but for what hands
// and crashes did.
func List(schemas, users map[string]string) []driver.Account {
	type names struct{ schemas, users []string }
	by := map[string]names{}
	for n, owner := range schemas {
		of := by[owner]
		of.schemas = append(of.schemas, n)
		by[owner] = of
	}
	for n, owner := range users {
		of := by[owner]
		of.users = append(of.users, n)
		by[owner] = of
	}
	var all []driver.Account
	for owner, of := range by {
		slices.Sort(of.schemas)
		slices.Sort(of.users)
		for i := range max(len(of.schemas), len(of.users)) {
			a := driver.Account{Owner: owner}
			if i < len(of.schemas) {
				a.Schema = of.schemas[i]
			}
			if i < len(of.users) {
				a.User = of.users[i]
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b driver.Account) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.User, b.User))
	})
	return all
}
