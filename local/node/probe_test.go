package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// play runs follow on a clock of its own with a series of answers, and tells when which verdict came.
func play(t *testing.T, probe corev1.Probe, answers string, last *bool, stop func(ok bool) bool) (verdicts []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start, i := time.Now(), 0
		err = follow(ctx, &probe, func(context.Context) error {
			if i == len(answers) {
				cancel()
				return nil
			}
			answer := answers[i]
			i++
			if answer == 'x' {
				return errors.New("no")
			}
			return nil
		}, last, func(ok bool, _ error) bool {
			verdicts = append(verdicts, fmt.Sprintf("%v@%s", ok, time.Since(start)))
			return !stop(ok)
		})
	})
	return verdicts, err
}

func TestFollow(t *testing.T) {
	never := func(bool) bool { return false }
	for name, test := range map[string]struct {
		probe   corev1.Probe
		answers string
		last    *bool
		stop    func(bool) bool
		want    []string
		fails   bool
	}{
		"the first success counts at once": {
			corev1.Probe{PeriodSeconds: 10}, "..", ptr.To(false), never, []string{"true@0s"}, false,
		},
		"the first probe waits for its delay": {
			corev1.Probe{PeriodSeconds: 1, InitialDelaySeconds: 7}, "x.", ptr.To(false), never, []string{"true@8s"}, false,
		},
		"so many failures in a row turn it, and one success turns it back": {
			corev1.Probe{PeriodSeconds: 2, FailureThreshold: 3}, ".xx.xxx.", ptr.To(false), never,
			[]string{"true@0s", "false@12s", "true@14s"}, false,
		},
		"successes have to come in a row, too": {
			corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 2}, ".x..", ptr.To(false), never, []string{"true@3s"}, false,
		},
		"a startup probe ends with its first success": {
			corev1.Probe{PeriodSeconds: 1, FailureThreshold: 30}, "xxxx.....", nil, func(bool) bool { return true },
			[]string{"true@4s"}, false,
		},
		"and with too many failures": {
			corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3}, "xxxx", nil, func(bool) bool { return true },
			[]string{"false@2s"}, true,
		},
		"a live container's success is no news": {
			corev1.Probe{}, "...xxx", ptr.To(true), func(ok bool) bool { return !ok }, []string{"false@50s"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := play(t, test.probe, test.answers, test.last, test.stop)
			if !slices.Equal(got, test.want) || (err != nil) != test.fails {
				t.Errorf("got %v, %v; want %v, failure %v", got, err, test.want, test.fails)
			}
		})
	}
}

func TestChecker(t *testing.T) {
	status := http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/livez?verbose" || r.Header.Get("X-Probe") != "1" {
			http.Error(w, "asked for "+r.URL.String(), http.StatusTeapot)
			return
		}
		w.WriteHeader(status)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	port := func(s *httptest.Server) int32 { return int32(s.Listener.Addr().(*net.TCPAddr).Port) }
	probe := func(scheme corev1.URIScheme, port intstr.IntOrString) *corev1.Probe {
		return &corev1.Probe{TimeoutSeconds: 60, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/livez?verbose", Scheme: scheme, Port: port, Host: "localhost",
			HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "1"}},
		}}}
	}
	check := newChecker("127.0.0.1", &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: port(plain)}}})
	for name, test := range map[string]struct {
		probe  *corev1.Probe
		status int
		ok     bool
	}{
		"HTTP, port by name":             {probe("", intstr.FromString("web")), 200, true},
		"HTTPS with anyone's key":        {probe(corev1.URISchemeHTTPS, intstr.FromInt32(port(secure))), 204, true},
		"a redirect is an answer":        {probe(corev1.URISchemeHTTP, intstr.FromInt32(port(plain))), 302, true},
		"an error isn't":                 {probe(corev1.URISchemeHTTPS, intstr.FromInt32(port(secure))), 500, false},
		"a port that nobody knows isn't": {probe("", intstr.FromString("nope")), 200, false},
		"a port that listens":            {tcp(port(plain)), 0, true},
		"a port that doesn't":            {tcp(1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			status = test.status
			if err := check.run(t.Context(), test.probe); (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func tcp(port int32) *corev1.Probe {
	return &corev1.Probe{TimeoutSeconds: 60, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}}
}
