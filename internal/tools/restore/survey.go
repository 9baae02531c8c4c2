// Package restore creates deleted objects again, according to a plan of package undo.
//
// The main flow: Survey reads which kinds the server serves and which objects have the names that matter (survey.go);
// this is the input of the plan; Run creates wave after wave, several objects at a time (run.go), and makes the
// second writes (links.go). It deletes or replaces no object.
package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// fewGets is the number of names of a kind in a namespace that are read one by one. If there are more, all objects
	// are listed.
	fewGets = 20
	// futileGets is the number of failures in a row after which the other objects of a kind that cannot be listed are not read.
	futileGets = 20
	// pageSize is the page size of the lists, in objects.
	pageSize = 2000
	// parallel is the number of concurrent requests.
	parallel = 32
)

// Server is the API server on which objects are recreated.
type Server struct {
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	journal   *Journal
}

// NewServer returns a server without the client-side rate limits of the configuration: a user waits for the result,
// and the server has limits of its own. journal has the objects that were recreated before; it may be nil.
func NewServer(config *rest.Config, journal *Journal) (*Server, error) {
	config = Unrepeated(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{} // the user has seen the warnings when the objects were created
	config.UserAgent = "coppice-undo"
	s := Server{journal: journal}
	var errs [3]error
	s.discovery, errs[0] = discovery.NewDiscoveryClientForConfig(config)
	s.dynamic, errs[1] = dynamic.NewForConfig(config)
	s.metadata, errs[2] = metadata.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &s, nil
}

// Dynamic returns the client for whole objects.
func (s *Server) Dynamic() dynamic.Interface { return s.dynamic }

// Kinds reads the kinds that the server serves. It omits the groups that do not answer.
func (s *Server) Kinds(ctx context.Context) (map[schema.GroupKind]undo.Kind, error) {
	kinds, _, err := s.discover(ctx)
	return kinds, err
}

// discover reads the kinds that the server serves, and the reasons why groups do not answer.
func (s *Server) discover(ctx context.Context) (map[schema.GroupKind]undo.Kind, map[string]string, error) {
	_, lists, err := discovery.ToDiscoveryInterfaceWithContext(s.discovery).ServerGroupsAndResourcesWithContext(ctx)
	if lists == nil && err != nil {
		return nil, nil, fmt.Errorf("read the resources of the server: %w", err)
	}
	unread := map[string]string{}
	if failed, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv, err := range failed.Groups {
			unread[gv.Group] = oneLine(err)
		}
	}
	kinds := map[schema.GroupKind]undo.Kind{}
	status := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			resource, subresource, isSub := strings.Cut(r.Name, "/")
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			_, known := kinds[kind]
			switch {
			case isSub && subresource == "status":
				status[gv.WithResource(resource)] = true
			case !isSub && !known: // the first version is the preferred one
				kinds[kind] = undo.Kind{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
			}
		}
	}
	for kind, k := range kinds {
		k.Status = status[k.Resource]
		kinds[kind] = k
	}
	return kinds, unread, ctx.Err()
}

// Survey reads the state of the cluster that a plan needs.
func (s *Server) Survey(ctx context.Context, kept []undo.Kept) (undo.Cluster, error) {
	kinds, unread, err := s.discover(ctx)
	if err != nil {
		return undo.Cluster{}, err
	}
	survey := &survey{server: s, failures: map[schema.GroupKind]int{}, found: undo.Cluster{
		Kinds: kinds, Existing: map[undo.Place]undo.Existing{}, Unread: map[undo.Place]string{}, UnreadGroups: unread,
	}}
	if err := survey.read(ctx, undo.Places(kept, kinds)); err != nil {
		return undo.Cluster{}, err
	}
	return survey.found, survey.readWhole(ctx, survey.found.OtherClaims(kept))
}

type survey struct {
	server *Server

	mu       sync.Mutex
	found    undo.Cluster             // Existing and Unread are guarded by mu
	unlisted []unlisted               // guarded by mu
	failures map[schema.GroupKind]int // guarded by mu; of the last reads of single objects, in a row
}

// unlisted is a kind in a namespace that could not be listed.
type unlisted struct {
	objects metadata.ResourceInterface
	names   map[string]undo.Place // without the objects on the pages before the failure
	why     error
}

