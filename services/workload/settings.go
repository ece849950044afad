// Settings of the API server (spec.kubernetes.apiServer): flags, the documents it reads, and the tenant's Secrets that it is given. The
// documents are annotations of the pod template, which the pods have as files: so each pod keeps those that it began with, also when
// its container starts again while newer pods are refused theirs; an API server reads a ConfigMap's new content at once, and one that
// starts again would end by it. Pure.

package workload

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// Where settings are in the API server's container.
const (
	dirSettings      = "/etc/kubernetes/apiserver"
	dirAuditLog      = "/var/log/kubernetes"
	fileAuditLog     = "audit.log"
	fileAuditWebhook = "audit-webhook.kubeconfig"
)

// documents are the annotations with documents, and the files that they become.
var documents = []struct{ annotation, file string }{
	{name.AnnotationAuthentication, "authentication.yaml"},
	{name.AnnotationAuthorization, "authorization.yaml"},
	{name.AnnotationAuditPolicy, "audit-policy.yaml"},
}

// settings are those of the spec, and the audit that counts use where idleness puts the tenant to sleep; nil for none.
func (s Subject) settings() *v1alpha1.APIServerSpec {
	settings := s.Tenant.Spec.Kubernetes.APIServer
	if name.IdleTime(s.Tenant.Annotations) == 0 || settings != nil && settings.Audit != nil {
		return settings
	}
	counting := value(settings)
	counting.Audit = countingUse
	return &counting
}

