package monitoring

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/test/env"
	"github.com/stoker-k8s/stoker/tools/monitoring"
)

// TestPictures draws the dashboards of an installation that was busy for some minutes into the directory that STOKER_PICTURES names, for
// docs/images/dashboards. It needs chromium.
func TestPictures(t *testing.T) {
	dir := os.Getenv("STOKER_PICTURES")
	if dir == "" {
		t.Skip("draws pictures for the documentation where STOKER_PICTURES names a directory")
	}
	m := start(t, filepath.Join(monitoringDir(), "rules", "stoker.yaml"), e.NATS.MonitorURL())
	undo := busy(t)
	later := work(t)
	for _, d := range dashboards(t) {
		answers := map[int]Answer{}
		for _, p := range d.Panels {
			p.Title = fill(p.Title)
			for _, target := range p.Targets {
				value, err := m.ask(t.Context(), target)
				if err != nil {
					t.Fatalf("%s: %s: %v", p.Title, target.Expr, err)
				}
				answers[p.ID] = append(answers[p.ID], value)
			}
		}
		photograph(t, d, answers, filepath.Join(dir, d.UID+".png"))
	}
	later()
	undo()
}

// work has tenants come and go for four minutes, with a replica that is killed and a database that is away for a while.
func work(t *testing.T) (undo func()) {
	t.Helper()
	end, etcd := time.Now().Add(4*time.Minute), e.Local.Component("etcd-default")
	var kept []events.Key
	for i := 0; time.Now().Before(end); i++ {
		key := events.Tenant(metav1.NamespaceDefault, fmt.Sprintf("shop-%d", i))
		create(t, key.Name)
		switch i {
		case 2:
			p := e.Service(t, name.ServiceAddons, "a")
			p.Kill()
			p.Restart(t)
		case 4:
			must(t, etcd.Stop(t.Context()))
			refused(t, "refused-again")
			until(t, time.Now().Add(20*time.Second))
			must(t, etcd.Start(t.Context()))
		}
		e.Ready(t, key)
		byHTTP(t, events.Tenant(metav1.NamespaceDefault, "busy-0"))
		if kept = append(kept, key); len(kept) > 3 {
			remove(t, kept[0])
			kept = kept[1:]
		}
		until(t, time.Now().Add(10*time.Second))
	}
	return func() {
		for _, key := range kept {
			remove(t, key)
		}
	}
}

// until waits for a time.
func until(t *testing.T, when time.Time) {
	t.Helper()
	env.Eventually(t, "time to pass", func() error {
		if time.Now().Before(when) {
			return errNotYet
		}
		return nil
	})
}

// photograph has chromium make a picture of a dashboard.
func photograph(t *testing.T, d *monitoring.Dashboard, answers map[int]Answer, file string) {
	t.Helper()
	variables := map[string]string{"stoker-tenant": "namespace default, tenant busy-0"}[d.UID]
	page, err := HTML(d, variables, answers)
	must(t, err)
	source := filepath.Join(t.TempDir(), d.UID+".html")
	must(t, os.WriteFile(source, page, 0o600))
	if kept := os.Getenv("STOKER_TEST_KEEP"); kept != "" {
		must(t, os.WriteFile(filepath.Join(kept, d.UID+".html"), page, 0o600))
	}
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), fmt.Sprintf("--window-size=%d,%d", Width, Height(d)), "--screenshot="+file, "file://"+source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, out)
	}
	fewerColors(t, file)
}

// fewerColors writes a picture again with its 255 most frequent colors, which makes it small.
func fewerColors(t *testing.T, file string) {
	t.Helper()
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	picture, err := png.Decode(in)
	must(t, err)
	count := map[color.Color]int{}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	reduced := image.NewPaletted(bounds, frequent[:min(len(frequent), 255)])
	draw.Draw(reduced, bounds, picture, bounds.Min, draw.Src)
	out, err := os.Create(file)
	must(t, err)
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(out, reduced))
	must(t, out.Close())
}
