package reason

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// source reads the constants of this package that are reasons, and the first words of the rows of its tables.
func source(t *testing.T) (constants map[string]bool, rows []string) {
	t.Helper()
	constants = map[string]bool{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range files {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			constant, ok := d.(*ast.GenDecl)
			if !ok || constant.Tok != token.CONST {
				continue
			}
			for _, spec := range constant.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					if n.IsExported() && !strings.HasPrefix(n.Name, "Advice") {
						constants[n.Name] = true
					}
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			table, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if array, ok := table.Type.(*ast.ArrayType); !ok || identifier(array.Elt) != "Entry" {
				return true
			}
			for _, row := range table.Elts {
				rows = append(rows, identifier(row.(*ast.CompositeLit).Elts[0]))
			}
			return false
		})
	}
	return constants, rows
}

// identifier returns the name that an expression is, or that a keyed field is set to; empty when it is none.
func identifier(e ast.Expr) string {
	if field, ok := e.(*ast.KeyValueExpr); ok {
		e = field.Value
	}
	if n, ok := e.(*ast.Ident); ok {
		return n.Name
	}
	return ""
}

func TestEveryReasonHasOneRow(t *testing.T) {
	t.Parallel()
	constants, rows := source(t)
	count := map[string]int{}
	for _, row := range rows {
		if count[row]++; !constants[row] {
			t.Errorf("row %q is of no constant", row)
		}
	}
	for _, constant := range slices.Sorted(maps.Keys(constants)) {
		if count[constant] != 1 {
			t.Errorf("%s has %d rows", constant, count[constant])
		}
	}
	if len(rows) != len(Table())+len(Conditions())+len(Plans()) {
		t.Errorf("%d rows in the source, %d, %d and %d in the tables", len(rows), len(Table()), len(Conditions()), len(Plans()))
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	for name, table := range map[string][]Entry{"Table": Table(), "Conditions": Conditions(), "Plans": Plans()} {
		seen := map[string]bool{}
		for _, e := range table {
			if seen[e.Reason] {
				t.Errorf("%s lists %s twice", name, e.Reason)
			}
			seen[e.Reason] = true
			if e.Meaning == "" || strings.HasSuffix(e.Meaning, ".") {
				t.Errorf("%s: %q is no sentence without its full stop", e.Reason, e.Meaning)
			}
			if e.Run != "" && (e.Do == "" || strings.HasPrefix(e.Run, "kubectl")) {
				t.Errorf("%s: command %q needs words before it, and no kubectl", e.Reason, e.Run)
			}
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	if e, ok := Find(PodPending); !ok || !strings.Contains(e.Meaning, "node") {
		t.Errorf("%+v", e)
	}
	if _, ok := Find("NoSuchReason"); ok {
		t.Error("found")
	}
}
