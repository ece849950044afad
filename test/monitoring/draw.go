// Package monitoring draws dashboards from what a Prometheus answers, for the documentation: Grafana is not needed for it, and the pictures
// are not Grafana's.
package monitoring

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/stoker-k8s/stoker/tools/monitoring"
)

//go:embed dashboard.html
var page string

// Size of a cell of the grid, and of the gap between panels, in pixels.
const (
	cellWidth, cellHeight, gap = 52, 34, 8
	titleHeight, legendHeight  = 30, 26
)

// Width and Height of a dashboard's picture in pixels.
const Width = 24*cellWidth + 2*gap

// Height of a dashboard's picture in pixels.
func Height(d *monitoring.Dashboard) int {
	last := d.Panels[len(d.Panels)-1].GridPos
	return (last.Y+last.H)*cellHeight + 70
}

// Answer is what Prometheus answered to the queries of a panel, in their order.
type Answer []model.Value

// box is a panel on the page. What it has beside its place depends on its kind.
type box struct {
	Left, Top, Width, Height int
	Title, Kind              string
	Value, Color             string
	Bars                     []bar
	Columns                  []string
	Rows                     [][]string
	Graph                    template.HTML
	Legend                   []bar
}

// bar is a value with its name; Part is its length in percent.
type bar struct {
	Name, Value, Color string
	Part               float64
}

// HTML is the dashboard as a page, from the answers to each panel by its ID.
func HTML(d *monitoring.Dashboard, variables string, answers map[int]Answer) ([]byte, error) {
	t, err := template.New("dashboard").Parse(page)
	if err != nil {
		return nil, err
	}
	data := struct {
		Title, Variables string
		Boxes            []box
	}{Title: d.Title, Variables: variables}
	for _, p := range d.Panels {
		b, err := boxOf(p, answers[p.ID])
		if err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		data.Boxes = append(data.Boxes, b)
	}
	var out bytes.Buffer
	err = t.Execute(&out, data)
	return out.Bytes(), err
}

func boxOf(p *monitoring.Panel, a Answer) (box, error) {
	g := p.GridPos
	b := box{
		Left: g.X*cellWidth + gap, Top: g.Y * cellHeight, Width: g.W*cellWidth - gap, Height: g.H*cellHeight - gap, Title: p.Title, Kind: p.Type,
	}
	switch p.Type {
	case "stat":
		if v := samples(p, a); len(v) > 0 {
			b.Value, b.Color = shown(p, v[0].value)
		}
	case "bargauge":
		b.Bars = barsOf(p, samples(p, a))
	case "table":
		b.Columns, b.Rows = tableOf(p, a)
	case "timeseries":
		lines := linesOf(p, a)
		for i, l := range lines {
			b.Legend = append(b.Legend, bar{Name: l.name, Color: hex(hue(i))})
		}
		var err error
		b.Graph, err = graphOf(p, lines, b.Width-12, b.Height-titleHeight-legendHeight)
		return b, err
	}
	return b, nil
}

// sample is a value with its name.
type sample struct {
	name  string
	value float64
}

// samples are the answers of instant queries, by name.
func samples(p *monitoring.Panel, a Answer) (all []sample) {
	for i, v := range a {
		vector, _ := v.(model.Vector)
		for _, s := range vector {
			all = append(all, sample{legend(p.Targets[i].LegendFormat, s.Metric), float64(s.Value)})
		}
	}
	slices.SortStableFunc(all, func(a, b sample) int { return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.name, b.name)) })
	return all
}

// legend fills labels into a template such as "{{service}} p90".
func legend(format string, labels model.Metric) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+string(name)+"}}", string(value))
	}
	return format
}

