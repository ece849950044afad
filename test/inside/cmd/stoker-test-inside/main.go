// Command stoker-test-inside is the program of a pod inside a tenant of a test:
//
//	stoker-test-inside serve DIR      the webhook and the aggregated API of package inside on port 8443, with tls.crt and tls.key of DIR, and on 8080
//	stoker-test-inside resolve NAME   prints the addresses that a name has for the pod
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/test/inside"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 2 && args[0] == "resolve":
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		addresses, err := net.DefaultResolver.LookupHost(ctx, args[1])
		fmt.Println(strings.Join(addresses, " "))
		return err
	}
	return errors.New("usage: stoker-test-inside serve DIR | resolve NAME")
}

// serve ends with the first error.
func serve(dir string) error {
	server := func(port string) *http.Server {
		return &http.Server{Addr: ":" + port, Handler: inside.Handler(), ReadHeaderTimeout: 10 * time.Second}
	}
	ended := make(chan error, 2)
	go func() { ended <- server("8080").ListenAndServe() }()
	go func() {
		ended <- server("8443").ListenAndServeTLS(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	}()
	fmt.Println("serving")
	return <-ended
}
