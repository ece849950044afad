package robustness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// Watch notes every fact and status as it is published, until the returned function is called. What is missed while the connection
// is away, ReadStreams finds.
func Watch(s *Site, h *History) (stop func(), err error) {
	var subs []*nats.Subscription
	for _, subject := range []string{"stoker.fact.>", "stoker.status.*.*"} {
		sub, err := s.Operator.Conn().Subscribe(subject, func(m *nats.Msg) { h.Add(published(m.Subject, m.Header, m.Data)) })
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	return func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe()
		}
	}, nil
}

// published is the record of a fact or a status. It has no time: by whose clock it was told, that may have been wrong.
func published(subject string, header nats.Header, data []byte) Record {
	r := Record{Kind: Told, What: subject}
	e, err := events.Decode(header, data)
	if err != nil {
		r.Detail = err.Error()
		return r
	}
	r.ID = e.ID()
	var about event.About
	_ = json.Unmarshal(e.Data(), &about) // poison has none
	r.Tenant, r.UID, r.Generation = about.Namespace+"/"+about.Name, about.UID, about.Generation
	if _, _, service, what, err := events.ParseSubject(subject); err == nil && service != "" {
		r.By, r.What = service, what
		return r
	}
	status, err := decode[event.StatusChanged](e.Data())
	if err != nil {
		r.Detail = err.Error()
	}
	r.Kind, r.By, r.What, r.Ready, r.Detail = Showed, "status", status.Phase, status.Ready, status.Reason
	return r
}

// ReadStreams notes what the streams of facts and statuses hold.
func ReadStreams(ctx context.Context, s *Site, h *History) error {
	for _, stream := range []string{events.StreamFacts, events.StreamStatus} {
		c, err := s.Operator.JetStream().OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		for {
			batch, err := c.FetchNoWait(500)
			if err != nil {
				return err
			}
			n := 0
			for m := range batch.Messages() {
				n++
				stored, err := m.Metadata()
				if err != nil {
					return err
				}
				if !strings.HasPrefix(m.Subject(), "stoker.timer.") {
					r := published(m.Subject(), m.Headers(), m.Data())
					r.At = stored.Timestamp
					h.Add(r)
				}
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

// adds is what a write did that only adds to a list.
const adds = "add"

// auditEvent is what is read of a line of the API server's audit log (audit.k8s.io/v1).
type auditEvent struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	StageTime  time.Time `json:"stageTimestamp"`
	SourceIPs  []string  `json:"sourceIPs"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Request  json.RawMessage `json:"requestObject"` // an object, or the list of a JSON patch
	Response struct {
		Metadata struct {
			UID        string            `json:"uid"`
			Generation int64             `json:"generation"`
			Labels     map[string]string `json:"labels"`
			Owners     []struct {
				UID string `json:"uid"`
			} `json:"ownerReferences"`
		} `json:"metadata"`
		Spec struct {
			ControlPlane struct {
				Deployment struct {
					Additional struct {
						Labels map[string]string `json:"labels"`
					} `json:"additionalMetadata"`
				} `json:"deployment"`
			} `json:"controlPlane"`
		} `json:"spec"`
	} `json:"responseObject"`
}

// ReadAudit notes every write to objects of these tenants, to DataStores, and to the ConfigMap of admission that the API server took.
func ReadAudit(path string, tenants []string, h *History) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		e, err := auditEventOf(lines.Bytes())
		if err != nil {
			return fmt.Errorf("%s line %d: %w", path, n, err)
		}
		if r, ok := e.record(tenants); ok {
			h.Add(r)
		}
	}
	return errors.Join(lines.Err())
}

// auditStart is how the API server begins each event of its audit log.
const auditStart = `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`

// auditEventOf reads a line of the audit log. When the API server is killed while it writes one, the next one goes on in that line.
func auditEventOf(line []byte) (e auditEvent, err error) {
	if torn := bytes.LastIndex(line, []byte(auditStart)); torn > 0 && !json.Valid(line) {
		line = line[torn:]
	}
	return e, json.Unmarshal(line, &e)
}

// about is whose the object is that was written: a tenant's, or no tenant's but one that a service writes for all; empty for others.
func (e auditEvent) about(tenants []string) string {
	o := e.Object
	switch {
	case o.Namespace == namespace && owner(o.Name, tenants) != "":
		return namespace + "/" + owner(o.Name, tenants)
	case o.Resource == "datastores", o.Resource == "configmaps" && o.Namespace == name.SystemNamespace && o.Name == name.AdmissionConfigMap:
		return o.Resource + "/" + o.Name
	}
	return ""
}

// addsOnly reports whether a patch only adds to what a ConfigMap lists.
func (e auditEvent) addsOnly() bool {
	if e.Object.Resource != "configmaps" || e.Verb != "patch" {
		return false
	}
	patch, err := decode[struct {
		Data map[string]*string `json:"data"`
	}](e.Request)
	if err != nil {
		return false
	}
	for _, v := range patch.Data {
		if v == nil {
			return false
		}
	}
	return true
}

// record of a write; not ok for one that changed nothing, or nothing of these tenants.
func (e auditEvent) record(tenants []string) (Record, bool) {
	about := e.about(tenants)
	if e.Status.Code >= 300 || about == "" || strings.Contains(e.RequestURI, "dryRun=") {
		return Record{}, false
	}
	meta := e.Response.Metadata
	r := Record{
		At: e.StageTime, Kind: Wrote, Tenant: about, What: e.Verb, UID: meta.UID, Generation: meta.Generation,
		Object: strings.TrimSuffix(e.Object.Resource+"/"+e.Object.Subresource, "/") + "/" + e.Object.Name,
		Mark:   meta.Labels[markLabel],
	}
	if e.Object.Resource == "tenantcontrolplanes" {
		r.Mark = e.Response.Spec.ControlPlane.Deployment.Additional.Labels[markLabel]
	}
	switch {
	case e.Status.Code == 201:
		r.What = "create"
	case e.addsOnly():
		r.What = adds
	}
	if len(meta.Owners) > 0 {
		r.UID = meta.Owners[0].UID
	}
	r.By = strings.TrimPrefix(e.User.Username, "system:serviceaccount:stoker-system:stoker-")
	if n := len(e.SourceIPs); n > 0 && r.By != e.User.Username {
		r.By += "@" + e.SourceIPs[n-1]
	}
	return r, true
}

// owner is the tenant whose object has a name: the tenant's own, or one that begins with it.
func owner(object string, tenants []string) string {
	for _, t := range tenants {
		if object == t || strings.HasPrefix(object, t+"-") {
			return t
		}
	}
	return ""
}
