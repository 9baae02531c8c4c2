package explain

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// next returns the steps to get rid of a finalizer, the safest first. Removing it by hand comes last, and never
// alone: the controller's cleanup would be missing.
func (e *Explainer) next(o *inventory.Object, a finalizerowner.Answer) []Step {
	workload := e.Inventory.Object(a.Workload)
	if workload != nil && a.State.Fails() && e.isLeaving(workload.Namespace) {
		return append([]Step{{
			"its controller cannot come back where it was, for its namespace is being deleted: install that version in another one; it cleans up and removes the finalizer",
			get(o) + " --show-managed-fields",
		}}, byHand(o, a.Finalizer)...)
	}
	switch a.State {
	case finalizerowner.Alive, finalizerowner.Leaving:
		return []Step{{"wait", waitFor(o)}}
	case finalizerowner.ScaledToZero:
		return []Step{{"start its controller again", fmt.Sprintf("kubectl scale %s --replicas=1", typed(workload))}}
	case finalizerowner.NotReady:
		return []Step{{"find out why its controller is not ready", "kubectl describe " + typed(workload)}}
	case finalizerowner.Forbidden:
		return []Step{{"look at the rights of its controller, and restore them", "kubectl get rolebindings,clusterrolebindings -A -o wide"}}
	case finalizerowner.Silent:
		return []Step{{"look at the Leases: who held them, and when", "kubectl get leases -A"}}
	case finalizerowner.Gone:
		return append([]Step{{"find the controller that set the finalizer, and reinstall that version: it cleans up and removes it", get(o) + " --show-managed-fields"}}, byHand(o, a.Finalizer)...)
	case finalizerowner.Unknown:
	}
	return []Step{{"look at the object and its events", describe(o)}}
}

// byHand returns the last step, to remove a finalizer by hand; none if that needs a request of another kind.
func byHand(o *inventory.Object, finalizer string) []Step {
	command := removeFinalizer(o, finalizer)
	if command == "" {
		return nil
	}
	return []Step{{"remove the finalizer only after you have done its cleanup by hand", command}}
}

// counted returns "1 object" or "2 objects".
func counted(n int, noun string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(n, noun, ""))
}

// typed returns the name of an object for a kubectl command, quoted for the shell: users paste the command, and users
// choose names.
func typed(o *inventory.Object) string {
	if o == nil {
		return ""
	}
	resource := strings.ToLower(o.Kind.Kind)
	if o.Resource != nil {
		resource = o.Resource.GroupResource().String()
	}
	named := escape.Shell(resource + "/" + o.Name)
	if o.Namespace == "" {
		return named
	}
	return named + " -n " + escape.Shell(o.Namespace)
}

func get(o *inventory.Object) string { return "kubectl get " + typed(o) + " -o yaml" }
func previewOf(o *inventory.Object) string {
	return "coppice preview delete " + typed(o)
}
func describe(o *inventory.Object) string { return "kubectl describe " + typed(o) }
func waitFor(o *inventory.Object) string {
	return "kubectl wait --for=delete " + typed(o) + " --timeout=10m"
}

// removeFinalizer returns a command that removes one finalizer at its present index, and nothing if the list has
// changed. It returns "" for a finalizer in a namespace's spec, which needs a request of another kind.
func removeFinalizer(o *inventory.Object, finalizer string) string {
	for n, f := range o.Finalizers {
		if f == finalizer {
			patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}]`, n, finalizer, n)
			return "kubectl patch " + typed(o) + " --type=json -p " + escape.Shell(patch)
		}
	}
	return ""
}
