// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

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
