package mysql

import (
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// rights are what kine needs of its database, as Kamaji grants it: it makes its table and indexes, and may alter them
// when it is a newer one. Those of the database itself are none of its business. readRights are those of one that may only read.
var (
	rights     = []string{"ALTER", "CREATE", "DELETE", "INDEX", "INSERT", "SELECT", "UPDATE"}
	readRights = []string{"ALTER", "CREATE", "INDEX", "SELECT"}
)

// lastRight is given last where connections of the user have to end (seal.go).
const lastRight = "ALTER"

// rightsOf are the rights of an account's user on its database.
func rightsOf(a driver.Account) []string {
	if a.ReadOnly {
		return readRights
	}
	return rights
}

// without is a list without some of it.
func without(list []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(some, one) })
}

// grant is one line of SHOW GRANTS.
type grant struct {
	// what is granted, as it can be revoked: rights on something, a role, PROXY on a user.
	what string
	// on is what rights are on, as it is written there; empty for a role.
	on string
	// rights, sorted.
	rights []string
	// option says that the user may grant it to others.
	option bool
}

// login reports whether it is that everybody has who may log in.
func (g grant) login() bool { return g.what == "USAGE ON *.*" }

type grants []grant

// parseGrant reads a line of SHOW GRANTS about a tenant's user, nothing if it grants nothing. Names in it are quoted,
// in one way or the other, and the user is the last thing in it that can be named like him.
func parseGrant(line, name string) []grant {
	rest, granted := strings.CutPrefix(line, "GRANT ")
	at, end := -1, 0
	for _, q := range []string{"`", "'"} {
		to := " TO " + q + name + q + "@" + q + anyHost + q
		if found := strings.LastIndex(rest, to); found > at {
			at, end = found, found+len(to)
		}
	}
	if !granted || at < 0 {
		return nil
	}
	options := rest[end:]
	g := grant{what: rest[:at], option: strings.Contains(options, "GRANT OPTION") || strings.Contains(options, "ADMIN OPTION")}
	if at := strings.LastIndex(g.what, " ON "); at >= 0 && !strings.HasPrefix(g.what, "`") && !strings.HasPrefix(g.what, "'") {
		g.on = g.what[at+len(" ON "):]
		g.rights = strings.Split(g.what[:at], ", ")
		slices.Sort(g.rights)
	}
	return []grant{g}
}

// repair are the statements, each behind what it does, that leave a user just the wanted rights on its database.
func (have grants) repair(schema, name string, wanted []string) (changes [][2]string) {
	to, mine := user(name, anyHost), on(schema)
	right := false
	// Those on other names are taken after the right ones are given, so that a user of Kamaji's always has some.
	var others [][2]string
	// After the rights: MySQL 8 doesn't take away a dynamic right, and says nothing, once the option on *.* is gone.
	var options [][2]string
	take := func(what string) [2]string {
		return [2]string{"taken from the user: " + what, "REVOKE " + what + " FROM " + to}
	}
	for _, g := range have {
		if g.on == mine {
			right = len(without(wanted, g.rights...)) == 0
			if more := without(g.rights, wanted...); len(more) > 0 {
				changes = append(changes, take(strings.Join(more, ", ")+" ON "+mine))
			}
		} else if !g.login() {
			others = append(others, take(g.what))
		}
		if g.option && g.on != "" {
			change := [2]string{"taken from the user: grant option on " + g.on, "REVOKE GRANT OPTION ON " + g.on + " FROM " + to}
			if !slices.Contains(options, change) {
				options = append(options, change)
			}
		}
	}
	if !right {
		changes = append(changes, give(schema, name, wanted...))
	}
	return append(append(changes, others...), options...)
}

// give is the statement, behind what it does, that gives a user rights on its database.
func give(schema, name string, wanted ...string) [2]string {
	statement := "GRANT " + strings.Join(wanted, ", ") + " ON " + on(schema) + " TO " + user(name, anyHost)
	return [2]string{"rights given to the user", statement}
}

// outdates reports whether open connections of the user may more, or less, than those that begin once its rights are repaired.
func (have grants) outdates(a driver.Account) bool {
	if a.ReadOnly {
		return len(have.repair(a.Schema, a.User, readRights)) > 0
	}
	return !slices.ContainsFunc(have, func(g grant) bool {
		return g.isOn(a.Schema) && (len(without(rights, g.rights...)) == 0 || slices.Contains(g.rights, "ALL PRIVILEGES"))
	})
}

// isOn reports whether rights are on a database, whose name may be written as it is, as Kamaji does: then they are on neighbours', too, until
// they are repaired.
func (g grant) isOn(schema string) bool { return g.on == on(schema) || g.on == quote(schema)+".*" }

// on is all of a database, as GRANT takes it: there, unlike elsewhere, an underscore stands for any character, so that
// rights on a_b would be rights on the neighbour's axb.
func on(schema string) string {
	return quote(strings.NewReplacer(`\`, `\\`, `_`, `\_`, `%`, `\%`).Replace(schema)) + ".*"
}

// quote makes a name one identifier.
func quote(name string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), "`", "``") + "`"
}

// user is an account of MySQL's.
func user(name, host string) string { return quote(name) + "@" + quote(host) }
