package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/kine"
)

var _ driver.DataAccess = (*postgres)(nil)

// Data connects as the kine beside the tenant's API server does.
func (p *postgres) Data(ctx context.Context, a driver.Account, access driver.Access) (driver.Data, error) {
	if err := p.Validate(a); err != nil {
		return nil, err
	}
	// An outage is noticed soon here; kine tries for minutes.
	if err := p.Check(ctx); err != nil {
		return nil, err
	}
	endpoint := url.URL{Scheme: "postgres", User: url.UserPassword(a.User, a.Password), Host: p.endpoint, Path: a.Schema}
	return kine.Open(ctx, kine.Options{
		Endpoint: func(string) string { return endpoint.String() },
		Access:   access, SQL: true, Fits: fits, Classify: classify,
	})
}

// fits refuses what isn't text to PostgreSQL.
func fits(key string) error {
	if !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return errors.New("PostgreSQL's keys are UTF-8 without NUL; delete or rename the object in the source")
	}
	return nil
}
