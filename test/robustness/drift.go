package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// drifting is the ConfigMap in every tenant that addons makes and that is deleted to see it come back.
const drifting = "coredns"

// misdirect is a fault: somebody has the kubeconfigs of all tenants name another authority, and puts them back.
func misdirect(ctx context.Context, s *Site, _ *rand.Rand) (string, func(context.Context) error, error) {
	var tenants v1alpha1.TenantControlPlaneList
	if err := s.Admin.List(ctx, kube.TenantControlPlanes, namespace, "", &tenants); err != nil {
		return "", nil, err
	}
	var struck []string
	before := map[string]map[string][]byte{}
	for _, o := range tenants.Items {
		data, err := s.misdirect(ctx, o.Name)
		if apierrors.IsNotFound(err) {
			continue // it has none yet
		}
		if err != nil {
			return "", nil, err
		}
		struck = append(struck, o.Name)
		before[name.AdminKubeconfig(o.Name)] = data
	}
	return strings.Join(struck, ","), func(ctx context.Context) (all error) {
		for secret, data := range before {
			err := s.Admin.MergePatch(ctx, kube.Secrets, namespace, secret, map[string]any{"data": data}, &metav1.PartialObjectMetadata{})
			if !apierrors.IsNotFound(err) {
				all = errors.Join(all, err)
			}
		}
		return all
	}, nil
}

// misdirect returns what the Secret held before.
func (s *Site) misdirect(ctx context.Context, tenant string) (before map[string][]byte, err error) {
	var secret corev1.Secret
	if err := s.Admin.Get(ctx, kube.Secrets, namespace, name.AdminKubeconfig(tenant), &secret); err != nil {
		return nil, err
	}
	wrong := map[string][]byte{}
	for field, data := range secret.Data {
		config, err := clientcmd.Load(data)
		if err != nil {
			return nil, err
		}
		for _, c := range config.Clusters {
			c.CertificateAuthorityData = s.Local.AdminConfig().CAData
		}
		if wrong[field], err = clientcmd.Write(*config); err != nil {
			return nil, err
		}
	}
	err = s.Admin.MergePatch(ctx, kube.Secrets, namespace, secret.Name, map[string]any{"data": wrong}, &metav1.PartialObjectMetadata{})
	return secret.Data, err
}

// Drift deletes an object that addons made, in every tenant that is Ready when all is quiet, and notes where it isn't made again.
func Drift(ctx context.Context, s *Site, h *History, patience time.Duration) {
	var looking sync.WaitGroup
	defer looking.Wait()
	for _, r := range h.Records() {
		if r.Kind != Ended || r.What != "Ready" {
			continue
		}
		_, tenant, _ := strings.Cut(r.Tenant, "/")
		looking.Go(func() {
			if err := s.drifts(ctx, tenant, patience); err != nil {
				h.Add(Record{Kind: Drifted, Tenant: r.Tenant, Object: "configmaps/" + drifting, Detail: err.Error()})
			}
		})
	}
}

// drifts deletes the object in a tenant and waits until it is there again.
func (s *Site) drifts(ctx context.Context, tenant string, patience time.Duration) error {
	if err := s.awaitIn(ctx, tenant, patience); err != nil {
		return fmt.Errorf("not there for %s: %w", patience, err)
	}
	if err := s.deleteIn(ctx, tenant); err != nil {
		return fmt.Errorf("can't be deleted: %w", err)
	}
	if err := s.awaitIn(ctx, tenant, patience); err != nil {
		return fmt.Errorf("not made again within %s: %w", patience, err)
	}
	return nil
}

// inside does something with a client of a tenant's administrator.
func (s *Site) inside(ctx context.Context, tenant string, do func(context.Context, *kube.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var secret corev1.Secret
	if err := s.Admin.Get(ctx, kube.Secrets, namespace, name.AdminKubeconfig(tenant), &secret); err != nil {
		return err
	}
	client, err := kube.FromKubeconfig(secret.Data[name.KeyAdminConf], kube.Options{FieldManager: "robustness"})
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

func (s *Site) deleteIn(ctx context.Context, tenant string) error {
	return s.inside(ctx, tenant, func(ctx context.Context, c *kube.Client) error {
		_, err := c.Delete(ctx, kube.ConfigMaps, metav1.NamespaceSystem, drifting, metav1.DeleteOptions{})
		return err
	})
}

// awaitIn waits until the object is there.
func (s *Site) awaitIn(ctx context.Context, tenant string, patience time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		err = s.inside(ctx, tenant, func(ctx context.Context, c *kube.Client) error {
			return c.Get(ctx, kube.ConfigMaps, metav1.NamespaceSystem, drifting, &metav1.PartialObjectMetadata{})
		})
		if err == nil {
			return nil
		}
		<-time.After(200 * time.Millisecond)
	}
	return err
}
