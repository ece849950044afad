package source

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

const fieldTemplate = "spec.valuesTemplate"

// unwanted are functions of Sprig that make something else each time, which would be a change each time, or take long.
var unwanted = []string{
	"ago", "bcrypt", "buildCustomCert", "derivePassword", "encryptAES", "genCA", "genCAWithKey", "genPrivateKey", "genSelfSignedCert",
	"genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "htpasswd", "randInt", "shuffle",
}

// counting are functions that make as much as a number says, multiplying ones may make as much as the product of the sizes of two arguments.
var (
	counting    = map[string]bool{"repeat": true, "until": true, "untilStep": true, "seq": true, "indent": true, "nindent": true}
	multiplying = map[string]bool{
		"repeat": true, "join": true, "replace": true, "regexReplaceAll": true, "regexReplaceAllLiteral": true, "mustRegexReplaceAll": true,
		"mustRegexReplaceAllLiteral": true, "wrapWith": true, "indent": true, "nindent": true,
	}
)

// step is the function that is put into loops and templates. Who calls it takes a step, no more.
const step = "stoker_step"

// parseTemplate parses spec.valuesTemplate, and puts a step at the beginning of all loops and templates.
func parseTemplate(text string) (*template.Template, error) {
	t, err := template.New(fieldTemplate).Option("missingkey=zero").Funcs((&bounds{}).funcs()).Parse(text)
	if err != nil {
		return nil, invalid(fieldTemplate, "%s", templateError(err))
	}
	for _, part := range t.Templates() {
		if part.Tree != nil && part.Root != nil {
			addSteps(part.Root)
			part.Root.Nodes = append([]parse.Node{stepNode(part.Root.Pos)}, part.Root.Nodes...)
		}
	}
	return t, nil
}

// addSteps puts a step into all loops below list.
func addSteps(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.RangeNode:
			addSteps(n.List)
			addSteps(n.ElseList)
			n.List.Nodes = append([]parse.Node{stepNode(n.Pos)}, n.List.Nodes...)
		case *parse.IfNode:
			addSteps(n.List)
			addSteps(n.ElseList)
		case *parse.WithNode:
			addSteps(n.List)
			addSteps(n.ElseList)
		}
	}
}

// stepNode is {{ step }}.
func stepNode(pos parse.Pos) parse.Node {
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{parse.NewIdentifier(step).SetPos(pos)}}
	return &parse.ActionNode{
		NodeType: parse.NodeAction, Pos: pos,
		Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command}},
	}
}

// render renders spec.valuesTemplate for a tenant.
func render(text string, tenant Tenant) ([]byte, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	b := &bounds{end: time.Now().Add(maxDuration)}
	if err := t.Funcs(b.funcs()).Execute(b, map[string]Tenant{"Tenant": tenant}); err != nil {
		return nil, fail(tenantaddon.ReasonInvalidValues, fieldTemplate, "tenant %s/%s: %s", tenant.Namespace, tenant.Name, templateError(err))
	}
	return b.out.Bytes(), nil
}

// position is how text/template begins its errors.
var position = regexp.MustCompile(`^template: ` + fieldTemplate + `:(\d+)(?::\d+)?: (?:executing "[^"]*" at )?`)

func templateError(err error) string {
	text := position.ReplaceAllString(err.Error(), "line $1: ")
	return strings.Replace(text, "<"+step+">: error calling "+step+": ", "it ", 1)
}

// bounds are what one execution of a template may use. It writes to it.
type bounds struct {
	end   time.Time
	steps int
	out   bytes.Buffer
}

func (b *bounds) Write(p []byte) (int, error) {
	if b.out.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("makes more than %d MiB", maxOutput>>20)
	}
	return b.out.Write(p)
}

func (b *bounds) step() (string, error) {
	if b.steps++; b.steps > maxSteps {
		return "", fmt.Errorf("takes more than %d steps", maxSteps)
	}
	if time.Now().After(b.end) {
		return "", fmt.Errorf("takes longer than %s", maxDuration)
	}
	return "", nil
}

