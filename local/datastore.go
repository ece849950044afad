package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/pki"
)

// A DataStore is a database to run, and the DataStore object for it.
type DataStore struct {
	// Name of the object.
	Name string `json:"name"`
	// Driver is one of Drivers.
	Driver string `json:"driver"`
}

// Drivers are the kinds of database that a stack can run.
var Drivers = []string{DriverEtcd, DriverPostgres, DriverMySQL, DriverNATS}

// The kinds of database.
const (
	DriverEtcd     = "etcd"
	DriverPostgres = "postgres"
	DriverMySQL    = "mysql"
	DriverNATS     = "nats"
)

// A dataStore is the database behind one DataStore object.
type dataStore struct {
	name      string
	ca        *pki.Authority
	component *Component
	// ready waits until tenants can be put there.
	ready func(context.Context) error
	// objects say to the services how it is reached.
	objects DataStoreObjects
}

// openDataStore prepares a database; its component is still to be added.
func (s *Stack) openDataStore(ctx context.Context, want DataStore) (*dataStore, error) {
	d := &dataStore{name: want.Name}
	component := want.Driver + "-" + want.Name
	var err error
	if d.ca, err = pki.OpenAuthority(filepath.Join(s.cfg.Dir, "pki", component), "stoker-local-"+component); err != nil {
		return nil, err
	}
	if _, ok := s.state.DataStores[want.Name]; !ok {
		s.state.DataStores[want.Name] = len(s.state.DataStores)
	}
	s.state.Drivers[want.Name] = want.Driver
	at := s.block.DataStore(s.state.DataStores[want.Name])
	server, err := d.ca.Issue(pki.Leaf{File: "server", Name: component, Hosts: []string{at.String()}})
	if err != nil {
		return nil, err
	}
	switch want.Driver {
	case DriverEtcd:
		err = s.openEtcd(d, component, at, server)
	case DriverPostgres:
		err = s.openPostgres(ctx, d, component, at, server)
	case DriverMySQL:
		err = s.openMySQL(ctx, d, component, at, server)
	case DriverNATS:
		err = s.openNATS(ctx, d, component, at, server)
	default:
		err = fmt.Errorf("driver %q: must be one of %s", want.Driver, strings.Join(Drivers, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("datastore %s: %w", want.Name, err)
	}
	s.stores = append(s.stores, d)
	return d, nil
}

// AddDataStore runs one more DataStore on a stack that runs, and returns when tenants can be put there. One that runs
// already stays as it is.
func (s *Stack) AddDataStore(ctx context.Context, want DataStore) error {
	s.adding.Lock()
	defer s.adding.Unlock()
	if slices.ContainsFunc(s.stores, func(d *dataStore) bool { return d.name == want.Name }) && s.state.driver(want.Name) == want.Driver {
		return nil
	}
	if _, err := s.state.want([]DataStore{want}); err != nil {
		return err
	}
	d, err := s.openDataStore(ctx, want)
	if err != nil {
		return err
	}
	s.add(d.component)
	return errors.Join(s.save(), d.ready(ctx), d.objects.Apply(ctx, s.admin))
}

// password returns the administrator's, which is made once.
func (s *Stack) password(component string) (file, password string, err error) {
	file = filepath.Join(s.cfg.Dir, "pki", component, "password")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte(rand.Text())
		err = writeFile(file, data)
	}
	return file, string(data), err
}

// want are the DataStores to run: those asked for and those that Dir remembers, whose tenants are still there. A
// DataStore keeps its driver.
func (s *state) want(asked []DataStore) ([]DataStore, error) {
	all := slices.Clone(asked)
	for i, d := range asked {
		if slices.ContainsFunc(asked[:i], func(o DataStore) bool { return o.Name == d.Name }) {
			return nil, fmt.Errorf("DataStore %s is asked for twice", d.Name)
		}
		if _, ok := s.DataStores[d.Name]; ok && s.driver(d.Name) != d.Driver {
			return nil, fmt.Errorf("DataStore %s is on %s already, and can't be on %s", d.Name, s.driver(d.Name), d.Driver)
		}
	}
	for name := range s.DataStores {
		if !slices.ContainsFunc(all, func(d DataStore) bool { return d.Name == name }) {
			all = append(all, DataStore{Name: name, Driver: s.driver(name)})
		}
	}
	return all, nil
}

// driver of a DataStore that is remembered: at first there was but one.
func (s *state) driver(name string) string {
	if driver, ok := s.Drivers[name]; ok {
		return driver
	}
	return DriverEtcd
}
