package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/service"
)

func TestFlagsOfManagers(t *testing.T) {
	for _, c := range []struct {
		sentence, http string
		flags          managerFlags
		want           string // of --http
		debug          bool
		refused        string
	}{
		{sentence: "nothing changes nothing", http: ":8080", want: ":8080"},
		{sentence: "other addresses are served, too", http: ":8080", flags: managerFlags{health: ":9440", diagnostics: ":8443"}, want: ":8080,:9440,:8443"},
		{sentence: "the same address is served once", http: ":8080", flags: managerFlags{health: ":8080", diagnostics: ":8443"}, want: ":8080,:8443"},
		{sentence: "they are served alone, where there is no other", flags: managerFlags{health: ":9440", diagnostics: "0"}, want: ":9440"},
		{sentence: "a low verbosity is the log as it is", flags: managerFlags{verbosity: "2"}},
		{sentence: "a high verbosity is debug", flags: managerFlags{verbosity: "5"}, debug: true},
		{sentence: "a verbosity that is none", flags: managerFlags{verbosity: "debug"}, refused: `--v "debug"`},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			cfg := service.Config{HTTP: c.http, Log: slog.New(slog.DiscardHandler)}
			err := c.flags.apply(&cfg)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v, want one that says %q", err, c.refused)
				}
				return
			}
			if err != nil || cfg.HTTP != c.want || cfg.Log.Enabled(context.Background(), slog.LevelDebug) != c.debug {
				t.Errorf("error %v, http %q", err, cfg.HTTP)
			}
		})
	}
}
