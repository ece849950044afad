{{- /* Names are fixed: admission policies know the services by their accounts in stoker-system. */ -}}
{{- define "stoker.check" -}}
{{- if ne .Release.Namespace "stoker-system" -}}
{{- fail (printf "namespace %q: Stoker is installed in stoker-system, because admission policies know its services by that; use --namespace stoker-system --create-namespace, or --set namespace=… for the tenants of one namespace" .Release.Namespace) -}}
{{- end -}}
{{- if and (not .Values.nats.enabled) (not .Values.nats.external.url) -}}
{{- fail "nats.external.url: is empty, and nats.enabled is false; name your servers, or have the chart run some" -}}
{{- end -}}
{{- if and .Values.services.intake.http.enabled (not (and .Values.services.intake.http.tlsSecret .Values.services.intake.http.tokensSecret)) -}}
{{- fail "services.intake.http: tlsSecret and tokensSecret must name Secrets when enabled" -}}
{{- end -}}
{{- end -}}

{{- define "stoker.services" -}}intake certs datastore workload addons status{{ if .Values.clusterAPI.enabled }} capi{{ end }}{{ if .Values.tenantAddons.enabled }} tenantaddons{{ end }}{{- end -}}

{{- /* NATS users of services: also of one that is switched off, so that the servers' configuration is the same. */ -}}
{{- define "stoker.users" -}}intake certs datastore workload addons status capi tenantaddons operator system{{- end -}}

{{- define "stoker.labels" -}}
app.kubernetes.io/part-of: stoker
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "stoker.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- /* The reference of one of Stoker's images. */ -}}
{{- define "stoker.image" -}}
{{- $tag := .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{ .root.Values.image.registry }}/{{ .name }}{{ if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end -}}

{{- define "stoker.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "stoker.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where pods go: replicas of one thing on different nodes and zones, if there are. */ -}}
{{- define "stoker.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .root.Values.affinity }}
affinity: {{- toYaml .root.Values.affinity | nindent 2 }}
{{- else }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {matchLabels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/instance: {{ .root.Release.Name }}}}
{{- end }}
topologySpreadConstraints:
{{- if .root.Values.topologySpreadConstraints }}
{{- toYaml .root.Values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/instance: {{ .root.Release.Name }}}}
{{- end }}
{{- end -}}

{{- define "stoker.natsURL" -}}
{{- if .Values.nats.enabled -}}
tls://stoker-nats.stoker-system.svc:4222
{{- else -}}
{{ .Values.nats.external.url }}
{{- end -}}
{{- end -}}

{{- define "stoker.streamReplicas" -}}
{{- if .Values.nats.enabled }}{{ .Values.nats.replicas }}{{ else }}{{ .Values.nats.external.streamReplicas }}{{ end -}}
{{- end -}}

{{- /* The ConfigMap with the authority of the NATS servers, if there is one. */ -}}
{{- define "stoker.natsCA" -}}
{{- if .Values.nats.enabled }}stoker-nats-ca{{ else }}{{ .Values.nats.external.caConfigMap }}{{ end -}}
{{- end -}}

{{- /* What the bootstrap makes, as its configuration file. */ -}}
{{- define "stoker.bootstrapConfig" -}}
namespace: stoker-system
name: stoker-nats
hosts:
  - localhost
  - stoker-nats
  - stoker-nats.stoker-system
  - stoker-nats.stoker-system.svc
  - "*.stoker-nats-servers.stoker-system.svc"
{{- range .Values.nats.hosts }}
  - {{ . | quote }}
{{- end }}
{{- with .Values.portals }}
portals: {{- toYaml . | nindent 2 }}
{{- end }}
podSecurity: {{ .Values.podSecurity | quote }}
keys: {{ .Values.nats.keys | quote }}
authority: {{ .Values.nats.authority | quote }}
{{- end -}}
