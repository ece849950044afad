// The number of CPUs is read at the start alone: reading it each second wakes a service that has nothing to do.
//
//go:debug updatemaxprocs=0

// Command stoker-addons runs the addons service.
package main

import (
	"github.com/stoker-k8s/stoker/pkg/service"
	"github.com/stoker-k8s/stoker/services/addons"
)

func main() {
	service.Main("addons", "Keeps what must exist inside each tenant: kubeadm's objects, CoreDNS, kube-proxy.", addons.Run)
}
