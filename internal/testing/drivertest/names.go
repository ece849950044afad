package drivertest

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// HostileNames are names that some part of a database, of a URL or of a shell could take for something else.
func HostileNames() []string {
	return []string{
		"", " ", "a b", "a\n", "\r", "\t", "a\x00b", "\x00", "\x1a", "a\xff", "ä", "а", "a\u202eb", "🐘",
		"/", "a/b", "a/", "/a", "..", ".", "../../etc/passwd", "-a", "--", "a--", "#a", "a#b", "/*a*/", "a;b",
		"a'b", "'", "''", `a"b`, `"`, `""`, "a`b", "`", "``", `a\b`, `\`, `\'`, `a\"`, "'; DROP TABLE owners; --", `"; DROP ROLE x; --`, "`; DROP USER x; -- ",
		"a%b", "%", "_", "a_b", `a\_b`, "a*b", "*", "a.b", "a:b", "a@b", "a@%", "a?b", "a?x=1", "a&b", "a=b", "a,b", "$(id)", "${HOME}", "$1", "?",
		"root", "postgres", "public", "none", "mysql", "sys", "information_schema", "template0", "template1", "pg_catalog", "pg_read_all_data", "stoker",
		"Root", "POSTGRES", "select", "user", "current_user", "all", "null", "true", "default", "mysql.sys", "0", "0x1", "1e5",
		"0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e", "default_demo", "kube-system_demo", strings.Repeat("a", 32), strings.Repeat("a", 63), strings.Repeat("ä", 32), strings.Repeat("a", 300),
	}
}

// FuzzNames looks that whatever names a driver takes for fit are so: fit returns an error about those that aren't.
func FuzzNames(f *testing.F, d driver.Driver, fit func(schema, user string) error) {
	for _, name := range HostileNames() {
		f.Add(name, "fine")
		f.Add("fine", name)
	}
	f.Fuzz(func(t *testing.T, schema, user string) {
		if d.Validate(of("uid", schema, user)) != nil {
			return
		}
		for _, name := range []string{schema, user} {
			if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || name[0] == '-' || name[0] == '.' {
				t.Errorf("%q is taken", name)
			}
		}
		if err := fit(schema, user); err != nil {
			t.Errorf("%q, %q: %v", schema, user, err)
		}
	})
}
