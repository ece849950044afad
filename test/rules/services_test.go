package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/workload"
	"github.com/stoker-k8s/stoker/test/env"
)

// another is a service that writes no Secrets; here its account may do everything, so that the policies alone keep it from that.
const another = "another"

// userOf is the user that a service's account is to the API server.
func userOf(service string) string {
	return "system:serviceaccount:" + name.SystemNamespace + ":stoker-" + service
}

// asService is a client with what the account of a service may.
func asService(t *testing.T, service string) kubernetes.Interface {
	t.Helper()
	cfg, admin := admin(t)
	if service == another {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "rules-another"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name.SystemNamespace, Name: "stoker-" + another}},
		}
		if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		env.Eventually(t, "the account to have its rights", func() error {
			if !may(t, admin, service, "", "*", "*", "*") {
				return errors.New("it has none yet")
			}
			return nil
		})
	}
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: userOf(service),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + name.SystemNamespace, "system:authenticated"},
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// owned is metadata of an object of the tenant demo.
func owned(object string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: object, Labels: map[string]string{name.LabelProject: name.Project, name.LabelName: "demo"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.TenantControlPlaneKind, Name: "demo",
			UID: "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11", Controller: new(true),
		}},
	}
}

// until waits for a policy to refuse what it must, which it doesn't do at once when it is new.
func until(t *testing.T, refused func() error) {
	t.Helper()
	env.Eventually(t, "the policies to be looked at", func() error {
		if err := refused(); !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused: %w", cmp.Or(err, errors.New("accepted")))
		}
		return nil
	})
}

// secret is one of the tenant demo.
func secret(n string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: owned(n), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("b")}}
	if change != nil {
		change(s)
	}
	return s
}

// stranger makes a Secret one that is no tenant's.
func stranger(s *corev1.Secret) { s.Labels, s.OwnerReferences = nil, nil }

// newSecret is a Secret that a service makes.
type newSecret struct {
	service, namespace string
	secret             *corev1.Secret
	refused            string // part of the message; empty: accepted
}

func newSecrets() map[string]newSecret {
	return map[string]newSecret{
		"a tenant's certificate":                                    {service: name.ServiceCerts, secret: secret("demo-ca", nil)},
		"the CA of a Cluster":                                       {service: name.ServiceCerts, secret: secret("demo-ca", readByClusterAPI)},
		"another Secret of a Cluster":                               {service: name.ServiceCerts, secret: secret("demo-admin-kubeconfig", readByClusterAPI), refused: "is of type cluster.x-k8s.io/secret"},
		"a tenant's credentials":                                    {service: name.ServiceDatastore, secret: secret("demo-datastore-config", nil)},
		"credentials by certs":                                      {service: name.ServiceCerts, secret: secret("demo-datastore-config", nil), refused: "does not write"},
		"the token of an account":                                   {service: name.ServiceCerts, secret: secret("demo-token", token), refused: "is of type kubernetes.io/service-account-token"},
		"the token of an account, by datastore":                     {service: name.ServiceDatastore, secret: secret("demo-datastore-config", token), refused: "is of type"},
		"one that belongs to nobody":                                {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences = nil }), refused: "belongs to no TenantControlPlane"},
		"one that belongs to a Deployment":                          {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "Deployment" }), refused: "belongs to no TenantControlPlane"},
		"one with the name of something else":                       {service: name.ServiceCerts, secret: secret("other-ca", nil), refused: "belongs to no TenantControlPlane"},
		"one in a namespace of the system":                          {service: name.ServiceCerts, namespace: metav1.NamespaceSystem, secret: secret("demo-ca", nil), refused: "namespace kube-system"},
		"one in the namespace of Stoker":                            {service: name.ServiceDatastore, namespace: name.SystemNamespace, secret: secret("demo-datastore-config", nil), refused: "namespace stoker-system"},
		"the token of an account, in stoker's":                      {service: name.ServiceCerts, namespace: name.SystemNamespace, secret: secret("demo-token", token), refused: "namespace stoker-system"},
		"a tenant's certificate of its DataStore":                   {service: name.ServiceDatastore, secret: secret("demo-datastore-certificate", nil)},
		"a tenant's certificate of its DataStore by certs":          {service: name.ServiceCerts, secret: secret("demo-datastore-certificate", nil), refused: "does not write"},
		"one that begins with a tenant's name, and is another word": {service: name.ServiceCerts, secret: secret("demolition-ca", nil), refused: "belongs to no TenantControlPlane"},
		"one of another API's TenantControlPlane":                   {service: name.ServiceCerts, secret: secret("demo-ca", ownedBy("example.com/v1", v1alpha1.TenantControlPlaneKind)), refused: "belongs to no TenantControlPlane"},
		"one whose owner does not control it":                       {service: name.ServiceCerts, secret: secret("demo-ca", uncontrolled), refused: "belongs to no TenantControlPlane"},
		"another Secret of a tenant by datastore":                   {service: name.ServiceDatastore, secret: secret("demo-ca", nil), refused: "service datastore writes"},
		"a generator's":                                             {service: name.ServiceCerts, secret: secret("demo-viewers", generated("demo", "viewers"))},
		"a generator's with the name of another":                    {service: name.ServiceCerts, secret: secret("demo-editors", generated("demo", "viewers")), refused: "must be named"},
		"a generator's for another tenant":                          {service: name.ServiceCerts, secret: secret("demo-viewers", generated("other", "viewers")), refused: "must be named"},
		"a generator's for nobody":                                  {service: name.ServiceCerts, secret: secret("demo-viewers", generated("", "viewers")), refused: "must be named"},
		"a tenant's by a service that writes none":                  {service: another, secret: secret("demo-ca", nil), refused: "writes no Secrets"},
		"a Secret without the label of a tenant":                    {service: name.ServiceCerts, secret: secret("demo-ca", func(s *corev1.Secret) { s.Labels = nil }), refused: "carries no label"},
	}
}

