package name

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// The longest names of schemas and users that every database holds: PostgreSQL has 63 characters for both, MySQL 32 for
// users.
const (
	maxSchema = 63
	maxUser   = 32
)

// suffix is how many characters of the hash end a name: 50 bits.
const suffix = 10

// DataStoreSchema is the schema of a tenant that asks for none: namespace and name, readable for who looks into the
// database, cut where that is too long, and a hash of them and of the object's UID. So no two tenants have the same, nor
// has one that is made anew what its predecessor may have left behind. It is made of what no database, URL or subject
// takes for anything but a letter.
func DataStoreSchema(namespace, tenant, uid string) string {
	return account(namespace, tenant, uid, maxSchema)
}

// DataStoreUser is the user of a tenant that asks for none; see DataStoreSchema. Both end in the same hash.
func DataStoreUser(namespace, tenant, uid string) string {
	return account(namespace, tenant, uid, maxUser)
}

// DataStoreUserLike is the user of a tenant that asks for one: what it asks for, cut where that is too long, and the same hash. A
// user is who a certificate says, to every database that trusts its authority and until it expires; so no two tenants may
// ever have the same, in whichever DataStores they are, and be one the other's successor. What ends in the hash already stays.
func DataStoreUserLike(asked, namespace, tenant, uid string) string {
	end := "_" + tail(namespace, tenant, uid)
	if strings.HasSuffix(asked, end) {
		return asked
	}
	return asked[:min(len(asked), maxUser-len(end))] + end
}

func tail(namespace, tenant, uid string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + tenant + "/" + uid))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:suffix]
}

func account(namespace, tenant, uid string, limit int) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, namespace+"_"+tenant)
	if strings.HasPrefix(readable, "pg_") { // PostgreSQL's own
		readable = "tenant_" + readable
	}
	return readable[:min(len(readable), limit-1-suffix)] + "_" + tail(namespace, tenant, uid)
}
