package monitoring

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestDashboardsAreFresh(t *testing.T) {
	files, err := filepath.Glob(deployed + "/dashboards/*.json")
	if err != nil || len(files) != len(Dashboards()) {
		t.Errorf("there are %d files and %d dashboards: run `make generate`, and remove what is old (%v)", len(files), len(Dashboards()), err)
	}
	for _, d := range Dashboards() {
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(deployed, "dashboards", d.UID+".json"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("dashboards/%s.json is stale: run `make generate` (%v)", d.UID, err)
		}
	}
}

// TestPanels holds panels to what a reader needs: each says what it shows, has room, and leads only to pages that are there.
func TestPanels(t *testing.T) {
	runbook := regexp.MustCompile(`/docs/runbooks/(\w+)\.md`)
	for _, d := range Dashboards() {
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			name := d.UID + ": " + p.Title
			if p.Title == "" || p.Type != "row" && (!strings.HasSuffix(p.Description, ".") || len(p.Targets) == 0) {
				t.Errorf("%s: it must have a title, a description that is a sentence, and a query", name)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if at[0] >= width || taken[at] != "" {
						t.Fatalf("%s lies on %q or beyond the edge at %v", name, taken[at], at)
					}
					taken[at] = p.Title
				}
			}
			for _, l := range p.Links {
				if page := runbook.FindStringSubmatch(l.URL); page != nil {
					if _, err := os.Stat(filepath.Join(runbooks, page[1]+".md")); err != nil {
						t.Errorf("%s leads to a page that isn't there: %v", name, err)
					}
				}
			}
		}
	}
}
