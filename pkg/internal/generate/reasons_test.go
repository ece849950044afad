package main

import (
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/reason"

	"k8s.io/apimachinery/pkg/labels"
)

func TestReasonsPage(t *testing.T) {
	t.Parallel()
	page, err := reasons()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(reason.Table(), reason.Conditions()...) {
		if !strings.Contains(string(page), "| `"+e.Reason+"` | ") {
			t.Errorf("%s is not listed", e.Reason)
		}
		if advice := reasonAdvice(e); strings.ContainsAny(advice, "{}") {
			t.Errorf("%s: %s", e.Reason, advice)
		}
	}
	if selector := labels.FormatLabels(name.Selector("NAME")); !strings.Contains(string(page), selector) {
		t.Errorf("pods are selected by %s", selector)
	}
}
