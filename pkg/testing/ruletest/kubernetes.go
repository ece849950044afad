package ruletest

// kubernetes are what Kubernetes asks of its own types: one object or some of each kind of constraint. That nothing is
// missing is for test/rules, which has an API server judge what was accepted.
func kubernetes() []Rule {
	const d = "spec.controlPlane.deployment"
	container := func(yaml string) string {
		return `spec: {controlPlane: {deployment: {additionalContainers: [{name: a, image: a, ` + yaml + `}]}}}`
	}
	const c = d + ".additionalContainers[0]"
	volume := func(yaml string) string {
		return `spec: {controlPlane: {deployment: {additionalVolumes: [{name: a, ` + yaml + `}]}}}`
	}
	const v = d + ".additionalVolumes[0]"
	pod := func(yaml string) string { return `spec: {controlPlane: {deployment: {` + yaml + `}}}` }
	supported := func(values string) string { return "supported values: " + values }
	return []Rule{
		{
			Name:   "a container has a name and an image",
			Passes: []string{container(`imagePullPolicy: Never, terminationMessagePolicy: FallbackToLogsOnError`)},
			Fails: []Failure{
				{pod(`additionalContainers: [{name: A, image: a}]`), c + ".name", Invalid, "A", c + ".name in body should match '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'"},
				{pod(`additionalContainers: [{name: a}]`), c + ".image", Required, "", ""},
				{pod(`additionalContainers: [{name: a, image: " a"}]`), c + ".image", Invalid, " a", c + ".image in body should match '^[^[:space:]](.*[^[:space:]])?$'"},
				{container(`imagePullPolicy: Sometimes`), c + ".imagePullPolicy", NotSupported, "Sometimes", supported(`"", "Always", "IfNotPresent", "Never"`)},
				{container(`terminationMessagePolicy: None`), c + ".terminationMessagePolicy", NotSupported, "None", supported(`"", "File", "FallbackToLogsOnError"`)},
			},
		},
		{
			Name:   "a container's ports are ports",
			Passes: []string{container(`ports: [{name: http-2, containerPort: 80, hostPort: 0, hostIP: 192.0.2.1}]`)},
			Fails: []Failure{
				{container(`ports: [{containerPort: 65536}]`), c + ".ports[0].containerPort", Invalid, "65536", c + ".ports[0].containerPort in body should be less than or equal to 65535"},
				{container(`ports: [{containerPort: 1, hostPort: -1}]`), c + ".ports[0].hostPort", Invalid, "-1", c + ".ports[0].hostPort in body should be greater than or equal to 0"},
				{container(`ports: [{containerPort: 1, name: "12"}]`), c + ".ports[0].name", Invalid, "12", c + ".ports[0].name in body should match '^$|^([0-9]-?)*[a-z](-?[a-z0-9])*$'"},
				{container(`ports: [{containerPort: 1, name: a--b}]`), c + ".ports[0].name", Invalid, "a--b", c + ".ports[0].name in body should match '^$|^([0-9]-?)*[a-z](-?[a-z0-9])*$'"},
				{container(`ports: [{containerPort: 1, protocol: ICMP}]`), c + ".ports[0].protocol", NotSupported, "ICMP", supported(`"TCP", "UDP", "SCTP"`)},
			},
		},
		{
			Name: "environment variables have one source",
			Passes: []string{
				container(`env: [{name: A, value: b}, {name: "b.c-d", valueFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}], envFrom: [{prefix: A_, secretRef: {name: a}}]`),
			},
			Fails: []Failure{
				{container(`env: [{name: A, valueFrom: {}}]`), c + ".env[0].valueFrom", Invalid, "", "must have exactly one source: fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef"},
				{container(`env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`), c + ".env[0].valueFrom", Invalid, "", "cannot be set beside value"},
				{container(`env: [{name: "A=B", value: b}]`), c + ".env[0].name", Invalid, "A=B", c + ".env[0].name in body should match '^[ -<>-~]+$'"},
				{container(`env: [{name: A}, {name: A}]`), c + ".env[1]", Duplicate, `{"name":"A"}`, ""},
				{container(`env: [{name: A, valueFrom: {secretKeyRef: {key: a}}}]`), c + ".env[0].valueFrom.secretKeyRef.name", Required, "", ""},
				{container(`env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: ..}}}]`), c + ".env[0].valueFrom.secretKeyRef.key", Invalid, "..", c + ".env[0].valueFrom.secretKeyRef.key in body should match '^([-_A-Za-z0-9]|[.][-_A-Za-z0-9])[-._A-Za-z0-9]*$'"},
				{container(`env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]`), c + ".env[0].valueFrom.resourceFieldRef.divisor", Invalid, "", "must be 1m or 1 for cpu, else 1 or one of k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"},
				{container(`envFrom: [{configMapRef: {name: a}, secretRef: {name: a}}]`), c + ".envFrom[0]", Invalid, "", "must have exactly one source: configMapRef, secretRef"},
			},
		},
		{
			Name:   "a probe or hook does one thing",
			Passes: []string{container(`livenessProbe: {httpGet: {port: http, path: /, scheme: HTTPS, httpHeaders: [{name: X-A, value: b}]}}, readinessProbe: {grpc: {port: 80}}, lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {exec: {command: ["true"]}}}`)},
			Fails: []Failure{
				{container(`livenessProbe: {}`), c + ".livenessProbe", Invalid, "", "must have exactly one handler: exec, httpGet, tcpSocket, grpc"},
				{container(`livenessProbe: {tcpSocket: {port: 80}, exec: {command: [a]}}`), c + ".livenessProbe", Invalid, "", "must have exactly one handler: exec, httpGet, tcpSocket, grpc"},
				{container(`livenessProbe: {tcpSocket: {port: 80}, successThreshold: 2}`), c + ".livenessProbe.successThreshold", Invalid, "", "must be 1 for liveness probes"},
				{container(`startupProbe: {tcpSocket: {port: 80}, successThreshold: 2}`), c + ".startupProbe.successThreshold", Invalid, "", "must be 1 for startup probes"},
				{container(`readinessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 2}`), c + ".readinessProbe.terminationGracePeriodSeconds", Invalid, "", "cannot be set for readiness probes"},
				{container(`livenessProbe: {tcpSocket: {port: 0}}`), c + ".livenessProbe.tcpSocket.port", Invalid, "0", c + ".livenessProbe.tcpSocket.port in body should be greater than or equal to 1"},
				{container(`livenessProbe: {exec: {}}`), c + ".livenessProbe.exec.command", Required, "", ""},
				{container(`lifecycle: {preStop: {}}`), c + ".lifecycle.preStop", Invalid, "", "must have exactly one handler: exec, httpGet, tcpSocket, sleep"},
				{container(`lifecycle: {preStop: {sleep: {seconds: 21}}}`), c + ".lifecycle.preStop.sleep.seconds", Invalid, "21", c + ".lifecycle.preStop.sleep.seconds in body should be less than or equal to 20"},
				{container(`lifecycle: {stopSignal: SIGTERM}`), c + ".lifecycle.stopSignal", Invalid, "", "cannot be set: pods of a control plane name no operating system"},
			},
		},
		{
			Name:   "a mount is one Kubernetes takes",
			Passes: []string{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, subPath: ca.crt, readOnly: true, recursiveReadOnly: IfPossible}]`)},
			Fails: []Failure{
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, subPath: a, subPathExpr: b}]`), c + ".volumeMounts[0]", Invalid, "", "must not have more than one of subPath and subPathExpr"},
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, subPath: a/../b}]`), c + ".volumeMounts[0].subPath", Invalid, "a/../b", c + ".volumeMounts[0].subPath in body should match '^(([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+)(/+([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+))*/*)?$'"},
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: ""}]`), c + ".volumeMounts[0].mountPath", Invalid, "", c + ".volumeMounts[0].mountPath in body should be at least 1 chars long"},
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, recursiveReadOnly: Enabled}]`), c + ".volumeMounts[0].recursiveReadOnly", Invalid, "", "needs readOnly, and no mount propagation"},
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, mountPropagation: Bidirectional}]`), c, Invalid, "", "Bidirectional mount propagation needs a privileged container"},
				{container(`volumeMounts: [{name: etc-kubernetes-pki, mountPath: /a, mountPropagation: Sideways}]`), c + ".volumeMounts[0].mountPropagation", NotSupported, "Sideways", supported(`"None", "HostToContainer", "Bidirectional"`)},
			},
		},
		{
			Name: "a security context is one Kubernetes takes",
			Passes: []string{
				pod(`containerSecurityContexts: {apiServer: {runAsUser: 1000, seccompProfile: {type: Localhost, localhostProfile: a/b.json}, capabilities: {add: [NET_BIND_SERVICE]}, allowPrivilegeEscalation: false}, kine: {runAsNonRoot: true}}, podSecurityContext: {fsGroup: 1000, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [1], sysctls: [{name: net.core.somaxconn, value: "1024"}]}`),
			},
			Fails: []Failure{
				{pod(`containerSecurityContexts: {apiServer: {runAsUser: -1}}`), d + ".containerSecurityContexts.apiServer.runAsUser", Invalid, "-1", d + ".containerSecurityContexts.apiServer.runAsUser in body should be greater than or equal to 0"},
				{pod(`containerSecurityContexts: {scheduler: {privileged: true, allowPrivilegeEscalation: false}}`), d + ".containerSecurityContexts.scheduler.allowPrivilegeEscalation", Invalid, "", "cannot be false for a privileged container or one with CAP_SYS_ADMIN"},
				{pod(`containerSecurityContexts: {scheduler: {seccompProfile: {type: Localhost}}}`), d + ".containerSecurityContexts.scheduler.seccompProfile", Invalid, "", "localhostProfile must be set with type Localhost, and only then"},
				{pod(`containerSecurityContexts: {scheduler: {procMount: Unmasked}}`), d + ".containerSecurityContexts.scheduler.procMount", NotSupported, "Unmasked", supported(`"Default"`)},
				{pod(`containerSecurityContexts: {kineInit: {windowsOptions: {}}}`), d + ".containerSecurityContexts.kineInit.windowsOptions", Invalid, "", "cannot be set: control planes run on Linux"},
				{pod(`podSecurityContext: {windowsOptions: {}}`), d + ".podSecurityContext.windowsOptions", Invalid, "", "cannot be set: control planes run on Linux"},
				{pod(`podSecurityContext: {appArmorProfile: {type: Unconfined, localhostProfile: a}}`), d + ".podSecurityContext.appArmorProfile", Invalid, "", "localhostProfile must be set with type Localhost, and only then"},
				{pod(`podSecurityContext: {sysctls: [{name: a, value: b}, {name: a, value: b}]}`), d + ".podSecurityContext.sysctls", Invalid, "", "names must be unique"},
				{pod(`podSecurityContext: {supplementalGroups: [-1]}`), d + ".podSecurityContext.supplementalGroups[0]", Invalid, "-1", d + ".podSecurityContext.supplementalGroups[0] in body should be greater than or equal to 0"},
			},
		},
		{
			Name:   "a container restarts as Kubernetes can",
			Passes: []string{container(`restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]`)},
			Fails: []Failure{
				{container(`restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]`), c + ".restartPolicy", Invalid, "", "must be set with restartPolicyRules"},
				{container(`resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]`), c + ".resizePolicy", Invalid, "", "resources must be unique"},
			},
		},
		{
			Name: "a volume is of one type",
			Passes: []string{
				volume(`emptyDir: {medium: Memory, sizeLimit: 1Gi}`), volume(`hostPath: {path: /a/b, type: Directory}`), pod(`additionalVolumes: [{name: a}]`),
				volume(`secret: {secretName: a, defaultMode: 256, items: [{key: a, path: b/c, mode: 0}]}`), volume(`image: {reference: "a:b"}`),
				volume(`projected: {sources: [{serviceAccountToken: {path: a}}, {downwardAPI: {items: [{path: b, fieldRef: {fieldPath: metadata.labels}}]}}]}`),
				volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}`),
				volume(`csi: {driver: Example.com, nodePublishSecretRef: {name: a}}`), volume(`nfs: {server: a, path: /b}`),
				volume(`iscsi: {targetPortal: "a:1", iqn: "iqn.2001-04.com.example:storage.disk2.sys1.xyz", lun: 0}`),
			},
			Fails: []Failure{
				{volume(`emptyDir: {}, hostPath: {path: /a}`), v, Invalid, "", "must not have more than one type of volume"},
				{volume(`hostPath: {path: /a/../b}`), v + ".hostPath.path", Invalid, "/a/../b", v + ".hostPath.path in body should match '^/*(([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+)(/+([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+))*)?/*$'"},
				{volume(`hostPath: {path: /a, type: Pipe}`), v + ".hostPath.type", NotSupported, "Pipe", supported(`"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"`)},
				{volume(`configMap: {}`), v + ".configMap.name", Required, "", ""},
				{volume(`secret: {secretName: a, defaultMode: 512}`), v + ".secret.defaultMode", Invalid, "512", v + ".secret.defaultMode in body should be less than or equal to 511"},
				{volume(`secret: {secretName: a, items: [{key: a, path: /b}]}`), v + ".secret.items[0].path", Invalid, "/b", v + ".secret.items[0].path in body should match '^([^/.][^/]*|[.]([^/.][^/]*)?)(/+([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+))*/*$'"},
				{volume(`projected: {sources: [{secret: {name: a}, configMap: {name: b}}]}`), v + ".projected.sources[0]", Invalid, "", "must not have more than one source"},
				{volume(`projected: {sources: [{serviceAccountToken: {path: a, expirationSeconds: 10}}]}`), v + ".projected.sources[0].serviceAccountToken.expirationSeconds", Invalid, "10", v + ".projected.sources[0].serviceAccountToken.expirationSeconds in body should be greater than or equal to 600"},
				{volume(`downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}`), v + ".downwardAPI.items[0]", Invalid, "", "resourceFieldRef of a volume must have containerName"},
				{volume(`downwardAPI: {items: [{path: a}]}`), v + ".downwardAPI.items[0]", Invalid, "", "must have exactly one source: fieldRef, resourceFieldRef"},
				{volume(`ephemeral: {}`), v + ".ephemeral.volumeClaimTemplate", Required, "", ""},
				{volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {cpu: 1}}}}}`), v + ".ephemeral.volumeClaimTemplate.spec.resources", Invalid, "", "requests must have storage, more than 0"},
				{volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce, ReadWriteOncePod], resources: {requests: {storage: 1}}}}}`), v + ".ephemeral.volumeClaimTemplate.spec", Invalid, "", "ReadWriteOncePod cannot be combined with other access modes"},
				{volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef: {kind: PersistentVolumeClaim, name: b}}}}`), v + ".ephemeral.volumeClaimTemplate.spec", Invalid, "", "dataSource and dataSourceRef must be the same"},
				{volume(`ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {kind: A, name: a}}}}`), v + ".ephemeral.volumeClaimTemplate.spec.dataSource", Invalid, "", "kind must be PersistentVolumeClaim without apiGroup"},
				{volume(`nfs: {server: a, path: b}`), v + ".nfs.path", Invalid, "b", v + ".nfs.path in body should match '^/'"},
				{volume(`fc: {targetWWNs: [a]}`), v + ".fc", Invalid, "", "lun must be set with targetWWNs"},
				{volume(`fc: {lun: 1}`), v + ".fc", Invalid, "", "must have exactly one list: targetWWNs, wwids"},
				{volume(`iscsi: {targetPortal: a, iqn: eui.a, lun: 0}`), v + ".iscsi.iqn", Invalid, "eui.a", v + ".iscsi.iqn in body should match '^(iqn[.][0-9]{4}-[0-9]{2}[.][A-Za-z0-9]+([-.][A-Za-z0-9]+)*(:[^[:space:]]+)?|eui[.][[:alnum:]]{16}|naa[.][[:alnum:]]{32})$'"},
				{volume(`iscsi: {targetPortal: a, iqn: eui.0123456789abcdef, lun: 0, chapAuthSession: true}`), v + ".iscsi", Invalid, "", "secretRef must be set with CHAP authentication"},
				{volume(`iscsi: {targetPortal: ` + a63 + `, iqn: eui.0123456789abcdef, lun: 0, initiatorName: eui.0123456789abcdef}`), v, Invalid, "", "the volume's name and iscsi.targetPortal must have less than 64 characters together, with iscsi.initiatorName"},
				{volume(`flocker: {datasetName: a, datasetUUID: b}`), v + ".flocker", Invalid, "", "must have exactly one name: datasetName, datasetUUID"},
				{volume(`azureDisk: {diskName: a, diskURI: "https://a", kind: Managed}`), v + ".azureDisk", Invalid, "", "diskURI must begin with /subscriptions/ when kind is Managed, else with https://"},
				{volume(`projected: {sources: [{clusterTrustBundle: {path: a}}]}`), v + ".projected.sources[0].clusterTrustBundle", Invalid, "", "must have exactly one reference: name, signerName"},
				{volume(`projected: {sources: [{clusterTrustBundle: {path: a, name: b, labelSelector: {}}}]}`), v + ".projected.sources[0].clusterTrustBundle", Invalid, "", "labelSelector cannot be set beside name"},
				{volume(`projected: {sources: [{podCertificate: {keyType: ED25519, signerName: example.com/a}}]}`), v + ".projected.sources[0].podCertificate", Invalid, "", "must have at least one of credentialBundlePath, keyPath and certificateChainPath"},
			},
		},
		{
			Name:   "tolerations are ones",
			Passes: []string{pod(`tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 5}]`), `spec: {addons: {konnectivity: {agent: {tolerations: []}}}}`},
			Fails: []Failure{
				{pod(`tolerations: [{value: b}]`), d + ".tolerations[0].operator", Invalid, "", "must be Exists when key is empty"},
				{pod(`tolerations: [{key: a, operator: Exists, value: b}]`), d + ".tolerations[0].value", Invalid, "", "must be empty when operator is Exists"},
				{pod(`tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 1}]`), d + ".tolerations[0].effect", Invalid, "", "must be NoExecute with tolerationSeconds"},
				{`spec: {addons: {konnectivity: {agent: {tolerations: [{key: a, effect: Never}]}}}}`, "spec.addons.konnectivity.agent.tolerations[0].effect", NotSupported, "Never", supported(`"", "NoSchedule", "PreferNoSchedule", "NoExecute"`)},
			},
		},
		{
			Name:   "an affinity is one",
			Passes: []string{pod(`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}]}}, podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {}, matchLabelKeys: [pod-template-hash]}}]}}`)},
			Fails: []Failure{
				{pod(`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}`), d + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", Invalid, "0", d + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms in body should have at least 1 items"},
				{pod(`affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}`), d + ".affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", Invalid, "101", d + ".affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight in body should be less than or equal to 100"},
				{pod(`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Lt}]}]}}}`), d + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values", Invalid, "", "must be one when operator is Gt or Lt"},
				{pod(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, matchLabelKeys: [b]}]}}`), d + ".affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector", Invalid, "", "must be set with matchLabelKeys and mismatchLabelKeys"},
				{pod(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchExpressions: [{key: b, operator: Exists}]}, matchLabelKeys: [b]}]}}`), d + ".affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys", Invalid, "", "cannot repeat keys of labelSelector"},
				{pod(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [b], mismatchLabelKeys: [b]}]}}`), d + ".affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys", Invalid, "", "cannot repeat keys of mismatchLabelKeys"},
				{pod(`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ""}]}}`), d + ".affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey", Invalid, "", d + ".affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey in body should match '^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"},
			},
		},
	}
}
