package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/cli/demo"
	"github.com/coppice-dev/coppice/internal/cli/demo/stage"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// playInBrowser plays stories to a user who opens a link, and serves the page until ctx ends.
func playInBrowser(ctx context.Context, f demoFlags, p system.Plane, stories []demo.Story, s Streams) error {
	watching := stage.NewBrowser(stories)
	c, err := stageFor(p, watching)
	if err != nil {
		return err
	}
	c.Audience = watching
	config := rest.CopyConfig(p.Config)
	config.Timeout = 0 // requests have contexts
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("find the address of the control plane: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	server := page.NewLinkServer(page.LinkConfig{
		Target: target, Transport: transport, Changes: changesOfPage(), Demo: watching, DemoPath: stage.BrowserPath,
		Now: time.Now,
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLinks(ctx, server, f.port, f.open, s) })
	group.Go(func() error {
		for n, story := range stories {
			watching.Begin(n)
			err := play(ctx, c, story)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // Ctrl-C is how a demo in a browser ends
			}
			if err != nil {
				watching.End(capitalized(oneLine(err)) + ".")
				return err
			}
			if n < len(stories)-1 {
				watching.Rest(ctx)
			}
		}
		watching.End("That was the last story. Everything happened as announced.")
		return nil
	})
	return group.Wait()
}

// capitalized returns a text that begins with a capital letter.
func capitalized(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