// hadSecret is a Secret that was there, and becomes a tenant's by a service.
type hadSecret struct {
	service string
	there   *corev1.Secret
	refused string
}

func hadSecrets() map[string]hadSecret {
	return map[string]hadSecret{
		"a tenant's":                                    {service: name.ServiceCerts, there: secret("demo-ca", nil)},
		"a tenant's whose owner is gone":                {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences = nil })},
		"a tenant's whose labels are gone":              {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.Labels = nil })},
		"a CA that somebody brought":                    {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { stranger(s); s.Data = authority })},
		"a CA of the front proxy that somebody brought": {service: name.ServiceCerts, there: secret("demo-front-proxy-ca-certificate", holding(name.KeyFrontProxyCACert, name.KeyFrontProxyCAKey))},
		"keys of accounts that somebody brought":        {service: name.ServiceCerts, there: secret("demo-sa-certificate", holding(name.KeyServiceAccountPublic, name.KeyServiceAccountPrivate))},
		"somebody's with the name of a CA":              {service: name.ServiceCerts, there: secret("demo-ca", stranger), refused: "belongs to no tenant"},
		"somebody's own":                                {service: name.ServiceCerts, there: secret("demo-admin-kubeconfig", stranger), refused: "belongs to no tenant"},
		"somebody's own, by datastore":                  {service: name.ServiceDatastore, there: secret("demo-datastore-config", stranger), refused: "belongs to no tenant"},
		"a Deployment's":                                {service: name.ServiceCerts, there: secret("demo-admin-kubeconfig", unlabelled(ownedBy("apps/v1", "Deployment"))), refused: "belongs to no tenant"},
		"a Deployment's with the keys of a CA":          {service: name.ServiceCerts, there: secret("demo-ca", unlabelled(func(s *corev1.Secret) { ownedBy("apps/v1", "Deployment")(s); s.Data = authority })), refused: "belongs to no tenant"},
		"a DataStore's": {service: name.ServiceCerts,
			there: secret("demo-ca", unlabelled(ownedBy(v1alpha1.GroupVersion.String(), v1alpha1.DataStoreKind))), refused: "belongs to no tenant"},
		"one of another API's tenant":          {service: name.ServiceCerts, there: secret("demo-ca", unlabelled(ownedBy("example.com/v1", v1alpha1.TenantControlPlaneKind))), refused: "belongs to no tenant"},
		"one whose owner doesn't control it":   {service: name.ServiceCerts, there: secret("demo-ca", unlabelled(uncontrolled)), refused: "belongs to no tenant"},
		"somebody's own with the keys of a CA": {service: name.ServiceCerts, there: secret("demo-admin-kubeconfig", func(s *corev1.Secret) { stranger(s); s.Data = authority }), refused: "belongs to no tenant"},
	}
}

