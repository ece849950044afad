package ruletest

// settings are the rules of the API server's settings.
func settings() []Rule {
	const at = "spec.kubernetes.apiServer"
	set := func(yaml string) string { return `spec: {kubernetes: {apiServer: {` + yaml + `}}}` }
	withArgs := func(yaml, args string) string {
		return `spec: {kubernetes: {apiServer: {` + yaml + `}}, controlPlane: {deployment: {extraArgs: {apiServer: [` + args + `]}}}}`
	}
	deployment := func(yaml, more string) string {
		return `spec: {kubernetes: {apiServer: {` + yaml + `}}, controlPlane: {deployment: {` + more + `}}}`
	}
	jwt := func(yaml string) string { return set(`authentication: {jwt: [` + yaml + `]}`) }
	const plain = `issuer: {url: "https://a.example.com", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ""}}`
	anonymous := func(yaml string) string { return set(`authentication: {anonymous: {` + yaml + `}}`) }
	const (
		open   = `{path: /livez}, {path: /readyz}, {path: /healthz}, {path: /api/v1/namespaces/kube-public/configmaps/cluster-info}`
		nobody = at + ".authentication.anonymous"
	)
	issuer := func(yaml string) string {
		return jwt(`{issuer: {` + yaml + `}, claimMappings: {username: {claim: sub, prefix: ""}}}`)
	}
	mapped := func(yaml string) string {
		return jwt(`{issuer: {url: "https://a.example.com", audiences: [a]}, claimMappings: {` + yaml + `}}`)
	}
	more := func(yaml string) string { return jwt(`{` + plain + `, ` + yaml + `}`) }
	authorizers := func(yaml string) string { return set(`authorization: {authorizers: [` + yaml + `]}`) }
	idle := func(yaml string) string { return "metadata: {annotations: {stoker.dev/sleep-when-idle: 30m}}\n" + yaml }
	const own = `{type: Node, name: node}, {type: RBAC, name: rbac}`
	webhook := func(yaml string) string {
		return authorizers(own + `, {type: Webhook, name: a, webhook: {kubeconfigSecret: {name: a}, failurePolicy: Deny` + yaml + `}}`)
	}
	policy := func(rule string) string { return set(`audit: {log: {}, policy: {rules: [{` + rule + `}]}}`) }
	const (
		audited    = `audit: {log: {file: {}}, policy: {rules: [{level: Metadata}]}}`
		j          = at + ".authentication.jwt[0]"
		a          = at + ".authorization.authorizers"
		rule       = at + ".audit.policy.rules[0]"
		args       = "spec.controlPlane.deployment.extraArgs.apiServer"
		notURL     = "must be a URL that begins with https:// and has no user, query or fragment"
		notDur     = "must be a duration of more than 0, such as 30s or 5m"
		either     = "must have either claim or expression"
		both       = "must not have both claim and expression"
		noPrefix   = `goes with claim, and keeps the issuer's users apart from the cluster's own: "" for none`
		needsBoth  = "must have Node and RBAC, each once: the control plane depends on them"
		needsHook  = "must be set with type Webhook, and only then"
		notKey     = "must be a domain and a path in small letters, such as example.com/tenant, and not of kubernetes.io or k8s.io"
		ownVolume  = "is the name of one of the control plane's own volumes"
		ownMount   = "is where the container mounts a volume of its own"
		onIdle     = "metadata.annotations[stoker.dev/sleep-when-idle]"
		besideIdle = "cannot be beside the annotation stoker.dev/sleep-when-idle, for use is counted by an audit of its own"
		notGate    = "must be the name of a feature gate, such as MutatingAdmissionPolicy"
		notWithout = "goes with claim, not with expression"
	)
	twice := func(field string) string {
		return "is what " + at + "." + field + " says: it can be said in one place only"
	}
	return []Rule{
		{
			Name: "an issuer of tokens is one the API server takes",
			Passes: []string{
				jwt(`{` + plain + `}`), jwt(`{` + plain + `}, {issuer: {url: "https://b.example.com/x", audiences: [a]}, claimMappings: {username: {expression: claims.sub}}}`),
				issuer(`url: "https://a.example.com:8443/realms/x", discoveryURL: "https://b.example.com/x/.well-known/openid-configuration", certificateAuthority: "-----BEGIN CERTIFICATE-----", audiences: [a, b], audienceMatchPolicy: MatchAny`),
			},
			Fails: []Failure{
				{jwt(``), at + ".authentication.jwt", Invalid, "0", at + ".authentication.jwt in body should have at least 1 items"},
				{jwt(`{` + plain + `}, {` + plain + `}`), at + ".authentication.jwt", Invalid, "https://a.example.com", "each issuer can be listed once"},
				{issuer(`url: "http://a.example.com", audiences: [a]`), j + ".issuer.url", Invalid, "http://a.example.com", notURL},
				{issuer(`url: "https://u:p@a.example.com", audiences: [a]`), j + ".issuer.url", Invalid, "https://u:p@a.example.com", notURL},
				{issuer(`url: "https://a.example.com?x", audiences: [a]`), j + ".issuer.url", Invalid, "https://a.example.com?x", notURL},
				{issuer(`url: "https://a.example.com", discoveryURL: "https://a.example.com/#x", audiences: [a]`), j + ".issuer.discoveryURL", Invalid, "https://a.example.com/#x", notURL},
				{issuer(`url: "https://a.example.com", discoveryURL: "https://a.example.com", audiences: [a]`), j + ".issuer.discoveryURL", Invalid, "https://a.example.com", "must be another URL than that of the issuer"},
				{issuer(`url: "https://a.example.com", certificateAuthority: a, audiences: [a]`), j + ".issuer.certificateAuthority", Invalid, "a", "must be certificates in PEM, and no keys"},
				{issuer(`url: "https://a.example.com", audiences: []`), j + ".issuer.audiences", Invalid, "0", j + ".issuer.audiences in body should have at least 1 items"},
				{issuer(`url: "https://a.example.com", audiences: [a, a]`), j + ".issuer.audiences[1]", Duplicate, "a", ""},
				{issuer(`url: "https://a.example.com", audiences: [a, b]`), j + ".issuer.audienceMatchPolicy", Required, "", "must be MatchAny with several audiences"},
			},
		},
		{
			Name: "who hasn't signed in is kept to paths, but for probes and kubeadm join",
			Passes: []string{
				anonymous(`enabled: true`), anonymous(`enabled: true, conditions: [` + open + `]`),
				set(`authentication: {jwt: [{` + plain + `}], anonymous: {enabled: true, conditions: [{path: /version}, ` + open + `]}}`),
			},
			Fails: []Failure{
				{anonymous(`enabled: false`), nobody + ".enabled", Invalid, "false", "must be true, for the probes of the control plane's pods don't sign in: limit it by conditions"},
				{anonymous(`enabled: true, conditions: []`), nobody + ".conditions", Invalid, "0", nobody + ".conditions in body should have at least 1 items"},
				{anonymous(`enabled: true, conditions: [{path: /livez}, {path: /healthz}]`), nobody + ".conditions", Invalid, "", "must have the path /readyz: probes and kubeadm join don't sign in"},
				{anonymous(`enabled: true, conditions: [{path: /livez}, {path: /healthz}, {path: /readyz}]`), nobody + ".conditions", Invalid, "", "must have the path /api/v1/namespaces/kube-public/configmaps/cluster-info: probes and kubeadm join don't sign in"},
				{anonymous(`enabled: true, conditions: [{path: "/healthz*"}, ` + open + `]`), nobody + ".conditions[0].path", Invalid, "/healthz*", nobody + ".conditions[0].path in body should match '^/[^*?#[:space:]]*$'"},
				{anonymous(`enabled: true, conditions: [{path: /livez}, ` + open + `]`), nobody + ".conditions[1]", Duplicate, `{"path":"/livez"}`, ""},
			},
		},
		{
			Name: "who may sign in, or hasn't, is said where authentication is", Policy: true,
			Passes: []string{anonymous(`enabled: true`), jwt(`{` + plain + `}`)},
			Fails:  []Failure{{set(`authentication: {}`), at + ".authentication", Required, "", "must have jwt or anonymous"}},
		},
		{
			Name: "paths for who hasn't signed in are known to the version", Policy: true,
			Passes: []string{`spec: {kubernetes: {version: v1.32.0, apiServer: {authentication: {anonymous: {enabled: true}}}}}`},
			Fails: []Failure{
				{`spec: {kubernetes: {version: v1.31.9, apiServer: {authentication: {anonymous: {enabled: true}}}}}`, nobody, Forbidden, "", "needs Kubernetes v1.32 or later: upgrade the tenant first"},
			},
		},
		{
			Name: "claims are mapped as the API server can",
			Passes: []string{
				mapped(`username: {expression: claims.sub}, groups: {claim: groups, prefix: "a:"}, uid: {claim: sub}, extra: [{key: example.com/a, valueExpression: claims.a}]`),
				mapped(`username: {claim: sub, prefix: "a:"}, groups: {expression: claims.groups}, uid: {expression: claims.sub}`),
			},
			Fails: []Failure{
				{mapped(`username: {}`), j + ".claimMappings.username", Required, "", "must have claim or expression"},
				{mapped(`username: {claim: a, prefix: "", expression: claims.a}`), j + ".claimMappings.username", Invalid, "", both},
				{mapped(`username: {claim: a}`), j + ".claimMappings.username.prefix", Required, "", noPrefix},
				{mapped(`username: {expression: claims.a, prefix: a}`), j + ".claimMappings.username.prefix", Invalid, "", notWithout},
				{mapped(`username: {expression: claims.a}, groups: {claim: a}`), j + ".claimMappings.groups.prefix", Required, "", noPrefix},
				{mapped(`username: {expression: claims.a}, uid: {}`), j + ".claimMappings.uid", Invalid, "", either},
				{mapped(`username: {expression: claims.a}, extra: [{key: tenant, valueExpression: claims.a}]`), j + ".claimMappings.extra[0].key", Invalid, "tenant", notKey},
				{mapped(`username: {expression: claims.a}, extra: [{key: a.k8s.io/b, valueExpression: claims.a}]`), j + ".claimMappings.extra[0].key", Invalid, "a.k8s.io/b", notKey},
				{mapped(`username: {expression: claims.a}, extra: [{key: a.b/c, valueExpression: claims.a}, {key: a.b/c, valueExpression: claims.a}]`), j + ".claimMappings.extra[1]", Duplicate, `{"key":"a.b/c"}`, ""},
			},
		},
		{
			Name:   "tokens and users are validated by claims or expressions",
			Passes: []string{more(`claimValidationRules: [{claim: a}, {claim: b, requiredValue: c}, {expression: claims.d == 1, message: e}], userValidationRules: [{expression: "true"}]`)},
			Fails: []Failure{
				{more(`claimValidationRules: [{}]`), j + ".claimValidationRules[0]", Invalid, "", either},
				{more(`claimValidationRules: [{claim: a, expression: claims.a}]`), j + ".claimValidationRules[0]", Invalid, "", either},
				{more(`claimValidationRules: [{expression: claims.a == 1, requiredValue: b}]`), j + ".claimValidationRules[0].requiredValue", Invalid, "", notWithout},
				{more(`claimValidationRules: [{claim: a, message: b}]`), j + ".claimValidationRules[0].message", Invalid, "", "goes with expression, not with claim"},
				{more(`userValidationRules: [{message: b}]`), j + ".userValidationRules[0].expression", Required, "", ""},
			},
		},
		{
			Name: "authorizers are Node, RBAC and webhooks",
			Passes: []string{
				authorizers(own), webhook(``), webhook(`, timeout: 30s, authorizedTTL: 1h30m, unauthorizedTTL: 1s, matchConditions: [{expression: "true"}]`),
				authorizers(`{type: Webhook, name: a, webhook: {kubeconfigSecret: {name: a.b}, failurePolicy: NoOpinion}}, ` + own),
			},
			Fails: []Failure{
				{authorizers(`{type: RBAC, name: rbac}`), a, Invalid, "", needsBoth},
				{authorizers(own + `, {type: Node, name: again}`), a, Invalid, "", needsBoth},
				{authorizers(own + `, {type: AlwaysAllow, name: a}`), a + "[2].type", NotSupported, "AlwaysAllow", `supported values: "Webhook", "Node", "RBAC"`},
				{authorizers(own + `, {type: Webhook, name: node, webhook: {kubeconfigSecret: {name: a}, failurePolicy: Deny}}`), a + "[2]", Duplicate, `{"name":"node"}`, ""},
				{authorizers(own + `, {type: Webhook, name: a}`), a + "[2].webhook", Invalid, "", needsHook},
				{authorizers(`{type: Node, name: node, webhook: {kubeconfigSecret: {name: a}, failurePolicy: Deny}}, {type: RBAC, name: rbac}`), a + "[0].webhook", Invalid, "", needsHook},
				{authorizers(own + `, {type: Webhook, name: a, webhook: {kubeconfigSecret: {name: a}}}`), a + "[2].webhook.failurePolicy", Required, "", ""},
				{webhook(`, timeout: 31s`), a + "[2].webhook.timeout", Invalid, "31s", "must be from 1s to 30s"},
				{webhook(`, authorizedTTL: 0s`), a + "[2].webhook.authorizedTTL", Invalid, "0s", notDur},
				{webhook(`, unauthorizedTTL: soon`), a + "[2].webhook.unauthorizedTTL", Invalid, "soon", notDur},
			},
		},
		{
			Name: "an audit policy is one the API server takes, and events go somewhere",
			Passes: []string{
				set(audited), policy(`level: None, nonResourceURLs: ["*", /healthz*]`), set(`audit: {webhook: {kubeconfigSecret: {name: a}}, policy: {rules: [{level: Request}]}}`),
				policy(`level: RequestResponse, resources: [{group: apps, resources: [deployments], resourceNames: [a]}, {}], namespaces: [""], omitStages: [Panic]`),
			},
			Fails: []Failure{
				{set(`audit: {policy: {rules: [{level: Metadata}]}}`), at + ".audit", Required, "", "must have log or webhook: where events go"},
				{set(`audit: {log: {}, policy: {rules: []}}`), at + ".audit.policy.rules", Invalid, "0", at + ".audit.policy.rules in body should have at least 1 items"},
				{policy(`level: All`), rule + ".level", NotSupported, "All", `supported values: "None", "Metadata", "Request", "RequestResponse"`},
				{policy(`level: None, omitStages: [End]`), rule + ".omitStages[0]", NotSupported, "End", `supported values: "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"`},
				{policy(`level: None, nonResourceURLs: [/a], namespaces: [b]`), rule + ".nonResourceURLs", Invalid, "", "cannot be set beside resources or namespaces: no request is of both kinds"},
				{policy(`level: None, nonResourceURLs: [/a*b]`), rule + ".nonResourceURLs[0]", Invalid, "/a*b", rule + ".nonResourceURLs[0] in body should match '^([*]|/[^*]*[*]?)$'"},
				{policy(`level: None, resources: [{resourceNames: [a]}]`), rule + ".resources[0].resources", Required, "", "must be set with resourceNames"},
				{set(`audit: {log: {file: {maxBackup: 0}}, policy: {rules: [{level: Metadata}]}}`), at + ".audit.log.file.maxBackup", Invalid, "0", at + ".audit.log.file.maxBackup in body should be greater than or equal to 1"},
			},
		},
		{
			Name:   "events are kept for a while, and requests are limited to some",
			Passes: []string{set(`eventTTL: 24h, maxRequestsInFlight: 1, maxMutatingRequestsInFlight: 1`), set(`eventTTL: 1h30m`), set(``)},
			Fails: []Failure{
				{set(`eventTTL: 1d`), at + ".eventTTL", Invalid, "1d", "must be a duration of more than 0, such as 90m or 24h"},
				{set(`eventTTL: 0h`), at + ".eventTTL", Invalid, "0h", "must be a duration of more than 0, such as 90m or 24h"},
				{set(`maxRequestsInFlight: 0`), at + ".maxRequestsInFlight", Invalid, "0", at + ".maxRequestsInFlight in body should be greater than or equal to 1"},
			},
		},
		{
			Name: "what is encrypted are resources, each once, by a cipher that there is",
			Passes: []string{
				set(`encryption: {}`), set(`encryption: {resources: [secrets, deployments.apps, tokens.a.example.com], provider: aescbc}`),
			},
			Fails: []Failure{
				{set(`encryption: {resources: []}`), at + ".encryption.resources", Invalid, "0", at + ".encryption.resources in body should have at least 1 items"},
				{set(`encryption: {resources: [secrets, secrets]}`), at + ".encryption.resources[1]", Duplicate, "secrets", ""},
				{set(`encryption: {resources: ["*.*"]}`), at + ".encryption.resources[0]", Invalid, "*.*", at + ".encryption.resources[0] in body should match '^[a-z][a-z0-9]*([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'"},
				{set(`encryption: {resources: [events.events.k8s.io]}`), at + ".encryption.resources", Invalid, "events.events.k8s.io", "can't be encrypted by that name: events are events, what was in extensions is in the group where it is now"},
				{set(`encryption: {provider: aesgcm}`), at + ".encryption.provider", NotSupported, "aesgcm", `supported values: "secretbox", "aescbc"`},
			},
		},
		{
			Name: "feature gates have names", Policy: true,
			Passes: []string{set(`featureGates: {MutatingAdmissionPolicy: true, AllAlpha: false}`)},
			Fails:  []Failure{{set(`featureGates: {"A=true,B": true}`), at + ".featureGates", Invalid, "A=true,B", notGate}},
		},
		{
			Name: "what a setting of the API server says is not said by a flag as well", Policy: true,
			Passes: []string{
				withArgs(`eventTTL: 2h`, `"--v=2", "--oidc-issuer-url=https://a.example.com", "--audit-log-path=-", "--feature-gates=A=true"`),
				withArgs(audited, `"--audit-log-format=legacy", "--audit-webhook-batch-max-size=1"`),
				withArgs(`authentication: {jwt: [{`+plain+`}]}`, `"--anonymous-auth=false"`),
			},
			Fails: []Failure{
				{withArgs(`authentication: {jwt: [{`+plain+`}]}`, `"--v=2", "--oidc-client-id=a"`), args, Invalid, "--oidc-client-id=a", twice("authentication")},
				{withArgs(`authentication: {jwt: [{`+plain+`}]}`, `"--authentication-config=a"`), args, Invalid, "--authentication-config=a", twice("authentication")},
				{withArgs(`authentication: {anonymous: {enabled: true}}`, `"--anonymous-auth=false"`), args, Invalid, "--anonymous-auth=false", twice("authentication.anonymous")},
				{withArgs(`authorization: {authorizers: [`+own+`]}`, `" --authorization_mode", "AlwaysAllow"`), args, Invalid, " --authorization_mode", twice("authorization")},
				{withArgs(audited, `"--audit-log-maxage=1"`), args, Invalid, "--audit-log-maxage=1", twice("audit")},
				{withArgs(audited, `"--audit-webhook-config-file=1"`), args, Invalid, "--audit-webhook-config-file=1", twice("audit")},
				{withArgs(`featureGates: {A: true}`, `"--feature-gates=B=true"`), args, Invalid, "--feature-gates=B=true", twice("featureGates")},
				{withArgs(`encryption: {}`, `"--encryption-provider-config=a"`), args, Invalid, "--encryption-provider-config=a", twice("encryption")},
				{withArgs(`eventTTL: 1h`, `"--event-ttl=2h"`), args, Invalid, "--event-ttl=2h", twice("eventTTL")},
				{withArgs(`maxRequestsInFlight: 1`, `"--max-requests-inflight=2"`), args, Invalid, "--max-requests-inflight=2", twice("maxRequestsInFlight")},
				{withArgs(`maxMutatingRequestsInFlight: 1`, `"--max-mutating-requests-inflight=2"`), args, Invalid, "--max-mutating-requests-inflight=2", twice("maxMutatingRequestsInFlight")},
			},
		},
		{
			Name: "what counts use is the only audit, and Stoker's requests are none of it", Policy: true,
			Passes: []string{
				idle(`spec: {kubernetes: {apiServer: {eventTTL: 1h}}}`),
				idle(`spec: {controlPlane: {deployment: {extraArgs: {apiServer: ["--v=2", "--audit-webhook-batch-max-size=1"]}}}}`),
				`metadata: {annotations: {stoker.dev/sleep-when-idle: 30m, kamaji.clastix.io/kubeconfig-secret-key: super-admin.svc}}`,
			},
			Fails: []Failure{
				{idle(set(audited)), onIdle, Invalid, "30m", "cannot be beside spec.kubernetes.apiServer.audit, for use is counted by an audit of its own"},
				{`metadata: {annotations: {stoker.dev/sleep-when-idle: 30m, kamaji.clastix.io/kubeconfig-secret-key: admin.svc}}`, onIdle, Invalid, "30m", `cannot be beside kamaji.clastix.io/kubeconfig-secret-key "admin.svc", for Stoker's own requests would be use`},
				{idle(withArgs(`eventTTL: 1h`, `"--audit_log-path=-"`)), args, Invalid, "--audit_log-path=-", besideIdle},
				{idle(withArgs(`eventTTL: 1h`, `"--audit-policy-file=a"`)), args, Invalid, "--audit-policy-file=a", besideIdle},
				{idle(withArgs(`eventTTL: 1h`, `"--audit-webhook-config-file=a"`)), args, Invalid, "--audit-webhook-config-file=a", besideIdle},
				{idle(`spec: {controlPlane: {deployment: {additionalVolumes: [{name: kube-apiserver-audit-log, emptyDir: {}}]}}}`), "spec.controlPlane.deployment.additionalVolumes", Invalid, "kube-apiserver-audit-log", ownVolume},
				{idle(`spec: {controlPlane: {deployment: {additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /var/log/kubernetes/}]}}}}`), "spec.controlPlane.deployment.additionalVolumeMounts.apiServer", Invalid, "/var/log/kubernetes/", ownMount},
			},
		},
		{
			Name: "volumes of the API server's settings are its own", Policy: true,
			Passes: []string{
				deployment(audited, `additionalContainers: [{name: a, image: a, volumeMounts: [{name: kube-apiserver-audit-log, mountPath: /a}]}]`),
				deployment(`eventTTL: 1h`, `additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /etc/kubernetes/apiserver/a}]}`),
			},
			Fails: []Failure{
				{deployment(`eventTTL: 1h`, `additionalContainers: [{name: a, image: a, volumeMounts: [{name: kube-apiserver-audit-log, mountPath: /a}]}]`), "spec.controlPlane.deployment.additionalContainers", Invalid, "kube-apiserver-audit-log", "is mounted, but is none of additionalVolumes"},
				{deployment(`eventTTL: 1h`, `additionalVolumes: [{name: kube-apiserver-settings, emptyDir: {}}]`), "spec.controlPlane.deployment.additionalVolumes", Invalid, "kube-apiserver-settings", ownVolume},
				{deployment(`encryption: {}`, `additionalVolumes: [{name: kube-apiserver-encryption, emptyDir: {}}]`), "spec.controlPlane.deployment.additionalVolumes", Invalid, "kube-apiserver-encryption", ownVolume},
				{deployment(audited, `additionalVolumes: [{name: kube-apiserver-audit-log, emptyDir: {}}]`), "spec.controlPlane.deployment.additionalVolumes", Invalid, "kube-apiserver-audit-log", ownVolume},
				{deployment(audited, `additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /etc/kubernetes/apiserver/}]}`), "spec.controlPlane.deployment.additionalVolumeMounts.apiServer", Invalid, "/etc/kubernetes/apiserver/", ownMount},
				{deployment(audited, `additionalVolumes: [{name: a, emptyDir: {}}], additionalVolumeMounts: {apiServer: [{name: a, mountPath: /var/log/kubernetes}]}`), "spec.controlPlane.deployment.additionalVolumeMounts.apiServer", Invalid, "/var/log/kubernetes", ownMount},
			},
		},
	}
}
