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
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// fewGets is the number of names of a kind in a namespace that are read one by one. If there are more, all objects
	// are listed.
	fewGets = 20
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
	survey := s.survey(kinds)
	survey.found.UnreadGroups = unread
	if err := survey.read(ctx, undo.Places(kept, kinds)); err != nil {
		return undo.Cluster{}, err
	}
	return survey.found, survey.readWhole(ctx, survey.found.OtherClaims(kept))
}

type survey struct {
	server *Server

	mu       sync.Mutex
	found    undo.Cluster                              // Existing and Unread are guarded by mu
	whole    map[undo.Place]*unstructured.Unstructured // guarded by mu; of the objects that were read whole
	unlisted []single                                  // guarded by mu; the objects that could not be listed
	tries    map[schema.GroupKind]*tries               // guarded by mu; of single objects
	lists    map[schema.GroupKind]*tries               // guarded by mu; of lists
}

func (s *Server) survey(kinds map[schema.GroupKind]undo.Kind) *survey {
	return &survey{
		server: s, whole: map[undo.Place]*unstructured.Unstructured{}, tries: map[schema.GroupKind]*tries{}, lists: map[schema.GroupKind]*tries{},
		found: undo.Cluster{Kinds: kinds, Existing: map[undo.Place]undo.Existing{}, Unread: map[undo.Place]string{}},
	}
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
	var singles []single
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for in, names := range scopes {
		kind, served := s.found.Kinds[in.kind]
		if !served {
			continue // no object can exist there
		}
		objects := s.server.metadata.Resource(kind.Resource).Namespace(in.namespace)
		if len(names) > fewGets {
			group.Go(func() error { return s.list(reading, listing{in.kind, objects, names}) })
			continue
		}
		for _, p := range names {
			singles = append(singles, metadataOf(objects, p))
		}
	}
	err := group.Wait()
	if err == nil {
		err = s.readSingles(ctx, append(singles, s.unlisted...))
	}
	if err != nil {
		return fmt.Errorf("read the existing objects: %w", err)
	}
	return nil
}

// readWhole reads objects whole that exist: metadata does not have the volumes of claims. An object that cannot be read counts
// as unread.
func (s *survey) readWhole(ctx context.Context, places []undo.Place) error {
	var singles []single
	for _, p := range places {
		s.forget(p)
		singles = append(singles, s.wholeOf(p))
	}
	if err := s.readSingles(ctx, singles); err != nil {
		return fmt.Errorf("read the existing objects: %w", err)
	}
	return nil
}

func (s *survey) forget(p undo.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found.Existing, p)
}

// listing is the objects of a kind in a namespace that are to be listed, by their names.
type listing struct {
	kind    schema.GroupKind
	objects metadata.ResourceInterface
	names   map[string]undo.Place
}

// list lists objects. If other lists of the kind have failed, it leaves them to be read one by one.
func (s *survey) list(ctx context.Context, l listing) error {
	if s.areListsFutile(l.kind) {
		s.unlist(l)
		return nil
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		began := clock.RealClock{}.Now()
		page, err := l.objects.List(ctx, options)
		if err != nil {
			return s.notListed(ctx, l, err, clock.RealClock{}.Since(began))
		}
		for n := range page.Items {
			if p, wanted := l.names[page.Items[n].Name]; wanted {
				s.add(p, &page.Items[n])
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// notListed records that objects could not be listed, after a time, unless no kind can be read.
func (s *survey) notListed(ctx context.Context, l listing, err error, took time.Duration) error {
	if err := fatalOf(ctx, err); err != nil {
		return err
	}
	if !apierrors.IsForbidden(err) { // a right may be for some namespaces only
		s.mu.Lock()
		triesLocked(s.lists, l.kind).fail(err, took)
		s.mu.Unlock()
	}
	s.unlist(l)
	return nil
}

// unlist leaves objects to be read one by one. Those on the pages before a failure are read already.
func (s *survey) unlist(l listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range l.names {
		if _, isRead := s.found.Existing[p]; !isRead {
			s.unlisted = append(s.unlisted, metadataOf(l.objects, p))
		}
	}
}

func (s *survey) areListsFutile(kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return triesLocked(s.lists, kind).areFutile()
}

func (s *survey) add(p undo.Place, o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Existing[p] = s.server.existing(o)
	if whole, isWhole := o.(*unstructured.Unstructured); isWhole {
		s.whole[p] = whole
	}
	triesLocked(s.tries, p.Kind).failures = 0
}

// failed records why a place could not be read, after a time: an object may be there. One kind, such as one whose conversion
// webhook was deleted, does not prevent the undo of the others. Only a 404 about the object says that it is gone: a server that does
// not serve a kind for a moment, or a load balancer, answers 404, too.
func (s *survey) failed(ctx context.Context, p undo.Place, err error, took time.Duration) error {
	if err := fatalOf(ctx, err); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case refusal.IsGone(err, p.Name), apierrors.IsMethodNotSupported(err):
		return nil // objects of a kind that can only be created, such as a review, are not stored
	case !apierrors.IsForbidden(err): // a right may be for some names only
		triesLocked(s.tries, p.Kind).fail(err, took)
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
