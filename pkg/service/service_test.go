package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/health"
	"github.com/stoker-k8s/stoker/pkg/version"
)

// envMain makes this test binary the program of a service, with the arguments it is called with.
const envMain = "STOKER_TEST_SERVICE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		Main("certs", "A test.", func(_ context.Context, cfg Config) error {
			_, err := fmt.Fprintf(os.Stdout, "http %q, api timeout %s\n", cfg.HTTP, cfg.APITimeout)
			return err
		})
		return
	}
	os.Exit(m.Run())
}

func TestVersionFlag(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--version")
	cmd.Env = append(os.Environ(), envMain+"=1")
	out, err := cmd.Output()
	if want := "stoker-certs " + version.Get().String() + "\n"; err != nil || string(out) != want {
		t.Errorf("it says %q, want %q: %v", out, want, err)
	}
}

func TestThePortOfHTTPCanBeLeftOut(t *testing.T) {
	for _, c := range []struct{ sentence, env, arg, want string }{
		{"it is 8080", "", "", ":8080"},
		{"by a flag it is none", "", "--http=", ""},
		{"by the environment it is none", "STOKER_HTTP=", "", ""},
		{"by the environment it is another", "STOKER_HTTP=:9090", "", ":9090"},
		{"the flag counts more than the environment", "STOKER_HTTP=", "--http=:9090", ":9090"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envMain+"=1")
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			if c.arg != "" {
				cmd.Args = append(cmd.Args, c.arg)
			}
			out, err := cmd.Output()
			if want := fmt.Sprintf("http %q, api timeout 10s\n", c.want); err != nil || string(out) != want {
				t.Errorf("it says %q, want %q: %v", out, want, err)
			}
		})
	}
}

func TestAPITimeoutFlag(t *testing.T) {
	for _, c := range []struct {
		sentence, env, arg, want string
		fails                    bool
	}{
		{sentence: "a flag sets it", arg: "--api-timeout=3m", want: "3m0s"},
		{sentence: "the environment sets it", env: "STOKER_API_TIMEOUT=20s", want: "20s"},
		{sentence: "a duration below a second is refused", arg: "--api-timeout=10ms", want: `--api-timeout "10ms"`, fails: true},
		{sentence: "text that is no duration is refused", arg: "--api-timeout=10", want: `--api-timeout "10"`, fails: true},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], c.arg)
			if c.arg == "" {
				cmd.Args = cmd.Args[:1]
			}
			cmd.Env = append(os.Environ(), envMain+"=1", c.env)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.want) {
				t.Errorf("it says %q, want %q: %v", out, c.want, err)
			}
		})
	}
}

func TestMetricsSayWhichBuildThisIs(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := &Clients{Health: health.New(log), Log: log}
	c.registry, _ = newRegistry("certs")
	at := freeAddresses(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(ctx, Config{HTTP: strings.Join(at[:], ",")}) }()
	body := get(t, "http://"+at[0]+"/metrics")
	get(t, "http://"+at[1]+"/livez")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	build := version.Get()
	want := `stoker_build_info{goversion="` + build.Go + `",revision="` + build.Revision + `",service="certs",version="` + build.Version + `"} 1`
	if !strings.Contains(body, want+"\n") {
		t.Errorf("no line %s in\n%s", want, body)
	}
}

func TestAnAddressThatIsTakenEndsTheService(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := &Clients{Health: health.New(log), Log: log}
	c.registry, _ = newRegistry("certs")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := c.Serve(t.Context(), Config{HTTP: "127.0.0.1:0," + taken.Addr().String()}); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("error %v", err)
	}
}

// freeAddresses are two that nobody listens on.
func freeAddresses(t *testing.T) (addresses [2]string) {
	t.Helper()
	for i := range addresses {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer free.Close()
		addresses[i] = free.Addr().String()
	}
	return addresses
}

// get asks until somebody listens.
func get(t *testing.T, url string) string {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get(url)
		if err == nil {
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