// goneSecrets are Secrets that are there and that a service deletes.
func goneSecrets() map[string]hadSecret {
	return map[string]hadSecret{
		"a tenant's":                    {service: name.ServiceCerts, there: secret("demo-ca", nil)},
		"a tenant's credentials":        {service: name.ServiceDatastore, there: secret("demo-datastore-config", nil)},
		"a tenant's without its owner":  {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.OwnerReferences = nil })},
		"a tenant's of another type":    {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.Type = "example.com/key" })},
		"a generator's, of any name":    {service: name.ServiceCerts, there: secret("demo-ca", func(s *corev1.Secret) { s.Labels[name.LabelManagedBy] = "viewers" })},
		"credentials by certs":          {service: name.ServiceCerts, there: secret("demo-datastore-config", nil), refused: "does not write"},
		"a certificate by datastore":    {service: name.ServiceDatastore, there: secret("demo-ca", nil), refused: "service datastore writes"},
		"a tenant's by another service": {service: another, there: secret("demo-ca", nil), refused: "writes no Secrets"},
		"somebody's":                    {service: name.ServiceCerts, there: secret("demo-ca", stranger), refused: "carries no label"},
	}
}

// ownedBy makes a Secret one that an object of another kind controls.
func ownedBy(apiVersion, kind string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion, s.OwnerReferences[0].Kind = apiVersion, kind }
}

// generated makes a Secret one of a KubeconfigGenerator for a tenant.
func generated(tenant, generator string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Labels[name.LabelManagedBy] = generator
		if tenant != "" {
			s.Labels[name.LabelManagedFor] = tenant
		}
	}
}

// unlabelled is a change after which a Secret has no labels.
func unlabelled(change func(*corev1.Secret)) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		change(s)
		s.Labels = nil
	}
}

// holding makes a Secret somebody's, with data under these keys.
func holding(keys ...string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		stranger(s)
		s.Data = map[string][]byte{}
		for _, k := range keys {
			s.Data[k] = []byte("a")
		}
	}
}

// uncontrolled leaves a Secret an owner that doesn't control it.
func uncontrolled(s *corev1.Secret) { s.OwnerReferences[0].Controller = nil }

// TestSecretsThatServicesWrite has services write Secrets: those of tenants, and no others.
func TestSecretsThatServicesWrite(t *testing.T) {
	_, c := admin(t)
	const ns = metav1.NamespaceDefault
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	until(t, func() error {
		_, err := asService(t, name.ServiceCerts).CoreV1().Secrets(ns).Create(t.Context(), secret("demo-datastore-config", nil), dry)
		return err
	})
	for what, test := range newSecrets() {
		t.Run("a new one: "+what, func(t *testing.T) {
			if test.namespace == "" {
				test.namespace = ns
			}
			_, err := asService(t, test.service).CoreV1().Secrets(test.namespace).Create(t.Context(), test.secret, dry)
			expect(t, err, test.refused)
		})
	}
	for what, test := range hadSecrets() {
		t.Run("one that was there: "+what, func(t *testing.T) {
			there, err := c.CoreV1().Secrets(ns).Create(t.Context(), test.there, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}()
			changed := secret(there.Name, nil)
			_, err = asService(t, test.service).CoreV1().Secrets(ns).Update(t.Context(), changed, metav1.UpdateOptions{})
			expect(t, err, test.refused)
		})
	}
	for what, test := range goneSecrets() {
		t.Run("one that goes: "+what, func(t *testing.T) {
			for _, ns := range []string{ns, name.SystemNamespace} {
				there, err := c.CoreV1().Secrets(ns).Create(t.Context(), test.there, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				expect(t, asService(t, test.service).CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), test.refused)
				if err := c.CoreV1().Secrets(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		})
	}
}

func token(s *corev1.Secret) {
	s.Type = corev1.SecretTypeServiceAccountToken
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
}

// readByClusterAPI gives a Secret the type of those that Cluster API reads.
func readByClusterAPI(s *corev1.Secret) {
	s.Type = name.SecretTypeClusterAPI
}

var authority = map[string][]byte{name.KeyCACert: []byte("a"), name.KeyCAKey: []byte("b")}

// expect checks what was said of a write: refused by a policy with a message that has a part, or accepted when that is empty.
func expect(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), refused)):
		t.Errorf("not refused with %q: %v", refused, err)
	}
}

// demo is the tenant whose objects workload makes.
func demo() workload.Subject {
	tcp := &v1alpha1.TenantControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "demo", UID: "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11"}}
	tcp.Spec.Kubernetes.Version, tcp.Spec.ControlPlane.Service.ServiceType = "v1.36.3", v1alpha1.ServiceTypeClusterIP
	v1alpha1.Default(tcp)
	return workload.Subject{UID: string(tcp.UID), Tenant: &state.Tenant{Namespace: metav1.NamespaceDefault, Name: tcp.Name, Spec: tcp.Spec}}
}

