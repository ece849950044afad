// Package port gives tests ports that stay free until they are listened on.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

const loopback = "127.0.0.1"

// Free returns a free port of the loopback address, as [Address] does.
func Free(t testing.TB) int {
	t.Helper()
	number, release, err := reserve(loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return number
}

// Address returns host:port, an address of this machine on which no process listens. The kernel gives the port to no process that asks for
// any port, and this package gives it to no other test on this machine until this test has ended.
func Address(t testing.TB, host string) string {
	t.Helper()
	address, release, err := Reserve(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// Reserve is [Address] for code that runs outside a test. The reservation ends with release, or with this process.
func Reserve(host string) (address string, release func(), err error) {
	number, release, err := reserve(host)
	return net.JoinHostPort(host, strconv.Itoa(number)), release, err
}

// reserve takes one of the ports below 32768, where the kernel's own choices begin.
func reserve(host string) (number int, release func(), err error) {
	for range 100 {
		number = 10000 + rand.IntN(20000)
		if release, err = take(host, number); err == nil {
			return number, release, nil
		}
	}
	return 0, nil, fmt.Errorf("%s has no free port: %w", host, err)
}

// take fails if a process listens on the port or another test has it. A listening abstract socket, which ends with its process, tells tests in
// other processes that the port is taken.
func take(host string, number int) (release func(), err error) {
	taken, err := net.Listen("unix", fmt.Sprint("@stoker-test-port-", number))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(number)))
	if err != nil {
		_ = taken.Close()
		return nil, err
	}
	held.Store(number, taken)
	return func() {
		held.Delete(number)
		_ = taken.Close()
	}, l.Close()
}

// held are the sockets of this process, by port: the garbage collector closes a socket that nothing refers to.
var held sync.Map
