// Command probe asks an HTTP server whether it is healthy, for the health checks of containers that have no other program:
//
//	probe http://localhost:8080/readyz
//	probe https://localhost:6443/readyz ca.crt
//
// It ends with 0 if the answer's code is 200 to 299, else with 1 and says what came.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// timeout is below that of the health checks in docker-compose.yaml, so that what is wrong can be said.
const timeout = 4 * time.Second

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: probe URL [CAFILE]")
		os.Exit(2)
	}
	if err := ask(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func ask(url string, ca []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // whoever runs it says what it asks
	if err != nil {
		return err
	}
	transport := &http.Transport{}
	for _, file := range ca {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return errors.New(file + " has no certificate")
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	response, err := (&http.Client{Transport: transport}).Do(request) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}
