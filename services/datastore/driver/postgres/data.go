package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

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
	table, err := p.table(a, access)
	if err != nil {
		return nil, err
	}
	endpoint := url.URL{Scheme: "postgres", User: url.UserPassword(a.User, a.Password), Host: p.endpoint, Path: a.Schema}
	return kine.Open(ctx, kine.Options{
		Endpoint: endpoint.String(), Access: access, Table: table, Fits: fits, Classify: classify,
	})
}

// page reads from the index alone until it has the rows of the page. %s is how a name compares with the last one before.
const page = `SELECT page.name, kv.name, kv.id, kv.deleted <> 0, kv.lease, kv.value
	FROM (SELECT name, max(id) AS id FROM public.kine WHERE name %s $1 AND name < $2 AND id <= $3 GROUP BY name ORDER BY name LIMIT $4) page
	JOIN public.kine kv ON kv.id = page.id ORDER BY page.name`

// table is the tenant's, as the tenant.
func (p *postgres) table(a driver.Account, access driver.Access) (*kine.Table, error) {
	config, err := p.tenantConfig(a, access)
	if err != nil {
		return nil, err
	}
	// Values as bytes, not as text of twice that size.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	// A page begins at a place in the index and ends when it is full. As long as nobody has analyzed a table that has just been filled, the
	// planner takes it for smaller than a page, and would sort all that is left.
	for _, way := range []string{"bitmapscan", "hashagg", "hashjoin", "mergejoin", "seqscan", "sort"} {
		config.RuntimeParams["enable_"+way] = "off"
	}
	config.RuntimeParams["jit"], config.RuntimeParams["max_parallel_workers_per_gather"] = "off", "0"
	return &kine.Table{
		Connector: stdlib.GetConnector(*config), Name: "public.kine", First: fmt.Sprintf(page, ">="), Next: fmt.Sprintf(page, ">"),
	}, nil
}

// fits refuses what isn't text to PostgreSQL.
func fits(key string) error {
	if !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return errors.New("PostgreSQL's keys are UTF-8 without NUL; delete or rename the object in the source")
	}
	return nil
}
