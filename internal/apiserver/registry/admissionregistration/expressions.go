package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// environmentOf returns the environment of all expressions. It takes megabytes, so it is built when the server checks
// the first object with an expression.
func environmentOf() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// conditionCompiler compiles match conditions, which know no variables. It is built once, when the
// first is checked.
var conditionCompiler = sync.OnceValue(func() plugincel.Compiler { return plugincel.NewCompiler(environmentOf()) }) //nolint:gochecknoglobals // as above

// expressions compiles the expressions of one policy. Variables are added in their order: an expression may use the
// ones before it.
type expressions struct {
	compiler *plugincel.CompositedCompiler
	params   bool
	err      error // the reason why there is no compiler
}

func newExpressions(params *admissionregistrationv1.ParamKind) *expressions {
	compiler, err := plugincel.NewCompositedCompiler(environmentOf())
	return &expressions{compiler: compiler, params: params != nil, err: err}
}

// check compiles an expression that is not empty.
func (e *expressions) check(x plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations, at *field.Path) field.ErrorList {
	if e.err != nil {
		return field.ErrorList{field.InternalError(at, e.err)}
	}
	declared.HasParams = e.params
	return compiled(e.compiler.CompileCELExpression(x, declared, environment.NewExpressions), x, at)
}

// add checks a variable and declares it to later expressions.
func (e *expressions) add(v *admissionregistrationv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.TrimSpace(v.Name) == "":
		errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
	case !isIdentifier(v.Name):
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
	}
	expression := at.Child("expression")
	switch {
	case strings.TrimSpace(v.Expression) == "":
		errs = append(errs, field.Required(expression, "expression is not specified"))
	case e.err != nil:
		errs = append(errs, field.InternalError(expression, e.err))
	default:
		x := &validating.Variable{Name: v.Name, Expression: v.Expression}
		declared := plugincel.OptionalVariableDeclarations{HasParams: e.params, HasAuthorizer: true}
		errs = append(errs, compiled(e.compiler.CompileAndStoreVariable(x, declared, environment.NewExpressions), x, expression)...)
	}
	return errs
}

// checkCondition compiles a match condition that is not empty.
func checkCondition(expression string, params bool, at *field.Path) field.ErrorList {
	x := &matchconditions.MatchCondition{Expression: strings.TrimSpace(expression)}
	declared := plugincel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}
	return compiled(conditionCompiler().CompileCELExpression(x, declared, environment.NewExpressions), x, at)
}

// compiled returns the error of a compilation, if any.
func compiled(result plugincel.CompilationResult, x plugincel.ExpressionAccessor, at *field.Path) field.ErrorList {
	switch err := result.Error; {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, x.GetExpression(), err.Detail)}
	default:
		return field.ErrorList{field.InternalError(at, fmt.Errorf("compile the expression: %w", err))}
	}
}

var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// reservedWords returns the reserved words of CEL.
func reservedWords() []string {
	return []string{
		"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let",
		"loop", "namespace", "null", "package", "return", "true", "var", "void", "while",
	}
}

func isIdentifier(name string) bool {
	return identifier.MatchString(name) && !slices.Contains(reservedWords(), name)
}
