package structure

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Code that decides is pure: values in, a decision out. It can be tested without a clock, and
// simulated. ARCHITECTURE.md lists the pure packages, too; every file that is named plan.go, or ends in _plan.go where a
// package has several, is pure, too.
func purePackages() []string {
	return []string{
		"internal/rules",
		"internal/collect/refused",
		"internal/collect/story",
		"internal/controller/quota",
		"internal/tools/finalizerowner",
		"internal/tools/inventory",
		"internal/tools/preview",
		"internal/tools/explain",
		"internal/tools/cascade",
		"internal/node/agent/lifecycle",
		"internal/node/scheduler/placement",
		"internal/tools/audit",
		"internal/tools/undo",
	}
}

// impure returns the imports by which a package could have an effect, or wait, or depend on when
// or where it runs; everything below them is included.
func impure() []string {
	return []string{
		"context", "crypto/rand", "io", "log", "math/rand", "net", "os", "os/exec", "os/signal", "sync", "syscall", "testing",
		"k8s.io/client-go", "k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/storage", "k8s.io/utils/clock",
		"go.etcd.io", "google.golang.org/grpc", "golang.org/x/sys",
	}
}

// pureImports returns the packages of this module that pure packages may import although they are not
// among purePackages: the types in which a collector reports, conditions of pods as functions of a pod, and the contents
// of a CertificateSigningRequest.
func pureImports() []string {
	return []string{"collector/report", "internal/controller/pods", "internal/controller/signingrequest"}
}

// plans returns the files that hold the decisions of a package that also acts on them. Pure packages may use the names that
// these files declare, and no others of the package.
func plans() map[string][]string {
	return map[string][]string{"internal/collect/namespaces": {"plan.go", "order.go", "incomplete.go"}}
}

// pureBelowImpure are imports without effects below others that have them: addresses as values.
func pureBelowImpure() []string { return []string{"net/netip"} }

func isBelow(dir string, tops []string) bool {
	for _, top := range tops {
		if dir == top || strings.HasPrefix(dir, top+"/") {
			return true
		}
	}
	return false
}

func (f goFile) isPure() bool {
	return !f.isTest() && ((f.name == "plan.go" || strings.HasSuffix(f.name, "_plan.go")) && strings.HasPrefix(f.dir, "internal/") || isBelow(f.dir, purePackages()))
}

func TestDecisionsArePure(t *testing.T) {
	checked := map[string]int{}
	planned := declaredInPlans(t)
	for _, f := range goFiles(t) {
		if !f.isPure() {
			continue
		}
		checked[f.dir]++
		for _, top := range purePackages() {
			if f.dir != top && isBelow(f.dir, []string{top}) {
				checked[top]++
			}
		}
		for _, imported := range f.imports(t) {
			own, isOwn := strings.CutPrefix(imported, module+"/")
			if names := planned[own]; names != nil && f.dir != own {
				for _, used := range f.namesOf(filepath.Base(own)) {
					if !slices.Contains(names, used) {
						t.Errorf("%s/%s decides, and uses %s.%s, which is not of a plan", f.dir, f.name, own, used)
					}
				}
				continue
			}
			if isBelow(imported, impure()) && !slices.Contains(pureBelowImpure(), imported) || isOwn && !isBelow(own, purePackages()) && !isBelow(own, pureImports()) {
				t.Errorf("%s/%s decides, and imports %s", f.dir, f.name, imported)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if what := effect(n); what != "" {
				t.Errorf("%s/%s decides, and %s", f.dir, f.name, what)
			}
			return true
		})
	}
	for _, dir := range purePackages() {
		if checked[dir] == 0 {
			t.Errorf("%s has no files: is it somewhere else?", dir)
		}
	}
	if checked["internal/collect/namespaces"] == 0 || checked["internal/controller/replicaset"] == 0 {
		t.Errorf("no plan.go of namespaces or of replica sets was found, only %v", checked)
	}
}

// declaredInPlans returns the names that the files of plans declare, by package.
func declaredInPlans(t *testing.T) map[string][]string {
	names := map[string][]string{}
	for _, f := range goFiles(t) {
		if !slices.Contains(plans()[f.dir], f.name) {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[f.dir] = append(names[f.dir], d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[f.dir] = append(names[f.dir], spec.Name.Name)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							names[f.dir] = append(names[f.dir], name.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// namesOf returns the names of a package that a file uses.
func (f goFile) namesOf(pkg string) (names []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg && x.Obj == nil {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names
}

// effect returns the forbidden effect of a node of a pure file, or "" if it has none.
func effect(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt, *ast.SendStmt:
		return "uses channels"
	case *ast.InterfaceType:
		if method := fails(n); method != "" {
			return "has an interface whose method " + method + " returns an error: who implements it may do I/O; take a value"
		}
	case *ast.SelectorExpr:
		name, ok := n.X.(*ast.Ident)
		if !ok || name.Name != "time" && name.Name != "metav1" {
			return ""
		}
		switch n.Sel.Name {
		case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker":
			return "reads the clock: " + name.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// fails returns the name of a method of an interface that returns an error, or "".
func fails(i *ast.InterfaceType) string {
	for _, m := range i.Methods.List {
		function, isMethod := m.Type.(*ast.FuncType)
		if !isMethod || function.Results == nil || len(m.Names) == 0 {
			continue
		}
		last := function.Results.List[len(function.Results.List)-1]
		if name, ok := last.Type.(*ast.Ident); ok && name.Name == "error" {
			return m.Names[0].Name
		}
	}
	return ""
}

// TestArchitectureCallsPureWhatIsPure compares a paragraph of ARCHITECTURE.md with the list.
func TestArchitectureCallsPureWhatIsPure(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, paragraph, _ := strings.Cut(string(text), "\nPure packages: ")
	paragraph, _, _ = strings.Cut(paragraph, "\n\n")
	var told []string
	for _, match := range link.FindAllStringSubmatch(paragraph, -1) {
		told = append(told, match[1])
	}
	for _, p := range slices.Concat(purePackages(), pureImports()) {
		i := slices.Index(told, p)
		if i < 0 {
			t.Errorf("ARCHITECTURE.md does not call %s pure", p)
			continue
		}
		told = slices.Delete(told, i, i+1)
	}
	if len(told) > 0 {
		t.Errorf("ARCHITECTURE.md calls %v pure, which are not in the list", told)
	}
}
