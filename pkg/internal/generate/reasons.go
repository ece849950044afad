package main

// The table of reasons for people: reasons.md.tmpl with its tables filled.

import (
	"bytes"
	_ "embed"
	"strings"
	"text/template"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
)

//go:embed reasons.md.tmpl
var reasonsTemplate string

// reasons is docs/reasons.md.
func reasons() ([]byte, error) {
	t, err := template.New("reasons.md").Funcs(template.FuncMap{
		"advice": reasonAdvice,
		// cell keeps a text in one cell of a table.
		"cell": func(text string) string { return strings.ReplaceAll(text, "|", `\|`) },
	}).Parse(reasonsTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, struct{ Table, Conditions, Plans []reason.Entry }{reason.Table(), reason.Conditions(), reason.Plans()})
	return b.Bytes(), err
}

// reasonAdvice is what to do about a reason, with the names in capitals that a reader fills in.
func reasonAdvice(e reason.Entry) string {
	text := e.Do
	if strings.HasPrefix(text, "{service}") {
		text = "The service" + strings.TrimPrefix(text, "{service}")
	}
	if e.Run != "" {
		text += " `kubectl " + e.Run + "`"
	}
	if text == "" {
		return "–"
	}
	return strings.NewReplacer(
		"{service}", "the service", "{namespace}", "NAMESPACE", "{name}", "NAME", "{selector}", "kamaji.clastix.io/name=NAME",
	).Replace(text)
}
