// Package driver is what the datastore service asks of a database that holds tenants' data, whatever its kind.
//
// The life cycle of a driver, in order:
//
//  1. A DataStore object names its kind; the service finds the kind's row in its table (store.Drivers) and calls the
//     row's Open with everything the object and the Secrets behind it say. Open checks certificates, keys and passwords for form
//     and connects to nothing: its error is a *ConfigError and speaks of the DataStore, not of the database.
//  2. Check asks the database whether it answers and obeys. It is called before the first use, now and then, and by one
//     caller at a time after an outage.
//  3. Validate says, without asking the database, whether an account's names are fit for it. The methods below refuse
//     what Validate refuses.
//  4. Claim takes schema and user for the account's owner, by a record in the database that only the administrator
//     reaches, or refuses with a *TakenError and changes nothing. Nothing is made for a tenant, there or elsewhere,
//     before it has claimed its account; above all no Access, which is the key to the user, whoever's that is.
//     Provision claims again, then makes the account so, from whatever it is: missing, half made, changed by hand, or
//     already right, which costs reads only. Access says how the tenant's API server connects. Of another password than
//     before, Provision and Access make other credentials where these depend on it; the former ones end at once, or, where
//     open connections would end with them, when pods have been replaced, or have had the time. Provision removes them then,
//     and a Surveyor shows the account as changed until it has.
//     PassOn gives a claimed account to another owner, for a tenant whose object is made anew elsewhere.
//  5. Drop removes the data and user that are the owner's on record, and the record as its very last step. It, too,
//     starts from whatever there is, and leaves alone what is another's.
//  6. When the DataStore or its credentials change, a new driver is opened and the old one is closed after its last call
//     has returned. Data that were opened with it are closed before.
//
// Between Provision and Drop, DataAccess (data.go) opens what an account holds, with the tenant's own rights: to export
// it at a revision, follow its changes and import them elsewhere, into a database of whatever kind.
//
// A driver is one file set in a package of its own below this one, is a row of the table, and passes drivertest.Run
// against a real server. What only some databases can do (Sizer, Joint, DataAccess) is an interface of its own beside
// this one, which a driver has or has not.
package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Driver is a connection to one database. It is safe for concurrent use. Methods that take a context return ErrAway,
// wrapped, when the database does not answer or refuses everybody, so that a retry may help; ctx bounds each call.
type Driver interface {
	// Names are those of an account whose tenant asks for none, made of its UID as far as the database can hold it.
	Names(uid string) (schema, user string)
	// Check returns nil when the database answers and lets the driver administer accounts.
	Check(ctx context.Context) error
	// Validate returns a *NameError when the database can't have such an account, or it would be somebody else's.
	Validate(a Account) error
	// Claim takes the account for its owner. A *TakenError means that it changed nothing.
	Claim(ctx context.Context, a Account) error
	// PassOn puts another owner on record in place of the account's, for its schema and its user, and changes nothing else: what the former
	// owner could do the new one can, and alone. Passed on before, it does nothing. A *TakenError means that the account isn't its owner's,
	// and that it changed nothing.
	PassOn(ctx context.Context, a Account, to string) error
	// Provision claims the account and makes user, schema and grants what they should be, and reports what it
	// had to change; nothing when all was right. A *TakenError means that it changed nothing.
	Provision(ctx context.Context, a Account) (changed []string, err error)
	// Access returns how the tenant connects. have is what it connects with now, zero at first; whatever of it is still
	// good is returned as it is, so that an Access which is right stays equal to the byte.
	Access(a Account, have Access, now time.Time) (Access, error)
	// Endpoint is host:port for tenants that reach the database through kine, empty for those that reach it directly.
	Endpoint() string
	// Drop removes the account's data, user and grants as far as its owner has them, and leaves the rest of the database
	// alone. Dropping what is not there, or is another's, removes nothing and is no error. Removed is right also beside
	// an error.
	Drop(ctx context.Context, a Account) (Removed, error)
	// Close ends the connection.
	Close() error
}

// Sizer is a driver that knows how much its tenants hold.
type Sizer interface {
	// Sizes returns what the schemas hold that are on record as some tenant's, by name. It asks for all at once, takes
	// the database's own statistics for it and leaves the tenants' data unread, so that it may be called often.
	Sizes(ctx context.Context) (map[string]Size, error)
}

// Size of a schema.
type Size struct {
	// Bytes on the database's disk.
	Bytes int64
	// Keys is an estimate: the database's statistics lag behind, and may count keys deleted since the last compaction.
	Keys int64
}

// Compactor is a driver of databases in which history stays that no tenant's API server, or kine, gives up.
type Compactor interface {
	// Compact gives up the history from before the last call: it is kept for at least the time between two calls, and at most for twice
	// that, or longer where giving it up takes much work. Any number of drivers and of other programs may do so on one database. did is what
	// should be known of it, for a log; mostly empty.
	Compact(ctx context.Context) (did string, err error)
}

// Warner is a driver that finds what should be put right about a database that can be used all the same.
type Warner interface {
	// Warning is that, with a reason of pkg/api/reason; empty for nothing. It asks the database.
	Warning(ctx context.Context) (why, message string)
}

// Replicated is a driver whose tenants must tell kine how many servers keep their data.
type Replicated interface {
	// Replicas is right after a Check that succeeded.
	Replicas() int
}

// Open makes a driver. Its error is a *ConfigError.
type Open func(Config) (Driver, error)

