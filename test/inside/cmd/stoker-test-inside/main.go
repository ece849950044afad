// Command stoker-test-inside is the program of a pod of a test:
//
//	stoker-test-inside serve DIR      the webhook and the aggregated API of package inside on port 8443, with tls.crt and tls.key of DIR, and on 8080
//	stoker-test-inside resolve NAME   prints the addresses that a name has for the pod
//	stoker-test-inside get URL CA     prints how long the answer of a server took, whose authority is CA, PEM in base64
//	stoker-test-inside ask URL CA     asks ten times a second for ever, and prints once a second what came of it
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	case len(args) == 3 && args[0] == "get":
		return get(args[1], args[2])
	case len(args) == 3 && args[0] == "ask":
		authority, err := base64.StdEncoding.DecodeString(args[2])
		if err != nil {
			return err
		}
		inside.Ask(context.Background(), args[1], authority, func(a inside.Asked) {
			line, _ := json.Marshal(a)
			fmt.Println(string(line))
		})
		return nil
	}
	return errors.New("usage: stoker-test-inside serve DIR | resolve NAME | get URL CA | ask URL CA")
}

func get(url, ca string) error {
	authority, err := base64.StdEncoding.DecodeString(ca)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun := time.Now()
	if err := inside.Get(ctx, url, authority); err != nil {
		return err
	}
	fmt.Println(time.Since(begun))
	return nil
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
