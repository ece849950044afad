package addons

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// Konnectivity is what the tenant's end of the tunnel is made from: agents, which connect to the konnectivity server beside the API
// server and reach for it what they can reach.
type Konnectivity struct {
	Host        string // where agents reach the server
	Port        int32
	Image       string // with its tag
	Deployment  bool   // else a DaemonSet
	Replicas    int32  // of the Deployment
	HostNetwork bool
	Tolerations []corev1.Toleration
	ExtraArgs   []string
}

// kind of workload that runs the agents, "" for none.
func (in *Konnectivity) kind() string {
	switch {
	case in == nil:
		return ""
	case in.Deployment:
		return kube.Deployments.Kind
	}
	return kube.DaemonSets.Kind
}

// Where the agent's token is in its container, and the ports on which it listens.
const (
	dirAgentToken   = "/var/run/secrets/tokens"
	fileAgentToken  = "konnectivity-agent-token"
	portAgentAdmin  = 8133
	portAgentHealth = 8134
	// agentTokenLife in seconds; kubelet renews the token, and the agent reads it anew with each connection.
	agentTokenLife = 3600
)

// konnectivity renders the agents, and what lets the server review their tokens.
func (k *kubeadm) konnectivity() ([]*unstructured.Unstructured, error) {
	in := k.in.Konnectivity
	labels := map[string]string{"k8s-app": name.KonnectivityAgent, "addonmanager.kubernetes.io/mode": "Reconcile"}
	meta := metav1.ObjectMeta{Namespace: name.NamespaceKonnectivityAgent, Name: name.KonnectivityAgent, Labels: labels}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": name.KonnectivityAgent}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: in.agentPod()}
	objects := []runtime.Object{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name.KonnectivityUser, Labels: maps.Clone(labels)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name.KonnectivityUser}},
		},
	}
	if in.Deployment {
		objects = append(objects, &appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"}, ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: &in.Replicas, Selector: selector, Template: template},
		})
	} else {
		objects = append(objects, &appsv1.DaemonSet{
			TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"}, ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
		})
	}
	return unstructuredOf(objects...)
}

// unstructuredOf leaves out what is empty.
func unstructuredOf(objects ...runtime.Object) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, o := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		dropEmpty(fields)
		all = append(all, &unstructured.Unstructured{Object: fields})
	}
	return all, nil
}

// dropEmpty removes what the types' zero values leave behind, and the status, which are nobody's wish.
func dropEmpty(fields map[string]any) {
	delete(fields, "status")
	for key, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			if dropEmpty(inner); len(inner) == 0 && key != "resources" {
				delete(fields, key)
			}
		}
		if value == nil {
			delete(fields, key)
		}
	}
}

// agentPod is an agent's pod. It must come up before anything else in the cluster works, and on nodes that run nothing else.
func (in *Konnectivity) agentPod() corev1.PodSpec {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: path, Port: intstr.FromInt32(portAgentHealth), Scheme: corev1.URISchemeHTTP,
			}},
			TimeoutSeconds: 15, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	alive := probe("/healthz")
	alive.InitialDelaySeconds = 15
	// Ready is an agent that is connected to a server, so that the workload says how many tunnels there are.
	ready := probe("/readyz")
	ready.PeriodSeconds = 5
	pod := corev1.PodSpec{
		PriorityClassName:  "system-cluster-critical",
		NodeSelector:       map[string]string{"kubernetes.io/os": "linux"},
		ServiceAccountName: name.KonnectivityAgent,
		Tolerations:        in.Tolerations,
		Containers: []corev1.Container{{
			Name: name.KonnectivityAgent, Image: in.Image, Command: []string{"/proxy-agent"}, Args: in.agentArgs(),
			LivenessProbe: alive, ReadinessProbe: ready,
			Ports: []corev1.ContainerPort{
				{Name: "adminport", ContainerPort: portAgentAdmin, Protocol: corev1.ProtocolTCP},
				{Name: "healthport", ContainerPort: portAgentHealth, Protocol: corev1.ProtocolTCP},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: fileAgentToken, MountPath: dirAgentToken, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: fileAgentToken, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: fileAgentToken, Audience: name.KonnectivityUser, ExpirationSeconds: new(int64(agentTokenLife)),
			}}},
		}}}},
	}
	if in.HostNetwork {
		pod.HostNetwork, pod.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	}
	return pod
}

// agentArgs are the agent's flags; the user's win over ours, as with Kamaji.
func (in *Konnectivity) agentArgs() []string {
	own := map[string]string{
		"admin-server-port":          strconv.Itoa(portAgentAdmin),
		"ca-cert":                    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		"health-server-port":         strconv.Itoa(portAgentHealth),
		"proxy-server-host":          in.Host,
		"proxy-server-port":          strconv.Itoa(int(in.Port)),
		"service-account-token-path": dirAgentToken + "/" + fileAgentToken,
		"v":                          "2",
	}
	for _, arg := range in.ExtraArgs {
		flag, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(arg), "-"), "=")
		delete(own, flag)
	}
	var args []string
	for _, flag := range slices.Sorted(maps.Keys(own)) {
		args = append(args, "--"+flag+"="+own[flag])
	}
	return append(args, in.ExtraArgs...)
}

// removedKonnectivity is what agents of the other kind, or a tunnel that is off, may have left in the tenant.
func removedKonnectivity(in *Konnectivity) []Ref {
	daemons := Ref{"DaemonSet", name.NamespaceKonnectivityAgent, name.KonnectivityAgent}
	deployment := Ref{"Deployment", name.NamespaceKonnectivityAgent, name.KonnectivityAgent}
	switch {
	case in == nil:
		return []Ref{
			daemons, deployment,
			{"ClusterRoleBinding", "", name.KonnectivityUser},
			{"ServiceAccount", name.NamespaceKonnectivityAgent, name.KonnectivityAgent},
		}
	case in.Deployment:
		return []Ref{daemons}
	}
	return []Ref{deployment}
}

// agents says how the agents' workload of a kind stands; none is the zero value.
func (c *Cluster) agents(ctx context.Context, kind string) (a state.Agents, err error) {
	switch kind {
	case kube.DaemonSets.Kind:
		var o appsv1.DaemonSet
		err = c.kube.Get(ctx, kube.DaemonSets, name.NamespaceKonnectivityAgent, name.KonnectivityAgent, &o)
		a = state.Agents{Wanted: o.Status.DesiredNumberScheduled, Connected: o.Status.NumberReady}
	case kube.Deployments.Kind:
		var o appsv1.Deployment
		err = c.kube.Get(ctx, kube.Deployments, name.NamespaceKonnectivityAgent, name.KonnectivityAgent, &o)
		a = state.Agents{Wanted: o.Status.Replicas, Connected: o.Status.ReadyReplicas}
	}
	if apierrors.IsNotFound(err) { // it is made again, and tells then
		return state.Agents{}, nil
	}
	return a, err
}
