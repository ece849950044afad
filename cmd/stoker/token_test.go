package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/token"
)

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	content := func(t *testing.T) (string, token.File) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := token.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), f
	}
	t.Run("add prints the token once and keeps its hash, for tenants of the namespaces alone", func(t *testing.T) {
		code, out, errs := cli(t, "", "token", "add", "shop", "--namespace", "shop,sales", "--expires", "90d", "--file", file)
		secret := strings.TrimSpace(out)
		if code != exitOK || len(secret) < 26 || strings.Contains(errs, secret) {
			t.Fatalf("%d %q %q", code, out, errs)
		}
		text, f := content(t)
		found := f.Find(secret)
		if strings.Contains(text, secret) || found == nil || found.Name != "shop" || found.Expired(time.Now().Add(89*24*time.Hour)) || !found.Expired(time.Now().Add(91*24*time.Hour)) {
			t.Fatalf("%s %+v", text, found)
		}
		if found.Allows(event.TenantControlPlanes, "sales") != nil || found.Allows(event.TenantControlPlanes, "other") == nil || found.Allows(event.DataStores, "-") == nil {
			t.Errorf("%+v", found)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	})
	for what, c := range map[string]struct {
		args []string
		says string
	}{
		"no namespace":                {[]string{"new"}, "namespaces: missing"},
		"a name that is there":        {[]string{"shop", "-n", "a"}, "given twice"},
		"a kind there isn't":          {[]string{"new", "-n", "a", "--kind", "pods"}, `"pods"`},
		"a namespace that can't be":   {[]string{"new", "-n", "a*"}, `"a*"`},
		"an end that is none":         {[]string{"new", "-n", "a", "--expires", "soon"}, "90d"},
		"an end that is past":         {[]string{"new", "-n", "a", "--expires", "2020-01-31T18:00:00Z"}, "is past"},
		"an end in less than nothing": {[]string{"new", "-n", "a", "--expires", "-3d"}, "is past"},
	} {
		t.Run("add refuses "+what+", and changes nothing", func(t *testing.T) {
			before, _ := content(t)
			code, out, errs := cli(t, "", append([]string{"token", "add", "--file", file}, c.args...)...)
			if after, _ := content(t); code != exitUsage || out != "" || !strings.Contains(errs, c.says) || after != before {
				t.Errorf("%d %q %q", code, out, errs)
			}
		})
	}
	t.Run("list says what each is for, and remove removes it", func(t *testing.T) {
		if code, _, errs := cli(t, "", "token", "add", "stores", "--kind", "datastores", "--file", file); code != exitOK {
			t.Fatal(errs)
		}
		_, out, _ := cli(t, "", "token", "list", "--file", file)
		for _, want := range []string{"shop", "shop,sales", "tenantcontrolplanes", "stores", "datastores", "never"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q lacks in\n%s", want, out)
			}
		}
		if _, out, _ := cli(t, "", "token", "list", "--file", file, "-o", "name"); out != "shop\nstores\n" {
			t.Errorf("names %q", out)
		}
		var listed []token.Token
		if _, out, _ := cli(t, "", "token", "list", "--file", file, "-o", "json"); json.Unmarshal([]byte(out), &listed) != nil || len(listed) != 2 ||
			!slices.Equal(listed[0].Kinds, []string{"tenantcontrolplanes"}) {
			t.Errorf("%+v of %s", listed, out)
		}
		if code, out, errs := cli(t, "", "token", "remove", "shop", "--file", file); code != exitOK || out != "token shop removed\n" {
			t.Error(out, errs)
		}
		if _, f := content(t); len(f.Tokens) != 1 || f.Tokens[0].Name != "stores" {
			t.Errorf("%+v", f)
		}
		if code, _, errs := cli(t, "", "token", "remove", "shop", "--file", file); code != exitFailed || !strings.Contains(errs, "no token shop") {
			t.Errorf("%d %s", code, errs)
		}
	})
	t.Run("without a local stack the file must be named", func(t *testing.T) {
		t.Setenv("NATS_URL", "nats://127.0.0.1:1")
		if code, _, errs := cli(t, "", "token", "list"); code != exitUsage || !strings.Contains(errs, "--file") {
			t.Errorf("%d %s", code, errs)
		}
	})
}
