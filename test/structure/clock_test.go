package structure

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Tests that wait for real time fail on a busy machine, or hide what they wait for. They wait for a condition
// (internal/testing/eventually), or run in a bubble of testing/synctest, whose clock is fake.

// realTime has the functions of tests that may use the real clock, with the reason.
func realTime() map[string]string {
	return map[string]string{
		"collector/clusters_test.go TestManyClustersSleepInOneProcess": "make clusters, which measures, is the only caller",
		"internal/testing/simulation/simulation_test.go run":           "a campaign of seeds lasts as long as its flag says",
		"test/e2e/replicas_test.go TestKilledReplicasLoseNothing":      "only make replicas, which measures, has a limit",
		"test/e2e/lifecycle_test.go TestStopsCleanly":                  "a stop takes 2 s, or more than a minute if it waits for connections",
		"test/e2e/cronjobs_test.go TestCronJobRuns":                    "the age of a schedule, a year, tells the run of the past from that of this test",
	}
}

func TestTestsDoNotDependOnTheClock(t *testing.T) {
	packages := map[string][]goFile{}
	for _, f := range everyGoFile(t) {
		if f.isTest() {
			packages[f.dir] = append(packages[f.dir], f)
		}
	}
	used := map[string]bool{}
	sleeps := 0
	for _, files := range packages {
		c := newClockCheck(files)
		sleeps += len(c.sleeps)
		for _, u := range slices.Concat(c.sleeps, c.assertions) {
			if c.isInBubble(u) || strings.HasPrefix(u.function, "Benchmark") {
				continue
			}
			name := u.file.dir + "/" + u.file.name + " " + u.function
			if used[name] = true; realTime()[name] == "" {
				t.Errorf("%s: %s %s outside of a synctest bubble: wait for a condition instead", u.file.at(u.node), u.function, u.what)
			}
		}
	}
	if sleeps == 0 {
		t.Error("no sleep was found, in bubbles neither")
	}
	for name := range realTime() {
		if !used[name] {
			t.Errorf("%s may use the clock, and does not", name)
		}
	}
}

// clockUse is a place in a test that depends on a clock, or a place that names a function.
type clockUse struct {
	file     goFile
	node     ast.Node
	function string // the function declaration around it
	inBubble bool   // in a function literal that runs in a bubble
	what     string
}

// clockCheck looks at the tests of one package.
type clockCheck struct {
	sleeps, assertions []clockUse
	// uses has the places that name a function of the package, by its name.
	uses map[string][]clockUse
	// runners are the functions that run a literal that is handed to them in a bubble.
	runners map[string]bool
	// measures are the functions that return a time that has passed.
	measures map[string]bool
	limits   map[ast.Node]bool // see addLimits
}

func newClockCheck(files []goFile) *clockCheck {
	c := &clockCheck{uses: map[string][]clockUse{}, runners: map[string]bool{}, measures: map[string]bool{}, limits: map[ast.Node]bool{}}
	for more := true; more; { // a runner may call another one, and so may a function that measures
		more = false
		eachFunction(files, func(_ goFile, f *ast.FuncDecl) {
			if !c.runners[f.Name.Name] && takesFunction(f) && c.callsRunner(f.Body) {
				c.runners[f.Name.Name], more = true, true
			}
			if !c.measures[f.Name.Name] && c.isMeasure(f) {
				c.measures[f.Name.Name], more = true, true
			}
		})
	}
	eachFunction(files, func(file goFile, f *ast.FuncDecl) {
		elapsed := map[string]bool{} // variables that have been set to a time that has passed
		c.visit(clockUse{file: file, function: f.Name.Name}, f.Body, elapsed)
	})
	return c
}

func eachFunction(files []goFile, visit func(goFile, *ast.FuncDecl)) {
	for _, file := range files {
		for _, declaration := range file.ast.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Body != nil {
				visit(file, f)
			}
		}
	}
}

func takesFunction(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
		_, ok := p.Type.(*ast.FuncType)
		return ok
	})
}

func (c *clockCheck) callsRunner(body ast.Node) bool {
	calls := false
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		calls = calls || ok && c.runsBubble(call)
		return !calls
	})
	return calls
}

// runsBubble reports whether a call runs the literals among its arguments in a bubble.
func (c *clockCheck) runsBubble(call *ast.CallExpr) bool {
	return isCall(call, "synctest", "Test") || c.runners[called(call)]
}

// called returns the name of the called function or method.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func isCall(n ast.Node, pkg, name string) bool {
	call, ok := n.(*ast.CallExpr)
	return ok && isSelector(call.Fun, pkg, name)
}

