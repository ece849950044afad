package main

// The catalogue for people: events.md.tmpl with its tables filled.

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"text/template"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

//go:embed events.md.tmpl
var proseTemplate string

// prose is docs/events.md.
func prose() ([]byte, error) {
	t, err := template.New("events.md").Funcs(template.FuncMap{
		// subject writes an address as people know subjects, with what varies in angle brackets.
		"subject": func(address string) string { return strings.NewReplacer("{", "<", "}", ">").Replace(address) },
		"command": events.AddressCommand,
		"schema":  func(short string) string { return "../" + schemaFile(short) },
		"fact":    func(e event.Entry) string { return e.Service + "." + e.What },
		"readers": func(e event.Entry) string {
			readers := slices.DeleteFunc(events.Readers(e.Service, e.What), func(s string) bool { return s == name.ServiceStatus })
			if forPortals(e) {
				readers = append(readers, events.UserPortal)
			}
			if len(readers) == 0 {
				return "–"
			}
			return strings.Join(readers, ", ")
		},
		"question": events.AddressQuestion,
		"request":  requestOf,
		"reply":    replyOf,
		"code":     func(list []string) string { return "`" + strings.Join(list, "` `") + "`" },
	}).Parse(proseTemplate)
	if err != nil {
		return nil, err
	}
	data := struct {
		Commands, Facts []event.Entry
		Questions       []event.Question
		Phases          []string
		Scopes          map[string]string
		Partitions      int
		MaxPayload      int
		Status, Dead    string
	}{
		Questions: event.Questions(), Phases: event.Phases(), Scopes: events.Scopes(), Partitions: name.Partitions,
		MaxPayload: events.MaxPayload >> 10, Status: events.AddressStatus, Dead: events.AddressDead,
	}
	for _, e := range event.Catalogue() {
		if e.Command {
			data.Commands = append(data.Commands, e)
		} else {
			data.Facts = append(data.Facts, e)
		}
	}
	var b bytes.Buffer
	err = t.Execute(&b, data)
	return b.Bytes(), err
}
