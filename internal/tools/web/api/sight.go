package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Sight holds the rights of a caller to list, for one request. It is not safe for concurrent use.
type Sight struct {
	caller    Caller
	resources map[string]schema.GroupResource // by ownership.Kind, as a string
	// namespaced holds for each resource whether its objects are in namespaces.
	namespaced map[schema.GroupResource]bool
	all        bool // the caller may list everything
	living     Living
	answers    map[scope]bool
	homes      map[scope]ownership.UID // the UID of the namespace in which the caller has a right
}

// Living reads the UID of the namespace with a name from the server; empty if it does not exist.
type Living func(ctx context.Context, namespace string) (ownership.UID, error)

// scope is the object of a right to list: a resource in a namespace, or everywhere.
type scope struct {
	resource  schema.GroupResource
	namespace string
}

func newSight(ctx context.Context, caller Caller, resources []*inventory.Resource, living Living) (*Sight, error) {
	s := &Sight{
		caller: caller, resources: make(map[string]schema.GroupResource, len(resources)), namespaced: make(map[schema.GroupResource]bool, len(resources)),
		living: living, answers: map[scope]bool{}, homes: map[scope]ownership.UID{},
	}
	for _, r := range resources {
		s.resources[r.OwnerKind().String()] = r.GroupResource()
		s.namespaced[r.GroupResource()] = r.Namespaced
	}
	var err error
	s.all, err = caller.MayList(ctx, schema.GroupResource{Group: "*", Resource: "*"}, "")
	return s, err
}

// All reports whether the caller sees everything.
func (s *Sight) All() bool { return s.all }

// Sees reports whether the caller may list the objects of a kind in a namespace, or everywhere if it is
// empty.
func (s *Sight) Sees(ctx context.Context, kind ownership.Kind, namespace string) (bool, error) {
	return s.may(ctx, kind.String(), namespace)
}

// may is Sees for the name of a kind.
func (s *Sight) may(ctx context.Context, kind, namespace string) (bool, error) {
	if s.all {
		return true, nil
	}
	resource, served := s.resources[kind]
	if !served {
		return false, nil
	}
	return s.mayResource(ctx, resource, namespace)
}

// mayResource is may for the resource of a kind.
func (s *Sight) mayResource(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
	for _, within := range slices.Compact([]string{"", namespace}) {
		if seen, err := s.ask(ctx, scope{resource, within}); seen || err != nil {
			return seen, err
		}
	}
	return false, nil
}

// looker returns a Looker for the objects that the caller may list. After an error, which it stores in failed, the
// Looker sees no further objects.
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
		l.Prepare = func(places []ownership.Location) {
			if *failed == nil {
				*failed = s.askPlaces(ctx, places)
			}
		}
	}
	return l
}

// sawNamed reports whether the caller may see a recorded object of a kind, from the namespace with the UID home. A
// right in a namespace does not cover objects from an earlier namespace of that name, nor from a namespace with an
// unknown UID: these need a right in all namespaces.
func (s *Sight) sawNamed(ctx context.Context, kind, namespace string, home ownership.UID) (bool, error) {
	seen, err := s.may(ctx, kind, namespace)
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
	return home != "" && home == now, nil
}

// home returns the UID of the namespace in which the caller has a right. It reads the UID after the check of the right,
// and for each right anew: the name may have passed to another namespace.
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

// asksAtOnce bounds concurrent access reviews: with coppice collect, each is a request to the API server.
const asksAtOnce = 8

