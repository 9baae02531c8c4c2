package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// Sight is what one caller sees, for one request. It is not safe for concurrent use.
type Sight struct {
	caller    Caller
	resources map[string]schema.GroupResource // by kind, as ownership.Kind writes it
	all       bool                            // the caller may list everything
	living    Living
	answers   map[scope]bool
	homes     map[scope]ownership.UID // the namespaces in which the caller has the rights
	hidden    map[string]bool
}

// Living returns the UID of the namespace that has a name now, by a read of the server; empty if there is none.
type Living func(ctx context.Context, namespace string) (ownership.UID, error)

// scope is what a right to list is about.
type scope struct {
	resource  schema.GroupResource
	namespace string
}

func newSight(ctx context.Context, caller Caller, resources []*inventory.Resource, living Living) (*Sight, error) {
	s := &Sight{
		caller: caller, resources: make(map[string]schema.GroupResource, len(resources)),
		living: living, answers: map[scope]bool{}, homes: map[scope]ownership.UID{}, hidden: map[string]bool{},
	}
	for _, r := range resources {
		s.resources[r.OwnerKind().String()] = r.GroupResource()
	}
	var err error
	s.all, err = caller.MayList(ctx, schema.GroupResource{Group: "*", Resource: "*"}, "")
	return s, err
}

// All reports whether the caller sees everything.
func (s *Sight) All() bool { return s.all }

// Sees reports whether the caller may list the objects of a kind in a namespace, or everywhere if that is
// empty. If not, Unread says so.
func (s *Sight) Sees(ctx context.Context, kind ownership.Kind, namespace string) (bool, error) {
	return s.seesNamed(ctx, kind.String(), namespace)
}

func (s *Sight) seesNamed(ctx context.Context, kind, namespace string) (bool, error) {
	seen, err := s.may(ctx, kind, namespace)
	if seen || err != nil {
		return seen, err
	}
	if resource, served := s.resources[kind]; served {
		kind = resource.String()
	}
	s.hidden[kind] = true
	return false, nil
}

// may reports whether the caller may list the objects of a kind in a namespace. Unread does not say if not.
func (s *Sight) may(ctx context.Context, kind, namespace string) (bool, error) {
	if s.all {
		return true, nil
	}
	resource, served := s.resources[kind]
	if !served {
		return false, nil
	}
	for _, within := range slices.Compact([]string{"", namespace}) {
		if seen, err := s.ask(ctx, scope{resource, within}); seen || err != nil {
			return seen, err
		}
	}
	return false, nil
}

// looker reads what the caller may list of the ownership graph. If an error occurred, the rest is as if the caller might
// not list it.
func (s *Sight) looker(ctx context.Context, view insight.View, failed *error) insight.Looker {
	l := insight.Looker{View: view}
	if !s.all {
		l.Sees = func(kind ownership.Kind, namespace string) bool {
			if *failed != nil {
				return false
			}
			seen, err := s.Sees(ctx, kind, namespace)
			*failed = err
			return seen && err == nil
		}
	}
	return l
}

// sawNamed reports whether the caller may list the objects of a kind, of one that is remembered from the namespace with a
// UID. A right in a namespace does not cover what was in a former namespace of that name, nor what may have been: these
// need a right in all namespaces.
func (s *Sight) sawNamed(ctx context.Context, kind, namespace string, home ownership.UID) (bool, error) {
	seen, err := s.seesNamed(ctx, kind, namespace)
	if err != nil || !seen || s.all || namespace == "" {
		return seen, err
	}
	resource := s.resources[kind]
	if everywhere, err := s.ask(ctx, scope{resource, ""}); everywhere || err != nil {
		return everywhere, err
	}
	now, err := s.home(ctx, scope{resource, namespace})
	if err != nil {
		return false, err
	}
	if home == "" || home != now {
		s.hidden[resource.String()] = true
		return false, nil
	}
	return true, nil
}

// home returns the UID of the namespace in which the caller has a right. It is read after the right was found, for each
// anew: another namespace may have the name since.
func (s *Sight) home(ctx context.Context, about scope) (ownership.UID, error) {
	uid, known := s.homes[about]
	if known {
		return uid, nil
	}
	uid, err := s.living(ctx, about.namespace)
	if err != nil {
		return "", fmt.Errorf("read which namespace %s is there: %w", about.namespace, err)
	}
	s.homes[about] = uid
	return uid, nil
}

func (s *Sight) ask(ctx context.Context, about scope) (bool, error) {
	answer, known := s.answers[about]
	if known {
		return answer, nil
	}
	answer, err := s.caller.MayList(ctx, about.resource, about.namespace)
	if err == nil {
		s.answers[about] = answer
	}
	return answer, err
}

// Unread says what was left out, by resource, sorted. Not even namespaces are named: to know that there is
// one may be more than the caller is allowed to.
func (s *Sight) Unread() []string {
	var all []string
	for what := range s.hidden {
		all = append(all, what+": what you may not list is left out")
	}
	slices.Sort(all)
	return all
}

