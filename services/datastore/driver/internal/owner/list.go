package owner

import (
	"cmp"
	"slices"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

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
