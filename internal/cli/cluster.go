package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
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

// read reads the cluster. On a terminal it shows its progress on stderr.
func (f *clusterFlags) read(ctx context.Context, s Streams, options reader.Options) (*inventory.Inventory, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	if namespace != "" {
		options.Namespaces = []string{namespace}
	}
	options.Now = time.Now()
	if terminal.File(s.Err) != nil {
		own := terminal.Own(s.Err)
		options.Progress = func(p reader.Progress) {
			fmt.Fprintf(own, "\r\033[Kreading %d of %d resources, %d objects", p.Read, p.Resources, p.Objects)
		}
		defer func() { fmt.Fprint(own, "\r\033[K") }()
	}
	inv, err := reader.Read(ctx, config, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", config.Host, err)
	}
	return inv, nil
}

// readFor reads the parts of the cluster that a question about named objects needs. For namespaces and objects in
// them it reads these namespaces, as the rest of the cluster hardly ever matters to their deletion. about returns the
// objects of the question, or an error if the names are invalid; readFor then reads what these objects still lack.
func (f *clusterFlags) readFor(ctx context.Context, s Streams, args []string, options reader.Options, about func(*inventory.Inventory) ([]ownership.UID, error)) (*inventory.Inventory, error) {
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	if namespace != "" && len(args) > 0 {
		options.Scope = func(served *inventory.Inventory) reader.Scope { return scopeOf(served, args, namespace) }
		options.Missing = func(read *inventory.Inventory) inventory.Missing {
			uids, err := about(read)
			if err != nil {
				return inventory.Missing{} // the caller gets the error again once the cluster is read
			}
			return read.Missing(uids, finalizerowner.IsBuiltIn)
		}
	}
	return f.read(ctx, s, options)
}

// question is a question about objects of a cluster, and the parts of the cluster that were read for it.
type question struct {
	answer.Cluster

	config *rest.Config    // of the cluster
	uids   []ownership.UID // of its objects
	notes  string          // for the user, about objects that do not exist
}

// ask reads the parts of the cluster that a question needs. choose returns the objects of the question, and writes notes
// for the user. After an error of choose, the question has the inventory and the notes.
func (f *clusterFlags) ask(ctx context.Context, s Streams, args []string, choose func(*inventory.Inventory, io.Writer) ([]ownership.UID, error)) (question, error) {
	config, err := f.config()
	if err != nil {
		return question{}, err
	}
	facts, err := reader.NewFacts(config)
	if err != nil {
		return question{}, err
	}
	inv, err := f.readFor(ctx, s, args, reader.Options{Pods: true}, func(inv *inventory.Inventory) ([]ownership.UID, error) {
		return choose(inv, io.Discard)
	})
	if err != nil {
		return question{}, err
	}
	q := question{config: config, Cluster: answer.Cluster{Inventory: inv, Facts: facts, Now: inv.Read}}
	var notes strings.Builder
	q.uids, err = choose(inv, &notes)
	q.notes = notes.String()
	return q, err
}

// scopeOf returns the part of a cluster to read for a question about named objects. For invalid names it is the whole
// cluster; the caller reports them after reading.
func scopeOf(served *inventory.Inventory, args []string, namespace string) reader.Scope {
	selectors, err := served.ParseSelectors(args, namespace)
	if err != nil {
		return reader.Scope{}
	}
	var scope reader.Scope
	for _, s := range selectors {
		isNamespace := s.Resource.OwnerKind() == ownership.Kind{Kind: "Namespace"}
		switch {
		case s.Resource.Namespaced:
			scope.Namespaces = append(scope.Namespaces, namespace)
		case isNamespace && len(s.Names) > 0:
			scope.Namespaces = append(scope.Namespaces, s.Names...)
			scope.Beyond = true
		default:
			return reader.Scope{}
		}
	}
	slices.Sort(scope.Namespaces)
	scope.Namespaces = slices.Compact(scope.Namespaces)
	return scope
}

// maxUnread bounds the number of lines about resources that could not be read.
const maxUnread = 5

// printUnread lists the resources that could not be read, so that the user knows that the output is incomplete.
func printUnread(w io.Writer, unread []inventory.Unread) {
	for n, u := range unread {
		if n == maxUnread {
			terminal.Fprintf(w, "not read: %d more\n", len(unread)-n)
			return
		}
		terminal.Fprintf(w, "not read: %s\n", oneLineOf(u.String()))
	}
}

func oneLineOf(text string) string { return strings.Join(strings.Fields(text), " ") }
