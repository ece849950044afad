package robustness

import (
	"encoding/json"
	"fmt"
	"testing"
)

// What the audit log says of a write is noted if it is a tenant's, a DataStore's, or the ConfigMap's that admission reads.
func TestWhatIsReadOfTheAuditLog(t *testing.T) {
	const line = `{"verb":"patch","requestURI":%q,"stageTimestamp":"2026-11-22T12:00:00Z","sourceIPs":["127.1.0.200"],
		"user":{"username":"system:serviceaccount:stoker-system:stoker-intake"},"objectRef":%s,"responseStatus":{"code":%d},
		"requestObject":%s,"responseObject":{"metadata":{"labels":{"stoker.dev/partition":"3"}}}}`
	for what, c := range map[string]struct {
		uri, object string
		code        int
		request     string
		tenant      string // empty for none
		verb        string
	}{
		"a label of a tenant":      {"/", `{"resource":"tenantcontrolplanes","namespace":"default","name":"a"}`, 200, `{}`, "default/a", "patch"},
		"a JSON patch of a tenant": {"/", `{"resource":"tenantcontrolplanes","namespace":"default","name":"a"}`, 200, `[{"op":"remove","path":"/x"}]`, "default/a", "patch"},
		"a JSON patch of the ConfigMap": {
			"/", `{"resource":"configmaps","namespace":"stoker-system","name":"stoker-admission"}`, 200, `[{"op":"remove","path":"/data/x"}]`,
			"configmaps/stoker-admission", "patch",
		},
		"a label of a DataStore": {"/", `{"resource":"datastores","name":"default"}`, 200, `{}`, "datastores/default", "patch"},
		"a DataStore is added to the ConfigMap": {
			"/", `{"resource":"configmaps","namespace":"stoker-system","name":"stoker-admission"}`, 200, `{"data":{"x":"etcd"}}`,
			"configmaps/stoker-admission", adds,
		},
		"a DataStore is taken from the ConfigMap": {
			"/", `{"resource":"configmaps","namespace":"stoker-system","name":"stoker-admission"}`, 200, `{"data":{"x":null,"y":"etcd"}}`,
			"configmaps/stoker-admission", "patch",
		},
		"another ConfigMap":        {"/", `{"resource":"configmaps","namespace":"stoker-system","name":"kube-root-ca.crt"}`, 200, `{}`, "", ""},
		"another tenant":           {"/", `{"resource":"secrets","namespace":"default","name":"b-ca"}`, 200, `{}`, "", ""},
		"what was refused":         {"/", `{"resource":"tenantcontrolplanes","namespace":"default","name":"a"}`, 409, `{}`, "", ""},
		"what was only tried, dry": {"/?dryRun=All", `{"resource":"tenantcontrolplanes","namespace":"default","name":"a"}`, 200, `{}`, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			var e auditEvent
			if err := json.Unmarshal(fmt.Appendf(nil, line, c.uri, c.object, c.code, c.request), &e); err != nil {
				t.Fatal(err)
			}
			r, ok := e.record([]string{"a"})
			if ok != (c.tenant != "") || ok && (r.Tenant != c.tenant || r.What != c.verb || r.By != "intake@127.1.0.200") {
				t.Errorf("%v %+v", ok, r)
			}
		})
	}
}

func TestALineThatWasCutOffInTheAuditLogHidesNotTheNextEvent(t *testing.T) {
	const whole = auditStart + `,"verb":"patch","requestURI":"/b"}`
	for line, uri := range map[string]string{
		whole: "/b",
		auditStart + `,"verb":"create","requestURI":"/a` + whole:                         "/b",
		auditStart + `,"verb":"update","requestURI":"/c","requestObject":` + whole + `}`: "/c",
	} {
		if e, err := auditEventOf([]byte(line)); err != nil || e.RequestURI != uri {
			t.Errorf("%s: %+v, %v", line, e, err)
		}
	}
	if _, err := auditEventOf([]byte(auditStart + `,"verb":"create"`)); err == nil {
		t.Error("a line that ends early is taken for an event")
	}
}
