package nats

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// login is how one proves who one is: a user name and password, or a user's JWT and the seed it is signed with, or
// neither, where the client certificate says it. It holds secrets: never print it.
type login struct {
	user, password string
	token, seed    string
	// operator makes accounts; nil where there is none.
	operator *operator
}

// What NATS' tools write into creds files and files of keys.
var (
	tokenPattern = regexp.MustCompile(`eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+`)
	seedPattern  = regexp.MustCompile(`S[OAU][A-Z2-7]{56}`)
)

// readLogin reads a DataStore's basicAuth. A password may be a creds file, and hold an operator's signing seed beside it.
// Errors are *driver.ConfigError.
func readLogin(c driver.Config) (l login, err error) {
	fault := func(field, message string) error {
		if field != "" {
			field = "." + field
		}
		return &driver.ConfigError{Part: driver.PartBasicAuth, Field: driver.PartBasicAuth + field, Err: errors.New(message)}
	}
	if len(c.Username)+len(c.Password) == 0 {
		if len(c.ClientCert) == 0 {
			return login{}, fault("", "is missing, and there is no client certificate that names a user")
		}
		return login{}, nil
	}
	var operatorSeed, accountSeed string
	l.token = string(tokenPattern.Find(c.Password))
	for _, seed := range seedPattern.FindAll(c.Password, -1) {
		word := string(seed)
		prefix, _, err := nkeys.DecodeSeed(seed)
		switch {
		case err != nil:
		case prefix == nkeys.PrefixByteUser:
			l.seed = word
		case prefix == nkeys.PrefixByteOperator:
			operatorSeed = word
		case prefix == nkeys.PrefixByteAccount:
			accountSeed = word
		}
	}
	switch {
	case l.token == "" && l.seed == "" && operatorSeed == "" && accountSeed == "":
		if len(c.Username) == 0 {
			return login{}, fault("username", "is missing")
		}
		return login{user: string(c.Username), password: string(c.Password)}, nil
	case accountSeed != "":
		return login{}, fault("password", "holds an account's seed (SA…): within one account tenants can't be kept apart; it must hold an operator's signing seed (SO…) and the creds of a user of the system account, or just a user's creds")
	case l.token == "" || l.seed == "":
		return login{}, fault("password", "holds a seed and no creds: a user's JWT and its seed (SU…) belong together")
	}
	claims, err := jwt.DecodeUserClaims(l.token)
	if err != nil {
		return login{}, fault("password", "holds a JWT that is no user's: "+err.Error())
	}
	key, err := nkeys.FromSeed([]byte(l.seed))
	if err != nil {
		return login{}, fault("password", "holds a user's seed that is none")
	}
	if public, err := key.PublicKey(); err != nil || public != claims.Subject {
		return login{}, fault("password", "holds a user's seed that is not the one of the user's JWT")
	}
	if operatorSeed != "" {
		if l.operator, err = newOperator(operatorSeed); err != nil {
			return login{}, fault("password", "holds an operator's seed that is none")
		}
	}
	return l, nil
}

// option is the login as the client takes it.
func (l login) option() nats.Option {
	switch {
	case l.token != "":
		return nats.UserJWTAndSeed(l.token, l.seed)
	case l.user != "":
		return nats.UserInfo(l.user, l.password)
	}
	return func(*nats.Options) error { return nil }
}

// String keeps the secrets of a login out of logs and messages.
func (l login) String() string { return fmt.Sprintf("login (operator %t)", l.operator != nil) }
