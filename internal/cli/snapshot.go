package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

func newSnapshot(s Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save all objects of a control plane to a file, and restore them",
		Long: `Saves the contents of a control plane's etcd to a file, and makes a new data directory from
such a file. The control plane may run; an embedded etcd may also be stopped. docs/storage.md
describes how to restore an etcd cluster of --etcd-servers.`,
		Example: `  coppice snapshot save /backup/monday.db
  coppice snapshot restore /backup/monday.db --data-dir ~/restored`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSnapshotSave(s), newSnapshotRestore(s))
	return c
}

func newSnapshotSave(s Streams) *cobra.Command {
	var kubeconfig, dir string
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all objects to a file",
		Long: `Writes all objects, Secrets included, to FILE, which only its owner can read. The file has
every write that the server acknowledged before the command began. If the control plane on
--data-dir runs, it serves the snapshot. --kubeconfig names another control plane, and needs
the right to get the path ` + system.SnapshotPath + `, which cluster-admin has.

The file has no keys. Keep a copy of the directory pki in the data directory, too: with it, a
restored control plane accepts the same certificates.`,
		Example: `  # The control plane on the default data directory
  coppice snapshot save /backup/monday.db

  # Another control plane
  coppice snapshot save /backup/monday.db --kubeconfig production.kubeconfig`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			return saveSnapshot(c.Context(), s.Out, args[0], kubeconfig, dir)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the control plane (default: the one in --data-dir)")
	c.Flags().StringVar(&dir, "data-dir", "", "data directory of the control plane (default: $"+dataDirVariable+", else ~/.local/share/coppice)")
	return c
}

func newSnapshotRestore(s Streams) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a new data directory from a saved file",
		Long: `Makes a data directory for "coppice up" from FILE. The directory must not exist, or contain
only a copy of the directory pki of the saved control plane. Without that copy, the restored
control plane makes new keys.

The restored objects get revisions that were never used before, so that no client mistakes
them for older versions: watches start again, and collectors verify again which owners are
gone.`,
		Example: `  coppice snapshot restore /backup/monday.db --data-dir ~/restored
  coppice up --data-dir ~/restored`,
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if dir == "" {
				return usageError{errors.New("--data-dir must name the directory to restore to")}
			}
			if err := system.RestoreSnapshot(args[0], dir); err != nil {
				return err
			}
			terminal.Fprintf(s.Out, "restored %s: coppice up --data-dir %s\n", args[0], escape.Shell(dir))
			return nil
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "data directory to make")
	return c
}

// oneFile rejects arguments other than the name of one file.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%s takes the name of one file; see %s --help", c.CommandPath(), c.CommandPath())}
	}
	return nil
}

func saveSnapshot(ctx context.Context, out io.Writer, file, kubeconfig, dir string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if kubeconfig == "" {
		if dir == "" {
			var err error
			if dir, err = dataDir(); err != nil {
				return err
			}
		}
		err := system.SaveSnapshot(ctx, dir, file)
		if !errors.Is(err, system.ErrRunning) {
			return saved(out, file, err)
		}
		kubeconfig = system.KubeconfigPath(dir)
	} else if dir != "" {
		return usageError{errors.New("--kubeconfig and --data-dir both name a control plane: choose one")}
	}
	config, _, err := loadConfig(kubeconfig, "")
	if err != nil {
		return err
	}
	return saved(out, file, fetchSnapshot(ctx, config, file))
}

func saved(out io.Writer, file string, err error) error {
	if err == nil {
		terminal.Fprintf(out, "saved %s\n", file)
	}
	return err
}

// fetchSnapshot fetches the snapshot from a running control plane.
func fetchSnapshot(ctx context.Context, config *rest.Config, file string) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+system.SnapshotPath, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", config.Host, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("cannot reach %s: %w", config.Host, ask.CauseOf(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s gives no snapshot: %s: %s", config.Host, response.Status, strings.TrimSpace(string(why)))
	}
	return system.CopySnapshot(file, response.Body)
}
