package events

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// header reads "key: value" lines, so that a corpus can be written by hand.
func header(lines string) nats.Header {
	h := nats.Header{}
	for line := range strings.Lines(lines) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		h[k] = append(h[k], v)
	}
	return h
}

// FuzzDecode decodes what anybody may publish: headers and data, binary or structured. What is no event is said to be one
// attribute's fault; what is one stays the same on its way through Stoker.
func FuzzDecode(f *testing.F) {
	const binary = "ce-specversion: 1.0\nce-id: 1\nce-source: /portal\nce-type: dev.stoker.tenantcontrolplane.apply.v1\n"
	f.Add(binary, []byte(`{}`))
	f.Add(binary+"Ce-Replyto: stoker.answer.default.x\nce-expectedgeneration: 3\nce-time: 2027-01-31T18:00:00Z\nContent-Type: application/json; charset=utf-8\n", []byte(`{"a":1}`))
	f.Add(binary+"ce-time: yesterday\n", []byte(nil))
	f.Add(binary+"ce-Ünknown: x\nce-a b: y\nce-: z\n", []byte(nil))
	f.Add("CE-SPECVERSION: 0.3\n", []byte(nil))
	f.Add("Content-Type: application/cloudevents+json\n", []byte(`{"specversion":"1.0","id":"1","source":"/p","type":"t","data":{"a":[1,"x"]},"replyto":"stoker.answer.default.x","expectedgeneration":3}`))
	f.Add("content-type: application/cloudevents+json; charset=UTF-8\n", []byte(`{"specversion":"1.0","id":"1","source":"/p","type":"t","data_base64":"e30="}`))
	f.Add("Content-Type: application/cloudevents+json\n", []byte(`{"specversion":"1.0","id":1,"source":[],"type":null,"time":"x","datacontenttype":"text/plain"}`))
	f.Add("Content-Type: application/cloudevents-batch+json\n", []byte(`[]`))
	f.Fuzz(func(t *testing.T, headers string, data []byte) {
		e, err := Decode(header(headers), data)
		var attribute *AttributeError
		switch {
		case err != nil && (!errors.As(err, &attribute) || attribute.Attribute == "" || attribute.Message == ""):
			t.Fatalf("%v", err)
		case err != nil:
			if len(attribute.Value) > 300 || len(attribute.Message) > 2000 {
				t.Fatalf("long: %v", attribute)
			}
			return
		}
		msg := Encode("x", e)
		again, err := Decode(msg.Header, msg.Data)
		if err != nil {
			t.Fatalf("%v of %v", err, msg.Header)
		}
		if again.ID() != e.ID() || again.Source() != e.Source() || again.Type() != e.Type() || !bytes.Equal(again.Data(), e.Data()) || !again.Time().Equal(e.Time()) {
			t.Fatalf("%v became %v", e, again)
		}
	})
}

// FuzzSubject parses what anybody may publish on. An object's own subjects lead back to it.
func FuzzSubject(f *testing.F) {
	f.Add("stoker.intake.3.tenantcontrolplanes.default.shop")
	f.Add("stoker.intake.3.datastores.-.main_eu")
	f.Add("stoker.intake.99.pods.-.x")
	f.Add("stoker.intake.x.tenantcontrolplanes.default.shop")
	f.Add("stoker.fact.3.default.shop.certs.issued")
	f.Add("stoker.fact.3.-.main.status.checked")
	f.Add("stoker.fact.3.-kubeconfiggenerators.ops.certs.generated")
	f.Add("stoker.fact.....")
	f.Fuzz(func(t *testing.T, subject string) {
		key, _, service, what, err := ParseSubject(subject)
		if err != nil || !key.Valid() {
			return
		}
		switch key.Kind {
		case event.TenantControlPlanes, event.DataStores, event.KubeconfigGenerators:
		default:
			return
		}
		if key.IsTenant() == (key.Namespace == ClusterScoped) {
			return // intake refuses it
		}
		if service == "" {
			service, what = "intake", "accepted"
		}
		for _, own := range []string{
			key.FactSubject(service, what),
			strings.Replace(key.CommandSubject(), "stoker.intake.", fmt.Sprintf("stoker.intake.%d.", key.Partition()), 1),
		} {
			got, partition, _, _, err := ParseSubject(own)
			if err != nil || got != key || partition != key.Partition() || partition >= name.Partitions {
				t.Errorf("%s leads to %v in partition %d: %v", own, got, partition, err)
			}
		}
	})
}