// askAll checks several rights, concurrently.
func (s *Sight) askAll(ctx context.Context, all []scope) error {
	all = slices.DeleteFunc(all, func(about scope) bool {
		_, known := s.answers[about]
		return known
	})
	answers := make([]bool, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asksAtOnce)
	for n, about := range all {
		group.Go(func() error {
			var err error
			answers[n], err = s.caller.MayList(ctx, about.resource, about.namespace)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for n, about := range all {
		s.answers[about] = answers[n]
	}
	return nil
}

// askPlaces checks the rights to all places of a graph: first in all namespaces, a review for each kind, and then in
// the single namespaces of the kinds that were refused.
func (s *Sight) askPlaces(ctx context.Context, places []ownership.Location) error {
	everywhere, within := map[scope]bool{}, map[scope]bool{}
	for _, p := range places {
		if resource, served := s.resources[p.Kind.String()]; served {
			everywhere[scope{resource, ""}], within[scope{resource, p.Namespace}] = true, true
		}
	}
	if err := s.askAll(ctx, slices.Collect(maps.Keys(everywhere))); err != nil {
		return err
	}
	maps.DeleteFunc(within, func(about scope, _ bool) bool { return s.answers[scope{about.resource, ""}] })
	return s.askAll(ctx, slices.Collect(maps.Keys(within)))
}

// LeftOut is in every answer to callers without the right to list everything, with or without hidden objects: these
// callers must not learn whether hidden objects exist.
const LeftOut = "objects that you may not list are left out"

// Unread says that objects may be left out. It depends only on the rights of the caller.
func (s *Sight) Unread() []string {
	if s.all {
		return nil
	}
	return []string{LeftOut}
}

// picture reads a part of the graph. It removes objects that the caller may not list, and objects that only these
// connect with the given objects.
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

// objects returns the objects that the caller may list. A missing owner of a kind that is not served is known
// only from the references of its dependents, so the caller may see it with one of these.
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

// connected returns the seen objects that are connected with the objects in from.
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

// unseenDecision replaces a decision that depends on objects that the caller may not list.
const unseenDecision = "not shown: it depends on objects that you may not list"

// about has the inputs of a decision about an object.
type about struct {
	phase  ownership.Phase
	owners []ownership.Claim
}

// decisions replaces the decisions that depend on objects that the caller may not list. The object and the rights of
// the caller determine which decisions these are. Access reviews follow the read of the graph: its lock must not be
// held during requests.
func (s *Sight) decisions(ctx context.Context, view insight.View, objects []insight.Object) error {
	for i := range objects {
		o := &objects[i]
		if o.Missing {
			continue
		}
		var on about
		view(func(g *ownership.Graph) { on = aboutOf(g, o.UID) })
		seen, err := s.seesOwners(ctx, on.owners)
		if err == nil && seen && (on.phase == ownership.Foreground || on.phase == ownership.Orphaning) {
			seen, err = s.seesDependents(ctx, o.Namespace)
		}
		switch {
		case err != nil:
			return err
		case !seen:
			o.Decision = unseenDecision
		case strings.HasPrefix(o.Decision, "delete "):
			o.Decision = "delete" // the policy depends on dependents (R10)
		}
	}
	return nil
}

func aboutOf(g *ownership.Graph, uid ownership.UID) about {
	o, _ := g.Object(uid)
	on := about{phase: o.Phase}
	for _, owner := range g.Owners(uid) {
		on.owners = append(on.owners, owner.Claim)
	}
	return on
}

// seesOwners reports whether the caller may list the owners of an object, at the coordinates in its references. Owners
// of kinds that are not served need no right: they are known only from these references.
func (s *Sight) seesOwners(ctx context.Context, owners []ownership.Claim) (bool, error) {
	for n := range owners {
		kind := owners[n].Kind.String()
		if _, served := s.resources[kind]; !served {
			continue
		}
		if seen, err := s.may(ctx, kind, owners[n].Namespace); !seen || err != nil {
			return false, err
		}
	}
	return true, nil
}

// seesDependents reports whether the caller may list all possible dependents of an owner in a namespace, or of a
// cluster-scoped owner if it is empty.
func (s *Sight) seesDependents(ctx context.Context, namespace string) (bool, error) {
	if everything, err := s.ask(ctx, scope{schema.GroupResource{Group: "*", Resource: "*"}, namespace}); everything || err != nil {
		return everything, err
	}
	hidden, err := s.hidden(ctx, []string{namespace})
	if err != nil {
		return false, err
	}
	for _, r := range hidden {
		if namespace == "" || s.namespaced[r] {
			return false, nil
		}
	}
	return true, nil
}

// hidden returns the resources that the caller may not list in all of the given namespaces: cluster-scoped resources
// without the right to list them, and namespaced ones without that right in all namespaces or in each of the given
// ones. An empty name stands for all namespaces.
func (s *Sight) hidden(ctx context.Context, namespaces []string) ([]schema.GroupResource, error) {
	resources := slices.SortedFunc(maps.Keys(s.namespaced), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	everywhere := make([]scope, 0, len(resources))
	for _, r := range resources {
		everywhere = append(everywhere, scope{r, ""})
	}
	if err := s.askAll(ctx, everywhere); err != nil {
		return nil, err
	}
	hidden := slices.DeleteFunc(resources, func(r schema.GroupResource) bool { return s.answers[scope{r, ""}] })
	if slices.Contains(namespaces, "") {
		return hidden, nil
	}
	var within []scope
	for _, r := range hidden {
		for _, namespace := range namespaces {
			if s.namespaced[r] {
				within = append(within, scope{r, namespace})
			}
		}
	}
	if err := s.askAll(ctx, slices.Clone(within)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(hidden, func(r schema.GroupResource) bool {
		return s.namespaced[r] && len(namespaces) > 0 && !slices.ContainsFunc(namespaces, func(namespace string) bool { return !s.answers[scope{r, namespace}] })
	}), nil
}

// verb returns the first word of a decision, which names no object.
func verb(decision string) string {
	first, _, _ := strings.Cut(decision, " ")
	return strings.TrimSuffix(first, ":")
}

// record removes from a record the objects that the caller may not list, and reports whether the caller may see the
// record.
func (s *Sight) record(ctx context.Context, r *report.Record) (bool, error) {
	seen, err := s.sawNamed(ctx, r.Object.Kind, r.Object.Namespace, ownership.UID(r.Object.NamespaceUID))
	if s.all || !seen || err != nil {
		return seen, err
	}
	// The decisions about orphans and members of cycles name other objects than owners, and errors contain
	// the words of the server.
	isAboutOwners := r.MoreOwners == 0 && (r.Action == report.ActionDelete || r.Action == report.ActionDetach)
	var owners []report.Owner
	for _, owner := range r.Owners {
		seen, err := s.sawNamed(ctx, owner.Kind, owner.Namespace, ownership.UID(r.NamespaceUID(owner.Namespace)))
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
	r.Owners, r.MoreOwners = owners, 0 // the kinds of the others are not known
	return true, nil
}
