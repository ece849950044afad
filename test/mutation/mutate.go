package main

// The mutants of Go code. All those of a package are compiled into one test binary, which is told by its environment which of them to
// be: so a mutant costs the run of its tests and no build.

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// mutant is one change of a file.
type mutant struct {
	file string // below the repository
	line int
	in   string // the function
	was  string // the code before, and
	is   string // after
	nth  int    // of the same change in one function, from 0
}

// change identifies a mutant among those of its function, also when lines move.
func (m mutant) change() string {
	c := m.was + " → " + m.is
	if m.nth > 0 {
		c = fmt.Sprintf("%s (%d)", c, m.nth+1)
	}
	return c
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", m.file, m.line, m.in, m.change())
}

// file is a Go file while mutants are put into it.
type file struct {
	name    string // below the repository
	text    []byte
	pkg     *packages.Package
	fn      string
	prefix  map[int]string // inserted at an offset, before what begins there
	suffix  map[int]string // inserted at an offset, after what ends there
	mutants *[]mutant      // of the package; the number of a mutant is its index
}

// mutateFile returns a file with the mutants in it, and adds them to mutants.
func mutateFile(pkg *packages.Package, syntax *ast.File, name string, text []byte, mutants *[]mutant) []byte {
	f := &file{name: name, text: text, pkg: pkg, prefix: map[int]string{}, suffix: map[int]string{}, mutants: mutants}
	for _, d := range syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.fn = fn.Name.Name
			if fn.Recv != nil {
				f.fn = strings.TrimPrefix(f.source(fn.Recv.List[0].Type), "*") + "." + f.fn
			}
			ast.Walk(f, fn.Body)
		}
	}
	var out bytes.Buffer
	for i, b := range append(text, '\n') {
		out.WriteString(f.suffix[i])
		out.WriteString(f.prefix[i])
		out.WriteByte(b)
	}
	return out.Bytes()
}

// Visit adds the mutants of a node.
func (f *file) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			return nil
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && f.isBool(n) {
			f.choose(n, f.source(n.X))
		}
	case *ast.IfStmt:
		f.condition(n.Cond)
		if n.Else == nil && len(n.Body.List) > 1 && f.isBool(n.Cond) {
			f.choose(n.Cond, "false")
		}
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			f.result(r)
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		for _, c := range n.List {
			if f.isBool(c) {
				f.condition(c)
			}
		}
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return f
}

// negated and beside are what becomes of a comparison: the opposite, and the same with the bound moved.
var (
	negated = map[token.Token]string{
		token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.GEQ: "<", token.GTR: "<=", token.LEQ: ">",
	}
	beside = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	other  = map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*"}
)

// binary adds the mutants of an expression with two operands.
func (f *file) binary(n *ast.BinaryExpr) {
	x, y := f.source(n.X), f.source(n.Y)
	switch {
	case f.pkg.TypesInfo.Types[n].Value != nil: // a constant
	case n.Op == token.LAND && f.isBool(n):
		f.choose(n, x, y, x+" || "+y)
	case n.Op == token.LOR && f.isBool(n):
		f.choose(n, x, y, "("+x+") && ("+y+")")
	case negated[n.Op] != "" && f.isBool(n):
		f.choose(n, x+" "+negated[n.Op]+" "+y)
		if beside[n.Op] != "" {
			f.choose(n, x+" "+beside[n.Op]+" "+y)
		}
	case other[n.Op] != "" && f.isNumber(n):
		f.choose(n, x+" "+other[n.Op]+" "+y)
	}
}

// condition adds the opposite of a condition that is no comparison; those have their own.
func (f *file) condition(c ast.Expr) {
	switch c := c.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.ParenExpr:
	default:
		if f.isBool(c) {
			f.choose(c, "!"+f.source(c))
		}
	}
}

// result adds the mutants of what a function returns: an error that is forgotten, the opposite of true and false.
func (f *file) result(r ast.Expr) {
	of := f.pkg.TypesInfo.Types[r]
	switch {
	case of.Value != nil && f.isBool(r) && f.source(r) == "true":
		f.choose(r, "false")
	case of.Value != nil && f.isBool(r) && f.source(r) == "false":
		f.choose(r, "true")
	case of.Type != nil && of.Type.String() == "error" && !of.IsNil():
		f.choose(r, "nil")
	}
}

// statements adds those without one of the statements.
func (f *file) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
		case *ast.BranchStmt:
			if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
				continue
			}
		default:
			continue
		}
		if !undecided(f.source(s)) {
			f.add(s, "", "if mutantIsNot(%d) { ", " }")
		}
	}
}

