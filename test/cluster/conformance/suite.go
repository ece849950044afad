//go:build tools

// Package conformance pins what Kubernetes' conformance suite is built from. `go test -c k8s.io/kubernetes/test/e2e` in this directory builds
// it; make test-cluster does, when it is asked for.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
