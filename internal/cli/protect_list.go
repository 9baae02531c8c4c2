package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

const (
	// listsAtOnce is the number of concurrent lists.
	listsAtOnce = 16
	// listPage is the number of objects per page of a list.
	listPage = 500
)

type protectListFlags struct {
	cluster clusterFlags
	output  string
}

func newProtectList(s Streams) *cobra.Command {
	var f protectListFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List protected objects",
		Long: `Lists the protected objects of a namespace, or of all namespaces with -A, and cluster-scoped
ones. It makes one request for each resource, for metadata with the label. A default mode of all
objects of a resource is a line of its own, without their names.`,
		Example: `  # In the current namespace
  coppice protect list

  # In all namespaces, as JSON
  coppice protect list -A -o json`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return protectList(c.Context(), &f, s) },
	}
	f.cluster.add(c)
	c.Flags().StringVarP(&f.output, "output", "o", "table", "format: "+strings.Join(answerFormats(), ", "))
	completeWith(c, "output", answerFormats()...)
	return c
}

func protectList(ctx context.Context, f *protectListFlags, s Streams) error {
	if err := checkFormat(f.output); err != nil {
		return err
	}
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // warnings about versions would not help: discovery has chosen them
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for metadata: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for discovery: %w", err)
	}
	namespace, err := f.cluster.namespace()
	if err != nil {
		return err
	}
	facts, err := reader.NewFacts(config)
	if err != nil {
		return err
	}
	checker, uncertain := facts.Checker(ctx)
	found, unread, err := listProtected(ctx, discover, client, namespace, checker)
	if err != nil {
		return err
	}
	if uncertain != nil && slices.ContainsFunc(found, func(p protectedObject) bool { return len(p.Outlives) > 0 }) {
		terminal.Fprintf(s.Err, "warning: it is unknown whether the server checks outlived objects: %v\n", uncertain)
	}
	printUnread(s.Err, inventory.TextsOf(unread))
	defaults, err := facts.Defaults(ctx)
	if err != nil {
		terminal.Fprintf(s.Err, "warning: it is unknown whether the server has default modes: %v\n", err)
	}
	if f.output != "table" {
		return writeAs(s.Out, f.output, protectedList{found, defaults.List()})
	}
	if len(found)+len(defaults) == 0 {
		fmt.Fprintln(s.Err, "no protected objects found")
		return nil
	}
	return writeProtected(s.Out, found, defaults)
}

// protectedList is the output of protect list.
type protectedList struct {
	Items []protectedObject `json:"items"`
	// Defaults are the modes of objects without a label, which are not among the items.
	Defaults []protection.Default `json:"defaults"`
}

func writeProtected(w io.Writer, found []protectedObject, defaults protection.Defaults) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tOBJECT\tMODE\tOUTLIVES")
	for _, d := range defaults.List() {
		terminal.Fprintf(table, "*\t%s\t%s (default)\t\n", d.Resource, d.Mode)
	}
	for _, p := range found {
		mode := p.Mode
		if p.Invalid != "" {
			mode += " (as always: " + p.Invalid + ")"
		}
		if p.Unchecked != "" {
			mode += " (as always: " + p.Unchecked + ")"
		}
		terminal.Fprintf(table, "%s\t%s/%s\t%s\t%s\n", p.Namespace, p.Resource, p.Name, mode, outlivedBy(p.Outlives))
	}
	return table.Flush()
}

// listProtected returns the protected objects of one namespace or of all, and the cluster-scoped ones, sorted.
func listProtected(ctx context.Context, discover discovery.DiscoveryInterface, client metadata.Interface, namespace string, checker *protection.Checker) (found []protectedObject, unread []inventory.Unread, err error) {
	lists, failed := discovery.ServerPreferredResources(discover)
	if len(lists) == 0 && failed != nil {
		return nil, nil, fmt.Errorf("read the resources of the server: %w", failed)
	}
	if failed != nil {
		unread = append(unread, inventory.Unread{Why: failed.Error()})
	}
	type answer struct {
		objects []protectedObject
		err     error
	}
	resources := listable(lists)
	answers := make([]answer, len(resources))
	var calls errgroup.Group
	calls.SetLimit(listsAtOnce)
	for i, r := range resources {
		calls.Go(func() error {
			answers[i].objects, answers[i].err = listProtectedOf(ctx, client, r, namespace, checker)
			return nil
		})
	}
	_ = calls.Wait()
	found = []protectedObject{}
	for i, a := range answers {
		found = append(found, a.objects...)
		if a.err != nil && !apierrors.IsNotFound(a.err) && !apierrors.IsMethodNotSupported(a.err) {
			unread = append(unread, inventory.Unread{Resource: resources[i].GroupVersionResource, Why: a.err.Error(), Forbidden: apierrors.IsForbidden(a.err)})
		}
	}
	slices.SortFunc(found, func(a, b protectedObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return found, unread, ctx.Err()
}

// listableResource is a resource whose objects can be listed and deleted.
type listableResource struct {
	schema.GroupVersionResource

	namespaced bool
}

func listable(lists []*metav1.APIResourceList) []listableResource {
	var all []listableResource
	served := map[schema.GroupResource]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && !strings.Contains(r.Name, "/") {
				all = append(all, listableResource{version.WithResource(r.Name), r.Namespaced})
				served[schema.GroupResource{Group: version.Group, Resource: r.Name}] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(r listableResource) bool {
		other, isAlias := builtin.CanonicalOf(r.GroupResource())
		return isAlias && served[other]
	})
}

func listProtectedOf(ctx context.Context, client metadata.Interface, r listableResource, namespace string, checker *protection.Checker) ([]protectedObject, error) {
	objects := metadata.ResourceInterface(client.Resource(r.GroupVersionResource))
	if r.namespaced && namespace != "" {
		objects = client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	var found []protectedObject
	for options := (metav1.ListOptions{LabelSelector: protection.Label, Limit: listPage}); ; {
		page, err := objects.List(ctx, options)
		if err != nil {
			return found, err
		}
		for i := range page.Items {
			m := &page.Items[i]
			p, _ := protection.Of(m)
			if checker != nil {
				p = p.CheckedBy(*checker, m)
			}
			found = append(found, protectedOf(r.GroupResource().String(), m, p))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// mappingOf returns the resource for a name that a user writes as for kubectl.
func mappingOf(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, resource := schema.ParseResourceArg(name)
	if full != nil {
		if kind, err := mapper.KindFor(*full); err == nil {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	if kind, err := mapper.KindFor(resource.WithVersion("")); err == nil {
		return mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapper.RESTMapping(schema.GroupKind{Group: resource.Group, Kind: resource.Resource})
}
