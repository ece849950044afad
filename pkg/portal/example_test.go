package portal_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/portal"
)

// A tenant, from the order to its kubeconfig.
func Example() {
	ctx, tenant := context.Background(), &v1alpha1.TenantControlPlane{}

	client, err := portal.Connect(portal.Config{URL: "nats://nats.example.com", Source: "/shop", SeedFile: "portal.nk"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	accepted, err := client.Apply(ctx, tenant)
	if err != nil {
		log.Fatal(err)
	}
	status, err := client.WaitReady(ctx, accepted)
	fmt.Println(status.Endpoint, status.Kubeconfig, err)
}

// Every step on the way, for a progress bar.
func ExampleClient_Follow() {
	var client *portal.Client
	var accepted portal.Accepted
	for status, err := range client.Follow(context.Background(), accepted.Namespace, accepted.Name) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.Phase, status.Message)
		if done, err := accepted.Done(status); done {
			fmt.Println("done", err)
			break
		}
	}
}

// A change of what was seen, or none.
func ExampleExpectGeneration() {
	var client *portal.Client
	seen := int64(3)
	patch := map[string]any{"kubernetes": map[string]any{"version": "v1.36.3"}}
	_, err := client.Patch(context.Background(), events.Tenant("default", "demo"), patch, portal.ExpectGeneration(seen))
	var refused *portal.RefusedError
	if errors.As(err, &refused) && refused.Has("Conflict") {
		fmt.Println("somebody was faster: look again, then decide")
	}
}
