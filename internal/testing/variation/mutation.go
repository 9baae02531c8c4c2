package variation

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Mutated is a valid object, and its changes, one by one, as files of mutations have them.
type Mutated struct {
	Base *unstructured.Unstructured
	// Creates are changes of a new object. Updates are made to the stored one, as its client had sent it.
	Creates, Updates []Change
}

// ReadMutations reads all files in a directory of mutations.
func ReadMutations(directory string) ([]Mutated, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no mutations in %s: %w", directory, err)
	}
	var all []Mutated
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		mutated, err := parseMutations(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, mutated...)
	}
	return all, nil
}

// command is a command of a file: its name, its input, and the expected output.
var command = regexp.MustCompile(`(?ms)^(\w+)\n(.*?)^----$`)

func parseMutations(text string) ([]Mutated, error) {
	var all []Mutated
	commands := 0
	for block := range strings.SplitSeq(text, "\n\n") {
		found := command.FindStringSubmatch(block)
		if found == nil {
			continue // a comment
		}
		commands++
		if found[1] == "base" {
			base := &unstructured.Unstructured{}
			json, err := yaml.YAMLToJSON([]byte(found[2]))
			if err == nil {
				err = base.UnmarshalJSON(json)
			}
			if err != nil {
				return nil, fmt.Errorf("%w in %s", err, found[2])
			}
			all = append(all, Mutated{Base: base})
			continue
		}
		for line := range strings.Lines(found[2]) {
			c, err := parseMutation(strings.TrimSpace(line))
			if err != nil {
				return nil, err
			}
			switch of := &all[len(all)-1]; found[1] {
			case "create":
				of.Creates = append(of.Creates, c)
			case "update":
				of.Updates = append(of.Updates, c)
			default:
				return nil, fmt.Errorf("unknown command %q", found[1])
			}
		}
	}
	if want := strings.Count(text, "\n----\n"); commands != want {
		return nil, fmt.Errorf("%d commands, of which %d are understood", want, commands)
	}
	return all, nil
}

// parseMutation returns the change in a line, path = value.
func parseMutation(line string) (Change, error) {
	where, value, ok := strings.Cut(line, " = ")
	if !ok {
		return Change{}, fmt.Errorf("no = in %q", line)
	}
	c := Change{what: "mutation", value: value, mutates: true}
	for _, step := range steps(where) {
		if i, err := strconv.Atoi(strings.Trim(step, "[]")); err == nil && strings.HasPrefix(step, "[") {
			c.Path = append(c.Path, i)
		} else {
			c.Path = append(c.Path, strings.Trim(step, "[]"))
		}
	}
	return c, nil
}

// steps splits a path: names and, in brackets, indexes and keys.
func steps(path string) []string {
	return regexp.MustCompile(`[^.\[\]]+(?:\.[^.\[\]]+)*?|\[[^\]]*\]`).FindAllString(strings.ReplaceAll(path, ".[", "["), -1)
}

// Mutate returns a YAML document with the change that a line describes: path = value. It makes the maps and lists that
// lead to the path. A value is YAML in one line, or the word absent.
func Mutate(document, line string) (string, error) {
	c, err := parseMutation(line)
	if err != nil {
		return "", err
	}
	var object any
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		return "", err
	}
	if object, err = mutate(object, c.Path, fmt.Sprint(c.value)); err != nil {
		return "", fmt.Errorf("%w in %q", err, line)
	}
	changed, err := yaml.Marshal(object)
	return string(changed), err
}

// mutate sets the value at the path, creating the maps and lists that lead there.
func mutate(in any, path []any, value string) (any, error) {
	if len(path) == 0 {
		var v any
		err := yaml.Unmarshal([]byte(value), &v)
		return v, err
	}
	if i, ok := path[0].(int); ok {
		list, _ := in.([]any)
		for len(list) <= i {
			list = append(list, map[string]any{})
		}
		below, err := mutate(list[i], path[1:], value)
		list[i] = below
		return list, err
	}
	key := fmt.Sprint(path[0])
	m, _ := in.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	if len(path) == 1 && value == "absent" {
		delete(m, key)
		return m, nil
	}
	below, err := mutate(m[key], path[1:], value)
	m[key] = below
	return m, err
}

// mutation applies a change of a file.
func (c Change) mutation(object map[string]any) map[string]any {
	changed, err := mutate(runtime.DeepCopyJSON(object), c.Path, fmt.Sprint(c.value))
	if err != nil {
		panic(fmt.Sprintf("%s = %v: %v", written(c.Path), c.value, err)) // ReadMutations has read it
	}
	return numbers(changed).(map[string]any)
}
