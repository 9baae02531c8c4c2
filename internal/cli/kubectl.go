package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
		Short: "kubectl, against the control plane that coppice up runs",
		Long: `kubectl itself, with all of its commands and flags. It talks to the control plane
that "coppice up" runs, or ran last, on the data directory $` + dataDirVariable + `, else
~/.local/share/coppice. It uses $KUBECONFIG instead where that file's current
context is one that "coppice up" wrote, and whatever --kubeconfig names.`,
		Example: `  coppice kubectl get namespaces
  coppice kubectl delete replicaset frontend --cascade=foreground`,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return runKubectl(args, s) },
	}
}

func runKubectl(args []string, s Streams) error {
	if err := chooseKubeconfig(args); err != nil {
		return err
	}
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
	// kubectl says what went wrong and ends the process with an exit code of its own.
	util.CheckErr(cli.RunNoErrOutput(command))
	return nil
}

// offline are the commands of kubectl that need no server.
var offline = []string{"completion", "__complete", "__completeNoDesc", "config", "help", "kustomize", "options", "plugin", "version"} //nolint:gochecknoglobals // a constant list

// chooseKubeconfig points kubectl at our control plane, unless args name another.
func chooseKubeconfig(args []string) error {
	for _, a := range args {
		if strings.HasPrefix(a, "--kubeconfig") || a == "-s" || strings.HasPrefix(a, "--server") {
			return nil
		}
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

// isOurs tells whether a kubeconfig's current context is one that coppice up wrote.
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
