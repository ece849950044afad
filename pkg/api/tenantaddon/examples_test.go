package tenantaddon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
	"github.com/stoker-k8s/stoker/pkg/internal/testing/crdtest"
)

func readFile(t *testing.T, path ...string) string {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()

	examples := strings.Split(readFile(t, "examples", "tenantaddon.yaml"), "\n---\n")

	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readFile(t, "docs", "tenant-addons.md"), -1) {
		example := block[1]
		if !strings.HasPrefix(example, "apiVersion:") { // some fields of a spec
			example = "apiVersion: stoker.dev/v1alpha1\nkind: TenantAddon\nmetadata: {name: demo}\nspec:\n  selector: {}\n  manifests: {configMap: a}\n" + example
		}

		examples = append(examples, example)
	}

	if len(examples) < 6 {
		t.Fatalf("%d examples", len(examples))
	}

	for _, example := range examples {
		var typed tenantaddon.TenantAddon
		if err := yaml.UnmarshalStrict([]byte(example), &typed); err != nil {
			t.Errorf("%s\n%v", example, err)
		}

		if refused := loadDefinition(t, tenantaddon.TenantAddonResource).Admit(t, crdtest.Decode(t, []byte(example)), nil); len(refused) != 0 {
			t.Errorf("%s\nrefused: %s", example, refused)
		}
	}
}

// The page explains each condition and each reason that there is, and no other.
func TestThePageExplainsAllReasons(t *testing.T) {
	t.Parallel()

	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	_, page, _ := strings.Cut(readFile(t, "docs", "tenant-addons.md"), "\n## How it is\n")
	page, _, _ = strings.Cut(page, "\n## ")
	explained := map[string]bool{}

	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(page, -1) {
		for _, word := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			explained[word[1]] = false
		}
	}

	ast.Inspect(file, func(n ast.Node) bool {
		if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
			word, err := strconv.Unquote(literal.Value)
			if _, there := explained[word]; err != nil || !there {
				t.Errorf("%s is not explained: %v", word, err)
			}

			explained[word] = true
		}

		return true
	})

	for word, is := range explained {
		if !is {
			t.Errorf("there is no %s", word)
		}
	}
}
