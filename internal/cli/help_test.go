package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/system"
)

// commands returns all commands except cobra's own.
func commands(of *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{of}
	for _, c := range of.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			all = append(all, commands(c)...)
		}
	}
	return all
}

// word matches a word of a command, or one in single quotes.
var word = regexp.MustCompile(`'[^']*'|\S+`)

// substitution matches a command substitution, and the rest of a line after the first pipe or redirection.
var substitution = regexp.MustCompile(`\$\([^)]*\)|[|>].*$`)

// TestExamplesInHelpHaveFlagsThatExist: every command has an example in its help, and the flags in it exist.
func TestExamplesInHelpHaveFlagsThatExist(t *testing.T) {
	for _, c := range commands(newRoot(Streams{})) {
		lines := 0
		for line := range strings.Lines(c.Example) {
			line = substitution.ReplaceAllString(strings.TrimSpace(line), "x")
			words, ok := strings.CutPrefix(line, "coppice ")
			if !ok {
				if line != "" && !strings.HasPrefix(line, "#") {
					t.Errorf("%s: the line %q of its example is neither a command nor a comment", c.CommandPath(), line)
				}
				continue
			}
			lines++
			var arguments []string
			for _, w := range word.FindAllString(words, -1) {
				arguments = append(arguments, strings.Trim(w, "'"))
			}
			command, args, err := newRoot(Streams{}).Find(arguments)
			if err == nil && command.HasParent() && !command.DisableFlagParsing {
				err = command.ParseFlags(args)
			}
			if err != nil || !command.HasParent() {
				t.Errorf("%s: the example %q is no command line: %v", c.CommandPath(), line, err)
			}
		}
		if lines == 0 {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short help is %q", c.CommandPath(), c.Short)
		}
	}
}

// TestShellCompletionOffersValues asks for completions as a shell does.
func TestShellCompletionOffersValues(t *testing.T) {
	atHome(t)
	for _, test := range []struct {
		line []string
		want string // a line of the output; "" if it consists of the directive only
	}{
		{[]string{""}, "collect\tRun the garbage collector against any Kubernetes-style API server"},
		{[]string{"snap"}, "snapshot\tSave all objects of a control plane to a file, and restore them"},
		{[]string{"snapshot", "r"}, "restore\tMake a new data directory from a saved file"},
		{[]string{"collect", "--observe"}, "--observe-only\tdecide, log and record, but change nothing on the server"},
		{[]string{"collect", "--log-format", ""}, "json"},
		{[]string{"collect", "--controllers", ""}, "namespace"},
		{[]string{"up", "--controllers", ""}, "workloads"},
		{[]string{"up", "--node-runtime", ""}, "cri"},
		{[]string{"up", "--log-level", ""}, "debug"},
		{[]string{"up", "--disable-admission-plugins", ""}, system.OwnerReferencesPlugin},
		{[]string{"node", "--runtime", ""}, "cri"},
		{[]string{"demo", "--log-level", ""}, "warn"},
		{[]string{"demo", "--story", ""}, "foreground\tForeground deletion"},
		{[]string{"graph", "--output", ""}, "svg"},
		{[]string{"audit", "--output", ""}, "junit"},
		{[]string{"preview", "delete", "--cascade", ""}, "orphan"},
		{[]string{"delete", "--conf"}, "--confirm\tdigest of the preview"},
		{[]string{"wait", "--output", ""}, "yaml"},
		{[]string{"version", "--output", ""}, "yaml"},
		{[]string{"kubectl", "api-v"}, "api-versions\tPrint the supported API versions on the server, in the form of \"group/version\""},
		{[]string{"kubectl", "delete", "--casc"}, "--cascade"},
	} {
		got := run(t, append([]string{cobra.ShellCompRequestCmd}, test.line...)...)
		lines := strings.Split(got.out, "\n")
		if got.code != ExitOK || !slices.ContainsFunc(lines, func(line string) bool {
			return line == test.want || strings.HasPrefix(line, test.want+"\t")
		}) {
			t.Errorf("%q: exit code %d, %q, want the line %q", test.line, got.code, got.out, test.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, "completion", shell); got.code != ExitOK || !strings.Contains(got.out, "coppice") {
			t.Errorf("completion %s: %+v", shell, got)
		}
	}
}

// TestDeprecatedFlag: the former name of --namespace-deletion-order still works.
func TestDeprecatedFlag(t *testing.T) {
	for _, name := range []string{"collect", "up"} {
		c, _, err := newRoot(Streams{}).Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		c.Flags().SetOutput(new(strings.Builder))
		if err := c.ParseFlags([]string{"--namespace-waves=secrets;*"}); err != nil {
			t.Fatal(err)
		}
		if got := c.Flag("namespace-deletion-order").Value.String(); got != "secrets;*" {
			t.Errorf("coppice %s: the order is %q", name, got)
		}
		if strings.Contains(c.Flags().FlagUsages(), "--namespace-waves") {
			t.Errorf("the help of coppice %s shows the deprecated flag", name)
		}
	}
}
