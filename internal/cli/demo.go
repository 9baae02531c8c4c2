package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/cli/demo"
	"github.com/coppice-dev/coppice/internal/cli/demo/stage"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

const (
	// demoNodes is the number of simulated nodes for the pods of a story.
	demoNodes = 3
	// demoPause is the pause before and after each command.
	demoPause = time.Second
	// demoTimeout bounds a step of a story; a step takes 3 s.
	demoTimeout = 2 * time.Minute
)

// demoFlags are the flags of coppice demo.
type demoFlags struct {
	stories  []string
	list     bool
	plain    bool
	web      bool
	port     int
	open     bool
	logLevel string
}

func newDemo(s Streams) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play the main kinds of deletion on a control plane of its own",
		Long: `Plays the main kinds of deletion in less than a minute. For each step it announces the
outcome, prints the kubectl command, and draws the tree of owners and dependents while it
changes. The demo starts its own control plane on loopback, with simulated nodes, and leaves
nothing behind. After each step it checks the announced outcome on the server; the exit
code is 1 if an outcome differs.

With --web it plays the deletions in a browser: it first asks you for the outcome, then shows
the deletion, and then compares the two. It prints a link that opens once. Ctrl-C ends it.`,
		Example: `  # All stories, in a terminal
  coppice demo

  # Two stories, with a line per change instead of the tree
  coppice demo --story foreground --story orphan --plain

  # In a browser
  coppice demo --web`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runDemo(c.Context(), f, s) },
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.stories, "story", nil, "play only this story; may be repeated (see --list)")
	flags.BoolVar(&f.list, "list", false, "list the stories and play none")
	flags.BoolVar(&f.plain, "plain", false, "print a line per change and do not pause; the default when stdout is not a terminal")
	flags.BoolVar(&f.web, "web", false, "play the stories in a browser, and ask for each outcome first")
	flags.IntVar(&f.port, "port", 0, "with --web: port of loopback to serve the page on; 0 picks a free one")
	flags.BoolVar(&f.open, "open", false, "with --web: open the link in a browser, too")
	flags.StringVar(&f.logLevel, "log-level", "error", "level of the control plane's log, on stderr: debug, info, warn or error")
	completeWith(c, "log-level", logLevels()...)
	completeWith(c, "story", storyNames()...)
	return c
}

// storyNames returns the names of the stories, each with its title for shell completion.
func storyNames() []string {
	var names []string
	for _, story := range demo.Stories() {
		names = append(names, story.Name+"\t"+story.Title)
	}
	return names
}

func runDemo(ctx context.Context, f demoFlags, s Streams) error {
	if f.list {
		for _, story := range demo.Stories() {
			terminal.Fprintf(s.Out, "%-12s%s\n", story.Name, story.Title)
		}
		return nil
	}
	stories, unknown := demo.Choose(f.stories)
	if unknown != "" {
		return usageError{fmt.Errorf("--story %q: there is no such story; see coppice demo --list", unknown)}
	}
	if !f.web && (f.port != 0 || f.open) {
		return usageError{errors.New("--port and --open are for --web")}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, done := context.WithCancel(ctx)
	defer done()
	log, err := newLogger(ctx, s.Err, f.logLevel, "text")
	if err != nil {
		return err
	}
	played := errors.New("stopped before it began")
	var playing sync.WaitGroup // of nothing, if a signal ends the control plane before it is ready
	err = system.Run(ctx, system.Options{
		Ephemeral: true, AuditPath: system.NoAuditLog, Nodes: nodeconfig.Options{Nodes: demoNodes}, Scheduler: true, Version: version.Kubernetes(), Log: log,
	}, func(p system.Plane) {
		playing.Go(func() {
			defer done()
			if f.web {
				played = playInBrowser(ctx, f, p, stories, s)
				return
			}
			played = playAll(ctx, p, stories, newScreen(f.plain, s.Out))
		})
		terminal.Fprintf(s.Out, "A control plane with %d simulated nodes, ready in %.1f s. Ctrl-C ends the demo.\n", demoNodes, p.Started.Seconds())
	})
	if err != nil {
		return err
	}
	playing.Wait()
	return played
}

// screen is the output of a demo.
type screen struct {
	stage.Display
	leave func() // called at the end of each story
}

// newScreen returns a screen that draws a tree if out is a capable terminal and plain is not set.
func newScreen(plain bool, out io.Writer) screen {
	file := terminal.File(out)
	if plain || file == nil || os.Getenv("TERM") == "dumb" {
		return screen{stage.Plain{Out: out}, func() {}}
	}
	drawn := &stage.Terminal{Out: terminal.Own(out), PauseTime: demoPause, Size: func() (columns, lines int) {
		columns, lines, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 80, 24
		}
		return columns, lines
	}}
	return screen{drawn, drawn.Leave}
}

// playAll plays stories one after the other until one fails.
func playAll(ctx context.Context, p system.Plane, stories []demo.Story, show screen) error {
	c, err := stageFor(p, show)
	if err != nil {
		return err
	}
	for i, story := range stories {
		show.Say("", fmt.Sprintf("── %d/%d  %s (namespace %s)", i+1, len(stories), story.Title, story.Namespace))
		if err := play(ctx, c, story); err != nil {
			return err
		}
		show.leave()
	}
	show.Say("", fmt.Sprintf("Everything happened as announced. Stories played: %d.", len(stories)))
	return nil
}

// play plays a story.
func play(ctx context.Context, c stage.Config, story demo.Story) error {
	err := stage.Play(ctx, c, story)
	if err != nil && ctx.Err() != nil {
		return errors.New("the demo was stopped before its end")
	}
	return err
}

// stageFor returns the configuration with which stories are played on a control plane.
func stageFor(p system.Plane, display stage.Display) (c stage.Config, err error) {
	c = stage.Config{Display: display, Timeout: demoTimeout}
	if c.Client, err = kubernetes.NewForConfig(p.Config); err != nil {
		return c, fmt.Errorf("create a client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(p.Config); err != nil {
		return c, fmt.Errorf("create a client: %w", err)
	}
	c.Kubectl, err = kubectlFor(p)
	return c, err
}

// kubectlFor returns a function that runs this program's kubectl in a separate process against a
// control plane. Its files are in the control plane's directory.
func kubectlFor(p system.Plane) (func(context.Context, string, []string) (string, error), error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find kubectl: %w", err)
	}
	home := filepath.Join(filepath.Dir(p.Kubeconfig), "demo")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for kubectl: %w", err)
	}
	manifests, err := demo.Manifests()
	if err != nil {
		return nil, err
	}
	for name, data := range manifests {
		if err := os.WriteFile(filepath.Join(home, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write a manifest: %w", err)
		}
	}
	return func(ctx context.Context, namespace string, args []string) (string, error) {
		kubeconfig := filepath.Join(home, namespace+".kubeconfig")
		if err := kubeconfigIn(p.Kubeconfig, kubeconfig, namespace); err != nil {
			return "", err
		}
		command := exec.CommandContext(ctx, program, append([]string{"kubectl"}, args...)...)
		command.Dir = home
		command.Env = append(os.Environ(), clientcmd.RecommendedConfigPathEnvVar+"="+kubeconfig, "KUBECACHEDIR="+filepath.Join(home, "cache"))
		out, err := command.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, cmp.Or(strings.TrimSpace(string(out)), "no output"))
		}
		return string(out), nil
	}, nil
}

// kubeconfigIn writes a copy of a kubeconfig with the given default namespace.
func kubeconfigIn(of, path, namespace string) error {
	config, err := clientcmd.LoadFromFile(of)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
