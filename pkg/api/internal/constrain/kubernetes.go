package main

// What Kubernetes asks of its own types where they are part of the template of a Deployment's pods: a function per type.
// Bounds that Kubernetes doesn't have are generous, and there because the cost of CEL rules is estimated from them.

import "strings"

// Formats of Kubernetes.
const (
	dnsLabelPattern     = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	dnsSubdomainPattern = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	qualifiedPattern    = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelValuePattern   = `^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	// portNamePattern: letters, digits and single dashes, one letter at least.
	portNamePattern = `^([0-9]-?)*[a-z](-?[a-z0-9])*$`
	// envPattern: printable ASCII but the equals sign.
	envPattern = `^[ -<>-~]+$`
	// keyPattern of the data of ConfigMaps and Secrets: neither . nor .. nor begins with the latter.
	keyPattern = `^([-_A-Za-z0-9]|[.][-_A-Za-z0-9])[-._A-Za-z0-9]*$`
	// element of a path, other than "..".
	element = `([^/.][^/]*|[.]([^/.][^/]*)?|[.]{2}[^/]+)`
	// stepsPattern is any path without an element "..".
	stepsPattern = `^/*(` + element + `(/+` + element + `)*)?/*$`
	// relativePattern of a path below a directory, without an element "..".
	relativePattern = `^(` + element + `(/+` + element + `)*/*)?$`
	// localPattern is relativePattern, and the first element doesn't begin with "..".
	localPattern = `^([^/.][^/]*|[.]([^/.][^/]*)?)(/+` + element + `)*/*$`
	// amountPattern is a quantity that isn't negative.
	amountPattern = `^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// trimmedPattern is not empty and neither begins nor ends with white space.
	trimmedPattern = `^[^[:space:]](.*[^[:space:]])?$`
)

var (
	dnsLabel     = text(63, dnsLabelPattern)
	dnsSubdomain = text(253, dnsSubdomainPattern)
	labelKey     = text(317, qualifiedPattern)
	labelValue   = text(63, labelValuePattern)
	portName     = text(15, portNamePattern)
	configKey    = text(253, keyPattern)
	relative     = text(1024, relativePattern)
	local        = text(253, localPattern)
	fileMode     = between(0, 0o777)
	id           = between(0, 1<<31-1)
	protocol     = oneOf("TCP", "UDP", "SCTP")
)

// amount is a quantity that isn't negative.
func amount(s *schema) { text(32, amountPattern)(s); s.Minimum = new(float64) }

// port is the number or name of a port.
func port(s *schema) { portName(s); between(1, 65535)(s) }

// optional makes the empty string pass, too.
func optional(e edit) edit {
	return func(s *schema) {
		e(s)
		s.Pattern = "^$|" + s.Pattern
	}
}

// container is one of additionalContainers or additionalInitContainers.
func container() fields {
	return join(
		fields{
			"": {
				rule("!has(self.ports) || self.ports.all(p, !has(p.name) || p.name == '' || self.ports.exists_one(q, has(q.name) && q.name == p.name))", "port names must be unique"),
				rule("!has(self.volumeDevices) || !has(self.volumeMounts) || !self.volumeDevices.exists(d, self.volumeMounts.exists(m, m.name == d.name || m.mountPath == d.devicePath))", "a volume or path cannot be among both volumeMounts and volumeDevices"),
				rule("!has(self.volumeMounts) || !self.volumeMounts.exists(m, has(m.mountPropagation) && m.mountPropagation == 'Bidirectional') || has(self.securityContext) && has(self.securityContext.privileged) && self.securityContext.privileged", "Bidirectional mount propagation needs a privileged container"),
				ruleAt(".restartPolicy", "!has(self.restartPolicyRules) || size(self.restartPolicyRules) == 0 || has(self.restartPolicy)", "must be set with restartPolicyRules"),
				needs("image"),
			},
			"name":                     {dnsLabel},
			"image":                    {text(1024, trimmedPattern)},
			"imagePullPolicy":          {oneOf("", "Always", "IfNotPresent", "Never")},
			"terminationMessagePolicy": {oneOf("", "File", "FallbackToLogsOnError")},
			"ports":                    {most(16)},
			"ports[].name":             {optional(portName)},
			"ports[].containerPort":    {between(1, 65535)},
			"ports[].hostPort":         {between(0, 65535)},
			"ports[].hostIP":           {most(45)},
			"ports[].protocol":         {protocol},
			"envFrom":                  {most(64)},
			"envFrom[]":                {exactlyOne("source", "configMapRef", "secretRef")},
			"envFrom[].prefix":         {optional(text(253, envPattern))},
			"envFrom[].configMapRef":   {needs("name")},
			"envFrom[].secretRef":      {needs("name")},
			"envFrom[].configMapRef.name": {
				dnsSubdomain,
			},
			"envFrom[].secretRef.name": {dnsSubdomain},
			"volumeMounts":             {most(64)},
			"volumeDevices": {
				most(8),
				rule("self.all(d, self.exists_one(e, e.name == d.name))", "names must be unique"),
			},
			"volumeDevices[].name":       {dnsLabel},
			"volumeDevices[].devicePath": {text(1024, stepsPattern), filled},
			"resizePolicy": {
				most(2),
				rule("self.all(p, self.exists_one(q, q.resourceName == p.resourceName))", "resources must be unique"),
			},
			"resizePolicy[].resourceName":             {oneOf("cpu", "memory")},
			"resizePolicy[].restartPolicy":            {oneOf("NotRequired", "RestartContainer")},
			"restartPolicy":                           {oneOf("Always", "Never", "OnFailure")},
			"restartPolicyRules":                      {most(20)},
			"restartPolicyRules[]":                    {needs("exitCodes")},
			"restartPolicyRules[].action":             {oneOf("Restart")},
			"restartPolicyRules[].exitCodes.operator": {oneOf("In", "NotIn")},
			"restartPolicyRules[].exitCodes.values":   {most(255)},
			"lifecycle":                               {ruleAt(".stopSignal", "!has(self.stopSignal)", "cannot be set: pods of a control plane name no operating system")},
			"livenessProbe": {
				ruleAt(".successThreshold", "!has(self.successThreshold) || self.successThreshold <= 1", "must be 1 for liveness probes"),
			},
			"startupProbe": {
				ruleAt(".successThreshold", "!has(self.successThreshold) || self.successThreshold <= 1", "must be 1 for startup probes"),
			},
			"readinessProbe": {
				ruleAt(".terminationGracePeriodSeconds", "!has(self.terminationGracePeriodSeconds)", "cannot be set for readiness probes"),
			},
		},
		under("env", environment()),
		under("volumeMounts[]", volumeMount()),
		under("resources", resources()),
		under("securityContext", securityContext()),
		under("livenessProbe", probe()),
		under("readinessProbe", probe()),
		under("startupProbe", probe()),
		under("lifecycle.postStart", handler("exec", "httpGet", "tcpSocket", "sleep")),
		under("lifecycle.preStop", handler("exec", "httpGet", "tcpSocket", "sleep")),
	)
}

func environment() fields {
	return join(
		fields{
			"":        {most(128)},
			"[]":      {ruleAt(".valueFrom", "!has(self.valueFrom) || !has(self.value) || self.value == ''", "cannot be set beside value")},
			"[].name": {text(1024, envPattern)},
			"[].valueFrom": {
				exactlyOne("source", "fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
			},
			"[].valueFrom.configMapKeyRef":      {needs("name")},
			"[].valueFrom.configMapKeyRef.name": {dnsSubdomain},
			"[].valueFrom.configMapKeyRef.key":  {configKey},
			"[].valueFrom.secretKeyRef":         {needs("name")},
			"[].valueFrom.secretKeyRef.name":    {dnsSubdomain},
			"[].valueFrom.secretKeyRef.key":     {configKey},
			"[].valueFrom.fileKeyRef.key":       {text(1024, envPattern)},
			"[].valueFrom.fileKeyRef.path":      {text(1024, stepsPattern), filled},
			"[].valueFrom.fileKeyRef.volumeName": {
				dnsLabel,
			},
		},
		under("[].valueFrom.fieldRef", fieldRef(`metadata[.](name|namespace|uid)|spec[.](nodeName|serviceAccountName)|status[.](hostIPs?|podIPs?)`)),
		under("[].valueFrom.resourceFieldRef", resourceFieldRef()),
	)
}

// fieldRef of the downward API. which fields there are depends on where it stands; single labels and annotations are everywhere.
func fieldRef(which string) fields {
	name := strings.TrimSuffix(strings.TrimPrefix(qualifiedPattern, "^"), "$")
	lenient := strings.ReplaceAll(name, "a-z0-9", "A-Za-z0-9") // annotations' keys may have capitals
	return fields{
		"apiVersion": {oneOf("", "v1")},
		"fieldPath":  {text(512, `^(`+which+`|metadata[.]labels[[]'`+name+`'[]]|metadata[.]annotations[[]'`+lenient+`'[]])$`)},
	}
}

func resourceFieldRef() fields {
	return fields{
		"": {
			ruleAt(".divisor", "!has(self.divisor) || string(self.divisor) == '0' || (self.resource.endsWith('.cpu') ? string(self.divisor) in ['1m', '1'] : string(self.divisor) in ['1', '1k', '1M', '1G', '1T', '1P', '1E', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi', '1Ei'])", "must be 1m or 1 for cpu, else 1 or one of k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"),
		},
		"containerName": {optional(dnsLabel)},
		"divisor":       {amount},
		"resource":      {text(253, `^(limits|requests)[.](cpu|memory|ephemeral-storage|hugepages-.*)$`)},
	}
}

func volumeMount() fields {
	return fields{
		"": {
			atMostOne("of subPath and subPathExpr", "subPath", "subPathExpr"),
			ruleAt(".recursiveReadOnly", "!has(self.recursiveReadOnly) || self.recursiveReadOnly == 'Disabled' || has(self.readOnly) && self.readOnly && (!has(self.mountPropagation) || self.mountPropagation == 'None')", "needs readOnly, and no mount propagation"),
		},
		"name":              {dnsLabel},
		"mountPath":         {most(1024), filled},
		"subPath":           {relative},
		"subPathExpr":       {relative},
		"mountPropagation":  {oneOf("None", "HostToContainer", "Bidirectional")},
		"recursiveReadOnly": {oneOf("Disabled", "IfPossible", "Enabled")},
	}
}

// resources of a container. The names of resources are keys, which a policy looks at: rules here can't afford to.
func resources() fields {
	overcommitted := "k in ['cpu', 'memory', 'ephemeral-storage']"
	return fields{
		"": {
			ruleAt(".requests", "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || !quantity(string(self.requests[k])).isGreaterThan(quantity(string(self.limits[k]))))", "must not be more than the limits"),
			ruleAt(".requests", "!has(self.requests) || self.requests.all(k, "+overcommitted+" || has(self.limits) && k in self.limits && (!isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) == 0))", "must be equal to the limits for all but cpu, memory and ephemeral-storage"),
		},
		"limits":     {most(16)},
		"limits{}":   {amount},
		"requests":   {most(16)},
		"requests{}": {amount},
		"claims":     {rule("size(self) == 0", "cannot be set: pods of a control plane have no resource claims")},
	}
}

func securityContext() fields {
	return join(
		fields{
			"": {
				ruleAt(".allowPrivilegeEscalation", "!has(self.allowPrivilegeEscalation) || self.allowPrivilegeEscalation || !(has(self.privileged) && self.privileged || has(self.capabilities) && has(self.capabilities.add) && 'CAP_SYS_ADMIN' in self.capabilities.add)", "cannot be false for a privileged container or one with CAP_SYS_ADMIN"),
			},
			"capabilities.add":   {most(64)},
			"capabilities.add[]": {most(64)},
			"procMount":          {oneOf("Default")},
		},
		identity(),
	)
}

// identity is what security contexts of pods and of containers share.
func identity() fields {
	profile := rule("self.type == 'Localhost' ? has(self.localhostProfile) : !has(self.localhostProfile)", "localhostProfile must be set with type Localhost, and only then")
	return fields{
		"":                                {ruleAt(".windowsOptions", "!has(self.windowsOptions)", "cannot be set: control planes run on Linux")},
		"runAsUser":                       {id},
		"runAsGroup":                      {id},
		"seccompProfile":                  {profile},
		"seccompProfile.type":             {oneOf("Localhost", "RuntimeDefault", "Unconfined")},
		"seccompProfile.localhostProfile": {relative},
		"appArmorProfile":                 {profile},
		"appArmorProfile.type":            {oneOf("Localhost", "RuntimeDefault", "Unconfined")},
		"appArmorProfile.localhostProfile": {
			text(4095, trimmedPattern),
		},
	}
}

func podSecurityContext() fields {
	return join(
		fields{
			"fsGroup":                  {id},
			"fsGroupChangePolicy":      {oneOf("Always", "OnRootMismatch")},
			"seLinuxChangePolicy":      {oneOf("Recursive")}, // MountOption is for clusters with a feature that is off
			"supplementalGroups":       {most(256)},
			"supplementalGroups[]":     {id},
			"supplementalGroupsPolicy": {oneOf("Merge", "Strict")},
			"sysctls": {
				most(64),
				rule("self.all(s, self.exists_one(t, t.name == s.name))", "names must be unique"),
			},
			"sysctls[].name": {text(253, `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)},
		},
		identity(),
	)
}

func probe() fields {
	return join(
		fields{
			"initialDelaySeconds":           {between(0, 1<<31-1)},
			"timeoutSeconds":                {between(0, 1<<31-1)},
			"periodSeconds":                 {between(0, 1<<31-1)},
			"successThreshold":              {between(0, 1<<31-1)},
			"failureThreshold":              {between(0, 1<<31-1)},
			"terminationGracePeriodSeconds": {between(1, 1<<31-1)},
			"grpc.port":                     {between(1, 65535)},
		},
		handler("exec", "httpGet", "tcpSocket", "grpc"),
	)
}

// handler is what a probe or a hook does, one of some.
func handler(which ...string) fields {
	f := fields{
		"":                           {exactlyOne("handler", which...)},
		"exec":                       {needs("command")},
		"exec.command":               {filled},
		"httpGet.port":               {port},
		"httpGet.scheme":             {oneOf("", "HTTP", "HTTPS")},
		"httpGet.httpHeaders[].name": {text(1024, `^[-A-Za-z0-9]+$`)},
		"tcpSocket.port":             {port},
	}
	if which[len(which)-1] == "sleep" {
		f["sleep.seconds"] = []edit{between(0, 20)} // the pods' terminationGracePeriodSeconds
	}
	return f
}

func labelSelector() fields {
	return fields{
		"matchLabels":   {most(64)},
		"matchLabels{}": {labelValue},
		"matchExpressions": {
			most(64),
		},
		"matchExpressions[]": {
			ruleAt(".values", "!(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0", "must be given when operator is In or NotIn"),
			ruleAt(".values", "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0", "cannot be given when operator is Exists or DoesNotExist"),
		},
		"matchExpressions[].key":      {labelKey},
		"matchExpressions[].operator": {oneOf("In", "NotIn", "Exists", "DoesNotExist")},
		"matchExpressions[].values":   {most(64)},
		"matchExpressions[].values[]": {labelValue},
	}
}

func toleration() fields {
	return fields{
		"": {
			ruleAt(".operator", "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'", "must be Exists when key is empty"),
			ruleAt(".value", "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''", "must be empty when operator is Exists"),
			ruleAt(".effect", "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'", "must be NoExecute with tolerationSeconds"),
		},
		"key":      {optional(labelKey)},
		"operator": {oneOf("", "Exists", "Equal")},
		"value":    {labelValue},
		"effect":   {oneOf("", "NoSchedule", "PreferNoSchedule", "NoExecute")},
	}
}

func topologySpread() fields {
	policy := oneOf("Honor", "Ignore")
	return join(
		fields{
			"": {
				ruleAt(".minDomains", "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'", "can be set only with whenUnsatisfiable DoNotSchedule"),
				ruleAt(".matchLabelKeys", "!has(self.matchLabelKeys) || !has(self.labelSelector) || !self.matchLabelKeys.exists(k, has(self.labelSelector.matchLabels) && k in self.labelSelector.matchLabels || has(self.labelSelector.matchExpressions) && self.labelSelector.matchExpressions.exists(e, e.key == k))", "cannot repeat keys of labelSelector"),
				ruleAt(".matchLabelKeys", "!has(self.matchLabelKeys) || size(self.matchLabelKeys) == 0 || has(self.labelSelector) || !('kamaji.clastix.io/name' in self.matchLabelKeys)", "cannot repeat the key of the pods' selector"),
			},
			"maxSkew":            {between(1, 1<<31-1)},
			"minDomains":         {between(1, 1<<31-1)},
			"topologyKey":        {most(317), filled},
			"whenUnsatisfiable":  {oneOf("DoNotSchedule", "ScheduleAnyway")},
			"nodeAffinityPolicy": {policy},
			"nodeTaintsPolicy":   {policy},
			"matchLabelKeys":     {most(16)},
			"matchLabelKeys[]":   {labelKey},
		},
		under("labelSelector", labelSelector()),
	)
}

func affinity() fields {
	weight := between(1, 100)
	all := fields{
		"nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": {filled, most(32)},
		"nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution":                  {most(32)},
		"nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight":         {weight},
	}
	all = join(all,
		under("nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]", nodeTerm()),
		under("nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference", nodeTerm()),
	)
	for _, of := range []string{"podAffinity", "podAntiAffinity"} {
		all = join(all,
			fields{
				of + ".requiredDuringSchedulingIgnoredDuringExecution":           {most(32)},
				of + ".preferredDuringSchedulingIgnoredDuringExecution":          {most(32)},
				of + ".preferredDuringSchedulingIgnoredDuringExecution[].weight": {weight},
			},
			under(of+".requiredDuringSchedulingIgnoredDuringExecution[]", podTerm()),
			under(of+".preferredDuringSchedulingIgnoredDuringExecution[].podAffinityTerm", podTerm()),
		)
	}
	return all
}

func nodeTerm() fields {
	return fields{
		"matchExpressions": {most(32)},
		"matchExpressions[]": {
			ruleAt(".values", "!(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0", "must be given when operator is In or NotIn"),
			ruleAt(".values", "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0", "cannot be given when operator is Exists or DoesNotExist"),
			ruleAt(".values", "!(self.operator in ['Gt', 'Lt']) || has(self.values) && size(self.values) == 1", "must be one when operator is Gt or Lt"),
		},
		"matchExpressions[].key":      {labelKey},
		"matchExpressions[].operator": {oneOf("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")},
		"matchExpressions[].values":   {most(64)},
		"matchExpressions[].values[]": {labelValue},
		"matchFields":                 {most(32)},
		"matchFields[]":               {needs("values")},
		"matchFields[].key":           {oneOf("metadata.name")},
		"matchFields[].operator":      {oneOf("In", "NotIn")},
		"matchFields[].values":        {filled, most(1)},
		"matchFields[].values[]":      {dnsSubdomain},
	}
}

func podTerm() fields {
	return join(
		fields{
			"": {
				ruleAt(".labelSelector", "has(self.labelSelector) || (!has(self.matchLabelKeys) || size(self.matchLabelKeys) == 0) && (!has(self.mismatchLabelKeys) || size(self.mismatchLabelKeys) == 0)", "must be set with matchLabelKeys and mismatchLabelKeys"),
				ruleAt(".matchLabelKeys", "!has(self.matchLabelKeys) || !has(self.labelSelector) || !self.matchLabelKeys.exists(k, has(self.labelSelector.matchLabels) && k in self.labelSelector.matchLabels || has(self.labelSelector.matchExpressions) && self.labelSelector.matchExpressions.exists(e, e.key == k))", "cannot repeat keys of labelSelector"),
				ruleAt(".matchLabelKeys", "!has(self.matchLabelKeys) || !has(self.mismatchLabelKeys) || !self.matchLabelKeys.exists(k, k in self.mismatchLabelKeys)", "cannot repeat keys of mismatchLabelKeys"),
			},
			"topologyKey":         {labelKey},
			"namespaces":          {most(64)},
			"namespaces[]":        {dnsLabel},
			"matchLabelKeys":      {most(8)},
			"matchLabelKeys[]":    {labelKey},
			"mismatchLabelKeys":   {most(8)},
			"mismatchLabelKeys[]": {labelKey},
		},
		under("labelSelector", labelSelector()),
		under("namespaceSelector", labelSelector()),
	)
}

func strategy() fields {
	zero := func(f string) string {
		return "has(self.rollingUpdate." + f + ") && string(self.rollingUpdate." + f + ").matches('^0+%?$')"
	}
	return fields{
		"": {
			ruleAt(".rollingUpdate.maxUnavailable", "!has(self.rollingUpdate) || has(self.type) && self.type == 'Recreate' || !("+zero("maxSurge")+" && "+zero("maxUnavailable")+")", "cannot be 0 when maxSurge is 0"),
		},
		"type":                         {oneOf("", "RollingUpdate", "Recreate")},
		"rollingUpdate.maxUnavailable": {text(8, `^0*(100|[0-9]{1,2})%$`), between(0, 1<<31-1)},
		"rollingUpdate.maxSurge":       {text(8, `^[0-9]{1,6}%$`), between(0, 1<<31-1)},
	}
}
