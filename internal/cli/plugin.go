package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// The names by which kubectl runs the binary as its plugin: for "kubectl coppice …", and for the shell's
// completion of that.
const (
	pluginName         = "kubectl-coppice"
	pluginCompleteName = "kubectl_complete-coppice"
	pluginCommand      = "kubectl coppice"
)

// baseName returns the name of a program from the path that it was called by.
func baseName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".exe") }

// isPlugin reports whether kubectl runs the binary as its plugin.
func isPlugin(program string) bool {
	name := baseName(program)
	return name == pluginName || name == pluginCompleteName
}

// pluginArguments returns the command line that kubectl means. For completion it passes the words, the
// last of which is incomplete, and reads what the hidden command of cobra prints.
func pluginArguments(program string, args []string) []string {
	if baseName(program) == pluginCompleteName {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// asPlugin has the help say how the commands are called through kubectl.
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
