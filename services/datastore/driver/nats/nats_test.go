package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	gonats "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/internal/testing/drivertest"
	"github.com/stoker-k8s/stoker/internal/testing/natsserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/nats"
)

func open(t *testing.T, c driver.Config) driver.Driver {
	t.Helper()
	d, err := nats.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a server in operator mode as its operator sees it.
type world struct {
	*natsserver.Server
}

// system is a connection to the system account.
func (w world) system(t *testing.T) *gonats.Conn {
	t.Helper()
	token, key := w.User(t)
	nc, err := gonats.Connect("nats://"+w.Endpoint, gonats.UserJWTAndSeed(token, natsserver.Seed(t, key)), gonats.Timeout(time.Minute))
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// edit changes what an account is, as the operator may.
func (w world) edit(t *testing.T, schema string, change func(*jwt.AccountClaims)) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(w.Accounts, nats.AccountOf(schema)+".jwt"))
	check(t, err)
	claims, err := jwt.DecodeAccountClaims(string(token))
	check(t, err)
	change(claims)
	changed, err := claims.Encode(w.Signing)
	check(t, err)
	answer, err := w.system(t).Request("$SYS.REQ.CLAIMS.UPDATE", []byte(changed), 30*time.Second)
	check(t, err)
	if strings.Contains(string(answer.Data), `"error"`) {
		t.Fatalf("%s", answer.Data)
	}
}

// remove has the server forget an account.
func (w world) remove(t *testing.T, schema string) {
	t.Helper()
	claims := jwt.NewGenericClaims(natsserver.Public(t, w.Signing))
	claims.Data["accounts"] = []string{nats.AccountOf(schema)}
	token, err := claims.Encode(w.Signing)
	check(t, err)
	answer, err := w.system(t).Request("$SYS.REQ.CLAIMS.DELETE", []byte(token), 30*time.Second)
	check(t, err)
	if strings.Contains(string(answer.Data), `"error"`) {
		t.Fatalf("%s", answer.Data)
	}
}

