package name_test

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

func TestLimits(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	same := func(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	for what, c := range map[string]struct {
		tenants, bytes         *string
		wantTenants, wantBytes *int64
		says                   string
	}{
		"none are set":                       {},
		"both":                               {tenants: new("200"), bytes: new("8Gi"), wantTenants: number(200), wantBytes: number(8 << 30)},
		"nobody and nothing":                 {tenants: new("0"), bytes: new("0"), wantTenants: number(0), wantBytes: number(0)},
		"parts of a unit":                    {bytes: new("1.5Gi"), wantBytes: number(3 << 29)},
		"units of ten":                       {bytes: new("2G"), wantBytes: number(2e9)},
		"tenants that are no number":         {tenants: new("many"), says: `annotation stoker.dev/max-tenants: "many": must be a number`},
		"fewer than no tenants":              {tenants: new("-1"), bytes: new("1Ki"), wantBytes: number(1024), says: "max-tenants"},
		"bytes that are none":                {bytes: new("8GB"), says: `annotation stoker.dev/max-bytes: "8GB": must be`},
		"fewer bytes than none":              {bytes: new("-1Gi"), says: "max-bytes"},
		"more bytes than anybody can number": {bytes: new("9999999999P"), says: "max-bytes"},
		"an empty limit":                     {tenants: new(""), says: "max-tenants"},
	} {
		t.Run(what, func(t *testing.T) {
			annotations := map[string]string{}
			if c.tenants != nil {
				annotations[name.AnnotationMaxTenants] = *c.tenants
			}
			if c.bytes != nil {
				annotations[name.AnnotationMaxBytes] = *c.bytes
			}
			tenants, bytes, err := name.Limits(annotations)
			if !same(tenants, c.wantTenants) || !same(bytes, c.wantBytes) {
				t.Error(tenants, bytes)
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1536: "1.5Ki", 10 << 10: "10Ki", 10<<10 + 512: "10Ki", 999 << 20: "999Mi",
		1<<30 - 1: "1Gi", 8 << 30: "8Gi", 9<<30 + 1<<20: "9Gi", 1 << 62: "4Ei",
	} {
		if got := name.Bytes(n); got != want {
			t.Errorf("%d: %s, not %s", n, got, want)
		}
	}
}