// Config is everything known of a DataStore. It holds secrets: never print it.
type Config struct {
	// Name of the DataStore object.
	Name string
	// Endpoints as host:port.
	Endpoints []string
	// CA is the PEM of the certificates that verify the servers, CAKey that of the key of one of them; empty when not
	// given.
	CA, CAKey []byte
	// ClientCert and ClientKey are the PEM of the administrator's certificate and key; empty when not given.
	ClientCert, ClientKey []byte
	// Username and Password of the administrator; empty when not given.
	Username, Password []byte
}

// Checksum is a fingerprint of the whole configuration: another one needs another driver.
func (c Config) Checksum() string {
	h := sha256.New()
	write := func(b []byte) { fmt.Fprintf(h, "%d:%s", len(b), b) }
	for _, e := range c.Endpoints {
		write([]byte(e))
	}
	for _, b := range [][]byte{c.CA, c.CAKey, c.ClientCert, c.ClientKey, c.Username, c.Password} {
		write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// TenantsChecksum is a fingerprint of what of the configuration shows in tenants' Secrets, where that is endpoints and authority.
func (c Config) TenantsChecksum() string {
	part := map[string][]byte{"endpoints": []byte(strings.Join(c.Endpoints, ",")), "ca": c.CA}
	if c.CAKey == nil {
		part["signs"] = nil // without the authority's key, tenants have no certificates
	}
	return name.Checksum(part)
}

// String keeps the secrets of a configuration out of logs and messages.
func (c Config) String() string { return "DataStore " + c.Name }

// GoString does what String does.
func (c Config) GoString() string { return c.String() }

// Account is what one tenant has in a database.
type Account struct {
	// Owner is whose the account is: the tenant's UID. Two accounts with another owner never share a schema or a user.
	Owner string
	// Remembered says that the service knows to have made the account. Accounts made before owners were on record have
	// none: such an account is its owner's then, however it looks and also for Drop.
	Remembered bool
	// Adopts says that the tenant's object names this schema and user as what it has already (status.storage.setup), as it does
	// of a tenant that Kamaji made. What is there without an owner on record becomes the owner's only then, or if it is
	// Remembered or has the owner's Names.
	Adopts bool
	// Schema is the name of the database, key prefix or bucket. User is the name of the user.
	Schema, User string
	// Password of the user, for databases that want one, or make its credentials of it. It must do without what a URL would
	// escape.
	Password string
	// RolledOut says that all pods have what Access returned last, and those of before are ending: former credentials may
	// end soon, too.
	RolledOut bool
	// RenewBefore is how long before its end a certificate is renewed, 0 for a third of its life. Kept says that it isn't, while it is good.
	RenewBefore time.Duration
	Kept        bool
	// ReadOnly says that the tenant may read what it has and not write it, for its data move elsewhere. Provision makes it so; when it
	// returns, nothing that the tenant began to write before is under way any more. Reads of connections that are open go on, or fail for a
	// moment where the database has to end those.
	ReadOnly bool
	// ReadOnlyOf has ReadOnly be about the keys alone that begin so: "leases/", or several with commas between, none of which begins as another
	// does. Only a [Joint] database, which can hold a part of a tenant's data, heeds it.
	ReadOnlyOf string
}

// Access is how a tenant proves who it is.
type Access struct {
	// CA verifies the servers; Cert and Key are the tenant's client certificate. PEM; empty when there is none.
	CA, Cert, Key []byte
	// Credentials is a file by which kine knows the servers and who the tenant is, for databases that know him by neither
	// certificate nor password. Of NATS, a context of its command line tool.
	Credentials []byte
	// NotAfter is the expiry of Cert, RenewAt the time from which Access returns another; zero when there is none.
	NotAfter, RenewAt time.Time
}

// ErrAway means that the database does not answer, or refuses everybody.
var ErrAway = errors.New("the database does not answer")

// ErrFull means that the database answers, and has no room left for what was to be written. It is an [ErrAway]: tenants wait for room.
var ErrFull error = fullError{}

type fullError struct{}

func (fullError) Error() string        { return "the database has no room left" }
func (fullError) Is(target error) bool { return target == ErrAway }

// What a *ConfigError speaks of.
const (
	PartTLS       = "tlsConfig"
	PartBasicAuth = "basicAuth"
)

// ConfigError says what is wrong with what a DataStore says or refers to.
type ConfigError struct {
	// Part is PartTLS or PartBasicAuth, Field the path below spec.
	Part, Field string
	Err         error
}

func (e *ConfigError) Error() string { return "spec." + e.Field + ": " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// NameError says which name of an account a database can't have, and why.
type NameError struct {
	// Field is the field of the tenant's spec that holds or would hold the name.
	Field, Value, Message string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("spec.%s %.100q: %s", e.Field, e.Value, e.Message)
}

// TakenError says which name of an account is another's. It doesn't say whose: that is not for this tenant to know.
type TakenError struct {
	// Field and Value are those of a *NameError.
	Field, Value, Message string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("spec.%s %.100q is taken: %s", e.Field, e.Value, e.Message)
}

// Messages of a *TakenError.
const (
	// TakenByTenant: the record says so.
	TakenByTenant = "another tenant has it in this DataStore"
	// TakenByOthers: there is no record, and what there is doesn't look like made for a tenant.
	TakenByOthers = "the DataStore holds something of that name which was not made for a tenant"
	// TakenUnrecorded: there is no record, and the account neither is Remembered nor Adopts what there is.
	TakenUnrecorded = "the DataStore holds it, has not on record whose it is, and status.storage.setup of this tenant doesn't name it"
)

// Removed counts what was removed, by kind ("User": 1).
type Removed map[string]int

// RemovedOwner is the kind of the records of the owner: one of the schema, one of the user.
const RemovedOwner = "Owner"

// Fields of a *NameError and of a *TakenError.
const (
	FieldSchema = "dataStoreSchema"
	FieldUser   = "dataStoreUsername"
)