// in connects to an account with rights nobody has, by a signing key that is put there for a moment.
func (w world) in(t *testing.T, schema string, f func(js jetstream.JetStream)) {
	t.Helper()
	key, err := nkeys.CreateAccount()
	check(t, err)
	w.edit(t, schema, func(c *jwt.AccountClaims) { c.SigningKeys.Add(natsserver.Public(t, key)); c.Limits.Streams = -1 })
	user, err := nkeys.CreateUser()
	check(t, err)
	claims := jwt.NewUserClaims(natsserver.Public(t, user))
	claims.IssuerAccount = nats.AccountOf(schema)
	token, err := claims.Encode(key)
	check(t, err)
	nc, err := gonats.Connect("nats://"+w.Endpoint, gonats.UserJWTAndSeed(token, natsserver.Seed(t, user)), gonats.Timeout(time.Minute))
	check(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(t, err)
	f(js)
	w.edit(t, schema, func(c *jwt.AccountClaims) { c.SigningKeys.Remove(natsserver.Public(t, key)); c.Limits.Streams = 1 })
}

const records = "stoker records"

// pass has a driver believe, until the test ends, that it is so much later.
func pass(t *testing.T, d driver.Driver, later time.Duration) {
	nats.SetNow(d, func() time.Time { return time.Now().Add(later) })
	t.Cleanup(func() { nats.SetNow(d, time.Now) })
}

// streams are those of an account, with all that JetStream says of their content.
func (w world) streams(t *testing.T, schema string) (list []string) {
	t.Helper()
	for _, account := range w.JetStream(t).AccountDetails {
		if schema != "" && account.Id != nats.AccountOf(schema) {
			continue
		}
		for _, stream := range account.Streams {
			config, err := json.Marshal(stream.Config)
			check(t, err)
			list = append(list, fmt.Sprintf("%s in %s: %s, %d messages to %d from %d", stream.Name, account.Id, config, stream.State.Msgs, stream.State.LastSeq, stream.State.FirstSeq))
		}
	}
	slices.Sort(list)
	return list
}

// revision changes with accounts, rights, streams, records and keys.
func (w world) revision(t *testing.T) string {
	t.Helper()
	all := w.streams(t, "")
	files, err := filepath.Glob(filepath.Join(w.Accounts, "*"))
	check(t, err)
	for _, file := range files {
		token, err := os.ReadFile(file)
		check(t, err)
		claims, err := jwt.DecodeAccountClaims(string(token))
		check(t, err)
		what, err := json.Marshal(claims.Account) // not when it was signed: looking at the records signs theirs
		check(t, err)
		all = append(all, filepath.Base(file)+claims.Issuer+string(what))
	}
	return strings.Join(all, "\n")
}

// holds lists an account's parts without what changes by use.
func (w world) holds(t *testing.T, a driver.Account) (held []string) {
	t.Helper()
	if token, err := os.ReadFile(filepath.Join(w.Accounts, nats.AccountOf(a.Schema)+".jwt")); err == nil {
		claims, err := jwt.DecodeAccountClaims(string(token))
		check(t, err)
		claims.Tags = nil
		what, err := json.Marshal(claims.Account)
		check(t, err)
		held = append(held, fmt.Sprintf("account %s by %s until %d: %s", claims.Name, claims.Issuer, claims.Expires, what))
	}
	for _, stream := range w.streams(t, a.Schema) {
		held = append(held, "bucket "+stream)
	}
	for subject, owner := range w.records(t) {
		if subject == "$KV.stoker_owners.schema."+a.Schema || subject == "$KV.stoker_owners.user."+a.User {
			held = append(held, subject+" is "+owner)
		}
	}
	slices.Sort(held)
	return held
}

func (w world) records(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	if len(w.streams(t, records)) == 0 {
		return found
	}
	w.in(t, records, func(js jetstream.JetStream) {
		stream, err := js.Stream(t.Context(), "KV_stoker_owners")
		check(t, err)
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		check(t, err)
		for subject := range info.State.Subjects {
			m, err := stream.GetLastMsgForSubject(t.Context(), subject)
			check(t, err)
			found[subject] = string(m.Data)
		}
	})
	return found
}

func (w world) drifts() map[string]func(t *testing.T, a driver.Account) {
	edit := func(change func(*jwt.AccountClaims)) func(*testing.T, driver.Account) {
		return func(t *testing.T, a driver.Account) { t.Helper(); w.edit(t, a.Schema, change) }
	}
	scoped := func(change func(key string, scope *jwt.UserScope, c *jwt.AccountClaims)) func(*testing.T, driver.Account) {
		return edit(func(c *jwt.AccountClaims) {
			for key, scope := range c.SigningKeys {
				if scope, ok := scope.(*jwt.UserScope); ok {
					change(key, scope, c)
				}
			}
		})
	}
	stream := func(change func(*jetstream.StreamConfig)) func(*testing.T, driver.Account) {
		return func(t *testing.T, a driver.Account) {
			t.Helper()
			w.in(t, a.Schema, func(js jetstream.JetStream) {
				s, err := js.Stream(t.Context(), "KV_"+a.Schema)
				check(t, err)
				config := s.CachedInfo().Config
				change(&config)
				_, err = js.UpdateStream(t.Context(), config)
				check(t, err)
			})
		}
	}
	return map[string]func(t *testing.T, a driver.Account){
		"the account is deleted": func(t *testing.T, a driver.Account) { t.Helper(); w.remove(t, a.Schema) },
		"the tenant's key is taken from the account": scoped(func(key string, _ *jwt.UserScope, c *jwt.AccountClaims) {
			c.SigningKeys.Remove(key)
		}),
		"the tenant may do everything in its account": scoped(func(key string, _ *jwt.UserScope, c *jwt.AccountClaims) {
			c.SigningKeys[key] = nil
		}),
		"the tenant may write one subject more": scoped(func(_ string, scope *jwt.UserScope, _ *jwt.AccountClaims) {
			scope.Template.Pub.Allow.Add("more")
		}),
		"the tenant has lost a right": scoped(func(_ string, scope *jwt.UserScope, _ *jwt.AccountClaims) {
			scope.Template.Pub.Allow = scope.Template.Pub.Allow[1:]
		}),
		"another key may sign users": edit(func(c *jwt.AccountClaims) {
			key, _ := nkeys.CreateAccount()
			public, _ := key.PublicKey()
			c.SigningKeys.Add(public)
		}),
		"the account may have more streams": edit(func(c *jwt.AccountClaims) { c.Limits.Streams = 5 }),
		"the account imports from another": edit(func(c *jwt.AccountClaims) {
			c.Limits.Imports = 1
			c.Imports.Add(&jwt.Import{Account: nats.AccountOf(records), Subject: "$KV.>", Type: jwt.Stream})
		}),
		"the account exports": edit(func(c *jwt.AccountClaims) {
			c.Limits.Exports = 1
			c.Exports.Add(&jwt.Export{Subject: "open", Type: jwt.Service})
		}),
		"the account's subjects are moved": edit(func(c *jwt.AccountClaims) { c.Mappings = jwt.Mapping{"a": {{Subject: "b"}}} }),
		"users are revoked":                edit(func(c *jwt.AccountClaims) { c.Revoke("*") }),
		"the account will expire":          edit(func(c *jwt.AccountClaims) { c.Expires = time.Now().Add(time.Hour).Unix() }),
		"the account has no JetStream":     edit(func(c *jwt.AccountClaims) { c.Limits.DiskStorage = 0 }),
		"the bucket takes no messages":     stream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 }),
		"the bucket keeps less":            stream(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }),
		"the bucket forgets":               stream(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }),
		"the bucket has another name":      stream(func(c *jetstream.StreamConfig) { c.Description = "mine" }),
		"the bucket takes other subjects":  stream(func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more") }),
		"the bucket is copied": stream(func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "copy.>"}
		}),
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	w := world{natsserver.Start(t, natsserver.Options{})}
	d := open(t, w.Config(t))
	drivertest.Run(t, drivertest.Server{
		Driver: d,
		Connect: func(t *testing.T, a driver.Account, access driver.Access) drivertest.Tenant {
			return tenant{w.Server, a, access}
		},
		Stay: func(t *testing.T, a driver.Account, access driver.Access) drivertest.Tenant {
			in := tenant{w.Server, a, access}
			nc, err := in.connect(gonats.ErrorHandler(func(*gonats.Conn, *gonats.Subscription, error) {})) // it is thrown out at the end
			check(t, err)
			t.Cleanup(nc.Close)
			return staying{in, nc}
		},
		Denied:   denied,
		Revision: w.revision,
		Holds:    w.holds,
		Removes: func(int) driver.Removed {
			return driver.Removed{"Account": 1, "Bucket": 1, "User": 1, driver.RemovedOwner: 2}
		},
		ReservedSchemas: []string{"stoker_owners", "stoker records", "$SYS", "a.b", strings.Repeat("a", 129)},
		ReservedUsers:   []string{"a.b", strings.Repeat("a", 129)},
		Drifts:          w.drifts(),
		Disown: func(t *testing.T, a driver.Account) {
			w.in(t, records, func(js jetstream.JetStream) {
				stream, err := js.Stream(t.Context(), "KV_stoker_owners")
				check(t, err)
				check(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.stoker_owners.schema."+a.Schema)))
				check(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.stoker_owners.user."+a.User)))
			})
		},
		Outlast: func(t *testing.T) { t.Helper(); pass(t, d, time.Hour+time.Second) },
		CrashAfter: func(n int) {
			var left atomic.Int64
			left.Store(int64(n))
			nats.SetHeld(d, func(context.Context) error {
				if n >= 0 && left.Add(-1) < 0 {
					return errors.New("crashed")
				}
				return nil
			})
		},
		Stop:  func(*testing.T) { w.Stop() },
		Start: func(t *testing.T) { w.Run(t) },
	})
}

// tenant uses the server with a tenant's credentials, by a new connection each time.
type tenant struct {
	server *natsserver.Server
	a      driver.Account
	access driver.Access
}

func (c tenant) connect(options ...gonats.Option) (*gonats.Conn, error) {
	var file struct {
		Token string `json:"user_jwt"`
		Seed  string `json:"user_seed"`
	}
	if err := json.Unmarshal(c.access.Credentials, &file); err != nil {
		return nil, err
	}
	options = append(options, gonats.UserJWTAndSeed(file.Token, file.Seed), gonats.NoReconnect(), gonats.Timeout(time.Minute))
	return gonats.Connect("nats://"+c.server.Endpoint, options...)
}

// ask sends a question as the tenant; what the server forbids is an error at once.
func (c tenant) ask(ctx context.Context, subject string, data string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	nc, err := c.connect(gonats.ErrorHandler(func(_ *gonats.Conn, _ *gonats.Subscription, err error) { cancel(err) }))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return ask(ctx, nc, subject, data)
}

// staying is a tenant whose connection stays open.
type staying struct {
	tenant
	nc *gonats.Conn
}

func (c staying) Write(ctx context.Context, schema, key, value string) error {
	_, err := ask(ctx, c.nc, "$KV."+schema+"."+key, value)
	return err
}

func (c staying) Read(ctx context.Context, schema, key string) (string, error) {
	value, err := ask(ctx, c.nc, "$JS.API.DIRECT.GET.KV_"+schema+".$KV."+schema+"."+key, "")
	return string(value), err
}

func ask(ctx context.Context, nc *gonats.Conn, subject string, data string) ([]byte, error) {
	m, err := nc.RequestWithContext(ctx, subject, []byte(data))
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if json.Unmarshal(m.Data, &answer) == nil && answer.Error != nil {
		return nil, answer.Error
	}
	if status := m.Header.Get("Status"); status != "" {
		return nil, errors.New(status)
	}
	return m.Data, nil
}

func (c tenant) Write(ctx context.Context, schema, key, value string) error {
	_, err := c.ask(ctx, "$KV."+schema+"."+key, value)
	return err
}

func (c tenant) Read(ctx context.Context, schema, key string) (string, error) {
	value, err := c.ask(ctx, "$JS.API.DIRECT.GET.KV_"+schema+".$KV."+schema+"."+key, "")
	return string(value), err
}

func (c tenant) Administer(ctx context.Context) map[string]error {
	came := map[string]error{}
	for subject, data := range map[string]string{
		"$JS.API.STREAM.CREATE.more":                                     `{"name":"more","subjects":["more"],"storage":"file","retention":"limits"}`,
		"$JS.API.STREAM.CREATE.KV_" + c.a.Schema:                         `{"name":"KV_` + c.a.Schema + `","subjects":["more"],"storage":"file","retention":"limits"}`,
		"$JS.API.STREAM.UPDATE.KV_" + c.a.Schema:                         `{"name":"KV_` + c.a.Schema + `","subjects":["more"],"storage":"file","retention":"limits"}`,
		"$JS.API.STREAM.DELETE.KV_" + c.a.Schema:                         "",
		"$JS.API.STREAM.PURGE.KV_" + c.a.Schema:                          "",
		"$JS.API.STREAM.NAMES":                                           "",
		"$JS.API.STREAM.INFO.KV_stoker_owners":                           "",
		"$JS.API.DIRECT.GET.KV_stoker_owners.$KV.stoker_owners.schema.a": "",
		"$KV.stoker_owners.schema.x":                                     "intruder",
		"$SYS.REQ.SERVER.PING":                                           "",
		"$SYS.REQ.ACCOUNT.PING.CONNZ":                                    "",
		"$SYS.REQ.CLAIMS.LIST":                                           "",
		"$SYS.REQ.ACCOUNT." + nats.AccountOf(records) + ".CLAIMS.LOOKUP": "",
		"$SYS.REQ.ACCOUNT." + nats.AccountOf("b") + ".CLAIMS.LOOKUP":     "",
	} {
		_, came[subject] = c.ask(ctx, subject, data)
	}
	return came
}

// tooLarge is JetStream's code of a message that a bucket doesn't take for its size.
const tooLarge = 10054

// denied reports whether an error is the server's no, that nobody hears a question in the tenant's account, that its bucket is made
// already, or that it takes no messages.
func denied(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == tooLarge || errors.Is(err, gonats.ErrPermissionViolation) ||
		errors.Is(err, gonats.ErrAuthorization) || errors.Is(err, gonats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrStreamNameAlreadyInUse)
}
