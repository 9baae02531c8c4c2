package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// webTimeout bounds the request that finds out whether a collector answers.
const webTimeout = 10 * time.Second

// webFlags are the flags of coppice web.
type webFlags struct {
	ask  collectorFlags
	port int
	open bool
}

func newWeb(s Streams) *cobra.Command {
	var f webFlags
	c := &cobra.Command{
		Use:   "web",
		Short: "Watch deletions in a browser",
		Long: `Serves a page on loopback, and prints a link that opens it once. The page shows deletions,
their reasons and the causes of waiting; it previews a deletion, and shows problems of the
collector. It shows only objects that you may list: this process adds the credentials of your
kubeconfig to the page's requests, and keeps the credentials to itself.

The answer comes from the API server that kubectl would use if "coppice up" runs it, and from
the "coppice collect" at --address otherwise, which authenticates you through its API server.

On a terminal, Enter prints another link. Ctrl-C ends the command, and all opened pages with
it.`,
		Example: `  # A link to open in a browser on this machine
  coppice web

  # With the collector of a cluster, as a service account
  coppice kubectl -n coppice-system port-forward deployment/coppice 10270
  coppice web --address http://` + web.DefaultAddress + ` --token "$(kubectl create token reader)"`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return serveWeb(c.Context(), f, s) },
	}
	f.ask.addServer(c)
	flags := c.Flags()
	flags.IntVar(&f.port, "port", 0, "port of loopback to serve on; 0 picks a free one")
	flags.BoolVar(&f.open, "open", false, "open the link in a browser; other users of this machine may see it in the list of processes")
	return c
}

func serveWeb(ctx context.Context, f webFlags, s Streams) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	collector, err := f.ask.client()
	if err != nil {
		return err
	}
	checked, cancel := context.WithTimeout(ctx, webTimeout)
	defer cancel()
	if _, err := collector.Status(checked); err != nil {
		return err
	}
	server := page.NewLinkServer(page.LinkConfig{
		Target: collector.Server, Transport: collector.Client.Transport, Changes: changesOfPage(),
		Now: time.Now,
	})
	return serveLinks(ctx, server, f.port, f.open, s)
}

// changesOfPage returns the paths of requests by which the page changes something.
func changesOfPage() []string { return []string{api.Prefix + "/resume"} }

// serveLinks serves the page until ctx ends, and prints its address.
func serveLinks(ctx context.Context, server *page.LinkServer, port int, isToOpen bool, s Streams) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listen on port %d of loopback: %w; choose another one with --port", port, ask.CauseOf(err))
	}
	host := listener.Addr().String()
	address := server.Link(host)
	terminal.Fprintf(s.Out, "open %s\n", address)
	if isToOpen {
		if err := openInBrowser(ctx, address); err != nil {
			terminal.Fprintf(s.Err, "no browser could be opened: %s\n", oneLine(err))
		}
	}
	if file, ok := s.In.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(s.Out, "The link works once, in a browser on this machine. Enter makes another, Ctrl-C ends.")
		go moreLinks(file, s.Out, func() string { return server.Link(host) })
	}
	return serveOn(listener, server.Handler(host))(ctx)
}

// moreLinks prints a link for each input line.
func moreLinks(in io.Reader, out io.Writer, newLink func() string) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		terminal.Fprintf(out, "open %s\n", newLink())
	}
}

// openInBrowser opens an address in the user's default browser.
func openInBrowser(ctx context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return errors.New(name + " is not installed")
	}
	command := exec.CommandContext(ctx, path, args...)
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = command.Wait() }() // the exit code of the browser does not matter
	return nil
}
