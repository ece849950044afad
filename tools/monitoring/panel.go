package monitoring

// How dashboards are put together: rows of panels, laid out from left to right.

import (
	"fmt"
	"math"
)

// Units, as Grafana names them.
const (
	unitShort = "short"
	unitS     = "s"
	unitBytes = "bytes"
	unitOps   = "ops"
	unitBps   = "Bps"
	unitPart  = "percentunit"
)

// width of the grid.
const width = 24

// prometheus is the data source of all queries: the one chosen at the top.
func prometheus() *Datasource { return &Datasource{Type: "prometheus", UID: "${datasource}"} }

// row is a title and the panels below it.
type row struct {
	title  string
	panels []*Panel
}

// dashboard lays rows out.
func dashboard(uid, title, description string, variables []Variable, rows ...row) *Dashboard {
	d := &Dashboard{
		UID: uid, Title: title, Description: description, Tags: []string{"stoker"}, SchemaVersion: 39, Editable: true, GraphTooltip: 1,
		Refresh: "30s", Time: Time{From: "now-1h", To: "now"},
		Templating: Templating{
			List: append([]Variable{{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"}}, variables...),
		},
		Links: []Link{
			{Title: "Stoker", Type: "dashboards", Tags: []string{"stoker"}, AsDropdown: true, KeepTime: true},
			{Title: "Runbooks", Type: "link", URL: "https://github.com/stoker-k8s/stoker/tree/main/docs/runbooks", TargetBlank: true},
		},
		Panels: []*Panel{},
	}
	y := 0
	for _, r := range rows {
		d.add(&Panel{Type: "row", Title: r.title, GridPos: GridPos{H: 1, W: width, Y: y}})
		y++
		x, tallest := 0, 0
		for _, p := range r.panels {
			if x+p.GridPos.W > width {
				x, y, tallest = 0, y+tallest, 0
			}
			p.GridPos.X, p.GridPos.Y = x, y
			x, tallest = x+p.GridPos.W, max(tallest, p.GridPos.H)
			d.add(p)
		}
		y += tallest
	}
	return d
}

func (d *Dashboard) add(p *Panel) {
	p.ID = len(d.Panels) + 1
	d.Panels = append(d.Panels, p)
}

// docs are the pages that panels refer to.
const docs = "https://github.com/stoker-k8s/stoker/blob/main/docs/"

// choose is a variable of the values that a label has.
func choose(name, label, query string, several bool) Variable {
	v := Variable{Name: name, Label: label, Type: "query", Query: query, Datasource: prometheus(), Refresh: 2, Sort: 1}
	if several {
		v.Multi, v.IncludeAll, v.AllValue = true, true, ".*"
		v.Current = map[string]any{"text": "All", "value": "$__all"}
	}
	return v
}

// option changes a panel.
type option func(*Panel)

// panel is a panel of a kind with a size.
func panel(kind, title, description, unit string, w, h int, options ...option) *Panel {
	p := &Panel{
		Type: kind, Title: title, Description: description, GridPos: GridPos{W: w, H: h}, Datasource: prometheus(),
		FieldConfig: &FieldConfig{Defaults: Defaults{Unit: unit}, Overrides: []Override{}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// graph shows values over time.
func graph(title, description, unit string, w int, options ...option) *Panel {
	p := panel("timeseries", title, description, unit, w, 8)
	p.FieldConfig.Defaults.Min = new(float64)
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "palette-classic"}
	p.FieldConfig.Defaults.Custom = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
	p.Options = map[string]any{
		"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// stat shows one value.
func stat(title, description, unit string, w int, options ...option) *Panel {
	p := panel("stat", title, description, unit, w, 4)
	p.Options = map[string]any{
		"colorMode": "value", "graphMode": "none", "textMode": "auto", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}},
	}
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "thresholds"}
	p.FieldConfig.Defaults.Thresholds = steps("text")
	for _, o := range options {
		o(p)
	}
	for i := range p.Targets {
		p.Targets[i].Instant, p.Targets[i].Range = true, false
	}
	return p
}

// bars shows values side by side.
func bars(title, description, unit string, w int, options ...option) *Panel {
	p := stat(title, description, unit, w, options...)
	p.Type, p.GridPos.H = "bargauge", 8
	p.Options = map[string]any{
		"displayMode": "basic", "orientation": "horizontal", "showUnfilled": true,
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}},
	}
	if p.FieldConfig.Defaults.Thresholds.Steps[0].Color == "text" {
		p.FieldConfig.Defaults.Thresholds = steps("blue")
	}
	return p
}

// column of a table: a label, and its title.
type column struct{ label, title string }

// table shows labels; the value of its one query is left out.
func table(title, description string, w, h int, expr string, columns []column, options ...option) *Panel {
	p := panel("table", title, description, "", w, h)
	p.Targets = []Target{{RefID: "A", Expr: expr, Instant: true, Format: "table", Datasource: prometheus()}}
	names, order, shown := map[string]any{}, map[string]any{}, []string{}
	for i, c := range columns {
		names[c.label], order[c.label], shown = c.title, i, append(shown, c.label)
	}
	p.Transformations = []Transformation{
		{ID: "filterFieldsByName", Options: map[string]any{"include": map[string]any{"names": shown}}},
		{ID: "organize", Options: map[string]any{"renameByName": names, "indexByName": order}},
	}
	p.Options = map[string]any{"showHeader": true, "cellHeight": "sm", "sortBy": []any{map[string]any{"displayName": columns[0].title}}}
	for _, o := range options {
		o(p)
	}
	return p
}

// query adds a query; legend is a template of labels, such as {{service}}.
func query(legend, expr string) option {
	return func(p *Panel) {
		p.Targets = append(p.Targets, Target{
			RefID: string(rune('A' + len(p.Targets))), Expr: expr, LegendFormat: legend, Range: true, Datasource: prometheus(),
		})
	}
}

// steps are colors from values on: the first color, then pairs of value and color.
func steps(first string, pairs ...any) *Thresholds {
	t := &Thresholds{Mode: "absolute", Steps: []Step{{Color: first}}}
	for i := 0; i < len(pairs); i += 2 {
		value := math.NaN()
		switch v := pairs[i].(type) {
		case int:
			value = float64(v)
		case float64:
			value = v
		}
		t.Steps = append(t.Steps, Step{Color: fmt.Sprint(pairs[i+1]), Value: &value})
	}
	return t
}

// colors sets the colors of values. A graph shows them as lines.
func colors(first string, pairs ...any) option {
	return func(p *Panel) {
		p.FieldConfig.Defaults.Thresholds = steps(first, pairs...)
		if p.Type == "timeseries" {
			p.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
		}
	}
}

// most is the value of a full bar.
func most(value float64) option { return func(p *Panel) { p.FieldConfig.Defaults.Max = &value } }

// digits is how many digits are shown after the point.
func digits(n int) option { return func(p *Panel) { p.FieldConfig.Defaults.Decimals = &n } }

// stacked has a graph show a sum with its parts.
func stacked(p *Panel) {
	p.FieldConfig.Defaults.Custom["stacking"] = map[string]any{"mode": "normal"}
	p.FieldConfig.Defaults.Custom["fillOpacity"] = 40
}

// runbook links an alert's page.
func runbook(alert string) option {
	return func(p *Panel) {
		p.Links = append(p.Links, Link{Title: "Runbook " + alert, URL: docs + "runbooks/" + alert + ".md", TargetBlank: true})
	}
}

// words shows values as words, with a color each.
func words(of map[string][2]string) option {
	return func(p *Panel) {
		options := map[string]any{}
		for value, w := range of {
			options[value] = map[string]any{"text": w[0], "color": w[1]}
		}
		p.FieldConfig.Defaults.Mappings = append(p.FieldConfig.Defaults.Mappings, map[string]any{"type": "value", "options": options})
	}
}

// linked makes the cells of a column a link.
func linked(column, title, url string) option {
	return func(p *Panel) {
		p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, Override{
			Matcher:    map[string]string{"id": "byName", "options": column},
			Properties: []Property{{ID: "links", Value: []Link{{Title: title, URL: url}}}},
		})
	}
}
