// Command stoker-status tells the world where tenants stand: API status, status events, metrics.
package main

import (
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/status"
)

func main() {
	service.Main(name.ServiceStatus, "Tells where tenants stand: API status, status events, metrics.", status.Run)
}
