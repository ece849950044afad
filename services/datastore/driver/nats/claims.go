package nats

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/nats-io/nuid"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// operator signs accounts. All other keys come from its seed, so that none is stored anywhere: whoever has the seed has
// them, and a DataStore that is given another seed gives all its tenants other keys.
type operator struct {
	pair   nkeys.KeyPair
	public string
	raw    []byte
}

func newOperator(seed string) (o *operator, err error) {
	o = &operator{}
	if o.pair, err = nkeys.FromSeed([]byte(seed)); err != nil {
		return nil, err
	}
	if o.public, err = o.pair.PublicKey(); err != nil {
		return nil, err
	}
	_, o.raw, err = nkeys.DecodeSeed([]byte(seed))
	return o, err
}

// String keeps the seed out of logs and messages.
func (o *operator) String() string { return "operator " + o.public }

// keyOverlap is how long the tenant's user of before a change of its password, or of the operator's key, still gets in:
// pods that run have its credentials until they are replaced, and are thrown out with it.
const keyOverlap = time.Hour

// podsEnd is what is left of it once they have been: longer than the last of them take to end.
const podsEnd = time.Minute

// homeName is the name of the account of the records; no schema is named so.
const homeName = "stoker records"

// accountOf is the public key by which NATS knows an account, made of its name. Nobody has the private key to it and
// nobody needs one: the operator signs what the account is, and keys that are listed there sign its users. So an
// account is found again by its name alone, whoever the operator's key belongs to by then.
func accountOf(name string) string {
	sum := sha256.Sum256([]byte("stoker.dev account " + name))
	id, err := nkeys.Encode(nkeys.PrefixByteAccount, sum[:])
	if err != nil {
		panic(err) // only another prefix would be refused
	}
	return string(id)
}

// signer is the key pair of an account that signs its users for a purpose.
func (o *operator) signer(account string, purpose ...string) (nkeys.KeyPair, string, error) {
	raw, err := hkdf.Key(sha256.New, o.raw, nil, strings.Join(append([]string{"stoker.dev", account}, purpose...), "\n"), 32)
	if err != nil {
		return nil, "", err
	}
	pair, err := nkeys.FromRawSeed(nkeys.PrefixByteAccount, raw)
	if err != nil {
		return nil, "", err
	}
	public, err := pair.PublicKey()
	return pair, public, err
}

// Purposes of signers.
const (
	forAdministrator = "administrator"
	forTenant        = "tenant"
)

// rolePrefix begins the role of the key that signs a tenant's user; its owner follows.
const rolePrefix = "tenant "

// claimsOf is what an account is. Without a tenant, nobody but the administrator gets in.
func (o *operator) claimsOf(name string) (*jwt.AccountClaims, error) {
	claims := jwt.NewAccountClaims(accountOf(name))
	claims.Name = name
	_, administrator, err := o.signer(claims.Subject, forAdministrator)
	if err != nil {
		return nil, err
	}
	claims.SigningKeys.Add(administrator)
	l := &claims.Limits
	l.Imports, l.Exports, l.WildcardExports, l.LeafNodeConn, l.DisallowBearer = 0, 0, false, 0, true
	// One bucket, on disk; how much it may hold is not limited yet.
	l.DiskStorage, l.MemoryStorage, l.Streams, l.Consumer = jwt.NoLimit, 0, 1, jwt.NoLimit
	return claims, nil
}

// tenant is the signer of a tenant's user. Another password makes another.
func (o *operator) tenant(account string, a driver.Account) (nkeys.KeyPair, string, error) {
	return o.signer(account, forTenant, a.Owner, a.Password)
}

// claimsFor is what the account of a tenant is, given what it is now (nil when it isn't there).
func (o *operator) claimsFor(a driver.Account, have *jwt.AccountClaims, now time.Time) (*jwt.AccountClaims, error) {
	claims, err := o.claimsOf(a.Schema)
	if err != nil {
		return nil, err
	}
	_, tenant, err := o.tenant(claims.Subject, a)
	if err != nil {
		return nil, err
	}
	scope := scopeOf(tenant, a)
	claims.SigningKeys.AddScopedSigner(scope)
	if have == nil {
		return claims, nil
	}
	// The same user by former keys. One without an end was the tenant's until now, however old the account is, and whatever
	// pods had before.
	ends, lines := endsOf(have), []string{}
	latest := now.Add(keyOverlap)
	if a.RolledOut {
		latest = now.Add(podsEnd)
	}
	for key, old := range have.SigningKeys {
		if old, ok := old.(*jwt.UserScope); !ok || key == tenant || old.Role != scope.Role {
			continue
		}
		end, known := ends[key]
		switch {
		case !known:
			end = now.Add(keyOverlap)
		case end.After(latest):
			end = latest
		}
		if end.After(now) {
			claims.SigningKeys.AddScopedSigner(scopeOf(key, a))
			lines = append(lines, key+until+end.UTC().Format(time.RFC3339))
		}
	}
	slices.Sort(lines)
	claims.Description = strings.Join(lines, "\n")
	return claims, nil
}