// picture reads a part of the graph, and removes what the caller may not list, and what is connected with the
// given objects only by that.
func (s *Sight) picture(ctx context.Context, view insight.View, part func(insight.Looker, ...ownership.UID) insight.Graph, from []ownership.UID) (insight.Graph, error) {
	var failed error
	g := part(s.looker(ctx, view, &failed), from...)
	if s.all || failed != nil {
		return g, failed
	}
	seen, err := s.objects(ctx, g)
	if err != nil {
		return g, err
	}
	g.References = slices.DeleteFunc(g.References, func(r insight.Reference) bool { return !seen[r.Dependent] || !seen[r.Owner] })
	if len(from) > 0 {
		seen = connected(g, seen, from)
		g.References = slices.DeleteFunc(g.References, func(r insight.Reference) bool { return !seen[r.Dependent] })
	}
	g.Objects = slices.DeleteFunc(g.Objects, func(o insight.Object) bool { return !seen[o.UID] })
	return g, s.decisions(ctx, view, g.Objects)
}

// objects returns those that the caller may list. A missing owner of a kind that is not served is known
// from the metadata of those that name it, and seen with them.
func (s *Sight) objects(ctx context.Context, g insight.Graph) (map[ownership.UID]bool, error) {
	seen, unserved := make(map[ownership.UID]bool, len(g.Objects)), map[ownership.UID]bool{}
	for i := range g.Objects {
		o := &g.Objects[i]
		kind := ownership.Kind{Group: o.Group, Kind: o.Kind}
		if _, served := s.resources[kind.String()]; !served && o.Missing {
			unserved[o.UID] = true
			continue
		}
		sees, err := s.Sees(ctx, kind, o.Namespace)
		if err != nil {
			return nil, err
		}
		seen[o.UID] = sees
	}
	for _, r := range g.References {
		if unserved[r.Owner] && seen[r.Dependent] {
			seen[r.Owner] = true
		}
	}
	return seen, nil
}

// connected returns the seen objects that are connected with some of them.
func connected(g insight.Graph, seen map[ownership.UID]bool, from []ownership.UID) map[ownership.UID]bool {
	next := make(map[ownership.UID][]ownership.UID)
	for _, r := range g.References {
		next[r.Dependent] = append(next[r.Dependent], r.Owner)
		next[r.Owner] = append(next[r.Owner], r.Dependent)
	}
	reached := make(map[ownership.UID]bool)
	for queue := slices.Clone(from); len(queue) > 0; {
		uid := queue[0]
		queue = queue[1:]
		if seen[uid] && !reached[uid] {
			reached[uid] = true
			queue = append(queue, next[uid]...)
		}
	}
	return reached
}

// neighbor is the place of an object that a decision may name.
type neighbor struct {
	kind, namespace string
	claimed         bool // the object that the decision is about names it itself
}

// decisions shortens the decisions about objects that may name what the caller may not list. The rights are
// asked for only when the graph has been read: nothing may be slow while it is held.
func (s *Sight) decisions(ctx context.Context, view insight.View, objects []insight.Object) error {
	for i := range objects {
		o := &objects[i]
		around := map[neighbor]bool{}
		view(func(g *ownership.Graph) { addNeighbors(g, o.UID, around) })
		for n := range around {
			if _, served := s.resources[n.kind]; !served && n.claimed {
				continue // as in objects
			}
			seen, err := s.seesNamed(ctx, n.kind, n.namespace)
			if err != nil {
				return err
			}
			if !seen {
				o.Decision = verb(o.Decision)
			}
		}
	}
	return nil
}

// addNeighbors adds the places of all objects that a decision about one may name: its owners, those that
// name it as theirs, and those of its cycle.
func addNeighbors(g *ownership.Graph, uid ownership.UID, around map[neighbor]bool) {
	for _, owner := range g.Owners(uid) {
		around[neighbor{owner.Claim.Kind.String(), owner.Claim.Namespace, true}] = true
		if owner.Elsewhere != "" {
			around[neighbor{owner.Claim.Kind.String(), owner.Elsewhere, true}] = true
		}
	}
	for _, other := range slices.Concat(g.Claimants(uid), g.Cycle(uid)) {
		if o, observed := g.Object(other); observed {
			around[neighbor{o.Kind.String(), o.Namespace, false}] = true
		}
	}
}

// verb returns the first word of a decision, which names nothing.
func verb(decision string) string {
	first, _, _ := strings.Cut(decision, " ")
	return strings.TrimSuffix(first, ":")
}

// record removes from a record what the caller may not list, and reports whether anything is left.
func (s *Sight) record(ctx context.Context, r *collector.Record) (bool, error) {
	seen, err := s.sawNamed(ctx, r.Object.Kind, r.Object.Namespace, r.Object.NamespaceUID)
	if s.all || !seen || err != nil {
		return seen, err
	}
	// Orphans and members of cycles are recorded with a decision that names others besides owners; and
	// errors are in the words of the server.
	isAboutOwners := r.MoreOwners == 0 && (r.Action == collector.ActionDelete || r.Action == collector.ActionDetach)
	var owners []collector.RecordedOwner
	for _, owner := range r.Owners {
		seen, err := s.sawNamed(ctx, owner.Kind, owner.Namespace, r.HomeOf(owner.Namespace))
		if err != nil {
			return false, err
		}
		if seen {
			owners = append(owners, owner)
		}
	}
	if !isAboutOwners || len(owners) < len(r.Owners) {
		r.Decision = verb(r.Decision)
	}
	if r.Error != "" {
		r.Error = fmt.Sprintf("the answer to the %s is not known", r.Action)
	}
	r.MoreOwners += len(r.Owners) - len(owners)
	r.Owners = owners
	return true, nil
}