// undecided reports whether a statement is one that no test is asked about: what is written to the log, and locks, whose absence
// only the race detector sees.
func undecided(statement string) bool {
	for _, s := range []string{"log.", "Log.", ".Lock()", ".Unlock()", ".RLock()", ".RUnlock()", "defer cancel()", "t.Helper()"} {
		if strings.Contains(statement, s) && !strings.Contains(statement, "\n") || strings.HasPrefix(statement, s) {
			return true
		}
	}
	return false
}

// choose adds mutants of an expression, each with another in its place.
func (f *file) choose(n ast.Expr, instead ...string) {
	t := types.TypeString(types.Default(f.pkg.TypesInfo.TypeOf(n)), types.RelativeTo(f.pkg.Types))
	if i := strings.LastIndex(t, "/"); i >= 0 {
		t = t[i+1:] // by the package's name
	}
	for _, e := range instead {
		f.add(n, e, "mutantInstead(%d, func() "+t+" { return ", " }, func() "+t+" { return "+e+" })")
	}
}

// add adds a mutant: what stands around the code in the place of a node. before has a %d for the mutant's number.
func (f *file) add(n ast.Node, is, before, after string) {
	m := mutant{file: f.name, line: f.pkg.Fset.Position(n.Pos()).Line, in: f.fn, was: oneLine(f.source(n)), is: cmp.Or(oneLine(is), "nothing")}
	for _, o := range *f.mutants {
		if o.file == m.file && o.in == m.in && o.was == m.was && o.is == m.is {
			m.nth++
		}
	}
	pos, end := f.offset(n.Pos()), f.offset(n.End())
	f.prefix[pos] += fmt.Sprintf(before, len(*f.mutants))
	// What is added later is inside of what was added before.
	f.suffix[end] = after + f.suffix[end]
	*f.mutants = append(*f.mutants, m)
}

func (f *file) offset(p token.Pos) int { return f.pkg.Fset.Position(p).Offset }

func (f *file) source(n ast.Node) string { return string(f.text[f.offset(n.Pos()):f.offset(n.End())]) }

func (f *file) isBool(e ast.Expr) bool {
	t := f.pkg.TypesInfo.TypeOf(e)
	return t != nil && (t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool])
}

func (f *file) isNumber(e ast.Expr) bool {
	b, ok := f.pkg.TypesInfo.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// support is what mutants call, in a file of the package.
const support = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

// The mutant that this process is, -1 for none, and the file that gets the numbers of those that are reached.
var (
	mutantNumber  = mutantOfEnvironment()
	mutantReached [%d]atomic.Bool
)

func mutantOfEnvironment() int {
	if n, err := strconv.Atoi(os.Getenv("STOKER_MUTANT")); err == nil {
		return n
	}
	return -1
}

func mutantIsNot(n int) bool {
	if to := os.Getenv("STOKER_MUTANTS_REACHED"); to != "" && mutantReached[n].CompareAndSwap(false, true) {
		if f, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(strconv.Itoa(n) + "\n")
			_ = f.Close()
		}
	}
	return n != mutantNumber
}

func mutantInstead[T any](n int, was, is func() T) T {
	if mutantIsNot(n) {
		return was()
	}
	return is()
}
`

// mutated is a package with mutants in some of its files.
type mutated struct {
	pkg     *packages.Package
	dir     string
	mutants []mutant
	overlay map[string][]byte // by absolute path
}

// mutatePackage puts the mutants into those of a directory's files that are named.
func mutatePackage(root, dir string, names []string) (*mutated, error) {
	mode := packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedFiles | packages.NeedImports
	found, err := packages.Load(&packages.Config{Mode: mode, Dir: filepath.Join(root, dir)}, ".")
	if err != nil {
		return nil, err
	}
	p := found[0]
	if len(p.Errors) > 0 {
		return nil, p.Errors[0]
	}
	m := &mutated{pkg: p, dir: filepath.Join(root, dir), overlay: map[string][]byte{}}
	for _, syntax := range p.Syntax {
		path := p.Fset.Position(syntax.Package).Filename
		if !slices.Contains(names, filepath.Base(path)) {
			continue
		}
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		m.overlay[path] = mutateFile(p, syntax, filepath.ToSlash(filepath.Join(dir, filepath.Base(path))), text, &m.mutants)
	}
	if len(m.overlay) != len(names) {
		return nil, fmt.Errorf("%s has %d of the files %v", dir, len(m.overlay), names)
	}
	m.overlay[filepath.Join(m.dir, "mutants_of_this_run.go")] = fmt.Appendf(nil, support, p.Name, max(len(m.mutants), 1))
	return m, nil
}