// until stands between a former key and its end, on a line each of the account's description: the key's own scope must
// stay as it is, or the servers throw its user out.
const until = " until "

// endsOf reads when the former keys of an account end.
func endsOf(claims *jwt.AccountClaims) map[string]time.Time {
	ends := map[string]time.Time{}
	for line := range strings.SplitSeq(claims.Description, "\n") {
		key, end, _ := strings.Cut(line, until)
		if at, err := time.Parse(time.RFC3339, end); err == nil {
			ends[key] = at
		}
	}
	return ends
}

// overdue reports whether a former key is in an account after its end. Hardly an account has one, and the others aren't
// decoded: to verify thousands takes a second.
func overdue(token string, now time.Time) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !bytes.Contains(payload, []byte(until)) {
		return false
	}
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return false
	}
	for _, end := range endsOf(claims) {
		if !end.After(now) {
			return true
		}
	}
	return false
}

// letsInAnother reports whether an account has a key that signs the user of another owner's tenant.
func letsInAnother(claims *jwt.AccountClaims, owner string) bool {
	for _, key := range claims.SigningKeys {
		if scope, ok := key.(*jwt.UserScope); ok && scope.Role != rolePrefix+owner {
			return true
		}
	}
	return false
}

// scopeOf is what users may do whom a key signs: what kine does with its bucket, and nothing else. Rights are the
// account's and not in the user's JWT, so that they can be put right without new credentials.
func scopeOf(key string, a driver.Account) *jwt.UserScope {
	scope := jwt.NewUserScope()
	scope.Key, scope.Role = key, rolePrefix+a.Owner
	scope.Template.Pub.Allow = rightsOf(a.Schema)
	scope.Template.Sub.Allow = jwt.StringList{"_INBOX.>"}
	return scope
}

// rightsOf are the subjects kine publishes to. It creates its bucket, which the server takes for a question when the
// bucket is there, and has consumers to watch it. Who moves or keeps the tenant's data asks the bucket's leader for messages, too.
func rightsOf(bucket string) jwt.StringList {
	stream := streamOf(bucket)
	return jwt.StringList{
		"$KV." + bucket + ".>",
		"$JS.API.INFO",
		"$JS.API.STREAM.CREATE." + stream,
		"$JS.API.STREAM.INFO." + stream,
		getSubject(bucket),
		"$JS.API.DIRECT.GET." + stream,
		"$JS.API.DIRECT.GET." + stream + ".>",
		"$JS.API.CONSUMER.CREATE." + stream + ".>",
		"$JS.API.CONSUMER.INFO." + stream + ".>",
		"$JS.API.CONSUMER.DELETE." + stream + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + stream + ".>",
		"$JS.FC." + stream + ".>",
	}
}

// change returns the JWT by which an account becomes what it must be, empty when it is that. Tags don't count: one makes
// each JWT another, for a server that has forgotten an account takes the very JWT it had before for no change.
func (o *operator) change(have, want *jwt.AccountClaims) (string, error) {
	want.Tags = jwt.TagList{"stoker:" + strings.ToLower(nuid.Next())}
	token, err := want.Encode(o.pair)
	if err != nil {
		return "", fmt.Errorf("sign account %s: %w", want.Name, err)
	}
	if have == nil {
		return token, nil
	}
	// Read as others read it, for that is what have is.
	if want, err = jwt.DecodeAccountClaims(token); err != nil {
		return "", err
	}
	is := have.Account
	is.Tags = want.Tags
	if have.Issuer == want.Issuer && have.Name == want.Name && have.Expires == want.Expires && have.NotBefore == want.NotBefore &&
		reflect.DeepEqual(is, want.Account) {
		return "", nil
	}
	return token, nil
}

// administrator is the login of somebody who may do everything in an account.
func (o *operator) administrator(name string) (login, error) {
	account := accountOf(name)
	signer, _, err := o.signer(account, forAdministrator)
	if err != nil {
		return login{}, err
	}
	return newUser("stoker", account, signer, false)
}

// newUser makes a user of an account, with the rights of its signer's scope if that has one.
func newUser(name, account string, signer nkeys.KeyPair, scoped bool) (login, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return login{}, err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return login{}, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return login{}, err
	}
	claims := jwt.NewUserClaims(public)
	if scoped {
		claims.SetScoped(true)
	}
	claims.Name, claims.IssuerAccount = name, account
	token, err := claims.Encode(signer)
	return login{token: token, seed: string(seed)}, err
}
