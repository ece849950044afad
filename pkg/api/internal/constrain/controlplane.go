package main

// The constraints of Cluster API's control plane kinds. They have the settings of a TenantControlPlane under other names, so the
// types of Kubernetes are constrained as there; all else is judged by the TenantControlPlane's own definition.

import "strings"

// moved are the fields of a TenantControlPlane's spec.controlPlane.deployment that are elsewhere in a KamajiControlPlane's spec, by
// what their paths begin with. The others are in spec.deployment.
var moved = map[string]string{
	"additionalContainers":                     "deployment.extraContainers",
	"additionalInitContainers":                 "deployment.extraInitContainers",
	"additionalVolumes":                        "deployment.extraVolumes",
	"additionalVolumeMounts.apiServer":         "apiServer.extraVolumeMounts",
	"additionalVolumeMounts.controllerManager": "controllerManager.extraVolumeMounts",
	"additionalVolumeMounts.scheduler":         "scheduler.extraVolumeMounts",
	"resources.apiServer":                      "apiServer.resources",
	"resources.controllerManager":              "controllerManager.resources",
	"resources.scheduler":                      "scheduler.resources",
	"resources.kine":                           "kine.resources",
}

// settings are the constraints of what a KamajiControlPlane and its template have in common.
func settings() fields {
	all := fields{
		"network.serviceLabels{}":                     {labelValue},
		"network.ingress.extraLabels{}":               {labelValue},
		"network.gateway.extraLabels{}":               {labelValue},
		"network.additionalServicePorts[].targetPort": {port},
	}
	for path, edits := range deployment() {
		all[elsewhere(path)] = edits
	}
	// The example of Kamaji's provider has a toleration without a key, which these rules refuse, as Kubernetes does.
	delete(all, "deployment.tolerations[]")
	all = join(all, under("addons.konnectivity", konnectivity()))
	for _, path := range ofKubernetes {
		all = join(all, fields{path: {brief}})
	}
	return all
}

// ofKubernetes is where types of Kubernetes stand among the settings.
var ofKubernetes = []string{
	"addons.konnectivity.agent.tolerations", "addons.konnectivity.server.resources", "addons.konnectivity.server.securityContext",
	"apiServer.extraVolumeMounts", "apiServer.resources", "controllerManager.extraVolumeMounts", "controllerManager.resources",
	"deployment.affinity", "deployment.containerSecurityContexts.apiServer", "deployment.containerSecurityContexts.controllerManager",
	"deployment.containerSecurityContexts.kine", "deployment.containerSecurityContexts.kineInit",
	"deployment.containerSecurityContexts.scheduler", "deployment.extraContainers", "deployment.extraInitContainers",
	"deployment.extraVolumes", "deployment.podSecurityContext", "deployment.strategy", "deployment.tolerations",
	"deployment.topologySpreadConstraints", "kine.resources", "scheduler.extraVolumeMounts", "scheduler.resources",
}

// brief leaves out what is said of the fields within, of which `kubectl explain pod.spec` tells: in two versions of two kinds it would be
// two thirds of the definitions, which an API server reads as a whole.
func brief(s *schema) {
	said := s.Description
	each(s, func(s *schema) { s.Description = "" })
	s.Description = said
}

// elsewhere is where a field of a TenantControlPlane's deployment is among the settings.
func elsewhere(path string) string {
	for from, to := range moved {
		if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[{")) {
			return to + rest
		}
	}
	return "deployment." + path
}
