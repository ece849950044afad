package activator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"github.com/stoker-k8s/stoker/internal/testing/poll"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// helloBytes is how a connection begins that speaks TLS.
const helloBytes = "\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00"

// doorOf opens the door of a tenant in an activator of its own. calls has one element for each call.
func doorOf(t *testing.T) (a *Activator, at netip.AddrPort, key events.Key, calls chan events.Key) {
	t.Helper()
	calls, key = make(chan events.Key, 100), events.Tenant("default", "demo")
	a = New(slog.New(slog.DiscardHandler), func(key events.Key) { calls <- key })
	a.Address = netip.MustParseAddr("127.0.0.1")
	t.Cleanup(a.End) // which waits for all of its connections
	at, err := a.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	return a, at, key, calls
}

func connect(t *testing.T, at netip.AddrPort, says string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, says); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// holds waits until an activator holds so many connections.
func holds(t *testing.T, a *Activator, n int) {
	t.Helper()
	poll.Nil(t, "the connections to be held", func() error {
		if held, _ := a.Count(); held != n {
			return fmt.Errorf("%d of %d", held, n)
		}
		return nil
	})
}

// echo is a pod that answers what it is told, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestActivator(t *testing.T) {
	t.Run("many clients call once, are held, and are answered when a pod is there", func(t *testing.T) {
		a, at, key, calls := doorOf(t)
		pod := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
		defer pod.Close()
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pod.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, DisableKeepAlives: true,
		}}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				response, err := client.Get("https://" + at.String())
				if err != nil {
					t.Error(err)
					return
				}
				defer response.Body.Close()
				if body, err := io.ReadAll(response.Body); err != nil || string(body) != "here" {
					t.Errorf("%q %v", body, err)
				}
			})
		}
		if called := <-calls; called != key || !a.Waiting(key) {
			t.Errorf("%v waits: %t", called, a.Waiting(key))
		}
		holds(t, a, 50)
		a.Lead(key, []string{"127.0.0.1:1", pod.Listener.Addr().String()}) // the first of which takes no connection
		all.Wait()
		if n := len(calls); n > 0 {
			t.Errorf("%d more calls", n)
		}
	})
	t.Run("who comes before the door is shut is led on at once, and what was led on outlives the door", func(t *testing.T) {
		a, at, key, calls := doorOf(t)
		a.Lead(key, []string{echo(t)})
		c := connect(t, at, helloBytes)
		answer := make([]byte, len(helloBytes))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != helloBytes {
			t.Fatalf("%q %v", answer, err)
		}
		a.Close(key)
		if _, err := net.Dial("tcp", at.String()); err == nil {
			t.Error("the door is open")
		}
		if _, err := io.WriteString(c, helloBytes); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil || len(calls) > 0 {
			t.Errorf("%v, %d calls", err, len(calls))
		}
	})
	t.Run("a door that was to be shut is opened again and holds", func(t *testing.T) {
		a, at, key, calls := doorOf(t)
		a.Lead(key, []string{echo(t)})
		if again, err := a.Open(key); again != at || err != nil {
			t.Errorf("%s %v", again, err)
		}
		connect(t, at, helloBytes)
		<-calls
	})
	t.Run("what doesn't speak TLS is ended and calls nobody", func(t *testing.T) {
		_, at, _, calls := doorOf(t)
		for _, says := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x05\x02", "\x15\x03\x01\x00\x05\x01", "\x16\x02\x01\x00\x05\x01"} {
			ended(t, connect(t, at, says))
		}
		if c := connect(t, at, "\x16\x03"); c.(*net.TCPConn).CloseWrite() == nil {
			ended(t, c)
		}
		if len(calls) > 0 {
			t.Error("called")
		}
	})
	t.Run("who goes waits no more, and the next one calls again", func(t *testing.T) {
		a, at, _, calls := doorOf(t)
		c := connect(t, at, helloBytes)
		<-calls
		c.Close()
		holds(t, a, 0)
		connect(t, at, helloBytes)
		<-calls
	})
	t.Run("there is room for so many and no more", func(t *testing.T) {
		a, at, _, _ := doorOf(t)
		for i := range maxPerDoor {
			connect(t, at, helloBytes) // the door holds a silent client for 5 s only
			holds(t, a, i+1)
		}
		ended(t, connect(t, at, ""))
	})
	t.Run("who says too much before a pod is there is ended", func(t *testing.T) {
		_, at, _, _ := doorOf(t)
		c := connect(t, at, helloBytes)
		_, _ = c.Write(make([]byte, 2*maxHello))
		ended(t, c)
	})
	t.Run("another replica's partitions are let go, with who is held", func(t *testing.T) {
		a, at, key, calls := doorOf(t)
		c := connect(t, at, helloBytes)
		<-calls
		a.KeepIn([]int{key.Partition()})
		if !a.Waiting(key) {
			t.Error("nobody waits")
		}
		a.KeepIn([]int{(key.Partition() + 1) % 16})
		ended(t, c)
	})
	t.Run("a tenant has its port again, the next one if that is taken, and none once all is at an end", func(t *testing.T) {
		a, at, key, _ := doorOf(t)
		a.Close(key)
		again, err := a.Open(key)
		if err != nil || again != at {
			t.Errorf("%s, before that %s: %v", again, at, err)
		}
		b := New(a.log, a.call)
		b.Address = a.Address
		defer b.End()
		other, err := b.Open(key)
		if err != nil || other == at || other.Port() < firstDoor || other.Port() > lastDoor {
			t.Errorf("%s beside %s: %v", other, at, err)
		}
		a.End()
		if _, err := a.Open(key); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
