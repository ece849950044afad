package generator

import (
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/certs/internal/pki"
)

func TestWhichTenantsGeneratorsSelect(t *testing.T) {
	t.Parallel()
	type kg = v1alpha1.KubeconfigGenerator
	ofTeam := func(team string) func(*kg) {
		return func(o *kg) { o.Spec.TenantControlPlaneSelector.MatchLabels = map[string]string{"team": team} }
	}
	inNamespace := func(a string) func(*kg) {
		return func(o *kg) { o.Spec.NamespaceSelector.MatchLabels = map[string]string{"a": a} }
	}
	paused := func(annotation, value string) func(*kg) {
		return func(o *kg) { o.Annotations = map[string]string{annotation: value} }
	}
	labelled := &namespaces{map[string]labels.Set{"default": {"a": "b"}}}
	for sentence, test := range map[string]struct {
		change     func(*kg)
		namespaces *namespaces
		asks       bool
		rests      bool
	}{
		"one that selects nothing selects all":               {func(*kg) {}, nil, true, false},
		"labels of the tenant":                               {ofTeam("red"), nil, true, false},
		"other labels":                                       {ofTeam("blue"), nil, false, false},
		"labels of the namespace":                            {inNamespace("b"), labelled, true, false},
		"other labels of the namespace":                      {inNamespace("c"), labelled, false, false},
		"a namespace nobody knows":                           {inNamespace("b"), &namespaces{}, false, false},
		"namespaces that aren't known yet: it is left alone": {inNamespace("b"), nil, false, true},
		"a paused one is left alone":                         {paused(name.AnnotationPaused, ""), nil, false, true},
		"one that is paused for a while, too":                {paused(name.AnnotationPausedUntil, now.Add(time.Minute).Format(time.RFC3339)), nil, false, true},
		"one whose pause is over asks again":                 {paused(name.AnnotationPausedUntil, now.Format(time.RFC3339)), nil, true, false},
		"one that can't be used is left alone":               {func(o *kg) { o.Name = "ca" }, nil, false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := changed(test.change)
			s := New(nil, &pki.Secrets{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
			s.all, s.namespaces = map[string]*generator{g.name: g}, test.namespaces
			a, err := s.requests(tenantDemo(nil))
			if _, asks := a.all[g.name]; err != nil || !a.known || asks != test.asks || a.leftAlone[g.name] != test.rests {
				t.Errorf("%+v %v", a, err)
			}
		})
	}
	t.Run("until all are known, nothing is", func(t *testing.T) {
		t.Parallel()
		a, err := New(nil, &pki.Secrets{}, slog.New(slog.DiscardHandler), time.Now).requests(tenantDemo(nil))
		if err != nil || a.known || !a.Met(map[string]state.Generated{"viewer": {}}, true) {
			t.Errorf("%+v %v", a, err)
		}
	})
}

func TestWhetherRequestsAreMet(t *testing.T) {
	t.Parallel()
	there := func(inputs, failure string) map[string]state.Generated {
		return map[string]state.Generated{"viewer": {Inputs: inputs, Error: failure}}
	}
	x := Requests{known: true, all: map[string]request{"viewer": {inputs: "a-1"}}}
	for sentence, test := range map[string]struct {
		a       Requests
		have    map[string]state.Generated
		exposed bool
		met     bool
	}{
		"nothing requested, nothing there":                          {Requests{known: true}, nil, true, true},
		"requested and there":                                       {x, there("a-1", ""), true, true},
		"requested and missing":                                     {x, nil, true, false},
		"requested and made for another":                            {x, there("a-2", ""), true, false},
		"without an endpoint it stays as it is":                     {x, there("a-2", ""), false, true},
		"without an endpoint it is noted all the same":              {x, nil, false, false},
		"what failed is tried again":                                {x, there("a-1", "taken"), true, false},
		"what can't be resolved is said again":                      {Requests{known: true, all: map[string]request{"viewer": {inputs: "a-1", failure: "no field"}}}, there("a-1", ""), true, false},
		"what nobody requests goes":                                 {Requests{known: true}, there("a-1", ""), true, false},
		"what nobody requests goes without an endpoint, too":        {Requests{known: true}, there("a-1", ""), false, false},
		"what a generator has that is left alone stays":             {Requests{known: true, leftAlone: map[string]bool{"viewer": true}}, there("a-0", ""), true, true},
		"and is not missed":                                         {Requests{known: true, leftAlone: map[string]bool{"viewer": true}}, nil, true, true},
		"while generators aren't known, what is there is all right": {Requests{}, there("a-0", ""), true, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			if got := test.a.Met(test.have, test.exposed); got != test.met {
				t.Errorf("got %t", got)
			}
		})
	}
}
