package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nuid"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/kine"
)

var _ driver.DataAccess = (*database)(nil)

// Data connects as the kine beside the tenant's API server does.
func (d *database) Data(ctx context.Context, a driver.Account, access driver.Access) (driver.Data, error) {
	if err := d.Validate(a); err != nil {
		return nil, err
	}
	// An outage is noticed soon here; kine tries for minutes.
	if err := d.Check(ctx); err != nil {
		return nil, err
	}
	endpoint := fmt.Sprintf("mysql://%s:%s@tcp(%s)/%s", a.User, a.Password, d.endpoint, a.Schema)
	if config := d.ca.Verify(); config != nil {
		// kine registers its own under one name for the whole process, where each DataStore would get that of another.
		name := nuid.Next()
		if err := mysql.RegisterTLSConfig(name, config); err != nil {
			return nil, err
		}
		defer mysql.DeregisterTLSConfig(name)
		endpoint += "?tls=" + name
	}
	connector, err := connect(d.endpoint, a.User, a.Password, a.Schema, d.ca.Verify())
	if err != nil {
		return nil, err
	}
	table := &kine.Table{Connector: connector, Name: "kine", First: fmt.Sprintf(page, ">="), Next: fmt.Sprintf(page, ">")}
	return kine.Open(ctx, kine.Options{
		Endpoint: endpoint, Access: access, Plain: true, Table: table, Fits: fits, Classify: classify,
	})
}

// page reads from the index alone until it has the rows of the page. %s is how a name compares with the last one before.
const page = `SELECT STRAIGHT_JOIN page.name, kv.name, kv.id, kv.deleted <> 0, kv.lease, kv.value
	FROM (SELECT name, max(id) AS id FROM kine WHERE name %s ? AND name < ? AND id <= ? GROUP BY name ORDER BY name LIMIT ?) page
	JOIN kine kv ON kv.id = page.id ORDER BY page.name`

// maxKey is the longest key of kine's table, less what stands before all keys.
const maxKey = 630 - len("/registry/")

// fits refuses what MySQL would cut off, replace by question marks, or put before all keys: less than a space is less than
// nothing to it.
func fits(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("has %d bytes, kine's keys in MySQL at most %d; delete or rename the object in the source", len(key), maxKey)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return errors.New("kine's keys in MySQL are printable ASCII; delete or rename the object in the source")
		}
	}
	return nil
}