// funcs are Sprig's, toYaml and fromYaml, all within bounds, also those of text/template that make strings.
func (b *bounds) funcs() template.FuncMap {
	funcs := sprig.HermeticTxtFuncMap()
	for _, name := range unwanted {
		delete(funcs, name)
	}
	funcs["toYaml"] = func(v any) (string, error) {
		data, err := yaml.Marshal(v)
		return string(bytes.TrimSuffix(data, []byte("\n"))), err
	}
	funcs["fromYaml"] = func(s string) (map[string]any, error) { return parseValues([]byte(s)) }
	funcs["print"], funcs["printf"], funcs["println"] = fmt.Sprint, fmt.Sprintf, fmt.Sprintln
	funcs["html"], funcs["js"], funcs["urlquery"] = template.HTMLEscaper, template.JSEscaper, template.URLQueryEscaper
	for name, f := range funcs {
		funcs[name] = b.bound(name, reflect.ValueOf(f))
	}
	funcs[step] = b.step
	return funcs
}

var errorType = reflect.TypeFor[error]()

// bound wraps f, so that it counts as a step, and is given and makes only what isn't too large.
func (b *bounds) bound(name string, f reflect.Value) any {
	t := f.Type()
	in := make([]reflect.Type, t.NumIn())
	for i := range in {
		in[i] = t.In(i)
	}
	wrapped := reflect.FuncOf(in, []reflect.Type{t.Out(0), errorType}, t.IsVariadic())
	return reflect.MakeFunc(wrapped, func(args []reflect.Value) []reflect.Value {
		if err := b.check(name, args, t.IsVariadic()); err != nil {
			return []reflect.Value{reflect.Zero(t.Out(0)), reflect.ValueOf(&err).Elem()}
		}
		var out []reflect.Value
		if t.IsVariadic() {
			out = f.CallSlice(args)
		} else {
			out = f.Call(args)
		}
		if len(out) == 1 {
			out = append(out, reflect.Zero(errorType))
		}
		if left := maxValue; !weigh(out[0], &left) {
			err := errors.New("makes a value that is too large")
			out[1] = reflect.ValueOf(&err).Elem()
		}
		return out
	}).Interface()
}

// check bounds what a function is called with.
func (b *bounds) check(name string, args []reflect.Value, variadic bool) error {
	if _, err := b.step(); err != nil {
		return err
	}
	if variadic {
		rest := args[len(args)-1]
		args = slices.Clone(args[:len(args)-1])
		for i := range rest.Len() {
			args = append(args, rest.Index(i))
		}
	}
	product := 1
	for _, arg := range args {
		for arg.Kind() == reflect.Interface && !arg.IsNil() {
			arg = arg.Elem()
		}
		size := 1
		if arg.CanInt() {
			if n := arg.Int(); counting[name] && (n > maxNumber || n < -maxNumber) {
				return fmt.Errorf("the number %d must be at most %d", n, maxNumber)
			} else if counting[name] {
				size = max(1, int(n))
			}
		} else {
			left := maxValue
			weigh(arg, &left)
			size = max(1, maxValue-left)
		}
		product = min(product*size, maxValue*maxValue)
	}
	if multiplying[name] && product > 16*maxValue {
		return errors.New("its arguments are too large")
	}
	return nil
}

// weigh takes the size of v from left, and says whether it fits. Values that hold themselves never do.
func weigh(v reflect.Value, left *int) bool {
	if *left -= elementSize; *left < 0 {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		*left -= v.Len()
	case reflect.Interface, reflect.Pointer:
		return v.IsNil() || weigh(v.Elem(), left)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !weigh(v.Index(i), left) {
				return false
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !weigh(it.Key(), left) || !weigh(it.Value(), left) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !weigh(v.Field(i), left) {
				return false
			}
		}
	}
	return *left >= 0
}
