package ruletest

import (
	"fmt"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// pods are the rules of what Stoker's own pods and the user's additions have to do with each other.
func pods() []Rule {
	const portInUse = "additional containers cannot use a port of the API server or of konnectivity"
	deployment := func(yaml string) string { return `spec: {controlPlane: {deployment: {` + yaml + `}}}` }
	volume := func(yaml string) string { return deployment(`additionalVolumes: [{name: a, ` + yaml + `}]`) }
	const d = "spec.controlPlane.deployment"
	a248 := strings.Repeat("a", 248)
	containers := Rule{Name: "containers have names of their own", Passes: []string{
		deployment(`additionalContainers: [{name: audit, image: a}, {name: backup, image: a}], additionalInitContainers: [{name: prepare, image: a}]`),
		deployment(`additionalContainers: [{name: kine, image: "registry.example.com/kine:v0.16.4"}]`),
	}}
	const taken = "is the name of one of the control plane's own containers"
	for _, n := range []string{name.ContainerAPIServer, name.ContainerScheduler, name.ContainerControllerManager, name.ContainerKonnectivity, name.ContainerKineChmod} {
		containers.Fails = append(containers.Fails,
			Failure{deployment(`additionalContainers: [{name: ` + n + `, image: a}]`), d + ".additionalContainers[0].name", Invalid, n, taken},
			Failure{deployment(`additionalInitContainers: [{name: ` + n + `, image: a}]`), d + ".additionalInitContainers[0].name", Invalid, n, taken})
	}
	containers.Fails = append(containers.Fails,
		Failure{deployment(`additionalInitContainers: [{name: kine, image: a}]`), d + ".additionalInitContainers[0].name", Invalid, "kine", taken},
		Failure{deployment(`additionalContainers: [{name: a, image: a}, {name: a, image: b}]`), d + ".additionalContainers", Invalid, "a", "containers must have unique names"},
		Failure{deployment(`additionalInitContainers: [{name: a, image: a}, {name: a, image: b}]`), d + ".additionalInitContainers", Invalid, "a", "containers must have unique names"},
		Failure{deployment(`additionalContainers: [` + repeat(17, func(i int) string { return "{name: a" + strings.Repeat("b", i) + ", image: a}" }) + `]`), d + ".additionalContainers", TooMany, "17", "must have at most 16 items"})

	var everywhere []string // mounts of the volumes that are in every pod
	for i, n := range []string{
		name.VolumePKI, name.VolumeEtcCACertificates, name.VolumeUsrShareCACertificates, name.VolumeUsrLocalShareCACertificates,
		name.VolumeSchedulerKubeconfig, name.VolumeControllerManagerKubeconfig,
	} {
		everywhere = append(everywhere, fmt.Sprintf("{name: %s, mountPath: /own/%d}", n, i))
	}
	volumes := Rule{Name: "volumes have names of their own", Passes: []string{
		deployment(`additionalVolumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: b}}]`),
	}}
	for _, n := range []string{
		name.VolumePKI, name.VolumeEtcCACertificates, name.VolumeUsrShareCACertificates, name.VolumeUsrLocalShareCACertificates,
		name.VolumeSchedulerKubeconfig, name.VolumeControllerManagerKubeconfig, name.VolumeKineUDS, name.VolumeKineConfig, name.VolumeKineCerts,
		name.VolumeKonnectivityUDS, name.VolumeEgressSelectorConfiguration, name.VolumeKonnectivityKubeconfig,
	} {
		volumes.Fails = append(volumes.Fails, Failure{deployment(`additionalVolumes: [{name: ` + n + `, emptyDir: {}}]`), d + ".additionalVolumes[0].name", Invalid, n, "is the name of one of the control plane's own volumes"})
	}
	volumes.Fails = append(volumes.Fails,
		Failure{deployment(`additionalVolumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]`), d + ".additionalVolumes", Invalid, "a", "volumes must have unique names"})

	mounts := Rule{Name: "mounts of the control plane's containers are at paths that are free", Passes: []string{
		deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /etc/kubernetes/audit}, {name: a, mountPath: /b, subPath: c/d}], scheduler: [{name: a, mountPath: /etc/ca-certificates}]}`),
	}}
	for component, path := range map[string]string{"apiServer": "/etc/kubernetes/pki", "scheduler": "/etc/kubernetes", "controllerManager": "/usr/share/ca-certificates"} {
		at := d + ".additionalVolumeMounts." + component
		mounts.Fails = append(mounts.Fails,
			Failure{deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {` + component + `: [{name: a, mountPath: ` + path + `}]}`), at + "[0].mountPath", Invalid, path, "is where the container mounts a volume of its own"},
			Failure{deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {` + component + `: [{name: a, mountPath: ` + path + `/}]}`), at + "[0].mountPath", Invalid, path + "/", "is where the container mounts a volume of its own"},
			Failure{deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {` + component + `: [{name: a, mountPath: /a}, {name: a, mountPath: /a}]}`), at, Invalid, "/a", "mount paths must be unique"},
			Failure{deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {` + component + `: [{name: a, mountPath: /a, mountPropagation: Bidirectional}]}`), at + "[0].mountPropagation", Invalid, "", "Bidirectional mount propagation needs a privileged container"},
		)
	}
	strays := Rule{Name: "mounts of the control plane's containers are of additional volumes", Policy: true, Passes: []string{
		deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /a}]}`),
	}}
	for _, component := range []string{"apiServer", "controllerManager", "scheduler"} {
		strays.Fails = append(strays.Fails, Failure{deployment(`additionalVolumeMounts: {` + component + `: [{name: a, mountPath: /a}]}`), d + ".additionalVolumeMounts." + component, Invalid, "a", "is mounted, but is none of additionalVolumes"})
	}
	return []Rule{
		containers, volumes, mounts, strays,
		{
			Name: "containers and init containers have different names", Policy: true,
			Passes: []string{deployment(`additionalContainers: [{name: a, image: a}], additionalInitContainers: [{name: b, image: a}]`)},
			Fails:  []Failure{{deployment(`additionalContainers: [{name: a, image: a}], additionalInitContainers: [{name: a, image: a}]`), d + ".additionalInitContainers", Invalid, "a", "is the name of one of additionalContainers, too"}},
		},
		{
			Name: "containers mount volumes that there are", Policy: true,
			Passes: []string{
				deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalContainers: [{name: a, image: a, volumeMounts: [{name: a, mountPath: /a}, {name: etc-kubernetes-pki, mountPath: /pki}]}]`),
				deployment(`additionalContainers: [{name: a, image: a, volumeMounts: [` + strings.Join(everywhere, ", ") + `]}]`),
			},
			Fails: []Failure{
				{deployment(`additionalContainers: [{name: a, image: a, volumeMounts: [{name: etc-kubernetes-pki, mountPath: /pki}, {name: b, mountPath: /b}]}]`), d + ".additionalContainers", Invalid, "b", "is mounted, but is none of additionalVolumes"},
				{deployment(`additionalInitContainers: [{name: a, image: a, volumeMounts: [{name: b, mountPath: /b}]}]`), d + ".additionalInitContainers", Invalid, "b", "is mounted, but is none of additionalVolumes"},
				{deployment(`additionalContainers: [{name: a, image: a, volumeMounts: [{name: kine-uds, mountPath: /b}]}]`), d + ".additionalContainers", Invalid, "kine-uds", "is mounted, but is none of additionalVolumes"},
			},
		},
		{
			Name: "containers, volumes and mounts that change are judged as those of a new tenant are", Policy: true,
			From:   mounting("a, b", "a", "", "b"),
			Passes: []string{mounting("a, b", "b", "a", "a"), mounting("a, b", "", "", "")},
			Fails: []Failure{
				{mounting("a, b", "c", "", "b"), d + ".additionalContainers", Invalid, "c", "is mounted, but is none of additionalVolumes"},
				{mounting("a, b", "a", "c", "b"), d + ".additionalInitContainers", Invalid, "c", "is mounted, but is none of additionalVolumes"},
				{mounting("b", "a", "", "b"), d + ".additionalContainers", Invalid, "a", "is mounted, but is none of additionalVolumes"},
				{mounting("a, b", "a", "", "c"), d + ".additionalVolumeMounts.apiServer", Invalid, "c", "is mounted, but is none of additionalVolumes"},
			},
		},
		{
			Name: "a port that changes is judged beside the containers' that stay", Policy: true,
			From:   deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 7443}]}]`),
			Passes: []string{`spec: {controlPlane: {deployment: {additionalContainers: [{name: a, image: a, ports: [{containerPort: 7443}]}]}}, networkProfile: {port: 7444}}`},
			Fails: []Failure{
				{
					`spec: {controlPlane: {deployment: {additionalContainers: [{name: a, image: a, ports: [{containerPort: 7443}]}]}}, networkProfile: {port: 7443}}`,
					d + ".additionalContainers", Invalid, "7443", portInUse,
				},
				{
					deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 6443}]}]`),
					d + ".additionalContainers", Invalid, "6443", portInUse,
				},
			},
		},
		{
			Name:   "containers mount at a path once",
			Passes: []string{deployment(`additionalContainers: [{name: a, image: a, volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a}, {name: etc-kubernetes-pki, mountPath: /b}]}]`)},
			Fails: []Failure{
				{deployment(`additionalContainers: [{name: a, image: a, volumeMounts: [{name: etc-kubernetes-pki, mountPath: /b}, {name: etc-kubernetes-pki, mountPath: /b}]}]`), d + ".additionalContainers[0].volumeMounts[1]", Duplicate, `{"mountPath":"/b"}`, ""},
				{deployment(`additionalVolumes: [{name: a, persistentVolumeClaim: {claimName: a}}], additionalContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /a}], volumeMounts: [{name: a, mountPath: /b}]}]`), d + ".additionalContainers[0]", Invalid, "", "a volume or path cannot be among both volumeMounts and volumeDevices"},
			},
		},
		{
			Name: "devices are volume claims", Policy: true,
			Passes: []string{
				deployment(`additionalVolumes: [{name: a, persistentVolumeClaim: {claimName: a}}], additionalContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /dev/a}]}]`),
				deployment(`additionalVolumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], ` +
					`additionalContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /dev/a}]}]`),
			},
			Fails: []Failure{
				{deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /dev/a}]}]`), d + ".additionalContainers", Invalid, "a", "is used as a device, but is no volume claim among additionalVolumes"},
				{deployment(`additionalInitContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /dev/a}]}]`), d + ".additionalInitContainers", Invalid, "a", "is used as a device, but is no volume claim among additionalVolumes"},
				{
					deployment(`additionalVolumes: [{name: a, persistentVolumeClaim: {claimName: a}}, {name: b, emptyDir: {}}], ` +
						`additionalContainers: [{name: a, image: a, volumeDevices: [{name: a, devicePath: /dev/a}, {name: b, devicePath: /dev/b}]}]`),
					d + ".additionalContainers", Invalid, "b", "is used as a device, but is no volume claim among additionalVolumes",
				},
			},
		},
		{
			Name: "what is read as a file of variables is an emptyDir", Policy: true,
			Passes: []string{
				deployment(`additionalVolumes: [{name: a, emptyDir: {}}], additionalContainers: [{name: a, image: a, env: [{name: A, valueFrom: {fileKeyRef: {key: a, path: b, volumeName: a}}}]}]`),
			},
			Fails: []Failure{
				{deployment(`additionalVolumes: [{name: a, configMap: {name: a}}], additionalContainers: [{name: a, image: a, env: [{name: A, valueFrom: {fileKeyRef: {key: a, path: b, volumeName: a}}}]}]`), d + ".additionalContainers", Invalid, "a", "is read by a fileKeyRef, but is no emptyDir among additionalVolumes"},
				{deployment(`additionalInitContainers: [{name: a, image: a, env: [{name: A, valueFrom: {fileKeyRef: {key: a, path: b, volumeName: a}}}]}]`), d + ".additionalInitContainers", Invalid, "a", "is read by a fileKeyRef, but is no emptyDir among additionalVolumes"},
			},
		},
		{
			Name: "containers use ports that are free",
			Passes: []string{
				deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 80}, {containerPort: 6443, protocol: UDP}]}, {name: b, image: a, ports: [{containerPort: 80, protocol: UDP}]}]`),
			},
			Fails: []Failure{
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 10259}]}]`), d + ".additionalContainers[0].ports[0].containerPort", Invalid, "", "is used by kube-controller-manager or kube-scheduler"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 80}]}, {name: b, image: a, ports: [{containerPort: 80}]}]`), d + ".additionalContainers", Invalid, "", "two containers cannot use the same port and protocol"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 80, hostPort: 80}]}, {name: b, image: a, ports: [{containerPort: 81, hostPort: 80}]}]`), d + ".additionalContainers", Invalid, "", "host ports must be unique"},
				{deployment(`additionalInitContainers: [{name: a, image: a, ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, hostPort: 80}]}]`), d + ".additionalInitContainers[0]", Invalid, "", "host ports must be unique"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 80}, {containerPort: 80}]}]`), d + ".additionalContainers[0].ports[1]", Duplicate, `{"containerPort":80,"protocol":"TCP"}`, ""},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 80, name: http}, {containerPort: 81, name: http}]}]`), d + ".additionalContainers[0]", Invalid, "", "port names must be unique"},
			},
		},
		{
			Name: "containers use other ports than the API server and konnectivity", Policy: true,
			Passes: []string{
				deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 6443, protocol: UDP}]}]`),
				`spec: {controlPlane: {deployment: {additionalContainers: [{name: a, image: a, ports: [{containerPort: 8132}, {containerPort: 8133}]}]}}, addons: {konnectivity: null}}`,
			},
			Fails: []Failure{
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 6443}]}]`), d + ".additionalContainers", Invalid, "6443", "additional containers cannot use a port of the API server or of konnectivity"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 8132}]}]`), d + ".additionalContainers", Invalid, "8132", "additional containers cannot use a port of the API server or of konnectivity"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 8133}]}]`), d + ".additionalContainers", Invalid, "8133", "additional containers cannot use a port of the API server or of konnectivity"},
				{deployment(`additionalContainers: [{name: a, image: a, ports: [{containerPort: 8134}]}]`), d + ".additionalContainers", Invalid, "8134", "additional containers cannot use a port of the API server or of konnectivity"},
			},
		},
		{
			Name: "init containers that end have no probes",
			Passes: []string{
				deployment(`additionalInitContainers: [{name: a, image: a, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 80}}}]`),
			},
			Fails: []Failure{
				{deployment(`additionalInitContainers: [{name: a, image: a, readinessProbe: {tcpSocket: {port: 80}}}]`), d + ".additionalInitContainers[0]", Invalid, "", "lifecycle and probes can be set only with restartPolicy Always"},
				{deployment(`additionalInitContainers: [{name: a, image: a, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]`), d + ".additionalInitContainers[0].resizePolicy", Invalid, "", "RestartContainer can be set only with restartPolicy Always"},
				{deployment(`additionalInitContainers: [{name: a, image: a, restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]`), d + ".additionalInitContainers[0].restartPolicyRules", Invalid, "", "cannot be set with restartPolicy Always"},
			},
		},
		{
			Name:   "images of the control plane are images",
			Passes: []string{deployment(`registrySettings: {registry: "registry.example.com:5000/k8s", tagSuffix: -hardened_1, apiServerImage: hardened/kube-apiserver}`)},
			Fails: []Failure{
				{deployment(`registrySettings: {registry: "https://a"}`), d + ".registrySettings.registry", Invalid, "https://a", d + ".registrySettings.registry in body should match '^(([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[[][0-9A-Fa-f:]+[]])(:[0-9]{1,5})?(/[a-z0-9]+([-._]+[a-z0-9]+)*)*)?$'"},
				{deployment(`registrySettings: {tagSuffix: "@sha256:a"}`), d + ".registrySettings.tagSuffix", Invalid, "@sha256:a", d + ".registrySettings.tagSuffix in body should match '^[-A-Za-z0-9_.]*$'"},
				{deployment(`registrySettings: {schedulerImage: "a:b"}`), d + ".registrySettings.schedulerImage", Invalid, "a:b", d + ".registrySettings.schedulerImage in body should match '^([a-z0-9]+([-._/]+[a-z0-9]+)*)?$'"},
			},
		},
		{
			Name:   "replicas are none or more",
			Passes: []string{deployment(`replicas: 0`), deployment(`replicas: 3`)},
			Fails: []Failure{
				{deployment(`replicas: -1`), d + ".replicas", Invalid, "-1", d + ".replicas in body should be greater than or equal to 0"},
				{deployment(`replicas: 4294967296`), d + ".replicas", Invalid, "4294967296", d + ".replicas in body should be less than or equal to 2147483647"},
			},
		},
		{
			Name:   "probes have a timing Kubernetes takes",
			Passes: []string{deployment(`probes: {liveness: {initialDelaySeconds: 0, timeoutSeconds: 1, periodSeconds: 1, successThreshold: 1, failureThreshold: 1}, apiServer: {readiness: {successThreshold: 2}}}`)},
			Fails: []Failure{
				{deployment(`probes: {liveness: {periodSeconds: 0}}`), d + ".probes.liveness.periodSeconds", Invalid, "0", d + ".probes.liveness.periodSeconds in body should be greater than or equal to 1"},
				{deployment(`probes: {readiness: {initialDelaySeconds: -1}}`), d + ".probes.readiness.initialDelaySeconds", Invalid, "-1", d + ".probes.readiness.initialDelaySeconds in body should be greater than or equal to 0"},
				{deployment(`probes: {startup: {successThreshold: 2}}`), d + ".probes.startup.successThreshold", Invalid, "2", "must be 1 for startup probes"},
				{deployment(`probes: {liveness: {successThreshold: 2}}`), d + ".probes.liveness.successThreshold", Invalid, "2", "must be 1 for liveness probes"},
				{deployment(`probes: {scheduler: {startup: {successThreshold: 2}}}`), d + ".probes.scheduler.startup.successThreshold", Invalid, "2", "must be 1 for startup probes"},
				{deployment(`probes: {controllerManager: {liveness: {successThreshold: 2}}}`), d + ".probes.controllerManager.liveness.successThreshold", Invalid, "2", "must be 1 for liveness probes"},
			},
		},
		{
			Name:   "a strategy is one Deployments have",
			Passes: []string{deployment(`strategy: {type: Recreate}`), deployment(`strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}`), deployment(`strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 0%}}`)},
			Fails: []Failure{
				{deployment(`strategy: {type: BlueGreen}`), d + ".strategy.type", NotSupported, "BlueGreen", `supported values: "", "RollingUpdate", "Recreate"`},
				{deployment(`strategy: {rollingUpdate: {maxSurge: 0%, maxUnavailable: 0}}`), d + ".strategy.rollingUpdate.maxUnavailable", Invalid, "", "cannot be 0 when maxSurge is 0"},
				{deployment(`strategy: {rollingUpdate: {maxUnavailable: 101%}}`), d + ".strategy.rollingUpdate.maxUnavailable", Invalid, "101%", d + ".strategy.rollingUpdate.maxUnavailable in body should match '^0*(100|[0-9]{1,2})%$'"},
				{deployment(`strategy: {rollingUpdate: {maxSurge: -1}}`), d + ".strategy.rollingUpdate.maxSurge", Invalid, "-1", d + ".strategy.rollingUpdate.maxSurge in body should be greater than or equal to 0"},
			},
		},
		{
			Name:   "service account and runtime class are names",
			Passes: []string{deployment(`serviceAccountName: a.b, runtimeClassName: gvisor`), deployment(`serviceAccountName: "", runtimeClassName: ""`)},
			Fails: []Failure{
				{deployment(`serviceAccountName: A`), d + ".serviceAccountName", Invalid, "A", d + ".serviceAccountName in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$'"},
				{deployment(`runtimeClassName: a_b`), d + ".runtimeClassName", Invalid, "a_b", d + ".runtimeClassName in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$'"},
			},
		},
		{
			Name:   "spread constraints are distinct and fit the pods' selector",
			Passes: []string{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, matchLabelKeys: [pod-template-hash]}, {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]`)},
			Fails: []Failure{
				{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]`), d + ".topologySpreadConstraints", Invalid, "", "topologyKey and whenUnsatisfiable must be unique together"},
				{deployment(`topologySpreadConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]`), d + ".topologySpreadConstraints[0].maxSkew", Invalid, "0", d + ".topologySpreadConstraints[0].maxSkew in body should be greater than or equal to 1"},
				{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]`), d + ".topologySpreadConstraints[0].minDomains", Invalid, "", "can be set only with whenUnsatisfiable DoNotSchedule"},
				{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [kamaji.clastix.io/name]}]`), d + ".topologySpreadConstraints[0].matchLabelKeys", Invalid, "", "cannot repeat the key of the pods' selector"},
				{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [a]}]`), d + ".topologySpreadConstraints[0].matchLabelKeys", Invalid, "", "cannot repeat keys of labelSelector"},
			},
		},
		{
			Name: "labels have keys that are keys of labels", Policy: true,
			Passes: []string{
				deployment(`nodeSelector: {kubernetes.io/arch: arm64}, additionalMetadata: {labels: {example.com/a: b}, annotations: {Example.com/a: any thing}}, podAdditionalMetadata: {labels: {A_b: c}}`),
				deployment(`podAdditionalMetadata: {annotations: {a: ` + strings.Repeat("b", 32767) + `}}`),
			},
			Fails: []Failure{
				{deployment(`nodeSelector: {"a/b/c": d}`), d + ".nodeSelector", Invalid, "a/b/c", "must be the key of a label, such as team or example.com/team"},
				{deployment(`podAdditionalMetadata: {labels: {"": d}}`), d + ".podAdditionalMetadata.labels", Invalid, "", "must be the key of a label, such as team or example.com/team"},
				{deployment(`additionalMetadata: {labels: {"/a": d}}`), d + ".additionalMetadata.labels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`additionalMetadata: {annotations: {"a b": d}}`), d + ".additionalMetadata.annotations", Invalid, "a b", "must be the key of an annotation, such as note or example.com/note"},
				{`spec: {controlPlane: {service: {additionalMetadata: {labels: {"/a": d}}}}}`, "spec.controlPlane.service.additionalMetadata.labels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{`spec: {controlPlane: {ingress: {hostname: a.b, additionalMetadata: {annotations: {"/a": d}}}}}`, "spec.controlPlane.ingress.additionalMetadata.annotations", Invalid, "/a", "must be the key of an annotation, such as note or example.com/note"},
				{`spec: {controlPlane: {gateway: {hostname: a.b, parentRefs: [{name: edge}], additionalMetadata: {labels: {"/a": d}}}}}`, "spec.controlPlane.gateway.additionalMetadata.labels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, selector: {matchLabels: {"/a": b}}}}}`), d + ".additionalVolumes[].ephemeral.volumeClaimTemplate.spec.selector.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {"/a": b}}}]}}`), d + ".affinity.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, namespaceSelector: {matchLabels: {"/a": b}}}}]}}`), d + ".affinity.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {"/a": b}}}]}}`), d + ".affinity.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {"/a": b}}}]`), d + ".topologySpreadConstraints[].labelSelector.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {"/a": b}}}}]}}`), d + ".affinity.matchLabels", Invalid, "/a", "must be the key of a label, such as team or example.com/team"},
				{deployment(`podAdditionalMetadata: {annotations: {a: ` + strings.Repeat("b", 32768) + `}}`), d + ".podAdditionalMetadata.annotations", TooLong, "", "may not be more than 32768 characters in all"},
			},
		},
		{
			Name:   "labels have values that are values of labels",
			Passes: []string{deployment(`nodeSelector: {a: ""}, podAdditionalMetadata: {labels: {a: A.b_c-1}}`)},
			Fails: []Failure{
				{deployment(`nodeSelector: {a: b c}`), d + ".nodeSelector.a", Invalid, "b c", d + ".nodeSelector.a in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'"},
				{deployment(`podAdditionalMetadata: {labels: {a: -b}}`), d + ".podAdditionalMetadata.labels.a", Invalid, "-b", d + ".podAdditionalMetadata.labels.a in body should match '^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'"},
				{`spec: {controlPlane: {service: {additionalMetadata: {labels: {a: ` + a63 + `a}}}}}`, "spec.controlPlane.service.additionalMetadata.labels.a", TooLong, "", "may not be more than 63 bytes"},
			},
		},
		{
			Name: "resources are some that containers have", Policy: true,
			Passes: []string{
				deployment(`resources: {apiServer: {requests: {cpu: 1, memory: 1Gi, example.com/device: 1}, limits: {example.com/device: 1}}, kine: {limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}}`),
				deployment(`resources: {scheduler: {requests: {cpu: 1, ephemeral-storage: 1Gi}, limits: {hugepages-1Gi: 2Gi}}, controllerManager: {limits: {ephemeral-storage: 1Gi}}}`),
				deployment(`resources: {scheduler: {limits: {cpu: 500m, memory: 1500m, ephemeral-storage: 1500m, ` + a248[1:] + `/a: 1}}}`),
			},
			Fails: []Failure{
				{deployment(`resources: {apiServer: {requests: {gpu: 1}, limits: {gpu: 1}}}`), d + ".resources.apiServer.limits", Invalid, "gpu", "must be cpu, memory, ephemeral-storage, hugepages-<size> or the name of an extended resource, such as example.com/device"},
				{deployment(`resources: {controllerManager: {limits: {requests.example.com/device: 1}}}`), d + ".resources.controllerManager.limits", Invalid, "requests.example.com/device", "must be cpu, memory, ephemeral-storage, hugepages-<size> or the name of an extended resource, such as example.com/device"},
				{deployment(`resources: {kine: {limits: {` + a248 + `/a: 1}}}`), d + ".resources.kine.limits", Invalid, a248 + "/a", "must be cpu, memory, ephemeral-storage, hugepages-<size> or the name of an extended resource, such as example.com/device"},
				{deployment(`resources: {kine: {limits: {hugepages-0Mi: 1}}}`), d + ".resources.kine.limits", Invalid, "hugepages-0Mi", "must be cpu, memory, ephemeral-storage, hugepages-<size> or the name of an extended resource, such as example.com/device"},
				{deployment(`additionalInitContainers: [{name: a, image: a, resources: {limits: {a/b/c: 1}}}]`), d + ".additionalInitContainers[].resources.limits", Invalid, "a/b/c", "must be cpu, memory, ephemeral-storage, hugepages-<size> or the name of an extended resource, such as example.com/device"},
				{deployment(`additionalContainers: [{name: a, image: a, resources: {limits: {example.com/device: 100m}}}]`), d + ".additionalContainers[].resources.limits", Invalid, "example.com/device", "must be a whole number, of hugepages a multiple of their size"},
				{deployment(`resources: {scheduler: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}}`), d + ".resources.scheduler.limits", Invalid, "hugepages-2Mi", "must be a whole number, of hugepages a multiple of their size"},
				{`spec: {addons: {konnectivity: {server: {resources: {limits: {hugepages-2Mi: 2Mi}}}}}}`, "spec.addons.konnectivity.server.resources", Forbidden, "", "hugepages need cpu or memory"},
			},
		},
		{
			Name: "files of a projected volume have paths of their own", Policy: true,
			Passes: []string{deployment(`additionalVolumes: [{name: a, projected: {sources: [{secret: {name: a, items: [{key: a, path: a}]}}, {configMap: {name: a, items: [{key: a, path: b}]}}]}}]`)},
			Fails: []Failure{
				{volume(`projected: {sources: [{secret: {name: a, items: [{key: a, path: a}]}}, {configMap: {name: a, items: [{key: b, path: b}, {key: a, path: a}]}}]}`), d + ".additionalVolumes[].projected.sources", Invalid, "a", "two files cannot have the same path"},
				{volume(`projected: {sources: [{secret: {name: a, items: [{key: a, path: a}, {key: b, path: a}]}}]}`), d + ".additionalVolumes[].projected.sources", Invalid, "a", "two files cannot have the same path"},
				{volume(`projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}, {clusterTrustBundle: {path: a, name: b}}]}`), d + ".additionalVolumes[].projected.sources", Invalid, "a", "two files cannot have the same path"},
				{volume(`projected: {sources: [{secret: {name: a, items: [{key: a, path: a}]}}, {podCertificate: {keyType: ED25519, signerName: example.com/a, credentialBundlePath: a}}]}`), d + ".additionalVolumes[].projected.sources", Invalid, "a", "two files cannot have the same path"},
				{volume(`projected: {sources: [{podCertificate: {keyType: ED25519, signerName: example.com/a, keyPath: a, certificateChainPath: a}}]}`), d + ".additionalVolumes[].projected.sources", Invalid, "a", "two files cannot have the same path"},
			},
		},
		{
			Name:   "requests are at most the limits",
			Passes: []string{deployment(`resources: {controllerManager: {requests: {cpu: 500m}, limits: {cpu: "1", memory: 1Gi}}}`)},
			Fails: []Failure{
				{deployment(`resources: {controllerManager: {requests: {cpu: 2}, limits: {cpu: 500m}}}`), d + ".resources.controllerManager.requests", Invalid, "", "must not be more than the limits"},
				{deployment(`resources: {controllerManager: {requests: {example.com/device: 1}}}`), d + ".resources.controllerManager.requests", Invalid, "", "must be equal to the limits for all but cpu, memory and ephemeral-storage"},
				{deployment(`resources: {controllerManager: {requests: {cpu: -1}}}`), d + ".resources.controllerManager.requests.cpu", Invalid, "-1", d + ".resources.controllerManager.requests.cpu in body should be greater than or equal to 0"},
				{deployment(`resources: {controllerManager: {requests: {cpu: -1m}}}`), d + ".resources.controllerManager.requests.cpu", Invalid, "-1m", d + ".resources.controllerManager.requests.cpu in body should match '^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$'"},
				{deployment(`resources: {controllerManager: {claims: [{name: a}]}}`), d + ".resources.controllerManager.claims", Invalid, "", "cannot be set: pods of a control plane have no resource claims"},
			},
		},
	}
}

// mounting is a tenant with additional volumes, a container, an init container and an API server, each of which mounts the one named,
// or none.
func mounting(volumes, container, init, apiServer string) string {
	var parts []string
	for v := range strings.SplitSeq(volumes, ", ") {
		parts = append(parts, "{name: "+v+", emptyDir: {}}")
	}
	text := "additionalVolumes: [" + strings.Join(parts, ", ") + "]"
	if container != "" {
		text += ", additionalContainers: [{name: a, image: a, volumeMounts: [{name: " + container + ", mountPath: /a}]}]"
	}
	if init != "" {
		text += ", additionalInitContainers: [{name: i, image: a, volumeMounts: [{name: " + init + ", mountPath: /a}]}]"
	}
	if apiServer != "" {
		text += ", additionalVolumeMounts: {apiServer: [{name: " + apiServer + ", mountPath: /a}]}"
	}
	return "spec: {controlPlane: {deployment: {" + text + "}}}"
}
