package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// targetFlags are the flags that select the objects to delete. They are the same as kubectl delete's.
type targetFlags struct {
	files    resource.FilenameOptions
	selector string
	all      bool
}

func (f *targetFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringSliceVarP(&f.files.Filenames, "filename", "f", nil, "file, directory or URL of the objects' manifests; - for standard input")
	flags.StringVarP(&f.files.Kustomize, "kustomize", "k", "", "directory of a kustomization that makes the manifests")
	flags.BoolVarP(&f.files.Recursive, "recursive", "R", false, "read subdirectories of --filename, too")
	flags.StringVarP(&f.selector, "selector", "l", "", "labels that objects of TYPE must have: app=web,tier!=cache")
	flags.BoolVar(&f.all, "all", false, "all objects of TYPE in the namespace")
}

// isFiles reports whether manifests name the objects.
func (f *targetFlags) isFiles() bool { return len(f.files.Filenames) > 0 || f.files.Kustomize != "" }

// check returns an error if arguments and flags do not select objects, or select them in two ways. As with kubectl, a
// type alone is an error: a user who forgets the name does not want to delete all objects.
func (f *targetFlags) check(args []string, allNamespaces bool) error {
	hasNames := len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/")
	switch {
	case f.isFiles() && (len(args) > 0 || f.selector != "" || f.all):
		return errors.New("--filename and --kustomize name the objects: leave out TYPE, --selector and --all")
	case f.isFiles():
		return nil
	case len(args) == 0:
		return errors.New("name the objects: TYPE/NAME, TYPE with --selector or --all, or --filename")
	case f.selector != "" && f.all:
		return errors.New("--selector and --all exclude each other")
	case hasNames && (f.selector != "" || f.all):
		return errors.New("--selector and --all are for a TYPE without names")
	case hasNames && allNamespaces:
		return errors.New("a name needs a namespace: leave out --all-namespaces")
	case !hasNames && f.selector == "" && !f.all:
		return fmt.Errorf("name objects of %s, or use --selector or --all", args[0])
	}
	return nil
}

// targets are the objects to delete. They implement ask.Targets.
type targets struct {
	flags   *targetFlags
	cluster *clusterFlags
	args    []string
}

// Args implements ask.Targets.
func (t *targets) Args() []string { return t.args }

// AreNamed implements ask.Targets.
func (t *targets) AreNamed() bool {
	return !t.flags.isFiles() && t.flags.selector == "" && !t.flags.all
}

// Choose implements ask.Targets. It returns each object once. Objects of manifests that do not exist are notes, as
// there is nothing to delete.
func (t *targets) Choose(inv *inventory.Inventory, notes io.Writer) ([]ownership.UID, error) {
	uids, err := t.candidates(inv, notes)
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(t.flags.selector)
	if err != nil {
		return nil, usageError{fmt.Errorf("--selector: %w", err)}
	}
	seen := make(map[ownership.UID]bool, len(uids))
	var chosen []ownership.UID
	for _, uid := range uids {
		if !seen[uid] && selector.Matches(inv.Object(uid).Labels) {
			seen[uid] = true
			chosen = append(chosen, uid)
		}
	}
	return chosen, nil
}

// candidates returns the objects of the manifests, or the objects that the arguments name or whose type they name.
func (t *targets) candidates(inv *inventory.Inventory, notes io.Writer) ([]ownership.UID, error) {
	if t.flags.isFiles() {
		return t.flags.fromFiles(inv, t.cluster, notes)
	}
	namespace, err := t.cluster.namespace()
	if err != nil {
		return nil, err
	}
	return ask.Named(inv, t.args, namespace)
}

// fromFiles returns the objects that manifests describe.
func (f *targetFlags) fromFiles(inv *inventory.Inventory, cluster *clusterFlags, w io.Writer) ([]ownership.UID, error) {
	current, isGiven, err := cluster.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the current namespace: %w", err)
	}
	infos, err := resource.NewBuilder(cluster.kube).Unstructured().Local().FilenameParam(false, &f.files).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	var uids []ownership.UID
	for _, info := range infos {
		kind := info.Object.GetObjectKind().GroupVersionKind().GroupKind()
		what := fmt.Sprintf("%s %q in %s", kind, info.Name, info.Source)
		served := inv.Resource(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
		namespace := info.Namespace
		switch {
		case info.Name == "":
			return nil, fmt.Errorf("%s has no name", what)
		case served == nil:
			return nil, fmt.Errorf("the server does not serve the kind of %s", what)
		case !served.Namespaced:
			namespace = ""
		case namespace == "":
			namespace = current
		case isGiven && namespace != current:
			return nil, fmt.Errorf("%s is in namespace %s, and --namespace is %s", what, namespace, current)
		}
		switch o := inv.Named(served, namespace, info.Name); {
		case o != nil:
			uids = append(uids, o.UID)
		case inv.Complete(served, namespace):
			terminal.Fprintf(w, "does not exist: %s\n", what)
		default:
			return nil, fmt.Errorf("%s cannot be read from the server", what)
		}
	}
	return uids, nil
}
