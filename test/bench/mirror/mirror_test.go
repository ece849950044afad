// Package mirror measures how long it takes until the remote object knows what happened to the local one: `make bench BENCH=./bench/mirror`.
package mirror

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/mirror"
	"github.com/stoker-k8s/stoker/test/env"
)

var e *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // no benchmark is asked for, so nothing need run for it
	}
	env.Main(m, func(started *env.Env) { e = started }, env.APIOnly)
}

const (
	namespace = "default"
	suffix    = "-remote"
	objects   = 100
	rounds    = 300
)

// seen tells the names of remote objects that have changed.
type seen struct{ news chan string }

// BenchmarkUp has one API server be both clusters, kept apart by suffixes: milliseconds from the write of a local status to the remote one,
// of one object at a time, and of 100 at once.
func BenchmarkUp(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	s := &seen{make(chan string, 10*objects)}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		_ = e.Admin.Watch(ctx, kube.TenantControlPlanes, namespace, "", func(c kube.Change) {
			if n, remote := strings.CutSuffix(c.Object.Name, suffix); remote && c.Type == watch.Modified {
				s.news <- n
			}
		})
	})
	running.Go(func() {
		if err := mirror.Run(ctx, mirror.Config{
			Local: e.Admin.As(name.FieldManagerMirror), Remote: e.Admin.As(name.FieldManagerMirror), Log: slog.New(slog.DiscardHandler),
			Kinds: []mirror.Kind{{Resource: kube.TenantControlPlanes}}, RemoteSuffix: suffix, LocalNamespaceSuffix: "-local", Namespaces: true,
		}); err != nil {
			b.Error(err)
		}
	})
	for i := range objects {
		o := env.JSON(b, env.Tenant(of(i)+suffix, "v1.36.3"))
		delete(o, "status")
		u := &unstructured.Unstructured{Object: o}
		u.SetNamespace(namespace)
		u.SetAPIVersion(kube.TenantControlPlanes.GroupVersion.String())
		u.SetKind(kube.TenantControlPlanes.Kind)
		if err := e.Admin.Create(ctx, kube.TenantControlPlanes, u); err != nil {
			b.Fatal(err)
		}
	}
	keys := name.Mirror(name.MirrorDomain)
	for i := range objects {
		env.Eventually(b, of(i)+" in step", func() error {
			o := &unstructured.Unstructured{}
			if err := e.Admin.Get(ctx, kube.TenantControlPlanes, namespace, of(i)+suffix, o); err != nil {
				return err
			}
			if o.GetAnnotations()[keys.LocalGeneration] == "" {
				return fmt.Errorf("not yet: %v", o.GetAnnotations())
			}
			return nil
		})
	}
	for b.Loop() {
		measure(ctx, b, s)
	}
}

func of(i int) string { return fmt.Sprint("bench-", i) }

func measure(ctx context.Context, b *testing.B, s *seen) {
	b.Helper()
	s.drain(ctx)
	var one []float64
	for i := range rounds {
		began := time.Now()
		change(ctx, b, i%objects, i)
		s.await(b, map[string]bool{of(i % objects): true})
		one = append(one, float64(time.Since(began).Microseconds())/1000)
	}
	s.drain(ctx)
	waiting, began := map[string]bool{}, time.Now()
	for i := range objects {
		waiting[of(i)] = true
	}
	for i := range objects {
		change(ctx, b, i, -i-1)
	}
	wrote := time.Since(began)
	s.await(b, waiting)
	all := time.Since(began)
	slices.Sort(one)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nms\tmedian\t99th of 100\tmost\t\none at a time\t%.1f\t%.1f\t%.1f\t\n", one[rounds/2], one[rounds*99/100], one[rounds-1])
	fmt.Fprintf(w, "%d, written within %.0f\t\t\t%.1f\t\n", objects, ms(wrote), ms(all))
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(one[rounds/2], "ms-median")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// change writes a local status.
func change(ctx context.Context, b *testing.B, i, value int) {
	b.Helper()
	if err := e.Admin.MergePatch(ctx, kube.TenantControlPlanes, namespace+"-local", of(i), map[string]any{
		"status": map[string]any{"controlPlaneEndpoint": fmt.Sprint("192.0.2.1:", value+objects+1)},
	}, nil, "status"); err != nil {
		b.Fatal(err)
	}
}

// await waits until all that are waited for have changed.
func (s *seen) await(b *testing.B, waiting map[string]bool) {
	b.Helper()
	deadline := time.After(time.Minute)
	for len(waiting) > 0 {
		select {
		case n := <-s.news:
			delete(waiting, n)
		case <-deadline:
			b.Fatalf("never changed: %v", waiting)
		}
	}
}

// drain waits until nothing has changed for a second.
func (s *seen) drain(ctx context.Context) {
	for {
		select {
		case <-s.news:
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
			return
		}
	}
}
