package mysql_test

import (
	"slices"
	"testing"

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
			[]string{"REVOKE SELECT, DROP ON `a\\_b`.* FROM `u`@`%`", give, "REVOKE GRANT OPTION ON `a\\_b`.* FROM `u`@`%`"}},
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
			if got := mysql.Repair(test.lines, "a_b", "u"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
