package structure

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// Commands write text with arguments through terminal.Fprintf and escape.Sprintf, so that no name and no message begins
// a line. fmt.Fprint and its like write constant text there, or the control sequences of a progress line.
func TestCommandsEscapeWhatTheyPrint(t *testing.T) {
	checked := 0
	for _, f := range goFiles(t) {
		if f.isTest() || f.dir != "internal/cli" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall {
				return true
			}
			function, isSelector := call.Fun.(*ast.SelectorExpr)
			if !isSelector {
				return true
			}
			if of, ok := function.X.(*ast.Ident); !ok || of.Name != "fmt" || !strings.HasPrefix(function.Sel.Name, "Fprint") {
				return true
			}
			checked++
			text, isText := call.Args[1].(*ast.BasicLit)
			isConstant := len(call.Args) == 2 && isText && text.Kind == token.STRING
			if !isConstant && (!isText || !strings.HasPrefix(text.Value, `"\r\033[K`)) {
				t.Errorf("%s/%s: fmt.%s does not escape its arguments: use terminal.Fprintf", f.dir, f.name, function.Sel.Name)
			}
			return true
		})
	}
	if checked == 0 {
		t.Error("no calls were checked")
	}
}

// Errors over HTTP are text that curl prints on a terminal. Their arguments are constants, or escaped.
func TestErrorsOverHTTPAreEscaped(t *testing.T) {
	checked := 0
	for _, f := range goFiles(t) {
		if f.isTest() || !strings.HasPrefix(f.dir, "internal/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall || selected(call.Fun) != "http.Error" {
				return true
			}
			checked++
			_, isLiteral := call.Args[1].(*ast.BasicLit)
			named, isNamed := call.Args[1].(*ast.Ident)
			isConstant := isLiteral || isNamed && named.Name == "unavailable"
			if made, isMade := call.Args[1].(*ast.CallExpr); !isConstant && (!isMade || !strings.HasPrefix(selected(made.Fun), "escape.")) {
				t.Errorf("%s/%s: http.Error with text that is not escaped: use escape.Line or escape.Sprintf", f.dir, f.name)
			}
			return true
		})
	}
	if checked == 0 {
		t.Error("no calls were checked")
	}
}

// selected returns the name of a function of another package, as in the source.
func selected(function ast.Expr) string {
	s, isSelector := function.(*ast.SelectorExpr)
	if !isSelector {
		return ""
	}
	of, isName := s.X.(*ast.Ident)
	if !isName {
		return ""
	}
	return of.Name + "." + s.Sel.Name
}
