package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/system/assets"
	"github.com/coppice-dev/coppice/internal/system/assets/role"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

func newAssets(s Streams) *cobra.Command {
	var dir string
	var collect bool
	var settings assets.Settings
	c := &cobra.Command{
		Use:   "assets",
		Short: "Make a directory with kube-apiserver, etcd and kubectl for test frameworks",
		Long: `Makes a directory with kube-apiserver, etcd and kubectl, each of which is this binary
under another name, and prints its path. Test frameworks such as controller-runtime's
envtest start a control plane from it. The directory is made once, and anew when the
binary changes.

    export KUBEBUILDER_ASSETS=$(coppice assets)
    go test ./...

Suites run unchanged: as with kube-apiserver alone, no controller deletes owned objects or
the contents of namespaces. With --collect, the garbage collector and the namespace
controller run, so that a suite can test which objects are deleted.

With --kubernetes 1.35, kube-apiserver reports that minor of Kubernetes, serves the resources
and fields that it had, and has its feature gates.

--dir sets the directory. By default it is below coppice/assets in the user's cache
directory, under a name that is a digest of the binary.

If $COPPICE_CONTROLLERS is set, the controllers that it names run instead: none, or of gc,
namespace, protection, workloads and scheduler; and simulated nodes if $COPPICE_NODES is
their number. With $COPPICE_FAULTS, clients meet faults that a highly available kube-apiserver
may have, such as COPPICE_FAULTS=realistic (docs/faults.md). The flags of the API server:
kube-apiserver --help.`,
		Example: `  # In the cache directory of the user
  coppice assets

  # With a garbage collector and a namespace controller
  coppice assets --collect

  # As a kube-apiserver of Kubernetes 1.35
  coppice assets --kubernetes 1.35

  # In another directory, if the cache directory is read-only
  coppice assets --dir /tmp/assets`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the binary: %w", err)
			}
			if collect {
				settings.Controllers = assets.Collecting
			}
			if _, err := version.KubernetesOf(settings.Kubernetes); err != nil {
				return usageError{fmt.Errorf("--kubernetes: %w", err)}
			}
			made, err := assets.Make(dir, binary, settings)
			if err != nil {
				return err
			}
			_, err = io.WriteString(s.Out, made+"\n")
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "directory to make (default: one below coppice/assets in the user's cache directory)")
	c.Flags().BoolVar(&collect, "collect", false, "run the garbage collector and the namespace controller in kube-apiserver")
	c.Flags().StringVar(&settings.Kubernetes, "kubernetes", "", "minor of Kubernetes whose API is served: "+strings.Join(version.Minors(), ", ")+" (default: the last one)")
	completeWith(c, "kubernetes", version.Minors()...)
	// The only error is that there is no such flag.
	_ = c.MarkFlagDirname("dir")
	return c
}

// RunAs runs the binary in the role of another program, by whose name it was called, and returns the exit code.
func RunAs(ctx context.Context, r role.Role, args []string, s Streams) int {
	var err error
	switch r {
	case role.Etcd:
		assets.RunEtcd(args)
	case role.Kubectl:
		util.CheckErr(cli.RunNoErrOutput(kubectlCommand(args, s)))
	case role.APIServer:
		s = s.shown()
		err = runAPIServer(ctx, args, s)
	case role.None:
		err = errors.New("it has no name")
	}
	if err != nil {
		terminal.Fprintf(s.Err, "%s: %s\n", r, oneLine(err))
		return ExitFailed
	}
	return ExitOK
}

// stopTimeout bounds the time that a server takes to stop after its parent process has ended.
const stopTimeout = 5 * time.Second

func runAPIServer(ctx context.Context, args []string, s Streams) error {
	parentEnded := assets.ParentEnded()
	settings, err := assets.SettingsBeside(os.Args[0])
	if err != nil {
		return err
	}
	a, err := assets.ParseAPIServer(args, os.Getenv, settings)
	if err != nil {
		return fmt.Errorf("%w; see kube-apiserver --help", err)
	}
	if a.Version {
		_, err := io.WriteString(s.Out, "Kubernetes "+a.Options.Version+"\n")
		return err
	}
	if err := emulate(a.Options.Version); err != nil {
		return err
	}
	notes, err := setFeatureGates(a.FeatureGates)
	if err != nil {
		return err
	}
	for _, note := range append(a.Notes, notes...) {
		terminal.Fprintf(s.Err, "%s: %s\n", role.APIServer, note)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if a.Options.Log, err = newLogger(ctx, s.Err, levelOf(a.Verbosity), "text"); err != nil {
		return err
	}
	if !assets.Outlives() {
		go func() {
			<-parentEnded
			stop()
			time.AfterFunc(stopTimeout, func() {
				assets.RemoveLeftovers(a.CertDir, false)
				os.Exit(ExitFailed)
			})
		}()
		defer func() {
			if isClosed(parentEnded) {
				assets.RemoveLeftovers(a.CertDir, false)
			}
		}()
	}
	return system.Run(ctx, a.Options, func(system.Plane) {})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// levelOf returns the log level for a value of kube-apiserver's --v.
func levelOf(verbosity int) string {
	switch {
	case verbosity >= 4:
		return "debug"
	case verbosity >= 2:
		return "info"
	}
	return "warn"
}

// emulate gives the feature gates of this process the defaults that they have in a version of Kubernetes.
func emulate(kubernetes string) error {
	v, err := utilversion.ParseSemantic(kubernetes)
	if err != nil {
		return fmt.Errorf("version %q: %w", kubernetes, err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetEmulationVersion(utilversion.MajorMinor(v.Major(), v.Minor())); err != nil {
		return fmt.Errorf("set the feature gates of %s: %w", kubernetes, err)
	}
	return nil
}

// setFeatureGates sets the gates that exist, and returns a line for each unknown one.
func setFeatureGates(gates map[string]bool) (notes []string, err error) {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	there := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if _, ok := known[featuregate.Feature(name)]; ok {
			there[name] = gates[name]
			continue
		}
		notes = append(notes, fmt.Sprintf("--feature-gates=%s has no effect: the server has no such gate", name))
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(there); err != nil {
		return nil, fmt.Errorf("--feature-gates: %w", err)
	}
	return notes, nil
}
