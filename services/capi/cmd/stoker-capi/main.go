// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-capi makes tenants of the control planes of Cluster API.
package main

import (
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/capi"
)

func main() {
	service.Main(name.ServiceCAPI, "Makes tenants of the control planes of Cluster API.", capi.Run)
}
