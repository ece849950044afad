package capi

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/controlplane"
)

func TestEndpointOf(t *testing.T) {
	ingress := func(host string) controlplane.NetworkSpec {
		return controlplane.NetworkSpec{Ingress: &controlplane.IngressSpec{Hostname: host}}
	}
	for tenant, c := range map[string]struct {
		network controlplane.NetworkSpec
		want    string
	}{
		"10.0.0.1:6443":     {want: "10.0.0.1 6443"},
		"[fd00::1]:6443":    {want: "fd00::1 6443"},
		"lb.example:60000":  {want: "lb.example 60000"},
		"10.0.0.2:6443":     {ingress("api.example"), "api.example 443"},
		"10.0.0.3:6443":     {ingress("api.example:8443"), "api.example 8443"},
		"10.0.0.4:6443":     {controlplane.NetworkSpec{Gateway: &controlplane.GatewaySpec{Hostname: "gw.example"}}, "gw.example 443"},
		"10.0.0.5":          {want: "error"},
		"10.0.0.6:70000":    {want: "error"},
		":6443":             {want: "error"},
		"10.0.0.7:https":    {want: "error"},
		"10.0.0.8:0":        {want: "error"},
		"10.0.0.9:6443 bad": {want: "error"},
	} {
		at, err := endpointOf(c.network, tenant)
		got := fmt.Sprint(at.Host, " ", at.Port)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: %s, %v", tenant, got, err)
		}
	}
}

func TestEquipment(t *testing.T) {
	at := controlplane.APIEndpoint{Host: "api.example", Port: 6443}
	with := func(host string, port int32) *infrastructure {
		var o infrastructure
		o.Name = "infra"
		o.Spec.ControlPlaneEndpoint.Host, o.Spec.ControlPlaneEndpoint.Port = host, port
		return &o
	}
	const patch = "map[controlPlaneEndpoint:map[host:api.example port:6443]]"
	done := with("", 0)
	done.Spec.APIServerFixedIP, done.Spec.APIServerPort = "api.example", 6443
	for sentence, c := range map[string]struct {
		kind string
		o    *infrastructure
		want string
	}{
		"a kind that nobody knows is written":         {"WhateverCluster", with("", 0), patch},
		"also where it had another endpoint":          {"AWSCluster", with("other.example", 443), patch},
		"what is so already isn't":                    {"AWSCluster", with("api.example", 6443), "map[]"},
		"of some kinds it must be there":              {"Metal3Cluster", with("", 0), "mismatch"},
		"and be the same":                             {"MetalStackCluster", with("api.example", 443), "mismatch"},
		"as it is here":                               {"Metal3Cluster", with("api.example", 6443), "map[]"},
		"of others it is written where there is none": {"VSphereCluster", with("", 0), patch},
		"and must be the same where there is one":     {"ProxmoxCluster", with("other.example", 6443), "mismatch"},
		"OpenStack has fields of its own":             {"OpenStackCluster", with("", 0), "map[apiServerFixedIP:api.example apiServerPort:6443]"},
		"and needs no write when they are so":         {"OpenStackCluster", done, "map[]"},
	} {
		patch, err := equipment(c.kind, c.o, at)
		got := fmt.Sprint(patch)
		var held *heldError
		if errors.As(err, &held) {
			got = "mismatch"
		}
		if got != c.want {
			t.Errorf("%s: %s, %v", sentence, got, err)
		}
	}
}

func TestContractVersion(t *testing.T) {
	for want, labels := range map[string]map[string]string{
		"v1beta1 v1beta2": {"cluster.x-k8s.io/v1beta1": "v1alpha4", "cluster.x-k8s.io/v1beta2": "v1alpha1_v1beta1"},
		"v1 v1beta1":      {"cluster.x-k8s.io/v1beta1": "v1"},
		" ":               {"cluster.x-k8s.io/provider": "x"},
	} {
		if version, contract := contractVersion(labels); version+" "+contract != want {
			t.Errorf("%v: %q of %q", labels, version, contract)
		}
	}
}
