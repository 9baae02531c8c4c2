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
