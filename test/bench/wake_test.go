package bench

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
)

// wakes is how often BenchmarkWake wakes a tenant.
const wakes = 10

// BenchmarkWake connects to a tenant that sleeps: seconds until the tenant has answered a request. The client waits for that for a minute;
// kubectl would for ten seconds.
func BenchmarkWake(b *testing.B) {
	e.Services(b)
	o := env.Tenant("woken", "v1.36.3")
	o.Annotations = map[string]string{name.AnnotationWakeOn: name.WakeOnConnection}
	key := events.Tenant(o.Namespace, o.Name)
	e.Apply(b, o)
	url := "https://" + e.Ready(b, key).Status.ControlPlaneEndpoint + "/version"
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	for b.Loop() {
		var seconds []float64
		for range wakes {
			e.Command(b, key, event.CommandType(key.Kind, event.Sleep), map[string]any{})
			env.Eventually(b, "the tenant to sleep", func() error {
				s, err := e.Status(b.Context(), key)
				own := e.State(b.Context(), key, name.ServiceWorkload)
				if err == nil && (s.Phase != "Sleeping" || own == nil || own.Step != event.Slept) {
					err = fmt.Errorf("it is %s", s.Phase)
				}
				return err
			})
			began := time.Now()
			response, err := client.Get(url)
			if err != nil {
				b.Fatal(err)
			}
			response.Body.Close()
			seconds = append(seconds, time.Since(began).Seconds())
			e.Ready(b, key)
		}
		slices.Sort(seconds)
		b.ReportMetric(seconds[len(seconds)/2], "s-median")
		b.ReportMetric(seconds[len(seconds)-1], "s-max")
	}
	e.Delete(b, key)
	e.Gone(b, key)
}
