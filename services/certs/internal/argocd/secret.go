// Package argocd knows the Secret by which Argo CD knows a tenant as a cluster: what is in it, whose one is, and which other ones it must
// not be taken for. Pure.
//
// Argo CD finds a cluster by the URL in its Secret, or by the name in it, and has applications follow a cluster's labels. Whoever may write a
// tenant chooses its labels and, within what the installation lets through, its endpoint; so labels are carried that the operator has
// named and no others, and a URL or a name that another cluster has is no tenant's.
package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Keys of the Secret's data, Argo CD's.
const (
	keyName    = "name"
	keyServer  = "server"
	keyConfig  = "config"
	keyProject = "project"
)

// Config is what the operator says of Argo CD.
type Config struct {
	// Namespace is Argo CD's own, where its Secrets of clusters are; empty for none.
	Namespace string
	// Project is the AppProject that clusters belong to, empty for none.
	Project string
	// Labels are the keys of the tenant's labels that the Secret has, too.
	Labels []string
}

// ParseConfig reads what flags say. labels are keys, comma-separated.
func ParseConfig(namespace, project, labels string) (Config, error) {
	c := Config{Namespace: namespace, Project: project}
	if labels != "" {
		c.Labels = strings.Split(labels, ",")
	}
	switch {
	case namespace == "" && (project != "" || labels != ""):
		return c, errors.New("--argocd-namespace is empty, and --argocd-project or --argocd-labels isn't; say where Argo CD is")
	case namespace == "":
		return c, nil
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return c, fmt.Errorf("--argocd-namespace %q is no name of a namespace", namespace)
	case namespace == name.Namespace || strings.HasPrefix(namespace, "kube-"):
		return c, fmt.Errorf("--argocd-namespace %s: Stoker writes no tenants' Secrets there; Argo CD must be in a namespace of its own", namespace)
	case project != "" && len(validation.IsDNS1123Subdomain(project)) > 0:
		return c, fmt.Errorf("--argocd-project %q is no name of an AppProject", project)
	}
	for _, key := range c.Labels {
		if len(validation.IsQualifiedName(key)) > 0 {
			return c, fmt.Errorf("--argocd-labels: %q is no key of a label", key)
		}
		if reserved(key) {
			return c, fmt.Errorf("--argocd-labels: %q has a meaning to Argo CD, Kubernetes or Stoker, and can't be the tenant's", key)
		}
	}
	slices.Sort(c.Labels)
	c.Labels = slices.Compact(c.Labels)
	return c, nil
}

// reserved reports whether a label's key is somebody's whose programs decide by it.
func reserved(key string) bool {
	domain, _, has := strings.Cut(key, "/")
	if !has {
		return false
	}
	return slices.ContainsFunc([]string{"argoproj.io", "stoker.dev", "clastix.io", "kubernetes.io", "k8s.io"}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

// Want is the Secret of a tenant as it must be, without what is secret.
type Want struct {
	Config
	// Tenant's namespace and name, and its labels.
	TenantNamespace, Tenant string
	TenantLabels            map[string]string
	// Server is the URL that it leads to, Credentials the checksum of the administrators' kubeconfigs that it is made from.
	Server, Credentials string
}

// Cluster is the name by which people know the tenant in Argo CD.
func (w *Want) Cluster() string { return w.TenantNamespace + "/" + w.Tenant }

// Name of the Secret.
func (w *Want) Name() string { return name.ArgoCDCluster(w.TenantNamespace, w.Tenant) }

// labels that the Secret has.
func (w *Want) labels() map[string]string {
	labels := name.Labels(w.Tenant, name.ComponentArgoCDCluster, name.Partition(w.TenantNamespace, w.Tenant))
	labels[name.LabelArgoCDSecretType] = name.ArgoCDSecretCluster
	labels[name.LabelTenant], labels[name.LabelTenantNamespace] = w.Tenant, w.TenantNamespace
	for _, key := range w.Labels {
		if value, has := w.TenantLabels[key]; has {
			labels[key] = value
		}
	}
	return labels
}

// Inputs is a fingerprint of all that the Secret is made from.
func (w *Want) Inputs() string {
	parts := []string{w.Namespace, w.Project, w.Cluster(), w.Server, w.Credentials}
	labels := w.labels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key, labels[key])
	}
	return events.ID(parts...)
}

