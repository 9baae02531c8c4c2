package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is a name that controls a terminal: it renames the window, makes text red by a character of C1, turns the
// direction of text, has DEL, overwrites a line, and begins one. Kubernetes accepts it for a Role.
const hostile = "a\x1b]0;PWN\x07b\u009b31mc\u202ed\x7fe\rf\n" + begun

// begun is the beginning of the second line of hostile.
const begun = "BEGUN: deleted"

// controlling matches characters that no command may print.
var controlling = regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

// Names, owner references, annotations and finalizers come from any user who may write them. No command prints
// characters that control a terminal or begin a line, on stdout, on stderr or in an error. A new command needs a line
// here.
func TestNothingFromAClusterControlsATerminal(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := kubectls(t, p)[0]
	namespace := newNamespace(t, k)
	owner := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": hostile}
	create := func(metadata map[string]any) string {
		object, err := json.Marshal(map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": []any{},
		})
		if err != nil {
			t.Fatal(err)
		}
		out, errs, err := k.try(t, string(object), "create", "-n", namespace, "-f", "-", "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			t.Fatalf("%v %s", err, errs)
		}
		return out
	}
	outlives, err := json.Marshal([]map[string]string{{"apiVersion": "v1", "kind": "ConfigMap", "name": hostile}})
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]any{"coppice.dev/outlives": string(outlives)}
	labels := map[string]any{"coppice.dev/protect": "outlives"}
	owner["uid"] = create(map[string]any{"name": hostile, "annotations": annotations, "labels": labels})
	held := create(map[string]any{"name": "held" + hostile, "ownerReferences": []any{owner}, "finalizers": []any{"example.com/hold"}})
	t.Cleanup(func() {
		for _, name := range []string{hostile, "held" + hostile} {
			k.try(t, "", "patch", "-n", namespace, "role", name, "--type=merge", "-p", `{"metadata":{"finalizers":null,"labels":null,"annotations":null}}`)
		}
	})
	k.try(t, "", "delete", "-n", namespace, "role", "held"+hostile, "--wait=false")

	dir := t.TempDir()
	lines := map[string][][]string{
		"graph":     {{"-n", namespace}, {"-n", namespace, "-o", "dot"}, {"-n", namespace, "-o", "mermaid"}, {"-n", namespace, "-o", "svg"}, {"-n", namespace, "-o", "json"}, {"role/" + hostile}},
		"preview":   {{"delete", "ns", namespace}, {"delete", "ns", namespace, "-o", "tree"}, {"delete", "ns", namespace, "-o", "json"}, {"delete", "-n", namespace, "role", hostile, "-o", "dot"}, {"delete", "role", hostile}},
		"delete":    {{"-n", namespace, "role", hostile}, {"-n", namespace, "role", hostile, "--confirm", hostile}},
		"wait":      {{"-n", namespace, "role/held" + hostile, "--timeout", "3s"}, {"-n", namespace, "role/" + hostile}, {hostile}, {"--timeout", hostile}},
		"explain":   {{"ns/" + namespace}, {"-n", namespace, "role/held" + hostile}, {"-n", namespace, "role/" + hostile}, {"--all"}, {hostile}},
		"audit":     {{"-n", namespace}, {"-n", namespace, "-o", "json"}, {"-n", hostile}},
		"records":   {{}, {hostile}},
		"stories":   {{}, {hostile}, {held}},
		"status":    {{}, {hostile}},
		"protect":   {{"list"}, {"list", "-n", namespace}, {"-n", namespace, "role/" + hostile, "--mode", hostile}},
		"unprotect": {{"-n", namespace, "role/" + hostile + "x"}},
		"undo":      {{dir + "/" + hostile}, {"role/" + hostile}},
		"web":       {{hostile}, {"--address", hostile}},
		"mcp":       {{hostile}, {"--http-address", hostile}, {"--allow-delete", "--backup-dir", "/dev/null/" + hostile}},
		"snapshot":  {{hostile}},
		"collect":   {{hostile}, {"--kubeconfig", hostile}},
		"node":      {{hostile}, {"--kubeconfig", hostile}},
		"up":        {{hostile}, {"--bind-address", hostile}},
		"demo":      {{hostile}, {"--story", hostile}},
		"assets":    {{hostile}}, "version": {{hostile}}, "conformance": {{hostile}, {"--kubeconfig", hostile}},
		"help": {{hostile}}, "completion": {{hostile}},
	}
	for _, command := range commands(t) {
		if command == "kubectl" { // it escapes tables, and passes on what pods print
			continue
		}
		if _, ok := lines[command]; !ok {
			t.Errorf("coppice %s is not tried with a name that controls a terminal", command)
		}
	}
	named := false
	for command, all := range lines {
		for _, arguments := range inEachFormat(t, command, all) {
			c := exec.Command(binary, append([]string{command}, arguments...)...)
			c.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
			out, _ := c.CombinedOutput() // some fail, and name the argument
			if at := controlling.FindIndex(out); at != nil || !utf8.Valid(out) {
				t.Errorf("coppice %s %q controls the terminal at %v:\n%q", command, arguments, at, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(strings.TrimSpace(line), begun) {
					t.Errorf("coppice %s %q has a line that a name begins:\n%s", command, arguments, out)
				}
			}
			named = named || command == "graph" && strings.Contains(string(out), `a\u001b]0;PWN\u0007b\u009b31mc\u202ed\u007fe\u000df\n`+begun)
		}
	}
	if !named {
		t.Error("the graph does not show the name")
	}
}

// formatFlag finds the formats in the help of a command.
var formatFlag = regexp.MustCompile(`--output string +format[^:]*: ([a-z, ]+[a-z])`)

// inEachFormat returns the lines of a command, those without a format also with each format that its help names.
func inEachFormat(t *testing.T, command string, lines [][]string) [][]string {
	t.Helper()
	help := []string{command, "--help"}
	switch command {
	case "preview":
		help = []string{command, "delete", "--help"}
	case "protect": // the formats are those of its list
		help = []string{command, "list", "--help"}
	}
	out, err := exec.Command(binary, help...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(lines)
	found := formatFlag.FindStringSubmatch(string(out))
	if found == nil {
		if strings.Contains(string(out), "--output") {
			t.Errorf("coppice %s --help does not list its formats as others do:\n%s", command, out)
		}
		return all
	}
	for _, line := range lines {
		if slices.Contains(line, "-o") || command == "protect" && (len(line) == 0 || line[0] != "list") {
			continue
		}
		for format := range strings.FieldsSeq(strings.NewReplacer(",", " ", " or ", " ").Replace(found[1])) {
			all = append(all, slices.Concat(line, []string{"-o", format}))
		}
	}
	return all
}

// commands returns the names of all commands.
func commands(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(out), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	if !slices.Contains(names, "graph") {
		t.Fatalf("no commands in %s", out)
	}
	return names
}
