package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// serverFlags are the flags of commands that use an API server in another process.
type serverFlags struct {
	kubeconfig string
	context    string
	logLevel   string
	logFormat  string
}

// add adds the flags; kubeconfigUsage is the usage of --kubeconfig.
func (f *serverFlags) add(c *cobra.Command, kubeconfigUsage string) {
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVar(&f.logLevel, "log-level", "info", logLevelUsage)
	flags.StringVar(&f.logFormat, "log-format", "text", "format of the log: text or json")
	completeWith(c, "log-level", logLevels()...)
	completeWith(c, "log-format", "text", "json")
}

// loadConfig reads the kubeconfig.
func (f *serverFlags) loadConfig() (config *rest.Config, source string, err error) {
	return loadConfig(f.kubeconfig, f.context)
}

// server is an API server in another process.
type server struct {
	config   *rest.Config
	source   string // of config, for messages
	client   kubernetes.Interface
	metadata metadata.Interface
	log      *slog.Logger
}

// connect returns the server that the flags name after it has responded.
func (f *serverFlags) connect(ctx context.Context, log *slog.Logger) (*server, error) {
	config, source, err := f.loadConfig()
	if err != nil {
		return nil, err
	}
	s, err := newServer(config, source, log)
	if err != nil {
		return nil, err
	}
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// newServer creates the clients for the checks before a command begins.
func newServer(config *rest.Config, source string, log *slog.Logger) (*server, error) {
	checking := rest.CopyConfig(config)
	checking.QPS, checking.Timeout, checking.UserAgent = -1, requestTimeout, "coppice"
	checking.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(checking)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	objects, err := metadata.NewForConfig(checking)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return &server{config: config, source: source, client: client, metadata: objects, log: log}, nil
}

// unlessStopped returns err, or nil if ctx has ended: it is no failure if the user stops a command.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
