// Command portal orders a tenant as a customers' portal does: it applies a TenantControlPlane by event, follows its status to
// Ready and says where the kubeconfig is; with -delete it takes the tenant down again. Run it beside `stoker up`:
//
//	go run ./examples/portal
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	local, _ := os.ReadFile(".stoker/nats/url") // where `stoker up` leaves it
	url := flag.String("nats", cmp.Or(os.Getenv("NATS_URL"), strings.TrimSpace(string(local))), "`URL` of the NATS servers")
	seed := flag.String("nkey", cmp.Or(os.Getenv("STOKER_NATS_SEED"), ".stoker/nats/portal.nk"), "`file` with the nkey seed of the user portal")
	name := flag.String("name", "shop", "`name` of the tenant")
	remove := flag.Bool("delete", false, "delete the tenant instead")
	patience := flag.Duration("timeout", 5*time.Minute, "how long to wait")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()

	client, err := portal.Connect(portal.Config{URL: *url, SeedFile: *seed, Source: "/examples/portal"})
	if err == nil && *remove {
		err = takeDown(ctx, client, *name)
	} else if err == nil {
		err = create(ctx, client, tenant(*name))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// create applies a tenant and follows it to Ready.
func create(ctx context.Context, client *portal.Client, tenant *v1alpha1.TenantControlPlane) error {
	accepted, err := client.Apply(ctx, tenant)
	if err != nil {
		return err // a *portal.RefusedError names each field, the rule and the value
	}
	fmt.Printf("accepted as generation %d\n", accepted.Generation)
	for status, err := range client.Follow(ctx, tenant.Namespace, tenant.Name) {
		if err != nil {
			return err
		}
		fmt.Printf("%-14s %s\n", status.Phase, status.Message)
		if done, err := accepted.Done(status); err != nil {
			return err // it won't become Ready without somebody's help
		} else if done {
			fmt.Printf("https://%s, kubeconfig in Secret %s\n", status.Endpoint, status.Kubeconfig)
			return nil
		}
	}
	return nil
}

// takeDown deletes a tenant and waits until nothing of it is left.
func takeDown(ctx context.Context, client *portal.Client, name string) error {
	accepted, err := client.Delete(ctx, events.Tenant("default", name))
	if err != nil {
		return err
	}
	last, err := client.WaitDeleted(ctx, accepted)
	if err == nil {
		fmt.Println("deleted:", last.Message)
	}
	return err
}

// tenant is a small control plane with an address of its own.
func tenant(name string) *v1alpha1.TenantControlPlane {
	replicas := int32(1)
	return &v1alpha1.TenantControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.TenantControlPlaneSpec{
			ControlPlane: v1alpha1.ControlPlane{
				Deployment: v1alpha1.DeploymentSpec{Replicas: &replicas},
				Service:    v1alpha1.ServiceSpec{ServiceType: v1alpha1.ServiceTypeLoadBalancer},
			},
			Kubernetes: v1alpha1.KubernetesSpec{Version: "v1.36.3"},
			Addons:     v1alpha1.AddonsSpec{CoreDNS: &v1alpha1.AddonSpec{}, KubeProxy: &v1alpha1.AddonSpec{}},
		},
	}
}
