// The names and addresses of the API server's certificate (SANs). Pure.

package pki

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

// altNames returns the names of the API server's certificate, sorted, none twice.
func (in Input) altNames() (dns []string, ips []net.IP, err error) {
	// Kamaji's and kubeadm's; "node" is the node name Kamaji gives kubeadm.
	dns = []string{
		"localhost", "node", in.Name, in.serviceName(), in.serviceName() + ".cluster.local",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
	}
	if in.ClusterDomain != "" {
		dns = append(dns, "kubernetes.default.svc."+in.ClusterDomain)
	}
	addrs := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	add := func(value, why, what string) error {
		if value == "" {
			return nil
		}
		if addr, err := netip.ParseAddr(value); err == nil && addr.Zone() == "" {
			addrs = append(addrs, addr.Unmap())
			return nil
		}
		host := strings.ToLower(value)
		if len(validation.IsDNS1123Subdomain(host)) != 0 && len(validation.IsWildcardDNS1123Subdomain(host)) != 0 {
			return invalid(why, "%s %q is neither an IP address nor a DNS name", what, events.Clip(value))
		}
		dns = append(dns, host)
		return nil
	}
	for _, cidr := range in.ServiceCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, nil, invalid(reason.InvalidServiceCIDR, "service network %q is no CIDR", events.Clip(cidr))
		}
		// The first address of the network is that of the Service kubernetes.
		if first := prefix.Masked().Addr().Next(); prefix.Contains(first) {
			addrs = append(addrs, first)
		}
	}
	for _, san := range in.CertSANs {
		if err := add(san, reason.InvalidCertSAN, "entry of certSANs"); err != nil {
			return nil, nil, err
		}
	}
	if err := add(in.AdvertiseAddress, reason.InvalidAdvertiseAddress, "advertiseAddress"); err != nil {
		return nil, nil, err
	}
	if e := in.Exposed; e != nil {
		host, port, err := net.SplitHostPort(e.Endpoint)
		if err != nil || host == "" || port == "" {
			return nil, nil, invalid(reason.InvalidEndpoint, "endpoint %q is not host:port", events.Clip(e.Endpoint))
		}
		clusterIP := e.ClusterIP
		if clusterIP == "None" { // a headless Service
			clusterIP = ""
		}
		tunnel, _, _ := net.SplitHostPort(e.Konnectivity) // empty without
		former, _, _ := net.SplitHostPort(in.Former)      // likewise
		for _, value := range []string{host, e.Address, e.AdvertiseAddress, clusterIP, tunnel, former} {
			if err := add(value, reason.InvalidEndpoint, "address"); err != nil {
				return nil, nil, err
			}
		}
	}
	slices.Sort(dns)
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, addr := range slices.Compact(addrs) {
		ips = append(ips, addr.AsSlice())
	}
	return slices.Compact(dns), ips, nil
}

// invalid refuses a value of the input.
func invalid(why, format string, args ...any) error {
	return &intent.Permanent{Reason: why, Message: fmt.Sprintf(format, args...)}
}
