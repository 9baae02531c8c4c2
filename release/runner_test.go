package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// actionFile is the composite action, at the root, where the services look for it.
const actionFile = "../action.yml"

// action has the fields of a composite action that ours uses.
type action struct {
	Name, Description string
	Inputs            map[string]struct {
		Description string
		Default     *string
		Required    bool
	}
	Outputs map[string]struct{ Description, Value string }
	Runs    struct {
		Using string
		Steps []step
	}
}

// step is a step of it that runs a script.
type step struct {
	Name, ID, If, Shell, Run string
	Env                      map[string]string
}

// readAction reads the action. A field that is not in the types above is an error.
func readAction(t *testing.T) action {
	t.Helper()
	var a action
	if err := yaml.UnmarshalStrict([]byte(read(t, actionFile)), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// job runs the action, and steps after it, as a runner does: each script in a new shell, and the
// contents of the files in the variables GITHUB_* are passed to the next.
type job struct {
	t          *testing.T
	temp, work string
	env        map[string]string
	path       []string                     // what steps have put before PATH
	outputs    map[string]map[string]string // by the step's id
}

func newJob(t *testing.T) *job {
	t.Helper()
	if here(t).OS == "windows" {
		t.Skip("the action is for other systems")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash, which runners have")
	}
	return &job{
		t: t, temp: filepath.Join(t.TempDir(), "runner's temp"), work: t.TempDir(), env: map[string]string{}, outputs: map[string]map[string]string{},
	}
}

var (
	expressionPattern = regexp.MustCompile(`\$\{\{ *(.*?) *\}\}`)
	conditionPattern  = regexp.MustCompile(`^(\S+) (==|!=) '(.*)'$`)
)

// use runs the action with these inputs, and returns its outputs and its standard output.
func (j *job) use(with map[string]string) (outputs map[string]string, out string, err error) {
	j.t.Helper()
	a := readAction(j.t)
	inputs := map[string]string{}
	for name, input := range a.Inputs {
		inputs[name] = *input.Default
	}
	maps.Copy(inputs, with)
	var printed strings.Builder
	for _, s := range a.Runs.Steps {
		if !j.holds(s.If, inputs) {
			continue
		}
		env := map[string]string{}
		for name, value := range s.Env {
			env[name] = j.expand(value, inputs)
		}
		text, err := j.step(s.ID, s.Run, env)
		printed.WriteString(text)
		if err != nil {
			return nil, printed.String(), fmt.Errorf("step %q: %w", s.Name, err)
		}
	}
	outputs = map[string]string{}
	for name, output := range a.Outputs {
		outputs[name] = j.expand(output.Value, inputs)
	}
	return outputs, printed.String(), nil
}

// run runs a step after the action, and returns its output.
func (j *job) run(script string) (string, error) {
	j.t.Helper()
	return j.step("", script, nil)
}

// holds evaluates the condition of a step.
func (j *job) holds(condition string, inputs map[string]string) bool {
	j.t.Helper()
	if condition == "" {
		return true
	}
	parts := conditionPattern.FindStringSubmatch(condition)
	if parts == nil {
		j.t.Fatalf("the condition %q is not a comparison with a string", condition)
	}
	return (j.value(parts[1], inputs) == parts[3]) == (parts[2] == "==")
}

// expand replaces the expressions in a text.
func (j *job) expand(text string, inputs map[string]string) string {
	return expressionPattern.ReplaceAllStringFunc(text, func(expression string) string {
		return j.value(expressionPattern.FindStringSubmatch(expression)[1], inputs)
	})
}

// value returns the value of a reference. A reference to a step that has not run is empty.
func (j *job) value(reference string, inputs map[string]string) string {
	j.t.Helper()
	if name, ok := strings.CutPrefix(reference, "inputs."); ok {
		return inputs[name]
	}
	parts := outputReference.FindStringSubmatch(reference)
	if parts == nil {
		j.t.Fatalf("%q is not an input or an output", reference)
	}
	return j.outputs[parts[1]][parts[2]]
}

// step runs a script as a runner runs one of shell: bash.
func (j *job) step(id, script string, env map[string]string) (string, error) {
	j.t.Helper()
	dir := j.t.TempDir()
	if err := os.MkdirAll(j.temp, 0o755); err != nil {
		j.t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		j.t.Fatal(err)
	}
	all := inherited()
	maps.Copy(all, map[string]string{
		"PATH":      strings.Join(append(slices.Clone(j.path), os.Getenv("PATH")), string(os.PathListSeparator)),
		"RUNNER_OS": here(j.t).OS, "RUNNER_TEMP": j.temp, "GITHUB_ACTION_PATH": root,
	})
	files := []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "script"}
	for _, name := range files {
		all[name] = filepath.Join(dir, name)
		if err := os.WriteFile(all[name], nil, 0o600); err != nil {
			j.t.Fatal(err)
		}
	}
	if err := os.WriteFile(all["script"], []byte(script), 0o600); err != nil {
		j.t.Fatal(err)
	}
	maps.Copy(all, j.env)
	maps.Copy(all, env)
	command := exec.Command("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", all["script"])
	command.Dir = j.work
	for name, value := range all {
		command.Env = append(command.Env, name+"="+value)
	}
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	err = command.Run()
	maps.Copy(j.env, j.assignments(all["GITHUB_ENV"]))
	j.outputs[id] = j.assignments(all["GITHUB_OUTPUT"])
	for line := range strings.Lines(read(j.t, all["GITHUB_PATH"])) {
		j.path = append([]string{strings.TrimSuffix(line, "\n")}, j.path...)
	}
	return printed.String(), err
}

// inherited is the environment of the tests, without the variables that the action must set.
func inherited() map[string]string {
	all := map[string]string{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "KUBE") && !strings.HasPrefix(name, "COPPICE_") {
			all[name] = value
		}
	}
	return all
}

// assignments reads a file of lines NAME=VALUE.
func (j *job) assignments(path string) map[string]string {
	j.t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(read(j.t, path)) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok || strings.TrimSpace(name) != name || name == "" {
			j.t.Fatalf("%s has the line %q, which is not an assignment", filepath.Base(path), line)
		}
		all[name] = value
	}
	return all
}
