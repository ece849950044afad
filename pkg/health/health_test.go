package health

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestReadyzSaysWhatIsAwayAndTheLogSaysWhy(t *testing.T) {
	var log strings.Builder
	h := New(slog.New(slog.NewTextHandler(&log, nil)))
	mux := http.NewServeMux()
	h.Handle(mux)
	ask := func() (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	h.Up("kubernetes")
	h.Down("nats", errors.New("dial tcp 10.1.2.3:4222: user certs is refused"))
	code, body := ask()
	if want := "[+]kubernetes ok\n[-]nats is away; the log says why\n"; code != http.StatusServiceUnavailable || body != want {
		t.Errorf("%d %q, want %q", code, body, want)
	}
	if !strings.Contains(log.String(), "10.1.2.3:4222: user certs is refused") {
		t.Errorf("the log doesn't say why: %s", log.String())
	}
	h.Up("nats")
	if code, body := ask(); code != http.StatusOK || !strings.HasSuffix(body, "\nok\n") {
		t.Errorf("%d %q", code, body)
	}
}
