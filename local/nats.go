package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// natsAdmin is what the DataStore says the administrator's name is; NATS knows him by his credentials.
const natsAdmin = "stoker"

// openNATS makes a DataStore of a NATS whose operator can give each tenant an account while it runs.
func (s *Stack) openNATS(ctx context.Context, d *dataStore, component string, at netip.Addr, server pki.Pair) error {
	bin, err := s.store.Build(ctx, images.NATS, s.cfg.Progress)
	if err != nil {
		return err
	}
	o, err := openOperator(filepath.Join(s.cfg.Dir, "pki", component, "operator.json"))
	if err != nil {
		return err
	}
	dir := filepath.Join(s.cfg.Dir, "databases", component)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	endpoint, config := net.JoinHostPort(at.String(), "4222"), filepath.Join(dir, "server.conf")
	if err := writeFile(config, fmt.Appendf(nil, `server_name: %q
listen: %q
tls { cert_file: %q, key_file: %q, ca_file: %q }
# Of what the API server takes, nothing is larger.
max_payload: 8MB
jetstream { store_dir: %q }
operator: %s
system_account: %s
resolver { type: full, dir: %q, allow_delete: true, hard_delete: true }
resolver_preload { %s: %s }
`, component, endpoint, server.CertFile, server.KeyFile, d.ca.CertFile, filepath.Join(dir, "data"), o.Operator, o.System,
		filepath.Join(dir, "accounts"), o.System, o.SystemAccount)); err != nil {
		return err
	}
	d.component = newComponent(component, process.Spec{
		Path: filepath.Join(bin, "nats-server"), Args: []string{"nats-server", "-c", config}, Env: hostEnv(), Dir: dir, Log: s.logFile(component),
	}, 10*time.Second, s.log)
	d.ready = func(ctx context.Context) error {
		return wait(ctx, 50*time.Millisecond, "datastore "+d.name, func(ctx context.Context) error {
			if err := d.component.giveUp(); err != nil {
				return stopWaiting{err}
			}
			// It listens last of all.
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", endpoint)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	d.objects = PasswordObjects("NATS", d.name, component, endpoint, d.ca.Cert, natsAdmin, o.Credentials+"\n"+o.Signing+"\n")
	return nil
}

// operator is who makes the accounts of a NATS server.
type operator struct {
	// Operator and SystemAccount are the JWTs that the server is started with, System the account's public key.
	Operator      string `json:"operator"`
	System        string `json:"system"`
	SystemAccount string `json:"systemAccount"`
	// Credentials are those of a user of the system account, Signing is the seed of the operator's signing key.
	Credentials string `json:"credentials"`
	Signing     string `json:"signing"`
}

// openOperator returns the operator, who is made once.
func openOperator(file string) (operator, error) {
	var o operator
	data, err := os.ReadFile(file)
	if err == nil {
		return o, json.Unmarshal(data, &o)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if o, err = makeOperator(); err != nil {
		return o, err
	}
	if data, err = json.MarshalIndent(o, "", "  "); err != nil {
		return o, err
	}
	return o, writeFile(file, append(data, '\n'))
}

func makeOperator() (o operator, err error) {
	pairs := [4]struct {
		nkeys.KeyPair
		public string
	}{}
	const self, signing, system, user = 0, 1, 2, 3
	for i, create := range []func() (nkeys.KeyPair, error){nkeys.CreateOperator, nkeys.CreateOperator, nkeys.CreateAccount, nkeys.CreateUser} {
		if pairs[i].KeyPair, err = create(); err != nil {
			return o, err
		}
		if pairs[i].public, err = pairs[i].PublicKey(); err != nil {
			return o, err
		}
	}
	claims := jwt.NewOperatorClaims(pairs[self].public)
	claims.Name, claims.SystemAccount = fieldManager, pairs[system].public
	claims.SigningKeys.Add(pairs[signing].public)
	if o.Operator, err = claims.Encode(pairs[self]); err != nil {
		return o, err
	}
	account := jwt.NewAccountClaims(pairs[system].public)
	account.Name = "SYS"
	if o.SystemAccount, err = account.Encode(pairs[signing]); err != nil {
		return o, err
	}
	admin := jwt.NewUserClaims(pairs[user].public)
	admin.Name = natsAdmin
	token, err := admin.Encode(pairs[system])
	if err != nil {
		return o, err
	}
	seeds := [2][]byte{}
	for i, pair := range []nkeys.KeyPair{pairs[user], pairs[signing]} {
		if seeds[i], err = pair.Seed(); err != nil {
			return o, err
		}
	}
	credentials, err := jwt.FormatUserConfig(token, seeds[0])
	o.System, o.Credentials, o.Signing = pairs[system].public, string(credentials), string(seeds[1])
	return o, err
}