// read reads the objects at places.
func (s *survey) read(ctx context.Context, places []undo.Place) error {
	type scope struct {
		kind      schema.GroupKind
		namespace string
	}
	scopes := map[scope]map[string]undo.Place{}
	for _, p := range places {
		if !ownership.IsName(p.Name) {
			continue // an owner reference may have any name, and the path of a request would lead elsewhere
		}
		in := scope{p.Kind, p.Namespace}
		if scopes[in] == nil {
			scopes[in] = map[string]undo.Place{}
		}
		scopes[in][p.Name] = p
	}
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for in, names := range scopes {
		kind, served := s.found.Kinds[in.kind]
		if !served {
			continue // no object can exist there
		}
		objects := s.server.metadata.Resource(kind.Resource).Namespace(in.namespace)
		if len(names) > fewGets {
			group.Go(func() error { return s.list(reading, objects, names) })
			continue
		}
		for _, p := range names {
			group.Go(func() error { return s.get(reading, objects, p) })
		}
	}
	err := group.Wait()
	if err == nil {
		err = s.readUnlisted(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the existing objects: %w", err)
	}
	return nil
}

// readUnlisted reads the objects one by one of the kinds that could not be listed: a user may be allowed only that, and an
// object that cannot be converted fails the list of all. It gives up a kind whose objects fail, too: each may take as long as
// the list.
func (s *survey) readUnlisted(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, u := range s.unlisted {
		for _, p := range u.names {
			group.Go(func() error {
				if s.givesUp(p, u.why) {
					return nil
				}
				return s.get(ctx, u.objects, p)
			})
		}
	}
	return group.Wait()
}

// givesUp records why a place is not read if the reads of other objects of its kind fail. It reports whether they do.
func (s *survey) givesUp(p undo.Place, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isFutile := s.failures[p.Kind] >= futileGets
	if isFutile {
		s.unreadLocked(p, why)
	}
	return isFutile
}

func (s *survey) get(ctx context.Context, objects metadata.ResourceInterface, p undo.Place) error {
	o, err := objects.Get(ctx, p.Name, metav1.GetOptions{})
	if err == nil {
		s.add(p, o)
		return nil
	}
	return s.failed(ctx, p, err)
}

// readWhole reads objects whole that exist: metadata does not have the volumes of claims. An object that cannot be read counts
// as unread.
func (s *survey) readWhole(ctx context.Context, places []undo.Place) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, p := range places {
		objects := s.server.dynamic.Resource(s.found.Kinds[p.Kind].Resource).Namespace(p.Namespace)
		group.Go(func() error {
			o, err := objects.Get(ctx, p.Name, metav1.GetOptions{})
			if err == nil {
				s.add(p, o)
				return nil
			}
			s.forget(p)
			return s.failed(ctx, p, err)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("read the existing objects: %w", err)
	}
	return nil
}

func (s *survey) forget(p undo.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found.Existing, p)
}

func (s *survey) list(ctx context.Context, objects metadata.ResourceInterface, names map[string]undo.Place) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := objects.List(ctx, options)
		if err != nil {
			return s.notListed(ctx, unlisted{objects, names, err})
		}
		for n := range page.Items {
			if p, wanted := names[page.Items[n].Name]; wanted {
				s.add(p, &page.Items[n])
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// notListed records a kind in a namespace that could not be listed, unless no kind can be read.
func (s *survey) notListed(ctx context.Context, u unlisted) error {
	if err := fatalOf(ctx, u.why); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(u.names, func(_ string, p undo.Place) bool {
		_, isRead := s.found.Existing[p]
		return isRead
	})
	s.unlisted = append(s.unlisted, u)
	return nil
}

func (s *survey) add(p undo.Place, o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Existing[p] = s.server.existing(o)
	s.failures[p.Kind] = 0
}

// failed records why a place could not be read: an object may be there. One kind, such as one whose conversion webhook was
// deleted, does not prevent the undo of the others. Only a 404 about the object says that it is gone: a server that does not
// serve a kind for a moment, or a load balancer, answers 404, too.
func (s *survey) failed(ctx context.Context, p undo.Place, err error) error {
	if err := fatalOf(ctx, err); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case refusal.IsGone(err, p.Name), apierrors.IsMethodNotSupported(err):
		s.failures[p.Kind] = 0
		return nil // objects of a kind that can only be created, such as a review, are not stored
	case !apierrors.IsForbidden(err): // a right may be for some names only
		s.failures[p.Kind]++
	}
	s.unreadLocked(p, err)
	return nil
}

// unreadLocked records why a place could not be read.
func (s *survey) unreadLocked(p undo.Place, err error) {
	s.found.Unread[p] = oneLine(err)
	if apierrors.IsForbidden(err) {
		s.found.Unread[p] = mayNotGet(s.found.Kinds[p.Kind].Resource)
	}
}

// fatalOf returns an error if no kind can be read: at the end of ctx, without an answer of the server, or if the server does not
// accept the credentials.
func fatalOf(ctx context.Context, err error) error {
	answer := apierrors.APIStatus(nil)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &answer), apierrors.IsUnauthorized(err):
		return err
	}
	return nil
}

func mayNotGet(resource schema.GroupVersionResource) string {
	return "you may not get " + resource.GroupResource().String()
}

// existing describes an object. Its former UID is from the journal, because anyone may have written the annotation.
func (s *Server) existing(o metav1.Object) undo.Existing {
	e := undo.Existing{
		UID: o.GetUID(), UndoneFrom: s.journal.From(o.GetUID()),
		Terminating: o.GetDeletionTimestamp() != nil, Owners: o.GetOwnerReferences(),
	}
	if whole, isWhole := o.(*unstructured.Unstructured); isWhole {
		e.VolumeName, _, _ = unstructured.NestedString(whole.Object, "spec", "volumeName")
	}
	return e
}