func pods(change func(*appsv1.Deployment)) *appsv1.Deployment {
	d := workload.Deployment(workload.Input{
		Subject: demo(), Advertise: "192.0.2.1",
		Datastore: state.Datastore{DataStore: "a", Driver: string(v1alpha1.DriverEtcd), Schema: "a", Endpoints: []string{"a:1"}},
	})
	change(d)
	return d
}

func clusterIP(change func(*corev1.Service)) *corev1.Service {
	s := workload.Service(demo())
	change(s)
	return s
}

// newObject is a Deployment or a Service that workload makes.
type newObject struct {
	deployment *appsv1.Deployment
	service    *corev1.Service
	refused    string
}

func newObjects() map[string]newObject {
	return map[string]newObject{
		"a tenant's Deployment":                     {deployment: pods(func(*appsv1.Deployment) {})},
		"a tenant's Service":                        {service: clusterIP(func(*corev1.Service) {})},
		"a Deployment of nobody":                    {deployment: pods(func(d *appsv1.Deployment) { d.OwnerReferences = nil }), refused: "belongs to no TenantControlPlane"},
		"a Deployment of another name":              {deployment: pods(func(d *appsv1.Deployment) { d.Name = "other" }), refused: "belongs to no TenantControlPlane"},
		"a Deployment in kube-system":               {deployment: pods(func(d *appsv1.Deployment) { d.Namespace = metav1.NamespaceSystem }), refused: "namespace kube-system"},
		"a Deployment beside the services":          {deployment: pods(func(d *appsv1.Deployment) { d.Namespace = name.SystemNamespace }), refused: "namespace stoker-system"},
		"pods in a node's network":                  {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }), refused: "node's network"},
		"pods among a node's processes":             {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostPID = true }), refused: "node's network"},
		"pods that name a node":                     {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "a" }), refused: "name a node"},
		"a Service of a longer name":                {service: clusterIP(func(s *corev1.Service) { s.Name = "demo-more" })},
		"a Service of another word":                 {service: clusterIP(func(s *corev1.Service) { s.Name = "demolition" }), refused: "belongs to no TenantControlPlane"},
		"a Service of another API's tenant":         {service: clusterIP(func(s *corev1.Service) { s.OwnerReferences[0].APIVersion = "example.com/v1" }), refused: "belongs to no TenantControlPlane"},
		"a Service of a DataStore":                  {service: clusterIP(func(s *corev1.Service) { s.OwnerReferences[0].Kind = v1alpha1.DataStoreKind }), refused: "belongs to no TenantControlPlane"},
		"a Service that its tenant doesn't control": {service: clusterIP(func(s *corev1.Service) { s.OwnerReferences[0].Controller = nil }), refused: "belongs to no TenantControlPlane"},
		"pods that speak to a node's processes":     {deployment: pods(func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostIPC = true }), refused: "node's network"},
		"a Service that leads elsewhere": {service: clusterIP(func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.example.com"
		}), refused: "must lead to the pods"},
		"a Service of somebody else's pods": {service: clusterIP(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }), refused: "must lead to the pods"},
	}
}

// hadObject is a Service that was there.
type hadObject struct {
	there   func(*corev1.Service)
	refused bool
}

// hadObjects become a tenant's by workload, or are deleted by it.
func hadObjects() map[string]hadObject {
	owner := func(apiVersion, kind string, controller *bool) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Labels = nil
			s.OwnerReferences[0].APIVersion, s.OwnerReferences[0].Kind, s.OwnerReferences[0].Controller = apiVersion, kind, controller
		}
	}
	own := v1alpha1.GroupVersion.String()
	return map[string]hadObject{
		"a tenant's":                         {there: func(*corev1.Service) {}},
		"a tenant's whose owner is gone":     {there: func(s *corev1.Service) { s.OwnerReferences = nil }},
		"a tenant's whose labels are gone":   {there: owner(own, v1alpha1.TenantControlPlaneKind, new(true))},
		"a Deployment's":                     {there: owner("apps/v1", "Deployment", new(true)), refused: true},
		"a DataStore's":                      {there: owner(own, v1alpha1.DataStoreKind, new(true)), refused: true},
		"one of another API's tenant":        {there: owner("example.com/v1", v1alpha1.TenantControlPlaneKind, new(true)), refused: true},
		"one whose owner doesn't control it": {there: owner(own, v1alpha1.TenantControlPlaneKind, nil), refused: true},
		"somebody's with another label": {there: func(s *corev1.Service) {
			s.OwnerReferences, s.Labels = nil, map[string]string{name.LabelProject: "other"}
		}, refused: true},
	}
}

