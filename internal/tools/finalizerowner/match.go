package finalizerowner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// candidate is a workload that may be the controller.
type candidate struct {
	object     *inventory.Object
	confidence Confidence
	evidence   []string
	state      State
	since      time.Time
}

func (c candidate) name() string {
	return fmt.Sprintf("%s %s/%s", c.object.Kind, c.object.Namespace, c.object.Name)
}

// candidates returns the workloads that match the clues. If no name matches with certainty, it adds workloads that
// match by their details, such as a role that names the object's resource.
func (x *Index) candidates(o *inventory.Object, clues []clue) []candidate {
	var found []candidate
	isSure := false
	for _, w := range x.workloads {
		if c, ok := matchByName(w, clues); ok {
			found = append(found, c)
			isSure = isSure || c.confidence != Low
		}
	}
	if isSure || x.facts == nil {
		return found
	}
	for _, w := range x.workloads {
		workload := x.facts.Workload(w)
		if workload.Unread != "" {
			continue
		}
		if says, ok := x.matchByDetails(w, workload.Value, o, clues); ok {
			found = slices.DeleteFunc(found, func(c candidate) bool { return c.object == w })
			found = append(found, candidate{object: w, confidence: Medium, evidence: []string{says}})
		}
	}
	return found
}

// matchByName compares a workload's name and labels with the clues, and returns the first match.
func matchByName(w *inventory.Object, clues []clue) (candidate, bool) {
	// The name of a namespace is a clue only without a field manager: other workloads may use a name like "shop", too.
	hasManager := slices.ContainsFunc(clues, func(c clue) bool { return c.isManager })
	for _, exact := range []bool{true, false} {
		for _, c := range clues {
			fits := isNamed(w, c.name)
			confidence := High
			switch {
			case !exact && c.isManager:
				fits, confidence = isAlike(w.Name, c.name) || isAlike(c.name, w.Name), Medium
			case !exact:
				fits, confidence = isAlike(w.Name, c.name) || !hasManager && isAlike(w.Namespace, c.name), Low
			case !c.isManager:
				confidence = Medium
			}
			if fits {
				says := fmt.Sprintf("%s %s/%s has that name", w.Kind, w.Namespace, w.Name)
				if !c.isManager || !exact {
					says = fmt.Sprintf("%s %s/%s has a name like %q", w.Kind, w.Namespace, w.Name, c.name)
				}
				return candidate{object: w, confidence: confidence, evidence: []string{says}}, true
			}
		}
	}
	return candidate{}, false
}

// isNamed reports whether a workload has a name, or a label with it.
func isNamed(w *inventory.Object, name string) bool { return inuse.HasName(w.Name, name, w.Labels.Get) }

// isAlike reports whether a name consists of a shorter one and further parts, like "cert-manager-webhook" and
// "cert-manager".
func isAlike(name, shorter string) bool {
	return shorter != "" && strings.Contains("-"+name+"-", "-"+shorter+"-")
}

// matchByDetails compares a workload's service account, images and permissions with the clues and the object.
func (x *Index) matchByDetails(w *inventory.Object, d inventory.Workload, o *inventory.Object, clues []clue) (says string, ok bool) {
	for _, c := range clues {
		if d.ServiceAccount == c.name {
			return fmt.Sprintf("%s %s/%s runs as service account %s", w.Kind, w.Namespace, w.Name, c.name), true
		}
		for _, image := range d.Images {
			if c.isManager && imageName(image) == c.name {
				return fmt.Sprintf("%s %s/%s runs image %s", w.Kind, w.Namespace, w.Name, image), true
			}
		}
	}
	if d.ServiceAccount == "" || o.Resource == nil || !strings.Contains(o.Kind.Group, ".") || strings.HasSuffix(o.Kind.Group, ".k8s.io") {
		return "", false
	}
	rules, unread := x.rules(types.NamespacedName{Namespace: w.Namespace, Name: d.ServiceAccount}, o.Namespace)
	if unread != "" || !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return namesResource(r, o) }) {
		return "", false
	}
	return fmt.Sprintf("%s %s/%s may update %s, by a role that names them", w.Kind, w.Namespace, w.Name, o.Resource.GroupResource()), true
}

// rules returns the RBAC rules of a service account in a namespace, or for cluster-scoped objects if it is empty;
// unread is the reason why they are unknown.
func (x *Index) rules(account types.NamespacedName, namespace string) (rules []rbacv1.PolicyRule, unread string) {
	roles := x.facts.AllRoles()
	if roles.Unread != "" {
		return nil, roles.Unread
	}
	return roles.Value.Of(account, namespace), ""
}

// namesResource reports whether a rule names a resource: a rule for all resources is no evidence.
func namesResource(r rbacv1.PolicyRule, o *inventory.Object) bool {
	return slices.Contains(r.APIGroups, o.Kind.Group) && (slices.Contains(r.Resources, o.Resource.Resource) || slices.Contains(r.Resources, "*")) &&
		slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "*" })
}

// imageName returns "operator" for "registry.example.com/shop/operator:v1@sha256:…".
func imageName(image string) string {
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, "@")
	image, _, _ = strings.Cut(image, ":")
	return image
}