func barsOf(p *monitoring.Panel, of []sample) (all []bar) {
	full := 0.0
	if p.FieldConfig.Defaults.Max != nil {
		full = *p.FieldConfig.Defaults.Max
	} else {
		for _, s := range of {
			full = max(full, s.value)
		}
	}
	for _, s := range of {
		text, c := shown(p, s.value)
		all = append(all, bar{Name: s.name, Value: text, Color: c, Part: 100 * min(1, s.value/max(full, math.SmallestNonzeroFloat64))})
	}
	return all
}

// tableOf are the columns that the panel's transformations leave, and a row for each series.
func tableOf(p *monitoring.Panel, a Answer) (columns []string, rows [][]string) {
	names, order := map[string]any{}, map[string]any{}
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			names, _ = t.Options["renameByName"].(map[string]any)
			order, _ = t.Options["indexByName"].(map[string]any)
		}
	}
	labels := slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Compare(fmt.Sprint(order[a]), fmt.Sprint(order[b])) })
	for _, l := range labels {
		columns = append(columns, fmt.Sprint(names[l]))
	}
	for _, v := range a {
		vector, _ := v.(model.Vector)
		for _, s := range vector {
			var row []string
			for _, l := range labels {
				row = append(row, string(s.Metric[model.LabelName(l)]))
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, slices.Compare)
	return columns, rows
}

// line is a series of a graph.
type line struct {
	name   string
	points plotter.XYs
}

func linesOf(p *monitoring.Panel, a Answer) (all []line) {
	for i, v := range a {
		matrix, _ := v.(model.Matrix)
		for _, s := range matrix {
			l := line{name: legend(p.Targets[i].LegendFormat, s.Metric)}
			for _, at := range s.Values {
				if y := float64(at.Value); !math.IsNaN(y) && !math.IsInf(y, 0) {
					l.points = append(l.points, plotter.XY{X: float64(at.Timestamp) / 1000, Y: y})
				}
			}
			if len(l.points) > 0 {
				all = append(all, l)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return all
}

// pile puts each line on those before it.
func pile(lines []line) {
	below := map[float64]float64{}
	for _, l := range lines {
		for i := range l.points {
			below[l.points[i].X] += l.points[i].Y
			l.points[i].Y = below[l.points[i].X]
		}
	}
}

// graphOf draws lines into a picture of a size in pixels.
func graphOf(p *monitoring.Panel, lines []line, width, height int) (template.HTML, error) {
	graph := plot.New()
	graph.BackgroundColor = color.Transparent
	graph.Y.Min, graph.Y.Max = 0, 0
	d := p.FieldConfig.Defaults
	stacked := d.Custom["stacking"] != nil
	if stacked {
		pile(lines)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 238}, color.Gray{Y: 232}
	graph.Add(grid)
	for i, l := range slices.Backward(lines) { // of a stack, the highest first
		for _, points := range whole(l.points) {
			drawn, err := plotter.NewLine(points)
			if err != nil {
				return "", err
			}
			drawn.Color, drawn.Width = hue(i), vg.Points(1.2)
			if stacked {
				drawn.FillColor = light(hue(i))
			}
			graph.Add(drawn)
		}
	}
	if graph.Y.Max *= 1.08; graph.Y.Max == 0 {
		graph.Y.Max = 1
	}
	if d.Max != nil {
		graph.Y.Max = *d.Max
	}
	graph.X.Tick.Marker = plot.TickerFunc(minutes)
	graph.Y.Tick.Marker = ticks{d.Unit}
	for _, axis := range []*plot.Axis{&graph.X, &graph.Y} {
		axis.Tick.Label.Font.Size, axis.Tick.Length, axis.LineStyle.Width = vg.Points(8), 0, 0
		axis.Tick.Label.Font.Variant, axis.Tick.Label.Color, axis.Padding = "Sans", color.Gray{Y: 110}, 0
	}
	const perPixel = vg.Inch / 96
	canvas := vgsvg.New(vg.Length(width)*perPixel, vg.Length(height)*perPixel)
	graph.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, _ := strings.Cut(b.String(), "<svg")
	return template.HTML("<svg" + svg), nil
}

// whole cuts a line where points are missing for long.
func whole(points plotter.XYs) (all []plotter.XYs) {
	step := math.Inf(1)
	for i := 1; i < len(points); i++ {
		step = min(step, points[i].X-points[i-1].X)
	}
	from := 0
	for i := 1; i <= len(points); i++ {
		if i == len(points) || points[i].X-points[i-1].X > 3*step {
			all = append(all, points[from:i])
			from = i
		}
	}
	return all
}

// minutes are ticks at whole minutes.
func minutes(low, high float64) (all []plot.Tick) {
	for at := math.Ceil(low/60) * 60; at <= high; at += 60 {
		all = append(all, plot.Tick{Value: at, Label: time.Unix(int64(at), 0).UTC().Format("15:04")})
	}
	return all
}

// ticks are those of an axis with a unit.
type ticks struct{ unit string }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) (all []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	if t.unit == "bytes" || t.unit == "Bps" {
		step = math.Pow(2, math.Floor(math.Log2(high-low)))
	}
	for _, part := range []float64{1, .5, .25, .2} {
		if (high-low)/(step*part) >= 3 {
			step *= part
			break
		}
	}
	for v := 0.0; v <= high; v += step {
		all = append(all, plot.Tick{Value: v, Label: number(v, t.unit)})
	}
	return all
}

// palette is that of lines.
var palette = []color.RGBA{
	{0x3f, 0x9f, 0x4f, 255}, {0xe0, 0xb4, 0x00, 255}, {0x3a, 0x7b, 0xd5, 255}, {0xe6, 0x7e, 0x22, 255}, {0xd6, 0x3b, 0x50, 255},
	{0x8e, 0x5b, 0xb5, 255},
	{0x2a, 0x9d, 0x8f, 255}, {0x8d, 0x6e, 0x63, 255}, {0x60, 0x7d, 0x8b, 255}, {0xc2, 0x55, 0x9d, 255},
}

func hue(i int) color.RGBA { return palette[i%len(palette)] }

func light(c color.RGBA) color.Color {
	mix := func(v uint8) uint8 { return uint8((int(v) + 2*255) / 3) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// shown is a value as a panel shows it, with the color of its threshold or word.
func shown(p *monitoring.Panel, v float64) (text, c string) {
	named := map[string]string{"green": "#3f9f4f", "red": "#d63b50", "orange": "#e67e22", "blue": "#3a7bd5", "text": "#24292e"}
	d := p.FieldConfig.Defaults
	if d.Thresholds != nil {
		for _, s := range d.Thresholds.Steps {
			if s.Value == nil || v >= *s.Value {
				c = named[s.Color]
			}
		}
	}
	for _, m := range d.Mappings {
		mapping, _ := m.(map[string]any)
		options, _ := mapping["options"].(map[string]any)
		if word, is := options[fmt.Sprint(v)].(map[string]any); is {
			return fmt.Sprint(word["text"]), named[fmt.Sprint(word["color"])]
		}
	}
	return number(v, d.Unit), c
}

// number is a value in a unit of Grafana's.
func number(v float64, unit string) string {
	switch unit {
	case "s":
		switch d := time.Duration(v * float64(time.Second)); {
		case v >= 2*86400:
			return fmt.Sprintf("%.0f days", v/86400)
		case v >= 600:
			return fmt.Sprintf("%.0f min", v/60)
		case v > 0 && d < time.Second:
			return fmt.Sprintf("%.3g ms", v*1000)
		}
		return fmt.Sprintf("%.3g s", v)
	case "bytes", "Bps":
		per := map[string]string{"Bps": "/s"}[unit]
		names := []string{"B", "KiB", "MiB", "GiB"}
		i := 0
		for v >= 1024 && i < len(names)-1 {
			v, i = v/1024, i+1
		}
		return fmt.Sprintf("%.3g %s%s", v, names[i], per)
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*v)
	case "ops":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.4g", v)
}
