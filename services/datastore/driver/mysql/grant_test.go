package mysql_test

import (
	"slices"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/mysql"
)

func TestGrantsAreRepaired(t *testing.T) {
	const usage, own = "GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER ON `a\\_b`.* TO `u`@`%`"
	const give = "GRANT ALTER, CREATE, DELETE, INDEX, INSERT, SELECT, UPDATE ON `a\\_b`.* TO `u`@`%`"
	for sentence, test := range map[string]struct{ lines, want []string }{
		"what is right stays": {[]string{usage, own}, nil},
		"MariaDB shows the password and TLS": {[]string{
			"GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC29' REQUIRE SSL WITH MAX_QUERIES_PER_HOUR 5", own}, nil},
		"a new user gets its rights": {[]string{usage}, []string{give}},
		"rights on a pattern that fits neighbours aren't its own": {[]string{usage, "GRANT SELECT ON `a_b`.* TO `u`@`%`"},
			[]string{give, "REVOKE SELECT ON `a_b`.* FROM `u`@`%`"}},
		"a right too few, and one too many": {[]string{usage, "GRANT SELECT, DROP ON `a\\_b`.* TO `u`@`%` WITH GRANT OPTION"},
			[]string{"REVOKE DROP ON `a\\_b`.* FROM `u`@`%`", give, "REVOKE GRANT OPTION ON `a\\_b`.* FROM `u`@`%`"}},
		"MySQL's dynamic rights": {[]string{usage, "GRANT BACKUP_ADMIN,ROLE_ADMIN ON *.* TO `u`@`%` WITH GRANT OPTION", own},
			[]string{"REVOKE BACKUP_ADMIN,ROLE_ADMIN ON *.* FROM `u`@`%`", "REVOKE GRANT OPTION ON *.* FROM `u`@`%`"}},
		"all of MySQL's, of which the option on everything goes last": {[]string{
			"GRANT SELECT, SUPER ON *.* TO `u`@`%` WITH GRANT OPTION", "GRANT BACKUP_ADMIN,ROLE_ADMIN ON *.* TO `u`@`%` WITH GRANT OPTION", own},
			[]string{"REVOKE SELECT, SUPER ON *.* FROM `u`@`%`", "REVOKE BACKUP_ADMIN,ROLE_ADMIN ON *.* FROM `u`@`%`", "REVOKE GRANT OPTION ON *.* FROM `u`@`%`"}},
		"MySQL's roles":        {[]string{usage, own, "GRANT `boss`@`%`,`TO `@`%` TO `u`@`%` WITH ADMIN OPTION"}, []string{"REVOKE `boss`@`%`,`TO `@`%` FROM `u`@`%`"}},
		"MariaDB's roles":      {[]string{"GRANT `x ON y` TO `u`@`%`", usage, own, "SET DEFAULT ROLE `x ON y` FOR `u`@`%`"}, []string{"REVOKE `x ON y` FROM `u`@`%`"}},
		"partial revokes":      {[]string{usage, own, "REVOKE SELECT ON `x`.* FROM `u`@`%`"}, nil},
		"single quotes":        {[]string{usage, own, "GRANT PROXY ON 'boss'@'%' TO 'u'@'%'"}, []string{"REVOKE PROXY ON 'boss'@'%' FROM `u`@`%`"}},
		"all on everything":    {[]string{"GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION", own}, []string{"REVOKE ALL PRIVILEGES ON *.* FROM `u`@`%`", "REVOKE GRANT OPTION ON *.* FROM `u`@`%`"}},
		"a table named oddly":  {[]string{usage, own, "GRANT SELECT ON `x`.` TO ``u``@``%`` ` TO `u`@`%`"}, []string{"REVOKE SELECT ON `x`.` TO ``u``@``%`` ` FROM `u`@`%`"}},
		"columns named oddly":  {[]string{usage, own, "GRANT SELECT (`a ON b`), UPDATE (`c`) ON `x`.`y` TO `u`@`%`"}, []string{"REVOKE SELECT (`a ON b`), UPDATE (`c`) ON `x`.`y` FROM `u`@`%`"}},
		"somebody else's line": {[]string{usage, own, "GRANT SELECT ON *.* TO `uu`@`%`"}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := mysql.Repair(test.lines, driver.Account{Schema: "a_b", User: "u"}); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestGrantsOfOneThatMayOnlyRead(t *testing.T) {
	const usage, on = "GRANT USAGE ON *.* TO `u`@`%`", " ON `a\\_b`.* TO `u`@`%`"
	const all, reads = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER" + on, "GRANT SELECT, CREATE, INDEX, ALTER" + on
	for sentence, test := range map[string]struct {
		lines, reads, writes          []string // what makes it so, and back
		outdatedReads, outdatedWrites bool     // whether open connections know other rights
	}{
		"one that may write": {
			[]string{usage, all}, []string{"REVOKE DELETE, INSERT, UPDATE ON `a\\_b`.* FROM `u`@`%`"}, nil, true, false,
		},
		"one that may read": {
			[]string{usage, reads}, nil, []string{"GRANT ALTER, CREATE, DELETE, INDEX, INSERT, SELECT, UPDATE" + on}, false, true,
		},
		"one that has all rights": {
			[]string{usage, "GRANT ALL PRIVILEGES" + on},
			[]string{"REVOKE ALL PRIVILEGES ON `a\\_b`.* FROM `u`@`%`", "GRANT ALTER, CREATE, INDEX, SELECT" + on},
			[]string{"REVOKE ALL PRIVILEGES ON `a\\_b`.* FROM `u`@`%`", "GRANT ALTER, CREATE, DELETE, INDEX, INSERT, SELECT, UPDATE" + on},
			true, false,
		},
		"one whose connections have not ended yet": {
			[]string{usage, "GRANT SELECT, CREATE, INDEX" + on}, []string{"GRANT ALTER, CREATE, INDEX, SELECT" + on},
			[]string{"GRANT ALTER, CREATE, DELETE, INDEX, INSERT, SELECT, UPDATE" + on}, true, true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			for readOnly, want := range map[bool][]string{true: test.reads, false: test.writes} {
				a := driver.Account{Schema: "a_b", User: "u", ReadOnly: readOnly}
				if got := mysql.Repair(test.lines, a); !slices.Equal(got, want) {
					t.Errorf("read-only %t: got %q, want %q", readOnly, got, want)
				}
				outdated := test.outdatedWrites
				if readOnly {
					outdated = test.outdatedReads
				}
				if got := mysql.Outdates(test.lines, a); got != outdated {
					t.Errorf("read-only %t: outdates %t", readOnly, got)
				}
			}
		})
	}
}