// thereIn stores a Service that workload is to change or to delete.
func thereIn(t *testing.T, c kubernetes.Interface, namespace string, change func(*corev1.Service)) *corev1.Service {
	t.Helper()
	s := clusterIP(change)
	s.Namespace = namespace
	there, err := c.CoreV1().Services(namespace).Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// change has workload make a Service that was there a tenant's, without storing it.
func change(ctx context.Context, w kubernetes.Interface, there *corev1.Service) error {
	s := clusterIP(func(s *corev1.Service) { s.Namespace = there.Namespace })
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	forced := metav1.PatchOptions{FieldManager: "test", Force: new(true), DryRun: []string{metav1.DryRunAll}}
	_, err = w.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.ApplyPatchType, data, forced)
	return err
}

// TestObjectsThatWorkloadWrites has workload write Deployments and Services: those of tenants, and no others.
func TestObjectsThatWorkloadWrites(t *testing.T) {
	_, c := admin(t)
	w := asService(t, name.ServiceWorkload)
	const ns = metav1.NamespaceDefault
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	until(t, func() error {
		_, err := w.CoreV1().Services(ns).Create(t.Context(), clusterIP(func(s *corev1.Service) { s.OwnerReferences = nil }), dry)
		return err
	})
	for what, test := range newObjects() {
		t.Run("a new one: "+what, func(t *testing.T) {
			var err error
			if test.deployment != nil {
				_, err = w.AppsV1().Deployments(test.deployment.Namespace).Create(t.Context(), test.deployment, dry)
			} else {
				_, err = w.CoreV1().Services(test.service.Namespace).Create(t.Context(), test.service, dry)
			}
			expect(t, err, test.refused)
		})
	}
	for what, test := range map[string]struct {
		change  func(*discoveryv1.EndpointSlice)
		refused string
	}{
		"of a tenant's Service":       {func(*discoveryv1.EndpointSlice) {}, ""},
		"of somebody else's Service":  {func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "kubernetes" }, "must be of its tenant's Service"},
		"of nobody":                   {func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil }, "belongs to no TenantControlPlane"},
		"in the system's namespace":   {func(s *discoveryv1.EndpointSlice) { s.Namespace = metav1.NamespaceSystem }, "namespace kube-system"},
		"of no Service that is named": {func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) }, "must be of its tenant's Service"},
	} {
		t.Run("an EndpointSlice "+what, func(t *testing.T) {
			s := workload.ActivatorSlice(demo(), netip.MustParseAddrPort("10.0.0.1:20000"))
			test.change(s)
			_, err := w.DiscoveryV1().EndpointSlices(s.Namespace).Create(t.Context(), s, dry)
			expect(t, err, test.refused)
		})
	}
	t.Run("a tenant's Deployment goes", func(t *testing.T) {
		there, err := c.AppsV1().Deployments(ns).Create(t.Context(), pods(func(*appsv1.Deployment) {}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, w.AppsV1().Deployments(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), "")
	})
	for what, test := range hadObjects() {
		t.Run("one that was there: "+what, func(t *testing.T) {
			refused := ""
			if test.refused {
				refused = "belongs to no tenant"
			}
			there := thereIn(t, c, ns, test.there)
			expect(t, change(t.Context(), w, there), refused)
			for _, namespace := range []string{ns, metav1.NamespaceSystem} { // also where none is made
				if namespace != ns {
					there = thereIn(t, c, namespace, test.there)
				}
				expect(t, w.CoreV1().Services(namespace).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), refused)
				if err := c.CoreV1().Services(namespace).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		})
	}
	t.Run("one that was there and is somebody else's is neither changed nor deleted", func(t *testing.T) {
		there := pods(func(d *appsv1.Deployment) { d.OwnerReferences, d.Labels = nil, nil })
		if _, err := c.AppsV1().Deployments(ns).Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		applied := pods(func(d *appsv1.Deployment) { d.Labels = maps.Clone(d.Labels) })
		data, err := json.Marshal(applied)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.AppsV1().Deployments(ns).Patch(t.Context(), there.Name, "application/apply-patch+yaml", data, metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		expect(t, err, "belongs to no tenant")
		expect(t, w.AppsV1().Deployments(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}), "belongs to no tenant")
		if err := c.AppsV1().Deployments(ns).Delete(t.Context(), there.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
