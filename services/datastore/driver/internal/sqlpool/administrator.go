package sqlpool

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
)

// Administrator is who the driver of an SQL database connects as, and where.
type Administrator struct {
	// Endpoint is the first of the DataStore's endpoints, as host:port, for kine knows no more than one.
	Endpoint string
	// User is the name in basicAuth or, without one, that of the client certificate. Password may be empty.
	User, Password string
	// CA verifies the server, nil without TLS.
	CA *authority.Authority
	// TLS is what to connect with, nil without TLS. ServerName is for the driver to set.
	TLS *tls.Config
}

// AdministratorOf reads who the administrator is from a DataStore, which needs a user name with a password, a client certificate,
// or both. It connects to nothing. Its errors are *[driver.ConfigError].
func AdministratorOf(c driver.Config) (Administrator, error) {
	ca, err := authority.New(c)
	if err != nil {
		return Administrator{}, err
	}
	config, user, err := ca.TLS(c)
	if err != nil {
		return Administrator{}, err
	}
	if len(c.Username) > 0 {
		user = string(c.Username)
	}
	if user == "" {
		err := errors.New("is missing, and there is no client certificate that names a user")
		return Administrator{}, &driver.ConfigError{Part: driver.PartBasicAuth, Field: driver.PartBasicAuth, Err: err}
	}
	if len(c.Endpoints) == 0 {
		return Administrator{}, EndpointError(errors.New("is empty"))
	}
	if _, _, err := HostPort(c.Endpoints[0]); err != nil {
		return Administrator{}, EndpointError(err)
	}
	return Administrator{Endpoint: c.Endpoints[0], User: user, Password: string(c.Password), CA: ca, TLS: config}, nil
}

// EndpointError is the *[driver.ConfigError] of endpoints that nothing can connect to.
func EndpointError(err error) error {
	return &driver.ConfigError{Part: driver.PartTLS, Field: "endpoints", Err: err}
}

// HostPort splits an endpoint.
func HostPort(endpoint string) (host string, port uint16, err error) {
	host, digits, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is no number up to 65535", digits)
	}
	return host, uint16(number), nil
}
