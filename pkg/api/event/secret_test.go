package event_test

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

func TestInlineSecrets(t *testing.T) {
	const reference = `{"secretReference":{"name":"s","namespace":"n","keyPath":"k"}}`
	for what, c := range map[string]struct{ kind, data, field string }{
		"a password":                            {event.DataStores, `{"spec":{"basicAuth":{"username":{"content":"YQ=="},"password":{"content":"aHVudGVyMg=="}}}}`, "spec.basicAuth.password.content"},
		"a password beside a reference":         {event.DataStores, `{"spec":{"basicAuth":{"password":{"content":"aHVudGVyMg==","secretReference":{"name":"s"}}}}}`, "spec.basicAuth.password.content"},
		"a client's private key":                {event.DataStores, `{"spec":{"tlsConfig":{"clientCertificate":{"privateKey":{"content":"aHVudGVyMg=="}}}}}`, "spec.tlsConfig.clientCertificate.privateKey.content"},
		"an authority's private key":            {event.DataStores, `{"spec":{"tlsConfig":{"certificateAuthority":{"privateKey":{"content":"aHVudGVyMg=="}}}}}`, "spec.tlsConfig.certificateAuthority.privateKey.content"},
		"one whose fields are written wrong":    {event.DataStores, `{"spec":{"basicAuth":{"Password":{"Content":"aHVudGVyMg=="}}}}`, "spec.basicAuth.Password.Content"},
		"one that is no object":                 {event.DataStores, `{"spec":{"basicAuth":{"password":"hunter2"}}}`, "spec.basicAuth.password"},
		"one in the wrong place":                {event.DataStores, `{"spec":{"list":[{"privateKey":"hunter2"}]}}`, "spec.list.privateKey"},
		"data that can't be looked into":        {event.DataStores, `spec: {basicAuth: {password: {content: hunter2}}}`, "event.data"},
		"two documents":                         {event.DataStores, `{} {"password":"hunter2"}`, "event.data"},
		"references alone":                      {event.DataStores, `{"spec":{"basicAuth":{"username":{"content":"YQ=="},"password":` + reference + `},"tlsConfig":{"clientCertificate":{"certificate":{"content":"YQ=="},"privateKey":` + reference + `}}}}`, ""},
		"one that is taken away":                {event.DataStores, `{"spec":{"basicAuth":{"password":{"content":null,"secretReference":{}}}}}`, ""},
		"no data":                               {event.DataStores, ``, ""},
		"a label of a tenant that is so called": {event.TenantControlPlanes, `{"metadata":{"labels":{"password":"weak"}}}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			found := event.InlineSecrets(c.kind, []byte(c.data))
			if (len(found) == 1) != (c.field != "") || len(found) == 1 && (found[0].Field != c.field || found[0].Value != "" || found[0].Message == "") {
				t.Errorf("%+v", found)
			}
			for _, body := range []string{c.data, `{"specversion":"1.0","data":` + c.data + `}`} {
				kept, held := event.Redact(c.kind, []byte(body))
				if strings.Contains(string(kept), "aHVudGVyMg") || strings.Contains(string(kept), "hunter2") || c.field != "" && !held {
					t.Errorf("%t: %s", held, kept)
				}
			}
		})
	}
	t.Run("packed data is not kept", func(t *testing.T) {
		if kept, held := event.Redact(event.DataStores, []byte(`{"id":"1","data_base64":"eyJwYXNzd29yZCI6Imh1bnRlcjIifQ=="}`)); !held || string(kept) != `{"data_base64":"","id":"1"}` {
			t.Errorf("%t: %s", held, kept)
		}
	})
	t.Run("all else is kept as it came", func(t *testing.T) {
		for _, body := range []string{`{"spec":{"password":"x"}}`, "no JSON", ""} {
			if kept, held := event.Redact(event.TenantControlPlanes, []byte(body)); held || string(kept) != body {
				t.Errorf("%t: %s", held, kept)
			}
		}
	})
}
