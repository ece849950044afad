package main

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/version"
)

func TestVersion(t *testing.T) {
	want := version.Get()
	t.Run("a line for a person", func(t *testing.T) {
		if code, out, errs := cli(t, "", "version"); code != exitOK || out != "stoker "+want.String()+"\n" || errs != "" {
			t.Errorf("code %d, %q, %q", code, out, errs)
		}
	})
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, v any) error { return yaml.UnmarshalStrict(data, v) },
	} {
		t.Run("as "+format+" for a program", func(t *testing.T) {
			var got version.Info
			code, out, _ := cli(t, "", "version", "-o", format)
			if err := decode([]byte(out), &got); code != exitOK || err != nil || got != want {
				t.Errorf("code %d, %v: %s", code, err, out)
			}
		})
	}
	t.Run("another format is a mistake in the command line", func(t *testing.T) {
		if code, out, errs := cli(t, "", "version", "-o", "wide"); code != exitUsage || out != "" || errs == "" {
			t.Errorf("code %d, %q, %q", code, out, errs)
		}
	})
}