func isSelector(n ast.Expr, pkg, name string) bool {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg && selector.Sel.Name == name
}

// visit collects what is below a node; at is where that is.
func (c *clockCheck) visit(at clockUse, below ast.Node, elapsed map[string]bool) {
	ast.Inspect(below, func(n ast.Node) bool {
		at.node = n
		switch n := n.(type) {
		case *ast.CallExpr:
			if isCall(n, "time", "Sleep") {
				at.what = "sleeps"
				c.sleeps = append(c.sleeps, at)
			}
			if !c.runsBubble(n) {
				return true
			}
			inside := at
			inside.inBubble = true
			c.visit(at, n.Fun, elapsed)
			for _, argument := range n.Args {
				c.visit(inside, argument, elapsed)
			}
			return false
		case *ast.AssignStmt:
			c.assign(n, elapsed)
		case *ast.SelectStmt:
			addLimits(n, c.limits)
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && isCall(n.X, "time", "After") && !c.limits[n] {
				at.what = "sleeps"
				c.sleeps = append(c.sleeps, at)
			}
		case *ast.BinaryExpr:
			if isComparison(n.Op) && (c.hasPassed(n.X, elapsed) || c.hasPassed(n.Y, elapsed)) {
				at.what = "compares a time that has passed"
				c.assertions = append(c.assertions, at)
			}
		case *ast.Ident:
			c.uses[n.Name] = append(c.uses[n.Name], at)
		}
		return true
	})
}

func isComparison(op token.Token) bool {
	return slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ}, op)
}

// addLimits adds the receives of a select with other cases: a time there is a limit, and no sleep.
func addLimits(s *ast.SelectStmt, limits map[ast.Node]bool) {
	if len(s.Body.List) == 1 {
		return
	}
	for _, clause := range s.Body.List {
		if receive, ok := clause.(*ast.CommClause).Comm.(*ast.ExprStmt); ok {
			limits[receive.X] = true
		}
	}
}

// assign records variables that are set to a time that has passed.
func (c *clockCheck) assign(n *ast.AssignStmt, elapsed map[string]bool) {
	for i, value := range n.Rhs {
		if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && c.passes(value, elapsed) {
			elapsed[name.Name] = true
		}
	}
}

// isMeasure reports whether a function returns a duration that is computed from a time that has passed.
func (c *clockCheck) isMeasure(f *ast.FuncDecl) bool {
	if f.Type.Results == nil || len(f.Type.Results.List) != 1 || !isSelector(f.Type.Results.List[0].Type, "time", "Duration") {
		return false
	}
	elapsed, found := map[string]bool{}, false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			c.assign(n, elapsed)
		case *ast.ReturnStmt:
			found = found || len(n.Results) == 1 && c.hasPassed(n.Results[0], elapsed)
		}
		return true
	})
	return found
}

// passes reports whether a value is computed from time.Since or from a function that measures, or is the least or greatest
// of values with such a one.
func (c *clockCheck) passes(value ast.Node, elapsed map[string]bool) bool {
	found := false
	ast.Inspect(value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			of := func(a ast.Expr) bool { return c.hasPassed(a, elapsed) }
			found = found || isCall(n, "time", "Since") || c.measures[called(n)] || isExtreme(n) && slices.ContainsFunc(n.Args, of)
		}
		return !found
	})
	return found
}

func isExtreme(call *ast.CallExpr) bool { return called(call) == "max" || called(call) == "min" }

func (c *clockCheck) hasPassed(value ast.Expr, elapsed map[string]bool) bool {
	name, ok := value.(*ast.Ident)
	return ok && elapsed[name.Name] || c.passes(value, elapsed)
}

// isInBubble reports whether a place runs in bubbles only: in a literal that does, or in a function that is named in such
// places only.
func (c *clockCheck) isInBubble(u clockUse) bool { return c.inBubble(u, map[string]bool{}) }

func (c *clockCheck) inBubble(u clockUse, seen map[string]bool) bool {
	if u.inBubble || seen[u.function] {
		return true
	}
	if isEntry(u.function) {
		return false
	}
	seen[u.function] = true
	uses := c.uses[u.function]
	return len(uses) > 0 && !slices.ContainsFunc(uses, func(use clockUse) bool { return !c.inBubble(use, seen) })
}

// isEntry reports whether go test calls a function.
func isEntry(function string) bool {
	return slices.ContainsFunc([]string{"Test", "Benchmark", "Example", "Fuzz"}, func(prefix string) bool {
		return strings.HasPrefix(function, prefix)
	})
}
