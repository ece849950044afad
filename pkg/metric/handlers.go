package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Kamaji's handlers that have no name in package name. A handler of an object has that of the object's component label.
const (
	HandlerDatastoreSetup      = "datastore-setup"
	HandlerRoute               = "gateway_routes"
	HandlerUploadConfigKubeadm = "PhaseUploadConfigKubeadm"
	HandlerUploadConfigKubelet = "PhaseUploadConfigKubelet"
	HandlerBootstrapToken      = "PhaseBootstrapToken"
	HandlerClusterAdminRBAC    = "PhaseClusterAdminRBAC"
	HandlerCoreDNS             = "coredns"
	HandlerKubeProxy           = "kube-proxy"

	HandlerKonnectivityAgent              = "konnectivity-agent"
	HandlerKonnectivityServiceAccount     = "konnectivity-sa"
	HandlerKonnectivityClusterRoleBinding = "konnectivity-clusterrolebinding"
)

// Handlers are those of Kamaji's handlers whose work a service does. A service that does the work of none has the one of its own name,
// which is its whole turns.
func Handlers(service string) []string {
	switch service {
	case name.ServiceCerts:
		return []string{
			name.ComponentCA, name.ComponentFrontProxyCA, name.ComponentServiceAccountKeys, name.ComponentAPIServerCertificate,
			name.ComponentAPIServerKubeletClientCertificate, name.ComponentFrontProxyClientCertificate, name.ComponentAdminKubeconfig,
			name.ComponentControllerManagerKubeconfig, name.ComponentSchedulerKubeconfig,
			name.ComponentKonnectivityCertificate, name.ComponentKonnectivityKubeconfig,
		}
	case name.ServiceDatastore:
		return []string{name.ComponentDatastoreConfig, HandlerDatastoreSetup, name.ComponentDatastoreCertificate}
	case name.ServiceWorkload:
		return []string{
			name.ComponentService, name.ComponentKubeadmConfig, name.ComponentIngress, HandlerRoute, name.ComponentKonnectivityEgressSelector,
			name.ComponentDeployment,
		}
	case name.ServiceAddons:
		return []string{
			HandlerUploadConfigKubeadm, HandlerUploadConfigKubelet, HandlerBootstrapToken, HandlerClusterAdminRBAC, HandlerCoreDNS, HandlerKubeProxy,
			HandlerKonnectivityAgent, HandlerKonnectivityServiceAccount, HandlerKonnectivityClusterRoleBinding,
		}
	}
	return []string{service}
}

// HandlerTime is Kamaji's metric of how long its handlers take, each of which makes one thing of a tenant so. A nil one measures nothing.
// It is safe for concurrent use.
type HandlerTime struct {
	took map[string]prometheus.Observer
}

// NewHandlerTime registers the metric with a series for each of these handlers, and never another.
func NewHandlerTime(r prometheus.Registerer, handlers ...string) *HandlerTime {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kamaji_handler_time_seconds",
		Help:    "Time that it took to make one thing of one object so, by the name of Kamaji's handler for it.",
		Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
	}, []string{"handler"})
	r.MustRegister(v)
	h := &HandlerTime{map[string]prometheus.Observer{}}
	for _, handler := range handlers {
		h.took[handler] = v.WithLabelValues(handler)
	}
	return h
}

// Took notes how long a handler took. What is none of the metric's is left out.
func (h *HandlerTime) Took(handler string, d time.Duration) {
	if h == nil {
		return
	}
	if o := h.took[handler]; o != nil {
		o.Observe(d.Seconds())
	}
}

// Since notes that a handler took until now.
func (h *HandlerTime) Since(handler string, began time.Time) { h.Took(handler, time.Since(began)) }
