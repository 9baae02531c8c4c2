package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/coppice-dev/coppice/internal/system"
)

func newKubectl(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Run kubectl against the control plane of coppice up",
		Long: `Runs the built-in kubectl, with all of its commands and flags. It uses the control plane
that "coppice up" runs, or last ran, on the data directory $` + dataDirVariable + `, or
else ~/.local/share/coppice. If the current context of $KUBECONFIG was written by
"coppice up", it uses that file instead. --kubeconfig takes precedence over both.`,
		Example: `  coppice kubectl get namespaces
  coppice kubectl delete replicaset frontend --cascade=foreground`,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return runKubectl(args, s) },
		ValidArgsFunction: func(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeKubectl(args, toComplete)
		},
	}
}

func runKubectl(args []string, s Streams) error {
	if err := chooseKubeconfig(args); err != nil {
		return err
	}
	// kubectl prints the error and exits with an exit code of its own.
	util.CheckErr(cli.RunNoErrOutput(kubectlCommand(args, s)))
	return nil
}

// kubectlCommand returns the kubectl command for a command line.
func kubectlCommand(args []string, s Streams) *cobra.Command {
	command := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		PluginHandler: kubectl.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     append([]string{"kubectl"}, args...),
		ConfigFlags:   genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50),
		IOStreams:     genericiooptions.IOStreams{In: s.In, Out: s.Out, ErrOut: s.Err},
	})
	command.SetArgs(args)
	command.SetIn(s.In)
	command.SetOut(s.Out)
	command.SetErr(s.Err)
	return command
}

// completeKubectl asks kubectl how a shell may complete its command line. The output is one line
// per completion, and a last line with the directive after a colon.
func completeKubectl(args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	args = append(append([]string{cobra.ShellCompRequestCmd}, args...), toComplete)
	if err := chooseKubeconfig(args); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out bytes.Buffer
	if err := kubectlCommand(args, Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard}).Execute(); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	text, directive, found := cutLast(strings.TrimSuffix(out.String(), "\n"), ":")
	number, err := strconv.Atoi(directive)
	if !found || err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), cobra.ShellCompDirective(number)
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// offline lists the commands of kubectl that need no server.
var offline = []string{"completion", "__complete", "__completeNoDesc", "config", "help", "kustomize", "options", "plugin", "version"}

// chooseKubeconfig points kubectl at our control plane, unless args name another server.
func chooseKubeconfig(args []string) error {
	args = ownOf(args)
	if slices.ContainsFunc(args, namesServer) {
		return nil
	}
	if isOurs(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		return nil
	}
	dir, err := dataDir()
	if err != nil {
		return err
	}
	path := system.KubeconfigPath(dir)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !isOffline(args) {
		return fmt.Errorf("no control plane has run on %s: start one with \"coppice up\", or name its data directory in $%s", dir, dataDirVariable)
	}
	return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
}

// ownOf returns the arguments that kubectl reads itself: those behind "--" are the command line of a container.
func ownOf(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// namesServer reports whether an argument is a flag of kubectl that names another server: --server is one, --server-side
// is not.
func namesServer(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == "--kubeconfig" || name == "--server" || strings.HasPrefix(arg, "-s")
}

// isOurs reports whether the current context of a kubeconfig was written by coppice up.
func isOurs(path string) bool {
	if path == "" {
		return false
	}
	config, err := clientcmd.LoadFromFile(path)
	return err == nil && config.CurrentContext == system.ContextName
}

func isOffline(args []string) bool {
	return len(args) == 0 || slices.Contains(offline, args[0]) || slices.Contains(args, "--help") || slices.Contains(args, "-h")
}
