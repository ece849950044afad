package certs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/loop"
)

func TestCertificatesAreShownAsLongAsTheyLast(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000_000, 0)
	until := func(left time.Duration) state.Secret { return state.Secret{NotAfter: now.Add(left)} }
	one, two := events.Tenant("default", "one"), events.Tenant("default", "two")
	series := func(perTenant bool, more ...func(*expiries)) (counts, kamaji string) {
		x := newExpiries(func() time.Time { return now }, perTenant)
		x.note(one, &state.Certs{
			Secrets: map[string]state.Secret{
				name.ComponentCA: until(3650 * day), name.ComponentServiceAccountKeys: {}, name.ComponentAPIServerCertificate: until(day),
				name.ComponentAdminKubeconfig: until(-time.Second),
			},
			Generated: map[string]state.Generated{"g": {Secret: until(day + 1)}, "none": {Error: "it waits"}},
		})
		x.note(two, &state.Certs{Secrets: map[string]state.Secret{name.ComponentCA: until(20 * day)}})
		for _, f := range more {
			f(x)
		}
		r := prometheus.NewPedanticRegistry()
		x.register(r, r)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				line := f.GetName()
				for _, l := range m.GetLabel() {
					line += " " + l.GetValue()
				}
				if h := m.GetHistogram(); h != nil {
					line += fmt.Sprintf(" %d:", h.GetSampleCount())
					for _, b := range h.GetBucket() {
						line += fmt.Sprint(" ", b.GetCumulativeCount())
					}
				} else {
					line += fmt.Sprintf(" %.0f", m.GetGauge().GetValue())
				}
				if line += "\n"; strings.HasPrefix(line, "kamaji_") {
					kamaji += line
				} else {
					counts += line
				}
			}
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		return counts, kamaji
	}
	total := `stoker_certificate_remaining_seconds kubeconfig 2: 1 1 2 2 2 2 2 2 2
stoker_certificate_remaining_seconds x509 3: 0 1 1 2 2 2 2 2 3
stoker_certificate_soonest_expiry_timestamp_seconds 999999999
stoker_certificates expiring kubeconfig 0
stoker_certificates expiring x509 1
stoker_certificates invalid kubeconfig 1
stoker_certificates invalid x509 0
stoker_certificates valid kubeconfig 1
stoker_certificates valid x509 2
`
	t.Run("all together", func(t *testing.T) {
		if counts, kamaji := series(false); counts != total || kamaji != "" {
			t.Errorf("it shows\n%s\nand Kamaji's\n%s", counts, kamaji)
		}
	})
	t.Run("of each tenant, with the flag", func(t *testing.T) {
		counts, kamaji := series(true)
		want := total + `stoker_tenant_certificate_expiry_timestamp_seconds one default 999999999
stoker_tenant_certificate_expiry_timestamp_seconds two default 1001728000
`
		if counts != want {
			t.Errorf("it shows\n%s", counts)
		}
		if want := `kamaji_certificates_current expiring x509 one default 1
kamaji_certificates_current invalid kubeconfig one default 1
kamaji_certificates_current valid kubeconfig one default 1
kamaji_certificates_current valid x509 one default 1
kamaji_certificates_current valid x509 two default 1
`; kamaji != want {
			t.Errorf("it shows\n%s", kamaji)
		}
	})
	t.Run("of tenants that are there, here", func(t *testing.T) {
		for what, f := range map[string]func(*expiries){
			"deleted":           func(x *expiries) { x.forget(one); x.forget(two) },
			"another replica's": func(x *expiries) { x.keep(nil) },
		} {
			if counts, kamaji := series(true, f); strings.Contains(counts, "soonest") || strings.Contains(counts, "tenant") || kamaji != "" {
				t.Errorf("%s, they are shown:\n%s%s", what, counts, kamaji)
			}
		}
	})
}

// Nobody renews them.
func TestCertificatesOfATenantThatIsPausedAreShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	turn, s := r.turn(0), newService(r.bus("certs"), nil, testLog())
	own := state.Certs{Secrets: map[string]state.Secret{name.ComponentCA: {NotAfter: time.Now().Add(day)}}}
	if err := turn.Done(t.Context(), loop.Outcome{Data: own}); err != nil {
		t.Fatal(err)
	}
	s.paused(turn)
	if all := s.expiries.all()[turn.Key]; len(all) != 1 || !all[0].at.Equal(own.Secrets[name.ComponentCA].NotAfter) {
		t.Errorf("shown: %v", all)
	}
}

// BenchmarkScrape is what Prometheus costs a replica with the certificates of a thousand tenants, with and without their names.
func BenchmarkScrape(b *testing.B) {
	for _, perTenant := range []bool{false, true} {
		b.Run(fmt.Sprintf("tenant-metrics=%v", perTenant), func(b *testing.B) {
			x := newExpiries(time.Now, perTenant)
			for n := range 1000 {
				own := &state.Certs{Secrets: map[string]state.Secret{}}
				for i := range 9 {
					own.Secrets[fmt.Sprint(i)] = state.Secret{NotAfter: time.Now().Add(time.Duration(i) * 40 * day)}
				}
				x.note(events.Tenant("default", fmt.Sprintf("tenant-%d", n)), own)
			}
			r := prometheus.NewRegistry()
			x.register(r, r)
			for b.Loop() {
				if _, err := r.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
