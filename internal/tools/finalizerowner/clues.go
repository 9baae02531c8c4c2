package finalizerowner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// clue is a possible name of the controller.
type clue struct {
	name string
	// isManager is true for a field manager that set the finalizer; other clues are words in the finalizer's domain.
	isManager bool
}

// clues returns names to look for, the most certain first, and their origin.
func (x *Index) clues(o *inventory.Object, finalizer string) (clues []clue, evidence []string) {
	setters, where := map[string]int{}, "on this object"
	for _, m := range o.Managers() {
		switch {
		case !slices.Contains(m.Finalizers, finalizer):
		case copies(m.Name, o):
			evidence = append(evidence, fmt.Sprintf("the finalizer is in the template of %s, from which %s has made this object", ownerOf(o), m.Name))
		default:
			setters[m.Name]++
		}
	}
	if !hasController(setters) && hasController(x.setters[finalizer]) {
		setters, where = x.setters[finalizer], "on other objects"
	}
	for _, name := range slices.Sorted(maps.Keys(setters)) {
		switch {
		case inuse.IsTool(name):
			evidence = append(evidence, fmt.Sprintf("the finalizer was set by %s, a tool and no controller, %s", name, where))
		case inuse.IsAnonymous(name):
			evidence = append(evidence, fmt.Sprintf("the finalizer was set %s by field manager %s, a name that many controllers use", where, name))
		default:
			evidence = append(evidence, fmt.Sprintf("the finalizer was set by field manager %s %s", name, where))
			clues = append(clues, clue{name: name, isManager: true})
		}
	}
	if len(evidence) == 0 {
		evidence = append(evidence, "no field manager shows who set the finalizer")
	}
	for _, word := range words(finalizer) {
		clues = append(clues, clue{name: word})
	}
	return clues, evidence
}

// copies reports whether a field manager is the controller of workloads that has made an object from the template of its
// owner. It serves none of the finalizers in a template.
func copies(manager string, o *inventory.Object) bool {
	return ownerOf(o) != "" && (component(manager) == controllers || manager == ourManager)
}

// ourManager is the field manager of the controllers of coppice up.
const ourManager = "coppice"

// ownerOf names the workload that has made an object; empty if there is none.
func ownerOf(o *inventory.Object) string {
	for _, r := range o.Owners {
		kind := r.OwnerKind()
		isWorkload := kind.Group == "apps" || kind.Group == "batch" || kind == (ownership.Kind{Kind: "ReplicationController"})
		if r.Controller == ownership.True && isWorkload {
			return r.Kind + " " + r.Name
		}
	}
	return ""
}

func hasController(setters map[string]int) bool {
	for name := range setters {
		if !inuse.IsTool(name) && !inuse.IsAnonymous(name) {
			return true
		}
	}
	return false
}

// words returns the parts of a finalizer's domain that may be the name of its controller.
func words(finalizer string) []string {
	domain, _, _ := strings.Cut(finalizer, "/")
	var found []string
	for word := range strings.SplitSeq(strings.ToLower(domain), ".") {
		if len(word) > 2 && !isCommon(word) {
			found = append(found, word)
		}
	}
	return found
}

// isCommon reports whether a part of a domain is too common to identify a controller.
func isCommon(word string) bool {
	return slices.Contains([]string{
		"com", "net", "org", "dev", "cloud", "app", "apps", "example", "k8s", "x-k8s", "sigs", "kubernetes", "finalizer",
		"finalizers", "foregrounddeletion", "cleanup", "controller", "operator", "manager", "core", "api", "system", "www",
		"resources-finalizer", "protection",
	}, word)
}
