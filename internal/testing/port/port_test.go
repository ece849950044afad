package port

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
)

// variable names a port that this process takes instead of running tests.
const variable = "STOKER_TEST_TAKE_PORT"

func TestMain(m *testing.M) {
	if number, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		if _, err := take(loopback, number); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestReservations(t *testing.T) {
	t.Run("a reserved port can be listened on", func(t *testing.T) {
		l, err := net.Listen("tcp", Address(t, loopback))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	})
	t.Run("no other process can reserve a port until the test ends", func(t *testing.T) {
		var number string
		t.Run("reserve", func(t *testing.T) {
			number = strconv.Itoa(Free(t))
			if out, err := takeElsewhere(t, number); err == nil {
				t.Errorf("another process took port %s: %s", number, out)
			}
		})
		if out, err := takeElsewhere(t, number); err != nil {
			t.Errorf("port %s after the test: %v: %s", number, err, out)
		}
	})
	t.Run("a port is reserved until its process ends, although nothing there refers to the reservation", func(t *testing.T) {
		address, _, err := Reserve(loopback)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // would close a socket that nothing refers to
			runtime.GC()
		}
		_, number, _ := net.SplitHostPort(address)
		if out, err := takeElsewhere(t, number); err == nil {
			t.Errorf("another process took %s: %s", address, out)
		}
	})
	t.Run("a port that a process listens on is not free", func(t *testing.T) {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := take(loopback, l.Addr().(*net.TCPAddr).Port); err == nil {
			t.Errorf("took %s", l.Addr())
		}
	})
	t.Run("an address of another machine has no free port", func(t *testing.T) {
		if address, _, err := Reserve("192.0.2.1"); err == nil {
			t.Errorf("reserved %s", address)
		}
	})
}

// takeElsewhere takes a port in another process.
func takeElsewhere(t *testing.T, number string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+number)
	return cmd.CombinedOutput()
}
