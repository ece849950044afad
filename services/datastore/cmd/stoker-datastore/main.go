// Command stoker-datastore gives each tenant its user, schema and credentials in a DataStore.
package main

import (
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/datastore"
)

func main() {
	service.Main(name.ServiceDatastore, "Gives each tenant its user, schema and credentials in a DataStore, and takes them back.", datastore.Run)
}
