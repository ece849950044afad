package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/intent"
)

// piped is a client whose connection to a server is in memory, so that time in a test is what the test says.
func piped(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	return pipedWith(t, handler, Options{FieldManager: "test"})
}

func pipedWith(t *testing.T, handler http.HandlerFunc, o Options) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	l := &oneConnection{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- theirs
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	k, err := New(&rest.Config{Host: "http://server", Transport: transport}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); transport.CloseIdleConnections(); _ = server.Close(); <-served })
	return k
}

type oneConnection struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConnection) Close() error   { close(l.closed); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// slowly writes a list, one object after each pause.
func slowly(objects int, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[`)
		for i := range objects {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			data, _ := json.Marshal(object(fmt.Sprint("secret-", i), "3"))
			_, _ = w.Write(data)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
		fmt.Fprint(w, "]}")
	}
}

func TestListsMayTakeLongWhileTheyGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := piped(t, slowly(20, requestTimeout/2)).Metadata(t.Context(), Secrets, "")
		if err != nil || len(got) != 20 || got[19].Name != "secret-19" {
			t.Errorf("%d objects, %v", len(got), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var away *intent.Unavailable
		if _, err := piped(t, slowly(20, 3*requestTimeout)).Metadata(t.Context(), Secrets, ""); !errors.As(err, &away) || !errors.Is(err, errStalled) {
			t.Errorf("one that hangs ends with %v", err)
		}
	})
}

func TestRequestTimeout(t *testing.T) {
	for _, c := range []struct {
		sentence       string
		timeout, takes time.Duration
		told           string // to the server
		away           bool
	}{
		{sentence: "by default 9 s are in time", takes: 9 * time.Second, told: "9s"},
		{sentence: "by default 11 s are too long", takes: 11 * time.Second, told: "9s", away: true},
		{sentence: "an option allows 11 s", timeout: time.Minute, takes: 11 * time.Second, told: "54s"},
		{sentence: "an option's limit ends a request", timeout: time.Minute, takes: 61 * time.Second, told: "54s", away: true},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan string, 1)
				k := pipedWith(t, func(w http.ResponseWriter, r *http.Request) {
					told <- r.URL.Query().Get("timeout")
					select {
					case <-r.Context().Done():
					case <-time.After(c.takes):
						fmt.Fprint(w, "{}")
					}
				}, Options{FieldManager: "test", Timeout: c.timeout})
				var o metav1.PartialObjectMetadata
				var away *intent.Unavailable
				if err := k.Get(t.Context(), Secrets, "default", "a", &o); errors.As(err, &away) != c.away || !c.away && err != nil {
					t.Errorf("the request ends with %v", err)
				}
				if got := <-told; got != c.told {
					t.Errorf("the server is told to end within %s, want %s", got, c.told)
				}
			})
		})
	}
}

func TestDecodeList(t *testing.T) {
	const one = `{"metadata":{"name":"a","namespace":"n"}}`
	for sentence, test := range map[string]struct {
		body   string
		names  string
		failed bool
	}{
		"all items are read":                   {`{"kind":"L","metadata":{"resourceVersion":"7"},"items":[` + one + "," + one + `]}`, "aa", false},
		"what comes after the items counts":    {`{"items":[` + one + `],"metadata":{"resourceVersion":"7"}}`, "a", false},
		"none are none":                        {`{"metadata":{"resourceVersion":"7"},"items":null}`, "", false},
		"one that is cut off is an error":      {`{"metadata":{"resourceVersion":"7"},"items":[` + one, "a", true},
		"one without its end is an error, too": {`{"metadata":{"resourceVersion":"7"},"items":[` + one + `]`, "a", true},
		"what is no list is an error":          {`[]`, "", true},
		"items that are no list are an error":  {`{"metadata":{"resourceVersion":"7"},"items":{}}`, "", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			names := ""
			meta, err := decodeList(strings.NewReader(test.body), func(o *metav1.PartialObjectMetadata) { names += o.Name })
			if (err != nil) != test.failed || names != test.names || err == nil && meta.ResourceVersion != "7" {
				t.Errorf("names %q, version %q, %v", names, meta.ResourceVersion, err)
			}
		})
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/away":
			http.Error(w, "no", http.StatusServiceUnavailable)
		case r.URL.Path == "/long":
			fmt.Fprint(w, strings.Repeat("x", longestLine+1))
		case r.Header.Get("Accept") != "text/plain":
			http.Error(w, "wants "+r.Header.Get("Accept"), http.StatusNotAcceptable)
		default:
			fmt.Fprint(w, "one\n\ntwo")
		}
	})
	k := piped(t, answers)
	var lines []string
	note := func(line []byte) { lines = append(lines, string(line)) }
	if err := k.Lines(t.Context(), "/metrics", note); err != nil || strings.Join(lines, "|") != "one||two" {
		t.Errorf("%q, %v", lines, err)
	}
	if err := k.Lines(t.Context(), "/away", note); !IsAway(err) {
		t.Errorf("a server that is away: %v", err)
	}
	if err := k.Lines(t.Context(), "/long", note); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("a line without end: %v", err)
	}
}
