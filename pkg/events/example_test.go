package events_test

import (
	"fmt"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// A command as a portal publishes it: CloudEvents attributes as headers, the object as data.
func ExampleEncode() {
	key := events.Tenant("default", "demo")
	e := ce.New()
	e.SetID("order-4711")
	e.SetSource("/portal")
	e.SetType(event.TenantDelete)
	msg := events.Encode(key.CommandSubject(), e)
	fmt.Println(msg.Subject)
	fmt.Println(msg.Header.Get("ce-type"), msg.Header.Get("Nats-Msg-Id"))
	// Output:
	// stoker.intake.tenantcontrolplanes.default.demo
	// dev.stoker.tenantcontrolplane.delete.v1 order-4711
}

// What happens to one tenant is on subjects that name it.
func ExampleKey() {
	key := events.Tenant("default", "demo")
	fmt.Println(key.Partition(), key.Bucket())
	fmt.Println(key.FactSubject("certs", event.Issued))
	fmt.Println(key.StatusSubject())
	// Output:
	// 1 tenant_default_demo
	// stoker.fact.1.default.demo.certs.issued
	// stoker.status.default.demo
}