// countingUse has the API server count requests (apiserver_audit_event_total) that are use of the tenant: not those of the control plane
// itself, of nodes, of what runs in kube-system, of Stoker, or of nobody it knows. What is counted is written down, too, as an
// audit without a place for its events doesn't count; two megabytes of it are kept. What ends isn't counted as well, for the beginning was.
var countingUse = &v1alpha1.AuditSpec{
	Policy: v1alpha1.AuditPolicy{
		OmitStages: []v1alpha1.AuditStage{"ResponseStarted", "ResponseComplete", "Panic"},
		Rules: []v1alpha1.AuditPolicyRule{
			{Level: "None", Users: []string{
				"system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:konnectivity-server", "kubernetes-super-admin",
			}},
			{Level: "None", UserGroups: []string{"system:nodes", "system:serviceaccounts:kube-system"}},
			{Level: "None", NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*", "/metrics*", "/version*"}},
			{Level: "Metadata", UserGroups: []string{"system:authenticated"}},
		},
	},
	Log: &v1alpha1.AuditLog{File: &v1alpha1.AuditLogFile{MaxSize: 1, MaxBackup: 1}},
}

// documents are the documents that the API server is to read, by annotation; nil for none.
func (s Subject) documents() map[string]string {
	settings, all := s.settings(), map[string]string{}
	if settings == nil {
		return nil
	}
	version := s.Tenant.Spec.Kubernetes.Version
	if settings.Authentication != nil {
		all[name.AnnotationAuthentication] = document(configGroup+since(version, 34), "AuthenticationConfiguration", settings.Authentication)
	}
	if settings.Authorization != nil {
		config := authorizers(settings.Authorization)
		all[name.AnnotationAuthorization] = document(configGroup+since(version, 32), "AuthorizationConfiguration", config)
	}
	if settings.Audit != nil {
		all[name.AnnotationAuditPolicy] = document("audit.k8s.io/v1", "Policy", settings.Audit.Policy)
	}
	return all
}

const configGroup = "apiserver.config.k8s.io/"

// since is the version of a configuration's group: v1 from a minor version of Kubernetes on, v1beta1 before.
func since(version string, minor int) string {
	if m, ok := v1alpha1.Minor(version); ok && m < minor {
		return "v1beta1"
	}
	return "v1"
}

// document is the YAML of plain data with its version and kind.
func document(apiVersion, kind string, content any) string {
	data, err := yaml.Marshal(content)
	if err != nil {
		panic("settings are plain data: " + err.Error())
	}
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\n" + string(data)
}

// Below is an AuthorizationConfiguration, as far as something of it is said of a tenant: apiserver.config.k8s.io/v1 and v1beta1 are alike
// there.
type (
	authorizationConfiguration struct {
		Authorizers []authorizer `json:"authorizers"`
	}
	authorizer struct {
		Type    string                `json:"type"`
		Name    string                `json:"name"`
		Webhook *authorizationWebhook `json:"webhook,omitempty"`
	}
	authorizationWebhook struct {
		AuthorizedTTL                            string                                 `json:"authorizedTTL"`
		UnauthorizedTTL                          string                                 `json:"unauthorizedTTL"`
		Timeout                                  string                                 `json:"timeout"`
		SubjectAccessReviewVersion               string                                 `json:"subjectAccessReviewVersion"`
		MatchConditionSubjectAccessReviewVersion string                                 `json:"matchConditionSubjectAccessReviewVersion"`
		FailurePolicy                            string                                 `json:"failurePolicy"`
		ConnectionInfo                           connectionInfo                         `json:"connectionInfo"`
		MatchConditions                          []v1alpha1.AuthorizationMatchCondition `json:"matchConditions,omitempty"`
	}
	connectionInfo struct {
		Type           string `json:"type"`
		KubeConfigFile string `json:"kubeConfigFile"`
	}
)

func authorizers(spec *v1alpha1.AuthorizationSpec) authorizationConfiguration {
	var config authorizationConfiguration
	for _, a := range spec.Authorizers {
		one := authorizer{Type: a.Type, Name: a.Name}
		if w := a.Webhook; w != nil {
			one.Webhook = &authorizationWebhook{
				AuthorizedTTL: cmp.Or(w.AuthorizedTTL, "5m"), UnauthorizedTTL: cmp.Or(w.UnauthorizedTTL, "30s"), Timeout: cmp.Or(w.Timeout, "3s"),
				SubjectAccessReviewVersion: "v1", MatchConditionSubjectAccessReviewVersion: "v1", FailurePolicy: w.FailurePolicy,
				ConnectionInfo:  connectionInfo{Type: "KubeConfigFile", KubeConfigFile: path.Join(dirSettings, authorizerFile(a.Name))},
				MatchConditions: w.MatchConditions,
			}
		}
		config.Authorizers = append(config.Authorizers, one)
	}
	return config
}

// authorizerFile is the file of the kubeconfig of an authorizer.
func authorizerFile(authorizer string) string { return "authorizer-" + authorizer + ".kubeconfig" }

// settingsFlags are the API server's flags for its settings, and the defaults that go with them.
func (in Input) settingsFlags() flags {
	settings, all := in.settings(), flags{}
	if settings == nil {
		return all
	}
	if settings.Authentication != nil {
		all["authentication-config"] = path.Join(dirSettings, "authentication.yaml")
	}
	if settings.Authorization != nil {
		all["authorization-config"] = path.Join(dirSettings, "authorization.yaml")
	}
	if a := settings.Audit; a != nil {
		all["audit-policy-file"] = path.Join(dirSettings, "audit-policy.yaml")
		maps.Copy(all, auditLogFlags(a.Log))
		if a.Webhook != nil {
			all["audit-webhook-config-file"] = path.Join(dirSettings, fileAuditWebhook)
		}
	}
	if len(settings.FeatureGates) > 0 {
		var gates []string
		for _, gate := range slices.Sorted(maps.Keys(settings.FeatureGates)) {
			gates = append(gates, gate+"="+strconv.FormatBool(settings.FeatureGates[gate]))
		}
		all["feature-gates"] = strings.Join(gates, ",")
	}
	if settings.EventTTL != "" {
		all["event-ttl"] = settings.EventTTL
	}
	if n := settings.MaxRequestsInFlight; n != nil {
		all["max-requests-inflight"] = strconv.Itoa(int(*n))
	}
	if n := settings.MaxMutatingRequestsInFlight; n != nil {
		all["max-mutating-requests-inflight"] = strconv.Itoa(int(*n))
	}
	return all
}

func auditLogFlags(log *v1alpha1.AuditLog) flags {
	switch {
	case log == nil:
		return nil
	case log.File == nil:
		return flags{"audit-log-path": "-"}
	}
	all := flags{
		"audit-log-path":      path.Join(dirAuditLog, fileAuditLog),
		"audit-log-maxsize":   strconv.Itoa(int(cmp.Or(log.File.MaxSize, 100))),
		"audit-log-maxbackup": strconv.Itoa(int(cmp.Or(log.File.MaxBackup, 1))),
	}
	if log.File.MaxAge > 0 {
		all["audit-log-maxage"] = strconv.Itoa(int(log.File.MaxAge))
	}
	return all
}

// settingsVolumes are the documents and Secrets as files, and where audit events are written.
func (in Input) settingsVolumes() (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	settings := in.settings()
	if settings == nil {
		return nil, nil
	}
	if sources := in.settingsFiles(); len(sources) > 0 {
		volumes = append(volumes, corev1.Volume{Name: name.VolumeAPIServerSettings, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(mode), Sources: sources},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: name.VolumeAPIServerSettings, MountPath: dirSettings, ReadOnly: true})
	}
	if a := settings.Audit; a != nil && a.Log != nil && a.Log.File != nil {
		volumes = append(volumes, corev1.Volume{
			Name: name.VolumeAPIServerAuditLog, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
		mounts = append(mounts, corev1.VolumeMount{Name: name.VolumeAPIServerAuditLog, MountPath: dirAuditLog})
	}
	return volumes, mounts
}

// settingsFiles are the files of documents and Secrets.
func (in Input) settingsFiles() []corev1.VolumeProjection {
	var sources []corev1.VolumeProjection
	var items []corev1.DownwardAPIVolumeFile
	have := in.documents()
	for _, d := range documents {
		if _, ok := have[d.annotation]; ok {
			field := &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + d.annotation + "']"}
			items = append(items, corev1.DownwardAPIVolumeFile{Path: d.file, FieldRef: field})
		}
	}
	if len(items) > 0 {
		sources = append(sources, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}})
	}
	kubeconfig := func(secret, file string) {
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret},
			Items:                []corev1.KeyToPath{{Key: name.KeySettingsKubeconfig, Path: file}},
		}})
	}
	if a := in.settings().Authorization; a != nil {
		for _, one := range a.Authorizers {
			if one.Webhook != nil {
				kubeconfig(one.Webhook.KubeconfigSecret.Name, authorizerFile(one.Name))
			}
		}
	}
	if a := in.settings().Audit; a != nil && a.Webhook != nil {
		kubeconfig(a.Webhook.KubeconfigSecret.Name, fileAuditWebhook)
	}
	return sources
}

// secretsChecksum is that of the Secrets that the settings refer to, empty without any.
func (in Input) secretsChecksum() string {
	all := map[string]string{}
	for _, secret := range in.settings().Secrets() {
		all[secret] = in.Certs.Referenced[secret].Checksum
	}
	if len(all) == 0 {
		return ""
	}
	return name.ChecksumStrings(all)
}
