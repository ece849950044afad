package faults

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

// whatIs is an object without what a new one has anew: its identity, its status, and of keys and certificates all but what they are
// for.
type whatIs struct {
	uid    types.UID
	fields map[string]any
}

// content reads an object.
func content(t testing.TB, c *kube.Client, r kube.Resource, namespace, n string) whatIs {
	t.Helper()
	var o struct {
		Metadata struct {
			UID                 types.UID
			Labels, Annotations map[string]string
			OwnerReferences     []map[string]any
		}
		Type, Data, Spec, RoleRef, Subjects, Rules any
	}
	if err := c.Get(t.Context(), r, namespace, n, &o); err != nil {
		return whatIs{} // gone again
	}
	maps.DeleteFunc(o.Metadata.Annotations, func(k, _ string) bool { return !strings.Contains(k, "stoker.dev/") && !strings.Contains(k, "kamaji") })
	w := whatIs{o.Metadata.UID, map[string]any{
		"labels": o.Metadata.Labels, "owners": o.Metadata.OwnerReferences, "type": o.Type, "spec": o.Spec,
		"roleRef": o.RoleRef, "subjects": o.Subjects, "rules": o.Rules, "data": o.Data,
		"annotations": slices.Sorted(maps.Keys(o.Metadata.Annotations)),
	}}
	if spec, ok := o.Spec.(map[string]any); ok && r.Plural == kube.Services.Plural {
		for _, given := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
			delete(spec, given)
		}
		ports, _ := spec["ports"].([]any)
		for _, p := range ports {
			if p, ok := p.(map[string]any); ok {
				delete(p, "nodePort")
			}
		}
	}
	if data, ok := o.Data.(map[string]any); ok && r.Plural == kube.Secrets.Plural {
		for k, v := range data {
			var value []byte
			if err := json.Unmarshal(fmt.Appendf(nil, "%q", v), &value); err != nil {
				t.Fatal(err)
			}
			data[k] = kindOf(k, value)
		}
	}
	return w
}

// filled are the fields that hold what the object is there for.
func (w whatIs) filled() (all []string) {
	for _, f := range []string{"data", "spec", "roleRef", "rules"} {
		if v := reflect.ValueOf(w.fields[f]); v.IsValid() && v.Len() > 0 {
			all = append(all, f)
		}
	}
	return all
}

// differs says in what another is different.
func (w whatIs) differs(other whatIs) error {
	if len(w.filled()) == 0 {
		return fmt.Errorf("nothing to compare with: %v", w.fields)
	}
	for f, v := range w.fields {
		if !reflect.DeepEqual(v, other.fields[f]) {
			was, _ := json.Marshal(v)
			is, _ := json.Marshal(other.fields[f])
			return fmt.Errorf("%s was %s, is %s", f, was, is)
		}
	}
	return nil
}

// kindOf says what a value of a Secret is, when another may take its place: who a certificate is of and by, for what it is good; that
// a key is one; whom a kubeconfig is for. Any other value is itself.
func kindOf(key string, value []byte) string {
	if block, _ := pem.Decode(value); block != nil {
		if block.Type != "CERTIFICATE" {
			return block.Type
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err.Error()
		}
		if c.IsCA {
			return string(value)
		}
		return fmt.Sprint("certificate of ", c.Subject, " by ", c.Issuer, " ", string(c.AuthorityKeyId), " for ", c.DNSNames, c.IPAddresses, c.ExtKeyUsage, c.NotAfter.Sub(c.NotBefore))
	}
	if config, err := clientcmd.Load(value); err == nil && len(config.Clusters) > 0 {
		var all []string
		for n, c := range config.Clusters {
			all = append(all, fmt.Sprint(n, " ", c.Server, " ", string(c.CertificateAuthorityData)))
		}
		for n, u := range config.AuthInfos {
			all = append(all, fmt.Sprint(n, " ", kindOf(n, u.ClientCertificateData), " ", kindOf(n, u.ClientKeyData)))
		}
		slices.Sort(all)
		return strings.Join(append(all, config.CurrentContext), "\n")
	}
	if key == name.KeyDBPassword {
		return fmt.Sprint("password of ", len(value))
	}
	return string(value)
}
