package nats

import (
	"encoding/json"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// natsContext is a file of the NATS CLI's, which kine reads, too (contextFile). Names and passwords need no escaping
// there, as they would in kine's URL, which it doesn't undo.
type natsContext struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	User        string `json:"user,omitempty"`
	Password    string `json:"password,omitempty"`
	Token       string `json:"user_jwt,omitempty"`
	Seed        string `json:"user_seed,omitempty"`
}

// Replicas is how many servers keep a bucket, which kine must say: as many as keep the records. It is known once the
// server has been asked for them.
func (s *server) Replicas() int { return int(max(1, s.replicas.Load())) }

// Access is what the tenant's kine connects with: a user of its own account, that it keeps while its password and the
// operator's key are the same; or the administrator.
func (s *server) Access(a driver.Account, have driver.Access, now time.Time) (access driver.Access, err error) {
	if err := s.Validate(a); err != nil {
		return driver.Access{}, err
	}
	l := s.login
	if l.operator == nil {
		if access, err = s.ca.Access(a, have, now); err != nil {
			return driver.Access{}, err
		}
		// Who is known by his certificate is nobody with another.
		access = driver.Access{CA: access.CA, Cert: s.cert, Key: s.key}
	} else {
		if access, err = s.ca.Access(a, have, now); err != nil {
			return driver.Access{}, err
		}
		if l, err = s.user(a, have); err != nil {
			return driver.Access{}, err
		}
	}
	access.Credentials, err = json.MarshalIndent(natsContext{ //nolint:gosec // a Secret's content
		Description: "tenant " + a.User, URL: s.url(), User: l.user, Password: l.password, Token: l.token, Seed: l.seed,
	}, "", "  ")
	return access, err
}

// user is the tenant's: the one it has if it still is that, else a new one.
func (s *server) user(a driver.Account, have driver.Access) (login, error) {
	account := accountOf(a.Schema)
	pair, signer, err := s.login.operator.tenant(account, a)
	if err != nil {
		return login{}, err
	}
	var c natsContext
	if json.Unmarshal(have.Credentials, &c) == nil {
		claims, err := jwt.DecodeUserClaims(c.Token)
		if err == nil && claims.Issuer == signer && claims.IssuerAccount == account && claims.Name == a.User && claims.Expires == 0 &&
			claims.HasEmptyPermissions() && publicOf(c.Seed) == claims.Subject {
			return login{token: c.Token, seed: c.Seed}, nil
		}
	}
	return newUser(a.User, account, pair, true)
}

// publicOf is the public key to a seed, empty if it is none.
func publicOf(seed string) string {
	pair, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		return ""
	}
	public, _ := pair.PublicKey()
	return public
}
