package event_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

func TestEveryRuleHasAMeaning(t *testing.T) {
	meanings := map[string]string{}
	for _, r := range event.Rules() {
		if meanings[r.Rule] != "" || r.Meaning == "" {
			t.Errorf("%s: listed twice, or without meaning", r.Rule)
		}
		meanings[r.Rule] = r.Meaning
	}
	file, err := parser.ParseFile(token.NewFileSet(), "rule.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(c.Names[0].Name, "Rule") {
			value, _ := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value)
			if meanings[value] == "" {
				t.Errorf("%s is not in the table", c.Names[0].Name)
			}
			delete(meanings, value)
		}
		return true
	})
	if len(meanings) > 0 {
		t.Errorf("in the table without a constant: %v", meanings)
	}
}
