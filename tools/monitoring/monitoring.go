// Package monitoring makes the Grafana dashboards of an installation, dashboards/*.json, by `make generate`. The alerts beside them are
// rules/stoker.yaml.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run ./cmd/dashboards ../../deployments/monitoring/dashboards

// Dashboard is what Grafana 11 and later read, as far as it is used here.
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
type Dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"` // 1: the crosshair is shared
	Refresh       string     `json:"refresh"`
	Time          Time       `json:"time"`
	Templating    Templating `json:"templating"`
	Links         []Link     `json:"links"`
	Panels        []*Panel   `json:"panels"`
}

// Time is the range that is shown first.
type Time struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Templating has a dashboard's variables.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is chosen at the top of a dashboard. Query is a label_values(…), or the kind of a data source.
type Variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *Datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh,omitempty"` // 2: when the time range changes
	Sort       int         `json:"sort,omitempty"`    // 1: by name
	Multi      bool        `json:"multi,omitempty"`
	IncludeAll bool        `json:"includeAll,omitempty"`
	AllValue   string      `json:"allValue,omitempty"`
	Current    any         `json:"current,omitempty"`
}

// Datasource is which Prometheus is asked: that of the variable.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Link of a dashboard, a panel or a cell.
type Link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type,omitempty"`
	URL         string   `json:"url,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	AsDropdown  bool     `json:"asDropdown,omitempty"`
	IncludeVars bool     `json:"includeVars,omitempty"`
	KeepTime    bool     `json:"keepTime,omitempty"`
	TargetBlank bool     `json:"targetBlank,omitempty"`
}

// Panel is a picture or a table. Type is row, stat, timeseries, bargauge or table.
type Panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	GridPos         GridPos          `json:"gridPos"`
	Datasource      *Datasource      `json:"datasource,omitempty"`
	Targets         []Target         `json:"targets,omitempty"`
	FieldConfig     *FieldConfig     `json:"fieldConfig,omitempty"`
	Options         any              `json:"options,omitempty"`
	Transformations []Transformation `json:"transformations,omitempty"`
	Links           []Link           `json:"links,omitempty"`
}

// GridPos is a place on the grid, which is 24 wide.
type GridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is a query.
type Target struct {
	RefID        string      `json:"refId"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat,omitempty"`
	Instant      bool        `json:"instant,omitempty"`
	Range        bool        `json:"range,omitempty"`
	Format       string      `json:"format,omitempty"`
	Datasource   *Datasource `json:"datasource"`
}

// FieldConfig says how values are shown.
type FieldConfig struct {
	Defaults  Defaults   `json:"defaults"`
	Overrides []Override `json:"overrides"`
}

// Defaults of all values of a panel.
type Defaults struct {
	Unit       string         `json:"unit,omitempty"`
	Decimals   *int           `json:"decimals,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	Max        *float64       `json:"max,omitempty"`
	Color      map[string]any `json:"color,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
	Thresholds *Thresholds    `json:"thresholds,omitempty"`
	Mappings   []any          `json:"mappings,omitempty"`
}

// Override of what a column shows.
type Override struct {
	Matcher    map[string]string `json:"matcher"`
	Properties []Property        `json:"properties"`
}

// Property that an override sets.
type Property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

// Thresholds at which the color changes.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []Step `json:"steps"`
}

// Step is the color from a value on, which is nil for the first.
type Step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Transformation of a table.
type Transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

// Dashboards are all there are.
func Dashboards() []*Dashboard {
	return []*Dashboard{fleet(), tenant(), eventPath(), dataStores(), services(), nats()}
}

// JSON is the dashboard as a file.
func (d *Dashboard) JSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return b.Bytes(), err
}

// Write writes all dashboards into a directory.
func Write(dir string) error {
	for _, d := range Dashboards() {
		data, err := d.JSON()
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
		if err := os.WriteFile(filepath.Join(dir, d.UID+".json"), data, 0o644); err != nil { //nolint:gosec // a public file
			return err
		}
	}
	return nil
}
