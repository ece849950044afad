package intake

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stoker-k8s/stoker/pkg/service"
)

func TestHTTPIsNotOpenByMistake(t *testing.T) {
	for _, c := range []struct {
		name string
		h    HTTP
		says string
	}{
		{"nothing", HTTP{}, ""},
		{"a loopback address and a token", HTTP{Address: "127.0.0.1:80", Tokens: "f"}, ""},
		{"localhost", HTTP{Address: "localhost:80", Tokens: "f"}, ""},
		{"an address of IPv6", HTTP{Address: "[::1]:80", Tokens: "f"}, ""},
		{"TLS and a token", HTTP{Address: ":443", Certificate: "c", Key: "k", Tokens: "f"}, ""},
		{"TLS, a token and clients' certificates", HTTP{Address: ":443", Certificate: "c", Key: "k", ClientCA: "ca", Tokens: "f"}, ""},
		{"clients' certificates alone, which are for everything", HTTP{Address: ":443", Certificate: "c", Key: "k", ClientCA: "ca"}, "open to anybody"},
		{"no way to know who it is", HTTP{Address: "127.0.0.1:80"}, "open to anybody"},
		{"TLS and no way to know who it is", HTTP{Address: ":443", Certificate: "c", Key: "k"}, "open to anybody"},
		{"every address without TLS", HTTP{Address: ":80", Tokens: "f"}, "without TLS"},
		{"another address without TLS", HTTP{Address: "192.0.2.1:80", Tokens: "f"}, "without TLS"},
		{"half of a certificate", HTTP{Address: ":443", Certificate: "c", Tokens: "f"}, "both or none"},
		{"clients' certificates without TLS", HTTP{Address: "127.0.0.1:80", ClientCA: "ca"}, "TLS connections only"},
		{"no address", HTTP{Tokens: "f"}, "--events-http"},
		{"an address without a port", HTTP{Address: "127.0.0.1", Tokens: "f"}, "host:port"},
	} {
		err := c.h.check()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	t.Run("files that say nothing keep it from starting", func(t *testing.T) {
		clients := &service.Clients{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
		empty := write(t, filepath.Join(t.TempDir(), "empty"), "")
		for _, h := range []HTTP{
			{Address: "127.0.0.1:0", Tokens: "/does/not/exist"},
			{Address: "127.0.0.1:0", Tokens: write(t, filepath.Join(t.TempDir(), "plain"), secret+"\n")},
			{Address: "127.0.0.1:0", Tokens: empty, Certificate: empty, Key: empty},
		} {
			clients.Metrics = prometheus.NewRegistry()
			if _, err := h.open(t.Context(), clients); err == nil {
				t.Errorf("%+v", h)
			}
		}
	})
}
