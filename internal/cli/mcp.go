package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/mcpserver"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// mcpFlags are the flags of coppice mcp.
type mcpFlags struct {
	cluster  clusterFlags
	address  string // of a running collector
	deletion mcpDeletion
	http     mcpHTTP
	logLevel string
}

// mcpDeletion limits the deletions of agents.
type mcpDeletion struct {
	allowed   bool
	most      int
	backupDir string
	backupKey string
	without   acceptedLack
}

// usualMost is the default of --max for agents.
const usualMost = 100

func newMCP(s Streams) *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve previews and explanations of deletions to agents, over MCP",
		Long: `Serves tools to an agent over the Model Context Protocol, on stdin and stdout: preview, explain,
audit, graph, stories and wait. They read the cluster that kubectl would use, answer as the
commands of the same names do, and change nothing. Each answer has at most 6000 bytes; the
agent reads longer lists page by page.

With --allow-delete, there are two more tools. The tool delete makes a deletion that the same
session has previewed: it takes the digest of that preview and the same arguments, works
once, and deletes nothing if the cluster has changed since. It deletes at most --max objects,
a limit that the agent cannot change. The tool undo restores deleted objects. With
--backup-dir, each deletion is backed up first, and does not happen if that fails, or if the
backup is incomplete. --backup-without is as for "coppice preview delete".

The server has the rights of the kubeconfig: use one whose user may do no more than the agent
should do. Text from the cluster is data that other users wrote. The server escapes it, and
tells agents to follow no instructions in it.

With --http-address, the server serves HTTP at /mcp instead of stdin and stdout, to clients
that send the token of --token-file. Other addresses than loopback need a certificate.`,
		Example: `  # For the configuration of an agent: a server that changes nothing
  coppice mcp --context staging

  # Let the agent delete up to 20 objects at a time, each deletion with a backup
  coppice mcp --context staging --allow-delete --max 20 --backup-dir ~/coppice-backups

  # For clients over HTTP on this machine
  coppice mcp --http-address 127.0.0.1:8452`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return serveMCP(c, &f, s) },
	}
	f.cluster.kube = kubeFlags(c)
	f.cluster.kube.AddFlags(c.Flags())
	f.deletion.add(c)
	f.http.add(c)
	c.Flags().StringVar(&f.address, "address", "", orReadUsage)
	c.Flags().StringVar(&f.logLevel, "log-level", "info", logLevelUsage)
	completeWith(c, "log-level", logLevels()...)
	return c
}

func (f *mcpDeletion) add(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.allowed, "allow-delete", false, "also serve the tools delete and undo")
	flags.IntVar(&f.most, "max", usualMost, "limit of objects that a deletion or an undo may concern; 0 for none")
	flags.StringVar(&f.backupDir, "backup-dir", "", "directory for an encrypted backup of each deletion, for the tool undo")
	addKey(c, &f.backupKey)
	f.without.add(c)
}

// check returns an error if the flags contradict each other.
func (f *mcpFlags) check(c *cobra.Command) error {
	changes := []string{"max", "backup-dir", "backup-key", "backup-without"}
	for _, name := range changes {
		if c.Flags().Changed(name) && !f.deletion.allowed {
			return usageError{fmt.Errorf("--%s is for --allow-delete", name)}
		}
	}
	if f.deletion.most < 0 {
		return usageError{fmt.Errorf("--max %d is negative", f.deletion.most)}
	}
	if err := f.deletion.without.check("backup-dir", f.deletion.backupDir); err != nil {
		return err
	}
	return f.http.check()
}

// serveMCP serves one session on stdin and stdout, or sessions over HTTP.
func serveMCP(c *cobra.Command, f *mcpFlags, s Streams) error {
	if err := f.check(c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log, err := newLogger(ctx, s.Err, f.logLevel, "text")
	if err != nil {
		return err
	}
	server, err := f.server(log)
	if err != nil {
		return err
	}
	if f.http.address != "" {
		return f.http.serve(ctx, server, log)
	}
	in, isCloser := s.In.(io.ReadCloser)
	if !isCloser {
		in = io.NopCloser(s.In)
	}
	return server.Serve(ctx, in, protocolOutput{terminal.Own(s.Out)}) // which has JSON only
}

// protocolOutput is the output of the protocol. It is not closed, as it is not ours.
type protocolOutput struct{ io.Writer }

// Close implements io.Closer.
func (protocolOutput) Close() error { return nil }

// server returns the server for the flags. A configuration without a cluster is an error at the start.
func (f *mcpFlags) server(log *slog.Logger) (*mcpserver.Server, error) {
	if _, err := f.cluster.config(); err != nil {
		return nil, err
	}
	mode := mcpserver.ReadOnly
	if f.deletion.allowed {
		mode = mcpserver.Deleting
	}
	if dir := f.deletion.backupDir; dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("--backup-dir: %w", err)
		}
	}
	return mcpserver.New(mcpserver.Config{Cluster: &mcpCluster{f}, Mode: mode, Version: version.Version(), Log: log}), nil
}

// mcpHTTP are the flags of the server over HTTP.
type mcpHTTP struct{ address, tokenFile, certFile, keyFile string }

func (f *mcpHTTP) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.address, "http-address", "", "address and port to serve HTTP on, instead of stdin and stdout: 127.0.0.1:8452")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token of HTTP clients, made if missing (default: coppice/mcp.token in the user's configuration directory)")
	flags.StringVar(&f.certFile, "tls-cert-file", "", "certificate of the HTTP server, in PEM; needed beyond loopback")
	flags.StringVar(&f.keyFile, "tls-private-key-file", "", "key of that certificate, in PEM")
}

func (f *mcpHTTP) check() error {
	hasTLS := f.certFile != "" && f.keyFile != ""
	switch _, _, err := net.SplitHostPort(f.address); {
	case f.address == "" && strings.Join([]string{f.tokenFile, f.certFile, f.keyFile}, "") != "":
		return usageError{errors.New("--token-file, --tls-cert-file and --tls-private-key-file are for --http-address")}
	case f.address == "":
		return nil
	case err != nil:
		return usageError{fmt.Errorf("--http-address %s is not an address with a port, such as 127.0.0.1:8452", f.address)}
	case (f.certFile != "") != (f.keyFile != ""):
		return usageError{errors.New("--tls-cert-file and --tls-private-key-file go together")}
	case !hasTLS && !web.IsLoopbackAddress(f.address):
		return usageError{fmt.Errorf("--http-address %s is not an address of the loopback interface: clients elsewhere need --tls-cert-file and --tls-private-key-file, as they send a token", f.address)}
	}
	return nil
}

// serve serves sessions over HTTP until ctx ends.
func (f *mcpHTTP) serve(ctx context.Context, server *mcpserver.Server, log *slog.Logger) error {
	token, path, err := f.token()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --http-address", f.address, ask.CauseOf(err))
	}
	handler, scheme := server.RemoteHandler(token), "https://"
	if web.IsLoopbackAddress(f.address) {
		handler = server.Handler(token)
	}
	if f.certFile == "" {
		scheme = "http://"
	} else if listener, err = withTLS(listener, f.certFile, f.keyFile); err != nil {
		return err
	}
	log.InfoContext(ctx, "serving agents", "address", scheme+listener.Addr().String()+mcpserver.Path, "tokenFile", path)
	return serveOn(listener, http.MaxBytesHandler(handler, 1<<20))(ctx)
}
