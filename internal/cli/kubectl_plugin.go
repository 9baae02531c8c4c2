package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// The names under which kubectl runs the binary as its plugin: for "kubectl coppice …", and for the completion of
// that command line in a shell.
const (
	pluginName         = "kubectl-coppice"
	pluginCompleteName = "kubectl_complete-coppice"
	pluginCommand      = "kubectl coppice"
)

// baseName returns the name of a program from its path.
func baseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".exe") }

// isPlugin reports whether kubectl runs the binary as its plugin.
func isPlugin(program string) bool {
	name := baseName(program)
	return name == pluginName || name == pluginCompleteName
}

// pluginArguments returns the command line of a plugin. For completion, kubectl passes the words, of which the last is
// incomplete, and reads the output of cobra's hidden command.
func pluginArguments(program string, args []string) []string {
	if baseName(program) == pluginCompleteName {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// asPlugin makes the help show the commands as they are called through kubectl.
func asPlugin(root *cobra.Command) {
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = pluginCommand
	withPluginExamples(root)
}

func withPluginExamples(c *cobra.Command) {
	lines := strings.Split(c.Example, "\n")
	for n, line := range lines {
		if rest, ok := strings.CutPrefix(line, "  coppice "); ok {
			lines[n] = "  " + pluginCommand + " " + rest
		}
	}
	c.Example = strings.Join(lines, "\n")
	for _, below := range c.Commands() {
		withPluginExamples(below)
	}
}
