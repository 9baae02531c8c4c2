package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// clusterFlags are the flags of the commands that read a whole cluster. They are kubectl's.
type clusterFlags struct {
	kube          *genericclioptions.ConfigFlags
	allNamespaces bool
}

func (f *clusterFlags) add(c *cobra.Command) {
	f.kube = kubeFlags(c)
	f.kube.AddFlags(c.Flags())
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "all namespaces, not only the current one")
}

// addServer adds the flags of a command that concerns a server, and not the objects in a namespace.
func (f *clusterFlags) addServer(c *cobra.Command) {
	f.kube = kubeFlags(c)
	f.kube.Namespace = nil
	f.kube.AddFlags(c.Flags())
}

// kubeFlags returns kubectl's flags. Warnings of the server go to the command's stderr, each once: client-go's log
// would not escape them.
func kubeFlags(c *cobra.Command) *genericclioptions.ConfigFlags {
	kube := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.WarningHandler = rest.NewWarningWriter(c.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
		return config
	})
	kube.CacheDir, kube.DisableCompression = nil, nil // there is no cache, and the server decides about the compression of lists
	return kube
}

// within returns flags for the same user and server in another namespace; an empty one leaves the namespace.
func (f *clusterFlags) within(namespace string) clusterFlags {
	from, to := f.kube, genericclioptions.NewConfigFlags(true)
	to.CacheDir, to.DisableCompression, to.WrapConfigFn = nil, nil, from.WrapConfigFn
	to.KubeConfig, to.ClusterName, to.AuthInfoName, to.Context, to.Namespace = from.KubeConfig, from.ClusterName, from.AuthInfoName, from.Context, from.Namespace
	to.APIServer, to.TLSServerName, to.Insecure, to.CAFile = from.APIServer, from.TLSServerName, from.Insecure, from.CAFile
	to.CertFile, to.KeyFile, to.BearerToken, to.Username, to.Password = from.CertFile, from.KeyFile, from.BearerToken, from.Username, from.Password
	to.Impersonate, to.ImpersonateUID, to.ImpersonateGroup, to.ImpersonateUserExtra = from.Impersonate, from.ImpersonateUID, from.ImpersonateGroup, from.ImpersonateUserExtra
	to.Timeout, to.ProxyURL = from.Timeout, from.ProxyURL
	if namespace != "" {
		to.Namespace = &namespace
	}
	return clusterFlags{kube: to, allNamespaces: f.allNamespaces}
}

// config returns the client configuration for the server.
func (f *clusterFlags) config() (*rest.Config, error) {
	config, err := f.kube.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find an API server: %w; name a kubeconfig with --kubeconfig or $KUBECONFIG", err)
	}
	return config, nil
}

// namespace returns the namespace of the named objects; empty for all namespaces.
func (f *clusterFlags) namespace() (string, error) {
	if f.allNamespaces {
		return "", nil
	}
	namespace, _, err := f.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the current namespace: %w", err)
	}
	return namespace, nil
}

// confined returns the namespace to which --namespace confines an answer about all objects; empty for all namespaces,
// which is the default.
func (f *clusterFlags) confined() string {
	if f.allNamespaces {
		return ""
	}
	return *f.kube.Namespace
}

// sources returns the sources of answers: the cluster, and a collector at an address. progress shows the progress of
// reading the cluster; it may be nil.
func (f *clusterFlags) sources(address string, progress func(p reader.Progress, isDone bool)) (*ask.Sources, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	return &ask.Sources{Config: config, Namespace: namespace, Address: address, Progress: progress, Now: time.Now}, nil
}

// readingOn returns a function that shows the progress of a reading on a terminal; nil if stderr is no terminal.
func readingOn(s Streams) func(p reader.Progress, isDone bool) {
	if terminal.File(s.Err) == nil {
		return nil
	}
	own := terminal.Own(s.Err)
	return func(p reader.Progress, isDone bool) {
		if isDone {
			fmt.Fprint(own, "\r\033[K")
			return
		}
		fmt.Fprintf(own, "\r\033[Kreading %d of %d resources, %d objects", p.Read, p.Resources, p.Objects)
	}
}

// collectorFlags are the flags of the commands that ask a running collector.
type collectorFlags struct {
	cluster clusterFlags
	address string
}

const addressUsage = `URL of a running collector, such as http://` + web.DefaultAddress + ` for "coppice collect"; it gets your token`

func (f *collectorFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	f.addAddress(c)
}

// addServer adds the flags of a command whose answer is not about the objects in a namespace.
func (f *collectorFlags) addServer(c *cobra.Command) {
	f.cluster.addServer(c)
	f.addAddress(c)
}

func (f *collectorFlags) addAddress(c *cobra.Command) {
	c.Flags().StringVar(&f.address, "address", "", addressUsage+` (default: the API server of "coppice up")`)
}

// orReadUsage describes --address for the commands that read the cluster if there is no collector.
const orReadUsage = addressUsage + `; ` + ask.NoCollector + ` reads the cluster instead (default: the API server of "coppice up", else ` + ask.NoCollector + `)`

// client returns a client of the collector at the address, or of the API server if the address is empty.
func (f *collectorFlags) client() (*ask.Collector, error) {
	sources, err := f.cluster.sources(f.address, nil)
	if err != nil {
		return nil, err
	}
	return sources.Collector()
}

// maxUnread bounds the number of lines about resources that could not be read.
const maxUnread = 5

// printUnread lists the resources that could not be read, so that the user knows that the output is incomplete.
func printUnread(w io.Writer, unread []string) {
	for n, what := range unread {
		if n == maxUnread {
			terminal.Fprintf(w, "not read: %d more\n", len(unread)-n)
			return
		}
		terminal.Fprintf(w, "not read: %s\n", oneLineOf(what))
	}
}

func oneLineOf(text string) string { return strings.Join(strings.Fields(text), " ") }
