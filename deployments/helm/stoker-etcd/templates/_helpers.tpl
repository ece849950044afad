{{- define "etcd.check" -}}
{{- if ne .Release.Namespace "stoker-system" -}}
{{- fail (printf "namespace %q: install it in stoker-system, where alone Stoker reads Secrets of DataStores: --namespace stoker-system" .Release.Namespace) -}}
{{- end -}}
{{- if not (has (int .Values.replicas) (list 1 3 5)) -}}
{{- fail (printf "replicas %v: must be 1, 3 or 5, of which a majority can answer" .Values.replicas) -}}
{{- end -}}
{{- end -}}

{{- /* The release's name begins the name of everything. */ -}}
{{- define "etcd.name" -}}{{ .Release.Name }}{{- end -}}

{{- define "etcd.selector" -}}
app.kubernetes.io/name: stoker-etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "etcd.labels" -}}
app.kubernetes.io/part-of: stoker
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "etcd.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "etcd.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "etcd.stokerImage" -}}{{ .Values.stoker.repository }}:{{ .Values.stoker.tag | default (printf "v%s" .Chart.Version) }}{{- end -}}

{{- define "etcd.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end -}}

{{- /* Host of a member, by its number. */ -}}
{{- define "etcd.member" -}}{{ include "etcd.name" .root }}-{{ .n }}.{{ include "etcd.name" .root }}-members.stoker-system.svc{{- end -}}

{{- define "etcd.endpoints" -}}
{{- $all := list -}}
{{- range $n := until (int .Values.replicas) }}{{ $all = append $all (printf "https://%s:2379" (include "etcd.member" (dict "root" $ "n" $n))) }}{{ end -}}
{{- join "," $all -}}
{{- end -}}

{{- define "etcd.cluster" -}}
{{- $all := list -}}
{{- range $n := until (int .Values.replicas) }}{{ $all = append $all (printf "%s-%d=https://%s:2380" (include "etcd.name" $) $n (include "etcd.member" (dict "root" $ "n" $n))) }}{{ end -}}
{{- join "," $all -}}
{{- end -}}

{{- define "etcd.bootstrapPod" -}}
metadata:
  labels:
    app.kubernetes.io/name: stoker-etcd-bootstrap
    {{- include "etcd.labels" . | nindent 4 }}
spec:
  serviceAccountName: {{ include "etcd.name" . }}-bootstrap
  restartPolicy: OnFailure
  securityContext: {{- include "etcd.podSecurityContext" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: bootstrap
      image: {{ include "etcd.stokerImage" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [bootstrap, etcd, --config, /etc/stoker/bootstrap.yaml]
      securityContext: {{- include "etcd.securityContext" . | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 64Mi}
        limits: {memory: 256Mi}
      volumeMounts:
        - {name: config, mountPath: /etc/stoker, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: config
      configMap: {name: {{ include "etcd.name" . }}-bootstrap}
    - name: tmp # keys are there while it runs
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end -}}
