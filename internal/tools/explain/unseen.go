package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// unseen describes a resource that could not be read.
func unseen(u inventory.Unread) string { return whatOf(u) + whyOf(u) }

func whatOf(u inventory.Unread) string {
	if u.Resource.Resource == "" {
		return "group " + u.Resource.Group
	}
	return u.Resource.GroupResource().String()
}

// whyOf returns the scope and the reason of a failed read.
func whyOf(u inventory.Unread) string {
	where := ""
	switch {
	case u.Namespace != "":
		where = " in namespace " + u.Namespace
	case len(u.Except) > 0:
		where = " outside of namespace " + strings.Join(u.Except, ", ")
	}
	return where + ": " + u.Why
}

// unseenTogether describes resources that could not be read, sorted, with one text for each reason.
func unseenTogether(all []inventory.Unread) []string {
	what := map[string][]string{}
	for _, u := range all {
		what[whyOf(u)] = append(what[whyOf(u)], whatOf(u))
	}
	var texts []string
	for why, names := range what {
		slices.Sort(names)
		names = slices.Compact(names)
		text := strings.Join(names[:min(len(names), mostListed)], ", ")
		if more := len(names) - mostListed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		texts = append(texts, text+why)
	}
	slices.Sort(texts)
	return texts
}
