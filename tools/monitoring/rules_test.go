package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/local/debian"
	"github.com/stoker-k8s/stoker/local/progress"
)

const (
	deployed = "../../deployments/monitoring"
	runbooks = "../../docs/runbooks"
)

// rules reads the file of alerts.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	data, err := os.ReadFile(deployed + "/rules/stoker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// TestRunbooks holds alerts and runbooks together: each alert has a page, which tells each of its expressions and severities, and each
// page an alert.
func TestRunbooks(t *testing.T) {
	pages, err := filepath.Glob(runbooks + "/Stoker*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	var named []string
	spaces := regexp.MustCompile(`\s+`)
	for _, r := range rules(t) {
		named = append(named, r.Alert)
		page, err := os.ReadFile(filepath.Join(runbooks, r.Alert+".md"))
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
			continue
		}
		text := spaces.ReplaceAllString(string(page), " ")
		if !strings.Contains(text, spaces.ReplaceAllString(strings.TrimSpace(r.Expr), " ")) {
			t.Errorf("the page of %s does not show the expression\n%s", r.Alert, r.Expr)
		}
		if !strings.Contains(text, r.Labels["severity"]) {
			t.Errorf("the page of %s does not say how severe it is: %s", r.Alert, r.Labels["severity"])
		}
		if want := "https://github.com/stoker-k8s/stoker/blob/main/docs/runbooks/" + r.Alert + ".md"; r.Annotations["runbook_url"] != want {
			t.Errorf("runbook_url of %s: %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		for _, a := range []string{"summary", "description"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", r.Alert, a)
			}
		}
	}
	for _, page := range pages {
		if n := strings.TrimSuffix(filepath.Base(page), ".md"); !slices.Contains(named, n) {
			t.Errorf("%s has no alert", page)
		}
	}
}

// TestRules has promtool check the rules, and run their unit tests.
func TestRules(t *testing.T) {
	promtool, err := debian.Find(t.Context(), "prometheus", "usr/bin/promtool", progress.None)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "rules/stoker.yaml"}, {"test", "rules", "promtool/stoker.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool.Path, args...)
		cmd.Dir = deployed
		cmd.Env = append(os.Environ(), promtool.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestEachAlertIsUnitTested looks for a test in which each rule fires.
func TestEachAlertIsUnitTested(t *testing.T) {
	data, err := os.ReadFile(deployed + "/promtool/stoker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Fires []struct {
					Labels map[string]string `json:"exp_labels"`
				} `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			silent[c.Alert] = silent[c.Alert] || len(c.Fires) == 0
			for _, f := range c.Fires {
				fires[c.Alert+"/"+f.Labels["sign"]] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert+"/"+r.Labels["sign"]] || !silent[r.Alert] {
			t.Errorf("%s %s: there must be a case in which it fires, and one in which it doesn't", r.Alert, r.Labels["sign"])
		}
	}
}
