package name_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestDataStoreNames(t *testing.T) {
	const uid = "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e"
	long := strings.Repeat("n", 63)
	for sentence, test := range map[string]struct{ namespace, tenant, schema, user string }{
		"namespace and name can be read":                       {"team-a", "demo", "team_a_demo_", "team_a_demo_"},
		"a name that is too long is cut":                       {"production-of-customers", "a.rather.long.name", "production_of_customers_a_rather_long_name_", "production_of_custome_"},
		"the longest there are":                                {long, long, strings.Repeat("n", 52) + "_", strings.Repeat("n", 21) + "_"},
		"a namespace that PostgreSQL would take for its own":   {"pg-tests", "demo", "tenant_pg_tests_demo_", "tenant_pg_tests_demo_"},
		"one that only begins like PostgreSQL's is left alone": {"pgx", "demo", "pgx_demo_", "pgx_demo_"},
	} {
		t.Run(sentence, func(t *testing.T) {
			schema, user := name.DataStoreSchema(test.namespace, test.tenant, uid), name.DataStoreUser(test.namespace, test.tenant, uid)
			hash := schema[len(schema)-10:]
			if schema != test.schema+hash || user != test.user+hash {
				t.Errorf("schema %s, user %s", schema, user)
			}
			if len(schema) > 63 || len(user) > 32 || !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(schema) {
				t.Errorf("schema %s, user %s", schema, user)
			}
		})
	}
}

func TestAUserThatIsAskedForIsOneTenantsAlone(t *testing.T) {
	const uid = "0b5e0f0c-7d1e-4f7b-9f34-9a3b6a8f3a3e"
	end := strings.TrimPrefix(name.DataStoreUser("team", "demo", uid), "team_demo")
	for sentence, test := range map[string]struct{ asked, want string }{
		"the hash ends it":            {"app", "app" + end},
		"what is too long is cut":     {strings.Repeat("u", 63), strings.Repeat("u", 21) + end},
		"what ends in the hash stays": {"team_demo" + end, "team_demo" + end},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := name.DataStoreUserLike(test.asked, "team", "demo", uid); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	for what, other := range map[string]string{
		"another tenant":                               name.DataStoreUserLike("app", "team", "other", uid),
		"one of the same name anew":                    name.DataStoreUserLike("app", "team", "demo", "another-uid"),
		"one who asks for the name that the first has": name.DataStoreUserLike("app"+end, "team", "demo", "another-uid"),
	} {
		if other == "app"+end {
			t.Errorf("%s has the same user, %s", what, other)
		}
	}
}

func TestDataStoreNamesNeverCollide(t *testing.T) {
	long := strings.Repeat("n", 60)
	seen := map[string][3]string{}
	for _, of := range [][3]string{
		{"a", "b", "1"}, {"a", "b", "2"}, {"a-b", "c", "1"}, {"a", "b-c", "1"}, {"a", "b.c", "1"}, {"a.b", "c", "1"},
		{long, "a", "1"}, {long, "b", "1"}, {long + "a", "a", "1"}, {"a", long + "1", "1"}, {"a", long + "2", "1"},
	} {
		for _, n := range []string{name.DataStoreSchema(of[0], of[1], of[2]), name.DataStoreUser(of[0], of[1], of[2])} {
			if other, taken := seen[n]; taken && other != of {
				t.Errorf("%s is the name of both %q and %q", n, other, of)
			}
			seen[n] = of
		}
	}
}