// tlsClientConfig and clusterConfig are what Argo CD reads of them.
type clusterConfig struct {
	TLS tlsClientConfig `json:"tlsClientConfig"`
}

type tlsClientConfig struct {
	Insecure bool   `json:"insecure"`
	CAData   []byte `json:"caData"`
	CertData []byte `json:"certData"`
	KeyData  []byte `json:"keyData"`
}

// Secret renders it, with the credentials of a kubeconfig. The error says nothing of what that holds.
func (w *Want) Secret(kubeconfig []byte) (*corev1.Secret, error) {
	unusable := errors.New("the administrators' kubeconfig can't be read")
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return nil, unusable
	}
	context := config.Contexts[config.CurrentContext]
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil || cluster.Server != w.Server {
		return nil, unusable
	}
	body, err := json.Marshal(clusterConfig{tlsClientConfig{
		CAData: cluster.CertificateAuthorityData, CertData: user.ClientCertificateData, KeyData: user.ClientKeyData,
	}})
	if err != nil {
		return nil, unusable
	}
	data := map[string][]byte{keyName: []byte(w.Cluster()), keyServer: []byte(w.Server), keyConfig: body}
	if w.Project != "" {
		data[keyProject] = []byte(w.Project)
	}
	return &corev1.Secret{
		TypeMeta:   kube.Secrets.TypeMeta(),
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name(), Labels: w.labels()},
		Type:       corev1.SecretTypeOpaque, Data: data,
	}, nil
}

// TenantOf is the tenant that a Secret is of, by its labels and its name; the zero key for none. An owner, which would say more, can't be in
// another namespace.
func TenantOf(o metav1.Object) events.Key {
	l := o.GetLabels()
	namespace, tenant := l[name.LabelTenantNamespace], l[name.LabelTenant]
	if l[name.LabelProject] != name.Project || l[name.LabelComponent] != name.ComponentArgoCDCluster ||
		namespace == "" || tenant == "" || o.GetName() != name.ArgoCDCluster(namespace, tenant) {
		return events.Key{}
	}
	return events.Tenant(namespace, tenant)
}

// inCluster is the URL by which Argo CD knows the cluster that it runs in, without a Secret.
const inCluster = "https://kubernetes.default.svc"

// Taken says which cluster Argo CD knows by the tenant's URL or name, empty for none: the one it runs in, or the one of a Secret among
// clusters, of which the tenant's own doesn't count. made says that the tenant's is there: then those of tenants after it don't count, for
// they yield.
func (w *Want) Taken(clusters []corev1.Secret, made bool) string {
	server := host(w.Server)
	if server == host(inCluster) {
		return "the cluster that Argo CD runs in has the server " + inCluster
	}
	for i := range clusters {
		c := &clusters[i]
		switch {
		case c.Name == w.Name(), made && c.Name > w.Name() && TenantOf(c).Valid():
		case host(string(c.Data[keyServer])) == server:
			return fmt.Sprintf("Secret %s/%s has the server %s", c.Namespace, c.Name, w.Server)
		case string(c.Data[keyName]) == w.Cluster():
			return fmt.Sprintf("Secret %s/%s has the name %s", c.Namespace, c.Name, w.Cluster())
		}
	}
	return ""
}

// host is what of a URL says which server it is: letters are alike in either case, and the port of HTTPS needn't be said.
func host(url string) string {
	return strings.TrimSuffix(strings.TrimRight(strings.ToLower(url), "/"), ":443")
}
